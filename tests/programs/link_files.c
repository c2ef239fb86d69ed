// Inputs out of files: PTX text, a linked image, files that are missing, empty or no image.
#include <unistd.h>

#include "link.h"

static char path[] = "/tmp/gpuferry-link-XXXXXX";

static void write_file(const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    EXPECT(file && fwrite(data, 1, size, file) == size);
    fclose(file);
}

int main(void) {
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
    FAILS(CUDA_ERROR_INVALID_PTX, cuLinkAddFile(state, CU_JIT_INPUT_FATBINARY, path, 0, NULL, NULL));
    write_file(caller_ptx, strlen(caller_ptx));
    OK(cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL));
    write_file(function_ptx, strlen(function_ptx));
    OK(cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL));
    OK(ADD_PTX(state, variable_ptx, "variable"));
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
