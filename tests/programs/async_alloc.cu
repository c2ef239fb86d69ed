// Stream-ordered allocation from the default pool: allocate, use and free without the host waiting.
#include "check.h"

__global__ void affine(unsigned *data, unsigned count, unsigned factor, unsigned term) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[i] = data[i] * factor + term;
}

int main() {
    constexpr unsigned COUNT = 10000, ROUNDS = 50;
    static unsigned host[COUNT];
    cudaStream_t stream;
    unsigned *result, wrong = 0;
    int supported = 0;
    RT_OK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    EXPECT(supported == 1);
    RT_OK(cudaStreamCreate(&stream));
    RT_OK(cudaMallocAsync(&result, sizeof host, stream));
    RT_OK(cudaMemsetAsync(result, 0, sizeof host, stream));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        unsigned *scratch;
        RT_QUIET(cudaMallocAsync(&scratch, sizeof host + round * 4096, stream));
        RT_QUIET(cudaMemcpyAsync(scratch, result, sizeof host, cudaMemcpyDeviceToDevice, stream));
        affine<<<(COUNT + 255) / 256, 256, 0, stream>>>(scratch, COUNT, 3, round);
        RT_QUIET(cudaMemcpyAsync(result, scratch, sizeof host, cudaMemcpyDeviceToDevice, stream));
        RT_QUIET(cudaFreeAsync(scratch, stream));
    }
    RT_OK(cudaMemcpyAsync(host, result, sizeof host, cudaMemcpyDeviceToHost, stream));
    RT_OK(cudaFreeAsync(result, stream));
    RT_OK(cudaStreamSynchronize(stream));
    unsigned expected = 0;
    for (unsigned round = 1; round <= ROUNDS; round++)
        expected = expected * 3 + round;
    for (unsigned word : host)
        wrong += word != expected;
    EXPECT(wrong == 0);
    RT_OK(cudaStreamDestroy(stream));
    return check_failed;
}
