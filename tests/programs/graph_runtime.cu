// Graphs through NVIDIA's runtime: captured, built node by node, updated, with memory of their own.
#include <cuda_runtime.h>

#include "check.h"

__global__ void scale(int *data, int count, int factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[i] = data[i] * factor + 1;
}

static void called(void *count) {
    ++*static_cast<int *>(count);
}

int main() {
    const int count = 1000;
    int *data, host[count] = {}, calls = 0;
    cudaStream_t stream, other;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    RT_OK(cudaMalloc(&data, sizeof host));
    RT_OK(cudaStreamCreate(&stream));
    RT_OK(cudaStreamCreate(&other));
    RT_OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    RT_OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));

    RT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    RT_OK(cudaMemsetAsync(data, 0, sizeof host, stream));
    scale<<<10, 100, 0, stream>>>(data, count, 2);
    RT_OK(cudaGetLastError());
    RT_OK(cudaEventRecord(fork, stream));
    RT_OK(cudaStreamWaitEvent(other, fork));
    RT_OK(cudaLaunchHostFunc(other, called, &calls));
    RT_OK(cudaEventRecord(join, other));
    scale<<<10, 100, 0, stream>>>(data, count, 3);
    int *temporary;
    RT_OK(cudaMallocAsync(&temporary, sizeof host, stream));
    RT_OK(cudaMemcpyAsync(temporary, data, sizeof host, cudaMemcpyDeviceToDevice, stream));
    RT_OK(cudaMemcpyAsync(host, temporary, sizeof host, cudaMemcpyDeviceToHost, stream));
    RT_OK(cudaFreeAsync(temporary, stream));
    RT_OK(cudaStreamWaitEvent(stream, join));
    RT_OK(cudaStreamEndCapture(stream, &graph));
    RT_OK(cudaGraphInstantiate(&exec, graph, 0));
    EXPECT(host[0] == 0 && calls == 0);
    cudaGraphNode_t nodes[16];
    size_t nodes_count = 16;
    int kernels = 0;
    RT_OK(cudaGraphGetNodes(graph, nodes, &nodes_count));
    for (size_t i = 0; i < nodes_count; i++) {
        cudaGraphNodeType kind;
        cudaKernelNodeParams captured = {};
        RT_QUIET(cudaGraphNodeGetType(nodes[i], &kind));
        if (kind != cudaGraphNodeTypeKernel)
            continue;
        RT_OK(cudaGraphKernelNodeGetParams(nodes[i], &captured));
        kernels += captured.func == reinterpret_cast<void *>(scale) && captured.blockDim.x == 100;
    }
    EXPECT(nodes_count == 8 && kernels == 2);
    for (int i = 0; i < 2; i++)
        RT_OK(cudaGraphLaunch(exec, stream));
    RT_OK(cudaStreamSynchronize(stream));
    EXPECT(host[0] == 4 && host[count - 1] == 4 && calls == 2);
    RT_OK(cudaGraphExecDestroy(exec));
    RT_OK(cudaGraphDestroy(graph));

    RT_OK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t copy_in, kernel, copy_out;
    for (int i = 0; i < count; i++)
        host[i] = i;
    RT_OK(cudaGraphAddMemcpyNode1D(&copy_in, graph, nullptr, 0, data, host, sizeof host,
                                   cudaMemcpyHostToDevice));
    int size = count, factor = 5;
    void *arguments[] = {&data, &size, &factor};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void *>(scale);
    params.gridDim = dim3(10);
    params.blockDim = dim3(100);
    params.kernelParams = arguments;
    RT_OK(cudaGraphAddKernelNode(&kernel, graph, &copy_in, 1, &params));
    RT_OK(cudaGraphAddMemcpyNode1D(&copy_out, graph, &kernel, 1, host, data, sizeof host,
                                   cudaMemcpyDeviceToHost));
    RT_OK(cudaGraphInstantiate(&exec, graph, 0));
    RT_OK(cudaGraphLaunch(exec, stream));
    RT_OK(cudaStreamSynchronize(stream));
    EXPECT(host[0] == 1 && host[7] == 36);
    factor = 1;
    RT_OK(cudaGraphExecKernelNodeSetParams(exec, kernel, &params));
    RT_OK(cudaGraphLaunch(exec, stream));
    RT_OK(cudaStreamSynchronize(stream));
    EXPECT(host[0] == 2 && host[7] == 37);
    cudaKernelNodeParams read = {};
    RT_OK(cudaGraphKernelNodeGetParams(kernel, &read));
    EXPECT(read.gridDim.x == 10 && read.blockDim.x == 100 && *static_cast<int *>(read.kernelParams[2]) == 5);
    EXPECT(read.func == params.func);
    cudaGraphExecUpdateResultInfo info;
    RT_OK(cudaGraphExecUpdate(exec, graph, &info));
    cudaGraphNodeType type;
    RT_OK(cudaGraphNodeGetType(copy_in, &type));
    EXPECT(type == cudaGraphNodeTypeMemcpy);

    cudaStreamCaptureStatus status;
    RT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    RT_OK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    RT_FAILS(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream));
    cudaGraph_t none = graph;
    RT_FAILS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &none));
    EXPECT(none == nullptr);
    RT_CALL(cudaGetLastError());
    RT_OK(cudaGraphExecDestroy(exec));
    RT_OK(cudaGraphDestroy(graph));
    RT_OK(cudaDeviceSynchronize());
    return check_failed;
}
