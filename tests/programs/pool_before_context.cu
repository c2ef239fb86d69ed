// Pools belong to a device: the first calls of a program may be about one, before anything has made a
// context.
#include "check.h"

__global__ void put(int *where, int value) {
    *where = value;
}

int main() {
    cudaMemPool_t pool, own;
    cudaMemPoolProps properties = {};
    uint64_t threshold = UINT64_MAX, got = 0;
    cudaMemAccessFlags access = cudaMemAccessFlagsProtNone;
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    RT_OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    RT_OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    RT_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &got));
    EXPECT(got == threshold);
    RT_OK(cudaMemPoolGetAccess(&access, pool, &properties.location));
    EXPECT(access == cudaMemAccessFlagsProtReadWrite);
    RT_OK(cudaMemPoolTrimTo(pool, 0));
    RT_OK(cudaMemPoolCreate(&own, &properties));
    RT_OK(cudaMemPoolDestroy(own));

    int *memory, value = 0;
    RT_OK(cudaMallocAsync((void **)&memory, sizeof *memory, 0));
    put<<<1, 1>>>(memory, 9);
    RT_OK(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == 9);
    RT_OK(cudaFreeAsync(memory, 0));
    return check_failed;
}
