// Inputs out of files and fatbins: PTX text, a fatbin that holds PTX, files that are missing, empty or no
// image.
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

static char path[] = "/tmp/gpuferry-link-XXXXXX";

static void write_file(const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    EXPECT(file && fwrite(data, 1, size, file) == size);
    fclose(file);
}

int main(void) {
    static struct fatbin fatbin;
    CUlinkState state;
    CUmodule loaded;
    void *image;
    size_t size;
    start();
    int file = mkstemp(path);
    close(file);
    OK(cuLinkCreate(0, NULL, NULL, &state));
    FAILS(CUDA_ERROR_FILE_NOT_FOUND,
          cuLinkAddFile(state, CU_JIT_INPUT_PTX, "/no/such/file.ptx", 0, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_IMAGE, cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLinkAddFile(state, CU_JIT_INPUT_PTX, NULL, 0, NULL, NULL));
    write_file(broken_ptx, strlen(broken_ptx));
    FAILS(CUDA_ERROR_INVALID_PTX, cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_IMAGE, cuLinkAddFile(state, CU_JIT_INPUT_FATBINARY, path, 0, NULL, NULL));
    write_file(caller_ptx, strlen(caller_ptx));
    OK(cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL));
    write_file(&fatbin, wrap(&fatbin, function_ptx));
    OK(cuLinkAddFile(state, CU_JIT_INPUT_FATBINARY, path, 0, NULL, NULL));
    size_t wrapped = wrap(&fatbin, variable_ptx);
    OK(cuLinkAddData(state, CU_JIT_INPUT_FATBINARY, &fatbin, wrapped, "fatbin", 0, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_IMAGE,
          cuLinkAddData(state, CU_JIT_INPUT_FATBINARY, &fatbin, wrapped / 2, "fatbin", 0, NULL, NULL));
    OK(cuLinkComplete(state, &image, &size));
    write_file(image, size);
    OK(cuLinkDestroy(state));
    OK(cuModuleLoad(&loaded, path));
    EXPECT(run_go(loaded) == 42);
    OK(cuModuleUnload(loaded));
    OK(cuLinkCreate(0, NULL, NULL, &state));
    OK(cuLinkAddFile(state, CU_JIT_INPUT_CUBIN, path, 0, NULL, NULL));
    OK(cuLinkComplete(state, &image, &size));
    OK(cuModuleLoadData(&loaded, image));
    EXPECT(run_go(loaded) == 42);
    OK(cuLinkDestroy(state));
    unlink(path);
    return check_failed;
}
