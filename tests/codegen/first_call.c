/* The first runtime call, which makes the runtime look up every driver function. */
#include <cuda_runtime_api.h>

int main(void) {
    int count;
    return cudaGetDeviceCount(&count) == cudaSuccess;
}
