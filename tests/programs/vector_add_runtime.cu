// A vector sum through the runtime API, as the first program of every CUDA course.
#include "check.h"

__global__ void add(const float *a, const float *b, float *sum, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        sum[i] = a[i] + b[i];
}

int main() {
    constexpr int COUNT = 50000;
    static float a[COUNT], b[COUNT], sum[COUNT];
    for (int i = 0; i < COUNT; i++) {
        a[i] = 0.25f * i;
        b[i] = 3.0f / (i + 1);
    }
    float *da, *db, *dsum;
    RT_OK(cudaMalloc(&da, sizeof a));
    RT_OK(cudaMalloc(&db, sizeof b));
    RT_OK(cudaMalloc(&dsum, sizeof sum));
    RT_OK(cudaMemcpy(da, a, sizeof a, cudaMemcpyHostToDevice));
    RT_OK(cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice));
    add<<<(COUNT + 255) / 256, 256>>>(da, db, dsum, COUNT);
    RT_OK(cudaGetLastError());
    RT_OK(cudaDeviceSynchronize());
    RT_OK(cudaMemcpy(sum, dsum, sizeof sum, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        wrong += sum[i] != a[i] + b[i];
    EXPECT(wrong == 0);
    digest("sum", sum, sizeof sum);
    RT_OK(cudaFree(da));
    RT_OK(cudaFree(db));
    RT_OK(cudaFree(dsum));
    return check_failed;
}
