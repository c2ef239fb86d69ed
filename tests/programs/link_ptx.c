// PTX texts that need each other are linked, as Numba links: create with logs, add, complete, load, launch.
// The image is an ELF file, belongs to the link, and is good for every way to load it and as the input of
// another link.
#include "link.h"

static unsigned from_library(const void *image) {
    CUlibrary library;
    CUkernel go;
    CUdeviceptr word = allocate(4), shared = 0;
    size_t size = 0;
    unsigned value = 0;
    OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&go, library, "go"));
    OK(cuLibraryGetGlobal(&shared, &size, library, "shared_word"));
    EXPECT(size == 4);
    QUIET(cuMemsetD32(shared, 50, 1));
    QUIET(LAUNCH((CUfunction)go, 1, 1, NULL, &word));
    QUIET(cuMemcpyDtoH(&value, word, 4));
    OK(cuLibraryUnload(library));
    return value;
}

int main(void) {
    struct logs logs;
    CUlinkState state, second;
    CUmodule loaded;
    void *image = NULL, *again = NULL, *relinked = NULL;
    size_t size = 0;
    start();
    prepare(&logs);
    OK(cuLinkCreate(5, logs.options, logs.values, &state));
    OK(ADD_PTX(state, caller_ptx, "caller"));
    OK(ADD_PTX(state, function_ptx, "function"));
    OK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)variable_ptx, strlen(variable_ptx), NULL, 0, NULL,
                     NULL));
    OK(cuLinkComplete(state, &image, &size));
    EXPECT(size > 64 && memcmp(image, "\177ELF", 4) == 0);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLinkComplete(state, &again, NULL));
    EXPECT(again == NULL);

    struct logs loading;
    prepare(&loading);
    OK(cuModuleLoadDataEx(&loaded, image, 5, loading.options, loading.values));
    EXPECT(run_go(loaded) == 42);
    OK(cuModuleUnload(loaded));
    EXPECT(from_library(image) == 100);

    // a copy outlives the link, and is a cubin to another one
    void *copy = malloc(size);
    memcpy(copy, image, size);
    OK(cuLinkDestroy(state));
    OK(cuLinkCreate(0, NULL, NULL, &second));
    OK(cuLinkAddData(second, CU_JIT_INPUT_CUBIN, copy, size, "linked before", 0, NULL, NULL));
    OK(cuLinkComplete(second, &relinked, &size));
    OK(cuModuleLoadData(&loaded, relinked));
    EXPECT(run_go(loaded) == 42);
    OK(cuLinkDestroy(second));
    EXPECT(run_go(loaded) == 42);
    OK(cuModuleUnload(loaded));
    OK(cuModuleLoadData(&loaded, copy));
    EXPECT(run_go(loaded) == 42);
    free(copy);
    return check_failed;
}
