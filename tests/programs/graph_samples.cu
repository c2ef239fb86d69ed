// Graphs as users of the runtime have them: the samples' reduction with a function of the program at its end,
// the temporary memory of graphMemoryNodes, and a training step as frameworks capture it: warmed up on a side
// stream, captured with memory that was allocated meanwhile, and replayed with other data in the same place.
#include <cuda_runtime.h>

#include "check.h"

const int SIZE = 1 << 14;

__global__ void reduce(const float *in, double *out, int count) {
    __shared__ double part[128];
    double sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        sum += in[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}

__global__ void total(const double *in, double *out, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += in[i];
    *out = sum;
}

__global__ void step(float *weights, const float *in, float *scratch, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        scratch[i] = in[i] * 2;
        weights[i] += scratch[i];
    }
}

struct finish {
    double *result, sum;
    int calls;
};

static void finished(void *data) {
    finish *f = static_cast<finish *>(data);
    f->sum = *f->result;
    f->calls++;
}

static void reduction(const float *host, cudaStream_t stream) {
    float *in;
    double *parts, *out, result = 0;
    RT_OK(cudaMalloc(&in, SIZE * sizeof *in));
    RT_OK(cudaMalloc(&parts, 64 * sizeof *parts));
    RT_OK(cudaMalloc(&out, sizeof *out));
    finish data = {&result, 0, 0};
    cudaStream_t other, third;
    cudaEvent_t forked, zeroed;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    RT_OK(cudaStreamCreate(&other));
    RT_OK(cudaStreamCreate(&third));
    RT_OK(cudaEventCreate(&forked));
    RT_OK(cudaEventCreate(&zeroed));
    RT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    RT_OK(cudaEventRecord(forked, stream));
    RT_OK(cudaStreamWaitEvent(other, forked, 0));
    RT_OK(cudaStreamWaitEvent(third, forked, 0));
    RT_OK(cudaMemcpyAsync(in, host, SIZE * sizeof *in, cudaMemcpyDefault, stream));
    RT_OK(cudaMemsetAsync(parts, 0, 64 * sizeof *parts, other));
    RT_OK(cudaEventRecord(zeroed, other));
    RT_OK(cudaMemsetAsync(out, 0, sizeof *out, third));
    RT_OK(cudaEventRecord(forked, third));
    RT_OK(cudaStreamWaitEvent(stream, zeroed, 0));
    reduce<<<64, 128, 0, stream>>>(in, parts, SIZE);
    RT_OK(cudaStreamWaitEvent(stream, forked, 0));
    total<<<1, 1, 0, stream>>>(parts, out, 64);
    RT_OK(cudaMemcpyAsync(&result, out, sizeof result, cudaMemcpyDefault, stream));
    RT_OK(cudaLaunchHostFunc(stream, finished, &data));
    RT_OK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    RT_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 7);
    cudaGraph_t clone;
    cudaGraphExec_t cloned;
    RT_OK(cudaGraphInstantiate(&exec, graph, 0));
    RT_OK(cudaGraphClone(&clone, graph));
    RT_OK(cudaGraphInstantiate(&cloned, clone, 0));
    for (int i = 0; i < 3; i++)
        RT_OK(cudaGraphLaunch(exec, stream));
    RT_OK(cudaGraphLaunch(cloned, other));
    RT_OK(cudaStreamSynchronize(stream));
    RT_OK(cudaStreamSynchronize(other));
    double expected = 0;
    for (int i = 0; i < SIZE; i++)
        expected += host[i];
    EXPECT(data.calls == 4 && data.sum == expected);
    RT_OK(cudaGraphExecDestroy(exec));
    RT_OK(cudaGraphExecDestroy(cloned));
    RT_OK(cudaGraphDestroy(graph));
    RT_OK(cudaGraphDestroy(clone));
    RT_OK(cudaFree(in));
}

static void memory_nodes(const float *host, cudaStream_t stream) {
    cudaMemAllocNodeParams params = {};
    params.bytesize = SIZE * sizeof(float);
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t allocation, copy, back, release;
    static float out[SIZE];
    RT_OK(cudaGraphCreate(&graph, 0));
    RT_OK(cudaGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &params));
    RT_OK(cudaGraphAddMemcpyNode1D(&copy, graph, &allocation, 1, params.dptr, host, params.bytesize,
                                   cudaMemcpyHostToDevice));
    RT_OK(cudaGraphAddMemcpyNode1D(&back, graph, &copy, 1, out, params.dptr, params.bytesize,
                                   cudaMemcpyDeviceToHost));
    RT_OK(cudaGraphAddMemFreeNode(&release, graph, &back, 1, params.dptr));
    RT_OK(cudaGraphInstantiate(&exec, graph, 0));
    RT_OK(cudaGraphLaunch(exec, stream));
    RT_OK(cudaStreamSynchronize(stream));
    EXPECT(out[0] == host[0] && out[SIZE - 1] == host[SIZE - 1]);
    RT_OK(cudaDeviceGraphMemTrim(0));
    RT_OK(cudaGraphExecDestroy(exec));
    RT_OK(cudaGraphDestroy(graph));
}

static void training(cudaStream_t stream) {
    float *weights, *in, *scratch, host[64] = {}, out[64];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    RT_OK(cudaMalloc(&weights, sizeof host));
    RT_OK(cudaMalloc(&in, sizeof host));
    RT_OK(cudaMemset(weights, 0, sizeof host));
    RT_OK(cudaMemset(in, 0, sizeof host));
    RT_OK(cudaMalloc(&scratch, sizeof host));
    step<<<1, 64, 0, stream>>>(weights, in, scratch, 64);
    RT_OK(cudaStreamSynchronize(stream));
    RT_OK(cudaFree(scratch));
    RT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; // what an allocator of a framework does
    RT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    RT_OK(cudaMalloc(&scratch, sizeof host));
    RT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    step<<<1, 64, 0, stream>>>(weights, in, scratch, 64);
    RT_OK(cudaStreamEndCapture(stream, &graph));
    RT_OK(cudaGraphInstantiateWithFlags(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    RT_OK(cudaGraphUpload(exec, stream));
    for (int i = 1; i <= 3; i++) {
        for (float &each : host)
            each = static_cast<float>(i);
        RT_OK(cudaMemcpyAsync(in, host, sizeof host, cudaMemcpyHostToDevice, stream));
        RT_OK(cudaGraphLaunch(exec, stream));
    }
    RT_OK(cudaMemcpyAsync(out, weights, sizeof out, cudaMemcpyDeviceToHost, stream));
    RT_OK(cudaStreamSynchronize(stream));
    EXPECT(out[0] == 12 && out[63] == 12);
    RT_OK(cudaGraphExecDestroy(exec));
    RT_OK(cudaGraphDestroy(graph));
}

int main() {
    static float host[SIZE];
    cudaStream_t stream;
    for (int i = 0; i < SIZE; i++)
        host[i] = static_cast<float>(i % 100);
    RT_OK(cudaStreamCreate(&stream));
    reduction(host, stream);
    memory_nodes(host, stream);
    training(stream);
    RT_OK(cudaDeviceSynchronize());
    return check_failed;
}
