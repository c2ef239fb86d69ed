// Copy nodes to and from variables of the program: what they refuse, what a launch reads, and updates that
// would make a copy another kind of copy.
#include "check.h"

__device__ int words[4];

int main() {
    cudaGraph_t graph, other;
    cudaGraphExec_t exec;
    cudaGraphNode_t to, from, node;
    int in[4] = {1, 2, 3, 4}, again[4] = {9, 9, 9, 9}, out[2] = {}, *data;
    RT_OK(cudaMalloc(&data, 64));
    RT_OK(cudaGraphCreate(&graph, 0));
    RT_FAILS(cudaErrorInvalidSymbol, cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, nullptr, in, 16,
                                                                    0, cudaMemcpyHostToDevice));
    RT_FAILS(
        cudaErrorInvalidMemcpyDirection,
        cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, words, in, 16, 0, cudaMemcpyDeviceToHost));
    RT_FAILS(cudaErrorInvalidValue,
             cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, words, in, 0, 0, cudaMemcpyHostToDevice));
    RT_FAILS(cudaErrorInvalidValue, cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, words, in, 17, 0,
                                                                   cudaMemcpyHostToDevice));
    RT_OK(cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, words, in, 16, 0, cudaMemcpyHostToDevice));
    RT_OK(cudaGraphAddMemcpyNodeFromSymbol(&from, graph, &to, 1, out, words, 8, 8, cudaMemcpyDeviceToHost));
    RT_OK(cudaGraphInstantiate(&exec, graph, 0));
    RT_OK(cudaGraphLaunch(exec, nullptr));
    RT_OK(cudaDeviceSynchronize());
    EXPECT(out[0] == 3 && out[1] == 4);
    in[2] = 30;
    RT_OK(cudaGraphLaunch(exec, nullptr));
    RT_OK(cudaDeviceSynchronize());
    EXPECT(out[0] == 30);
    RT_OK(cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, to, words, again, 16, 0, cudaMemcpyHostToDevice));
    RT_OK(cudaGraphLaunch(exec, nullptr));
    RT_OK(cudaDeviceSynchronize());
    EXPECT(out[0] == 9);

    RT_CALL(cudaGraphExecMemcpyNodeSetParams1D(exec, from, data, data + 4, 8, cudaMemcpyDeviceToDevice));
    cudaGraphExecUpdateResultInfo info;
    RT_OK(cudaGraphCreate(&other, 0));
    RT_OK(cudaGraphAddMemcpyNode1D(&node, other, nullptr, 0, data, in, 16, cudaMemcpyHostToDevice));
    RT_OK(cudaGraphAddMemcpyNode1D(&node, other, &node, 1, data + 4, data, 8, cudaMemcpyDeviceToDevice));
    RT_FAILS(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, other, &info));
    EXPECT(info.result == cudaGraphExecUpdateErrorParametersChanged && info.errorNode == node);
    for (int i = 0; i < 20; i++)
        RT_QUIET(cudaGraphLaunch(exec, i & 1 ? cudaStreamPerThread : cudaStreamLegacy));
    RT_OK(cudaGraphExecDestroy(exec)); // while it may still run
    RT_OK(cudaGraphDestroy(graph));
    RT_OK(cudaDeviceSynchronize());
    EXPECT(out[0] == 9);
    return check_failed;
}
