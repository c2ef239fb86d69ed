// Launches as CUDA 2 knew them: the function keeps shape and parameters until the next call that sets them.
//
// compile: -Wno-deprecated-declarations
#include "driver.h"

enum { COUNT = 256 };

static unsigned at(CUdeviceptr data, unsigned index) {
    unsigned values[COUNT];
    OK(cuMemcpyDtoH(values, data, sizeof values));
    return values[index];
}

int main(void) {
    start();
    CUfunction affine = kernel("affine"), none = NULL;
    CUdeviceptr data = allocate(COUNT * sizeof(unsigned));
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32(data, 1, COUNT));

    OK(cuFuncSetBlockShape(affine, 64, 1, 1));
    OK(cuFuncSetSharedSize(affine, 0));
    OK(cuParamSetv(affine, 0, &data, sizeof data));
    OK(cuParamSeti(affine, 8, COUNT));
    OK(cuParamSeti(affine, 12, 3));
    OK(cuParamSeti(affine, 16, 4));
    OK(cuParamSetSize(affine, 20));
    OK(cuLaunch(affine));
    EXPECT(at(data, 63) == 7 && at(data, 64) == 1);
    OK(cuLaunchGrid(affine, COUNT / 64, 1));
    EXPECT(at(data, 63) == 25 && at(data, 64) == 7 && at(data, COUNT - 1) == 7);
    OK(cuParamSeti(affine, 16, 5));
    OK(cuLaunchGridAsync(affine, COUNT / 64, 1, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(at(data, 63) == 80 && at(data, 64) == 26);
    // another kernel of another shape leaves this one's parameters alone
    CUfunction fill = kernel("fill");
    OK(cuFuncSetBlockShape(fill, COUNT, 1, 1));
    OK(cuParamSetv(fill, 0, &data, sizeof data));
    OK(cuParamSeti(fill, 8, COUNT));
    float bits = 1;
    OK(cuParamSetf(fill, 12, bits));
    OK(cuParamSetSize(fill, 16));
    OK(cuLaunch(fill));
    EXPECT(at(data, 5) == (5u ^ 0x3f800000u) * 2654435761u);
    OK(cuMemsetD32(data, 1, COUNT));
    OK(cuLaunch(affine));
    EXPECT(at(data, 0) == 8);

    FAILS(CUDA_ERROR_INVALID_HANDLE, cuFuncSetBlockShape(none, 1, 1, 1));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuParamSetSize(none, 4));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunch(none));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape(affine, 0, 1, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape(affine, 1, -1, 1));
    OK(cuStreamDestroy(stream));

    // Banks of shared memory: devices of today have those of four bytes.
    CUsharedconfig banks = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    OK(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
    OK(cuCtxGetSharedMemConfig(&banks));
    EXPECT(banks == CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE);
    return check_failed;
}
