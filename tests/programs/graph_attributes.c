// Attributes of kernel nodes are read back, copied and refused as those of a launch; every graph, executable
// graph and node has a number of its own; a graph is drawn with what its nodes do.
#include "graphs.h"

#include <unistd.h>

static CUgraphNode add(CUgraph graph, CUdeviceptr data, unsigned factor) {
    unsigned count = 64, term = 1;
    void *arguments[] = {&data, &count, &factor, &term};
    CUDA_KERNEL_NODE_PARAMS params = launch_of(kernel("affine"), 1, 64, arguments);
    CUgraphNode node = NULL;
    QUIET(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    return node;
}

static int holds(const char *path, const char *text) {
    static char content[1 << 16];
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(content, 1, sizeof content - 1, file) : 0;
    content[size] = 0;
    if (file)
        fclose(file);
    return strstr(content, text) != NULL;
}

int main(void) {
    start();
    CUdeviceptr data = allocate(64 * 4);
    CUgraph graph, other;
    CUgraphExec exec, second;
    CUgraphNode first, last, empty;
    CUkernelNodeAttrValue value, read;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&other, 0));
    first = add(graph, data, 2);
    last = add(other, data, 3);
    OK(cuGraphAddEmptyNode(&empty, graph, &first, 1));

    memset(&value, 0, sizeof value);
    value.priority = -1;
    OK(cuGraphKernelNodeGetAttribute(first, CU_LAUNCH_ATTRIBUTE_PRIORITY, &read));
    EXPECT(read.priority == 0);
    OK(cuGraphKernelNodeSetAttribute(first, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    OK(cuGraphKernelNodeGetAttribute(first, CU_LAUNCH_ATTRIBUTE_PRIORITY, &read));
    EXPECT(read.priority == -1);
    OK(cuGraphKernelNodeCopyAttributes(last, first));
    OK(cuGraphKernelNodeGetAttribute(last, CU_LAUNCH_ATTRIBUTE_PRIORITY, &read));
    EXPECT(read.priority == -1);
    memset(&value, 0, sizeof value);
    value.accessPolicyWindow.hitRatio = 2;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuGraphKernelNodeSetAttribute(first, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute(first, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuGraphKernelNodeGetAttribute(empty, CU_LAUNCH_ATTRIBUTE_PRIORITY, &read));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeCopyAttributes(empty, first));

    unsigned ids[2], exec_ids[2];
    unsigned long long tools[2];
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphInstantiate(&second, graph, 0));
    OK(cuGraphGetId(graph, &ids[0]));
    OK(cuGraphGetId(other, &ids[1]));
    OK(cuGraphExecGetId(exec, &exec_ids[0]));
    OK(cuGraphExecGetId(second, &exec_ids[1]));
    OK(cuGraphNodeGetToolsId(first, &tools[0]));
    OK(cuGraphNodeGetToolsId(last, &tools[1]));
    EXPECT(ids[0] != ids[1] && exec_ids[0] != exec_ids[1] && tools[0] != tools[1]);

    char path[] = "/tmp/graph_attributes.XXXXXX";
    int file = mkstemp(path);
    QUIET(cuGraphDebugDotPrint(graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
    EXPECT(holds(path, "digraph dot {") && holds(path, "KERNEL\\naffine\\n<<<(1,1,1),(64,1,1),0>>>"));
    EXPECT(holds(path, "EMPTY") && holds(path, "_node_0\" -> \"graph_"));
    CUDA_MEMCPY3D copy = copy_to_device(data, path, 4);
    CUgraph drawn;
    CUgraphNode copies;
    OK(cuGraphCreate(&drawn, 0));
    OK(cuGraphAddMemcpyNode(&copies, drawn, NULL, 0, &copy, context));
    QUIET(cuGraphDebugDotPrint(drawn, path, 0));
    EXPECT(holds(path, "MEMCPY\\nHtoD\""));
    OK(cuGraphDestroy(drawn));
    close(file);
    unlink(path);

    unsigned word = 5;
    OK(cuMemcpyHtoD(data, &word, 4));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuMemcpyDtoH(&word, data, 4));
    EXPECT(word == 11);

    CUgraphNode child, within;
    CUgraph parent;
    CUgraphExec whole;
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&child, parent, NULL, 0, other));
    OK(cuGraphInstantiate(&whole, parent, 0));
    OK(cuGraphDestroy(other));
    OK(cuGraphCreate(&other, 0));
    within = add(other, data, 4);
    OK(cuGraphExecChildGraphNodeSetParams(whole, child, other));
    OK(cuGraphLaunch(whole, NULL));
    OK(cuMemcpyDtoH(&word, data, 4));
    EXPECT(word == 45);
    OK(cuGraphAddEmptyNode(&empty, other, &within, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecChildGraphNodeSetParams(whole, child, other));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecChildGraphNodeSetParams(whole, child, NULL));
    return check_failed;
}
