// Fatbins as inputs of a link, out of memory and files: whole, cut short, and as they are made by hand.
//
// device: sim   NVIDIA's driver (H200, 580.159.04) says of these that they are no PTX, and dies of the next
#include <unistd.h>

#include "link.h"

struct fatbin {
    struct {
        unsigned magic;
        unsigned short version, header_size;
        unsigned long size;
    } container;
    struct {
        unsigned short kind, version;
        unsigned header_size;
        unsigned long size;
        unsigned compressed, options;
        unsigned short minor, major;
        unsigned target;
        unsigned char rest[0x40 - 0x20];
    } entry;
    char text[4096];
};

// A container with one entry: PTX, not compressed.
static size_t wrap(struct fatbin *fatbin, const char *text) {
    memset(fatbin, 0, sizeof *fatbin);
    size_t padded = (strlen(text) + 8) / 8 * 8;
    fatbin->container.magic = 0xba55ed50;
    fatbin->container.version = 1;
    fatbin->container.header_size = sizeof fatbin->container;
    fatbin->container.size = sizeof fatbin->entry + padded;
    fatbin->entry.kind = 1;
    fatbin->entry.version = 0x0101;
    fatbin->entry.header_size = sizeof fatbin->entry;
    fatbin->entry.size = padded;
    fatbin->entry.major = 7;
    fatbin->entry.target = 80;
    memcpy(fatbin->text, text, strlen(text));
    return sizeof fatbin->container + fatbin->container.size;
}

int main(void) {
    static struct fatbin fatbin;
    static char path[] = "/tmp/gpuferry-link-XXXXXX";
    struct logs logs;
    CUlinkState state;
    CUmodule loaded;
    void *image;
    size_t size;
    start();
    size_t wrapped = wrap(&fatbin, function_ptx);
    int file = mkstemp(path);
    EXPECT(write(file, &fatbin, wrapped) == (ssize_t)wrapped);
    close(file);
    OK(cuLinkCreate(0, NULL, NULL, &state));
    OK(ADD_PTX(state, caller_ptx, "caller"));
    OK(cuLinkAddFile(state, CU_JIT_INPUT_FATBINARY, path, 0, NULL, NULL));
    unlink(path);
    wrapped = wrap(&fatbin, variable_ptx);
    OK(cuLinkAddData(state, CU_JIT_INPUT_FATBINARY, &fatbin, wrapped, "fatbin", 0, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_IMAGE,
          cuLinkAddData(state, CU_JIT_INPUT_FATBINARY, &fatbin, wrapped / 2, "fatbin", 0, NULL, NULL));
    OK(cuLinkComplete(state, &image, &size));
    OK(cuModuleLoadData(&loaded, image));
    EXPECT(run_go(loaded) == 42);
    OK(cuLinkDestroy(state));

    // what a log that is too small is given ends with a NUL all the same
    overflow(&logs);
    EXPECT((size_t)logs.values[LOG_ERROR_SIZE] == 7 && strlen(logs.error) == 7);
    return check_failed;
}
