/* The first runtime call, which makes the runtime look up every driver function; the driver of this test then
 * fails it. */
#include <cuda_runtime_api.h>

int main(void) {
    int count;
    return cudaGetDeviceCount(&count) == cudaSuccess;
}
