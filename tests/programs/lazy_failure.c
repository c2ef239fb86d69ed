// A kernel that does not compile is told once, when it is loaded or launched, and spoils nothing else: what
// is loaded afterwards loads and runs. PTX that is none makes a library all the same, which is good for
// nothing.
//
// device: sim   a GPU's driver compiles when it loads a module, and says of a library when it is used
#include "driver.h"

static const char broken_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                                 ".visible .entry broken(.param .u64 p) {\n  .reg .u32 %r;\n"
                                 "  no.such.instruction.u32 %r, 1;\n  ret;\n}\n";

static const char store_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry set(.param .u64 p) {\n  .reg .u64 %a;\n  .reg .u32 %r;\n"
    "  ld.param.u64 %a, [p];\n  mov.u32 %r, 7;\n  st.global.u32 [%a], %r;\n  ret;\n}\n";

static const char no_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry broken( {\n}\n";

int main(void) {
    start();
    CUmodule bad, loaded[3];
    CUfunction function;
    CUdeviceptr data = allocate(4);
    unsigned value;
    CUresult first = cuModuleLoadData(&bad, broken_ptx), later = CUDA_SUCCESS;
    const int loads = first == CUDA_SUCCESS; // not if kernels are compiled then
    if (loads) {
        OK(cuModuleGetFunction(&function, bad, "broken"));
        first = LAUNCH(function, 1, 1, NULL, &data);
    }
    for (int i = 0; i < 3; i++) {
        OK(cuModuleLoadData(&loaded[i], store_ptx));
        OK(cuModuleGetFunction(&function, loaded[i], "set"));
        OK(cuMemsetD32(data, 0, 1));
        OK(LAUNCH(function, 1, 1, NULL, &data));
        if (i == 0) // at the latest now it is told, where that was not at once
            later = cuCtxSynchronize();
        OK(cuMemcpyDtoH(&value, data, sizeof value));
        EXPECT(value == 7);
    }
    EXPECT((first == CUDA_ERROR_INVALID_PTX) != (later == CUDA_ERROR_INVALID_PTX));
    OK(cuCtxSynchronize());
    CUlibrary library;
    CUkernel kernel;
    CUmodule module_of;
    unsigned count = 0;
    OK(cuLibraryLoadData(&library, no_ptx, NULL, NULL, 0, NULL, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_PTX, cuLibraryGetKernel(&kernel, library, "broken"));
    FAILS(CUDA_ERROR_INVALID_PTX, cuLibraryGetKernelCount(&count, library));
    FAILS(CUDA_ERROR_INVALID_PTX, cuLibraryGetModule(&module_of, library));
    FAILS(CUDA_ERROR_INVALID_PTX, cuLibraryGetGlobal(NULL, &(size_t){0}, library, "word"));
    FAILS(CUDA_ERROR_INVALID_PTX, cuLibraryGetManaged(NULL, &(size_t){0}, library, "word"));
    OK(cuLibraryUnload(library));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library));
    if (loads)
        OK(cuModuleUnload(bad));
    OK(cuModuleUnload(loaded[0]));
    return check_failed;
}
