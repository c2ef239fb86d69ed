// Execution contexts of the runtime: the driver's green contexts under the names that they have as contexts.
#include "check.h"

enum { BLOCKS = 64, LOOPS = 1000 };

__global__ void count(int *value) {
    for (int i = 0; i < LOOPS; i++)
        atomicAdd(value, 1);
}

int main() {
    int *value, got = 0, device = -1;
    unsigned groups = 1;
    unsigned long long first = 0, second = 0;
    cudaDevResource all = {}, half = {}, rest = {}, had = {};
    cudaDevResourceDesc_t description;
    cudaExecutionContext_t green, primary;
    cudaStream_t stream;
    cudaEvent_t event;
    RT_OK(cudaMalloc(&value, sizeof *value));
    RT_OK(cudaMemset(value, 0, sizeof *value));
    RT_OK(cudaDeviceSynchronize()); // the stream below does not wait for the default one
    RT_OK(cudaDeviceGetDevResource(0, &all, cudaDevResourceTypeSm));
    RT_OK(cudaDevSmResourceSplitByCount(&half, &groups, &all, &rest, 0, all.sm.smCount / 2));
    RT_OK(cudaDevResourceGenerateDesc(&description, &half, 1));
    RT_OK(cudaGreenCtxCreate(&green, description, 0, 0));
    RT_OK(cudaExecutionCtxGetDevice(&device, green));
    EXPECT(device == 0);
    RT_OK(cudaExecutionCtxGetDevResource(green, &had, cudaDevResourceTypeSm));
    EXPECT(had.sm.smCount == half.sm.smCount);
    RT_OK(cudaDeviceGetExecutionCtx(&primary, 0));
    RT_OK(cudaExecutionCtxGetId(green, &first));
    RT_OK(cudaExecutionCtxGetId(primary, &second));
    EXPECT(first != second);

    RT_OK(cudaExecutionCtxStreamCreate(&stream, green, cudaStreamNonBlocking, 0));
    RT_OK(cudaEventCreate(&event));
    count<<<BLOCKS, 1, 0, stream>>>(value);
    RT_OK(cudaExecutionCtxRecordEvent(green, event));
    RT_OK(cudaExecutionCtxWaitEvent(green, event));
    RT_OK(cudaExecutionCtxSynchronize(green));
    RT_OK(cudaEventQuery(event));
    RT_OK(cudaMemcpy(&got, value, sizeof got, cudaMemcpyDefault));
    EXPECT(got == BLOCKS * LOOPS);
    RT_OK(cudaStreamDestroy(stream));
    RT_OK(cudaEventDestroy(event));
    RT_OK(cudaExecutionCtxDestroy(green));
    RT_CALL(cudaExecutionCtxDestroy(primary));
    RT_OK(cudaFree(value));
    return check_failed;
}
