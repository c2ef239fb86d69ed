// One stream waits for the program while others allocate and work: memory that it has still to free is nobody
// else's, and nobody waits for it, whether it is freed with stream order or its pages would be given back.
#include "check.h"
#include <cuda.h>

enum { OTHERS = 8 };
static const size_t BYTES = 4 << 20;

__global__ void put(int *where, int value) {
    *where = value;
}

// The runtime has no such call.
static CUresult wait_for_one(cudaStream_t stream, CUdeviceptr word) {
    typedef CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    void *function = NULL;
    cudaDriverEntryPointQueryResult found;
    RT_OK(
        cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &function, 12000, cudaEnableDefault, &found));
    return ((wait_value)function)(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ);
}

static void use(int *memory, int value, cudaStream_t stream) {
    int got = 0;
    put<<<1, 1, 0, stream>>>(memory, value);
    RT_QUIET(cudaMemcpyAsync(&got, memory, sizeof got, cudaMemcpyDeviceToHost, stream));
    RT_OK(cudaStreamSynchronize(stream));
    EXPECT(got == value);
}

int main() {
    volatile unsigned *word;
    CUdeviceptr seen;
    cudaStream_t gated, other;
    int *freed, *mine, *plain[OTHERS];
    RT_OK(cudaHostAlloc((void **)&word, 64, cudaHostAllocMapped));
    *word = 0;
    RT_OK(cudaHostGetDevicePointer((void **)&seen, (void *)word, 0));
    RT_OK(cudaStreamCreateWithFlags(&gated, cudaStreamNonBlocking));
    RT_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));

    RT_OK(cudaMallocAsync((void **)&freed, BYTES, gated));
    put<<<1, 1, 0, gated>>>(freed, 1);
    EXPECT(wait_for_one(gated, seen) == CUDA_SUCCESS);
    put<<<1, 1, 0, gated>>>(freed, 2);
    RT_OK(cudaFreeAsync(freed, gated));

    for (int i = 0; i < OTHERS; i++)
        RT_QUIET(cudaMalloc((void **)&plain[i], BYTES));
    use(plain[0], 5, other);
    RT_OK(cudaMallocAsync((void **)&mine, BYTES, other));
    use(mine, 6, other);
    RT_FAILS(cudaErrorNotReady, cudaStreamQuery(gated));

    *word = 1;
    RT_OK(cudaStreamSynchronize(gated));
    use(mine, 7, other);
    RT_OK(cudaFreeAsync(mine, other));
    for (int i = 0; i < OTHERS; i++)
        RT_QUIET(cudaFree(plain[i]));
    RT_OK(cudaDeviceSynchronize());
    return check_failed;
}
