// A kernel that writes a little beyond what it was given, where no other memory is: a GPU maps memory in
// pages of 2 MiB, so nothing comes of it.
#include "check.h"

static const size_t GIVEN = 4096, BEYOND = 64 << 10;

__global__ void write_beyond(unsigned char *end) {
    end[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

static void overrun(unsigned char *memory) {
    RT_OK(cudaMemset(memory, 7, GIVEN));
    write_beyond<<<BEYOND / 256, 256>>>(memory + GIVEN);
    RT_OK(cudaDeviceSynchronize());
    unsigned char kept[GIVEN];
    RT_OK(cudaMemcpy(kept, memory, GIVEN, cudaMemcpyDeviceToHost));
    int same = 1;
    for (unsigned char each : kept)
        same &= each == 7;
    check_fact("what it was given is as it was", same);
}

int main() {
    unsigned char *plain = nullptr, *pooled = nullptr;
    RT_OK(cudaMalloc(&plain, GIVEN));
    overrun(plain);
    RT_OK(cudaMallocAsync(&pooled, GIVEN, 0));
    RT_OK(cudaStreamSynchronize(0));
    overrun(pooled);
    RT_OK(cudaFreeAsync(pooled, 0));
    RT_OK(cudaFree(plain));
    return check_failed;
}
