// One image through both doors, cuModule… and cuLibrary…: kernels, their functions, variables, enumeration.
#include "driver.h"

int main(void) {
    CUlibrary library;
    CUkernel add_kernel, missing;
    CUfunction from_kernel, from_module, nothing;
    CUmodule from_library;
    CUdeviceptr words;
    size_t size = 0, offset = 99, width = 0;
    unsigned kernels = 0, value = 0, sum = 7;
    start();
    CUlibraryOption preserved = CU_LIBRARY_BINARY_IS_PRESERVED, unknown = CU_LIBRARY_NUM_OPTIONS;
    void *yes = (void *)1;
    OK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, &preserved, NULL, 1)); /* it needs no value */
    OK(cuLibraryUnload(library));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, &unknown, &yes, 1));
    OK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, &preserved, &yes, 1));
    OK(cuLibraryUnload(library));
    OK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&add_kernel, library, "store"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&missing, library, "no_such_kernel"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&nothing, module, "no_such_kernel"));
    OK(cuLibraryGetKernelCount(&kernels, library));
    EXPECT(kernels == 12);
    CUkernel all[13] = {NULL};
    OK(cuLibraryEnumerateKernels(all, 13, library));
    EXPECT(all[0] != NULL && all[11] != NULL && all[0] != all[11] && all[12] == NULL);
    CUkernel first = NULL;
    OK(cuLibraryEnumerateKernels(&first, 0, library)); // of none, none
    EXPECT(first == NULL);
    OK(cuLibraryEnumerateKernels(&first, 1, library));
    EXPECT(first == all[0]);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLibraryEnumerateKernels(NULL, 1, library));
    OK(cuKernelGetFunction(&from_kernel, add_kernel));
    OK(cuLibraryGetModule(&from_library, library));
    OK(cuModuleGetFunction(&from_module, from_library, "store"));
    OK(cuLibraryGetGlobal(&words, &size, library, "global_words"));
    EXPECT(size == 256);
    OK(cuKernelGetParamInfo(add_kernel, 1, &offset, &width));
    EXPECT(offset == 8 && width == 4);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuKernelGetParamInfo(add_kernel, 2, &offset, &width));
    OK(cuCtxSetCurrent(NULL)); // no way to load the kernel
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuKernelGetParamInfo(add_kernel, 1, &offset, &width));
    OK(cuCtxSetCurrent(context));
    OK(cuFuncGetParamInfo(from_module, 0, &offset, &width));
    EXPECT(offset == 0 && width == 8);

    CUfunction ways[] = {kernel("store"), from_kernel, from_module, (CUfunction)add_kernel};
    for (unsigned i = 0; i < 4; i++) {
        CUdeviceptr word = words + 4 * i;
        QUIET(LAUNCH(ways[i], 1, 1, NULL, &word, &sum));
        QUIET(cuMemcpyDtoH(&value, word, 4));
        EXPECT(value == sum);
        sum = sum * 3 + 1;
    }
    FAILS(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload(from_library)); // it is its library's
    OK(cuLibraryUnload(library));
    return check_failed;
}
