// An executable graph is given other parameters, whole other graphs, and nodes that are switched off; what
// may not change is refused with CUDA's error.
#include "graphs.h"

enum { WORDS = 64 };

static CUstream stream;
static CUdeviceptr data, other;

static void launch_and_wait(CUgraphExec exec) {
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
}

static unsigned first_after(CUgraphExec exec, CUdeviceptr from) {
    unsigned words[WORDS] = {0};
    QUIET(cuGraphLaunch(exec, stream));
    QUIET(cuStreamSynchronize(stream));
    QUIET(cuMemcpyDtoH(words, from, sizeof words));
    return words[WORDS - 1];
}

// Parameters are asked for once, and set again and again by the pointers that came with them.
static void set_again(CUgraph graph, CUgraphNode affine, CUgraphExec exec) {
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraphExec another;
    void *given[4]; // what came with them is the node's own
    OK(cuGraphKernelNodeGetParams(affine, &params));
    memcpy(given, params.kernelParams, sizeof given);
    params.kernelParams = given;
    for (unsigned term = 1; term < 4; term++) {
        given[3] = &term;
        OK(cuGraphKernelNodeSetParams(affine, &params));
        OK(cuGraphExecKernelNodeSetParams(exec, affine, &params));
        EXPECT(first_after(exec, other) == 8 + term);
    }
    OK(cuGraphInstantiate(&another, graph, 0));
    EXPECT(first_after(another, other) == 6 + 3);
    OK(cuGraphExecDestroy(another));
}

// A copy of several rows or layers changes by an update of the whole graph alone.
static void update_copy(CUgraphExec exec, CUgraph graph, CUgraphNode node, const CUDA_MEMCPY3D *copy) {
    CUgraphExecUpdateResultInfo info;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, node, copy, context));
    OK(cuGraphMemcpyNodeSetParams(node, copy));
    OK(cuGraphExecUpdate(exec, graph, &info));
}

// A copy is given more layers than it had, with gaps between them: the nodes behind it are what they were.
static void more_layers(void) {
    enum { ROW = 16, LAYERS = 3, PART = ROW / 4 * LAYERS };
    CUgraph graph;
    CUgraphNode copy, affine, fill;
    CUgraphExec exec;
    CUdeviceptr from = allocate(256), to = allocate(ROW * LAYERS), word = allocate(4);
    unsigned count = PART, factor = 2, term = 1, found[PART], filled = 0;
    CUDA_MEMCPY3D layers = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = from,
                            .srcPitch = ROW,
                            .srcHeight = 4,
                            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                            .dstDevice = to,
                            .dstPitch = ROW,
                            .dstHeight = 1,
                            .WidthInBytes = ROW,
                            .Height = 1,
                            .Depth = 1};
    void *arguments[] = {&to, &count, &factor, &term};
    CUDA_KERNEL_NODE_PARAMS launch = launch_of(kernel("affine"), 1, PART, arguments);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = word, .value = 9, .elementSize = 4, .width = 1, .height = 1};
    OK(cuMemsetD32(from, 5, 64));
    OK(cuMemsetD32(to, 0, PART));
    OK(cuCtxSynchronize());
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(&copy, graph, NULL, 0, &layers, context));
    OK(cuGraphAddKernelNode(&affine, graph, &copy, 1, &launch));
    OK(cuGraphAddMemsetNode(&fill, graph, &affine, 1, &set, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    layers.Depth = LAYERS;
    update_copy(exec, graph, copy, &layers);
    launch_and_wait(exec);
    OK(cuMemcpyDtoH(found, to, sizeof found));
    OK(cuMemcpyDtoH(&filled, word, 4));
    EXPECT(found[0] == 11 && found[PART - 1] == 11 && filled == 9);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

// A copy in is given the memory that a copy out before it writes.
static void copied_by_way_of_host(void) {
    CUgraph graph;
    CUgraphNode fill, out, in;
    CUgraphExec exec;
    unsigned *by_way, *aside;
    OK(cuMemHostAlloc((void **)&by_way, WORDS * 4, 0));
    OK(cuMemHostAlloc((void **)&aside, WORDS * 4, 0));
    memset(by_way, 0, WORDS * 4);
    memset(aside, 0, WORDS * 4);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = data, .value = 6, .elementSize = 4, .width = WORDS, .height = 1};
    CUDA_MEMCPY3D copy = copy_to_host(by_way, data, WORDS * 4);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&fill, graph, NULL, 0, &set, context));
    OK(cuGraphAddMemcpyNode(&out, graph, &fill, 1, &copy, context));
    copy = copy_to_device(other, aside, WORDS * 4);
    OK(cuGraphAddMemcpyNode(&in, graph, &out, 1, &copy, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(first_after(exec, other) == 0);
    memset(by_way, 0, WORDS * 4);
    copy.srcHost = by_way;
    OK(cuGraphExecMemcpyNodeSetParams(exec, in, &copy, context));
    EXPECT(first_after(exec, other) == 6);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

// A copy within the program's memory is made when the graph comes to it, also one of rows.
static void within_the_program(void) {
    enum { ROWS = 4, PITCH = 24, ROW = 16 };
    static unsigned char first[ROWS * PITCH], second[ROWS * PITCH], third[ROWS * PITCH];
    CUgraph graph;
    CUgraphNode out, within, in;
    CUgraphExec exec;
    CUDA_MEMCPY3D copy = copy_to_host(first, data, sizeof first);
    OK(cuMemsetD8(data, 5, sizeof first));
    OK(cuCtxSynchronize()); // the graph's stream does not wait for the default one
    memset(third, 7, sizeof third);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(&out, graph, NULL, 0, &copy, context));
    CUDA_MEMCPY3D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = first,
                          .srcPitch = PITCH,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = second,
                          .dstPitch = PITCH,
                          .WidthInBytes = ROW,
                          .Height = ROWS,
                          .Depth = 1};
    OK(cuGraphAddMemcpyNode(&within, graph, &out, 1, &rows, context));
    copy = copy_to_device(other, second, sizeof first);
    OK(cuGraphAddMemcpyNode(&in, graph, &within, 1, &copy, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    launch_and_wait(exec);
    OK(cuMemcpyDtoH(third, other, sizeof third));
    EXPECT(third[0] == 5 && third[ROW - 1] == 5 && third[ROW] == 0 && third[3 * PITCH + ROW - 1] == 5);
    OK(cuGraphNodeSetEnabled(exec, within, 0));
    memset(second, 9, sizeof second);
    launch_and_wait(exec);
    EXPECT(second[0] == 9);
    rows.dstHost = third;
    update_copy(exec, graph, within, &rows);
    OK(cuGraphNodeSetEnabled(exec, within, 1));
    memset(third, 1, sizeof third);
    launch_and_wait(exec);
    EXPECT(second[0] == 9 && third[0] == 5 && third[ROW] == 1 && third[3 * PITCH] == 5);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemcpyAsync((CUdeviceptr)second, (CUdeviceptr)third, sizeof third, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    launch_and_wait(exec);
    EXPECT(memcmp(second, third, sizeof third) == 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

// A larger copy may need memory where the graph runs. Without it the graph copies what it did.
static void without_memory(void) {
    enum { MOST = 256, LARGE = 8 << 20 };
    static CUdeviceptr blocks[MOST];
    static unsigned char source[LARGE];
    CUgraph graph;
    CUgraphNode in;
    CUgraphExec exec;
    unsigned taken = 0;
    CUdeviceptr target = allocate(LARGE), beside = allocate(LARGE);
    memset(source, 7, sizeof source);
    OK(cuMemsetD32(beside, 3, LARGE / 4));
    CUDA_MEMCPY3D copy = copy_to_device(data, source, WORDS * 4);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(&in, graph, NULL, 0, &copy, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (size_t size = (size_t)1 << 30; size >= 1 << 20; size /= 2)
        while (taken < MOST && cuMemAlloc(&blocks[taken], size) == CUDA_SUCCESS)
            taken++;
    EXPECT(taken < MOST);
    copy.dstDevice = target;
    copy.WidthInBytes = LARGE;
    CUresult result = cuGraphExecMemcpyNodeSetParams(exec, in, &copy, context);
    EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(first_after(exec, result == CUDA_SUCCESS ? target : data) == 0x07070707);
    unsigned found[2] = {0};
    OK(cuMemcpyDtoH(&found[0], beside, 4));
    OK(cuMemcpyDtoH(&found[1], beside + LARGE - 4, 4));
    EXPECT(found[0] == 3 && found[1] == 3);
    while (taken > 0)
        QUIET(cuMemFree(blocks[--taken]));
    OK(cuGraphExecMemcpyNodeSetParams(exec, in, &copy, context));
    EXPECT(first_after(exec, target + LARGE - WORDS * 4) == 0x07070707);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(target));
    OK(cuMemFree(beside));
}

// Copies and fills stay in the context that they work in.
// Of operations on words addresses, values and what is waited for may change, and nothing else.
static void other_words(void) {
    CUstreamBatchMemOpParams words[2] = {
        {.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, data, {0}, CU_STREAM_WAIT_VALUE_GEQ, 0}},
        {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, data, {1}, 0, 0}}};
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = context, .count = 2, .paramArray = words};
    CUgraph graph, changed;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    CUgraphNode node, another;
    unsigned value = 0;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &batch));
    OK(cuGraphInstantiate(&exec, graph, 0));
    words[0].waitValue.flags = CU_STREAM_WAIT_VALUE_NOR;
    words[1].writeValue.value = 9;
    OK(cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch));
    batch.count = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch));
    OK(cuGraphCreate(&changed, 0));
    OK(cuGraphAddBatchMemOpNode(&another, changed, NULL, 0, &batch));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, changed, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED && info.errorNode == another);
    batch.count = 2;
    words[0].waitValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    words[0].waitValue.flags = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch));
    words[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    words[1].writeValue.flags = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuMemcpyDtoH(&value, data, 4));
    EXPECT(value == 9);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(changed));
}

static void in_another_context(void) {
    CUcontext another;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExecUpdateResultInfo info;
    CUDA_MEMSET_NODE_PARAMS set = {.dst = data, .value = 3, .elementSize = 4, .width = WORDS, .height = 1};
    CUDA_MEMCPY3D within = copy_on_device(other, data, WORDS * 4);
    CUgraphExec fills, copies;
    CUgraph of_fills, of_copies;
    OK(cuGraphCreate(&of_fills, 0));
    OK(cuGraphAddMemsetNode(&node, of_fills, NULL, 0, &set, context));
    OK(cuGraphInstantiate(&fills, of_fills, 0));
    OK(cuGraphCreate(&of_copies, 0));
    OK(cuGraphAddMemcpyNode(&node, of_copies, NULL, 0, &within, context));
    OK(cuGraphInstantiate(&copies, of_copies, 0));
    OK(cuCtxCreate(&another, NULL, 0, device));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, another));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(fills, graph, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED && info.errorNode == node);
    OK(cuGraphDestroy(graph));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &within, another));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(copies, graph, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED && info.errorNode == node);
    OK(cuGraphExecUpdate(copies, of_copies, &info));
    // Kernels of two contexts do not share attributes either.
    CUmodule loaded;
    CUfunction functions[2] = {kernel("count_up")};
    CUgraphNode kernels[2];
    OK(cuModuleLoadData(&loaded, kernels_ptx));
    OK(cuModuleGetFunction(&functions[1], loaded, "count_up"));
    for (int i = 0; i < 2; i++) {
        CUDA_KERNEL_NODE_PARAMS launch = launch_of(functions[i], 1, 1, (void *[]){&data});
        OK(cuGraphAddKernelNode(&kernels[i], graph, NULL, 0, &launch));
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeCopyAttributes(kernels[0], kernels[1]));
    OK(cuCtxDestroy(another));
    OK(cuCtxSetCurrent(context));
    OK(cuGraphExecDestroy(fills));
    OK(cuGraphExecDestroy(copies));
}

int main(void) {
    start();
    CUgraph graph, changed, longer;
    CUgraphNode fill, affine, copy, extra, node;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    unsigned count = WORDS, factor = 2, term = 1, enabled = 9;
    unsigned host[WORDS];
    data = allocate(WORDS * 4);
    other = allocate(WORDS * 4);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS set = {.dst = data, .value = 3, .elementSize = 4, .width = WORDS, .height = 1};
    void *arguments[] = {&data, &count, &factor, &term};
    CUDA_KERNEL_NODE_PARAMS launch = launch_of(kernel("affine"), 1, WORDS, arguments);
    CUDA_MEMCPY3D within = copy_on_device(other, data, WORDS * 4);
    OK(cuGraphAddMemsetNode(&fill, graph, NULL, 0, &set, context));
    OK(cuGraphAddKernelNode(&affine, graph, &fill, 1, &launch));
    OK(cuGraphAddMemcpyNode(&copy, graph, &affine, 1, &within, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(first_after(exec, other) == 7);

    factor = 10;
    OK(cuGraphExecKernelNodeSetParams(exec, affine, &launch));
    EXPECT(first_after(exec, other) == 31);
    set.value = 4;
    OK(cuGraphExecMemsetNodeSetParams(exec, fill, &set, context));
    EXPECT(first_after(exec, other) == 41);
    OK(cuGraphNodeSetEnabled(exec, affine, 0));
    OK(cuGraphNodeGetEnabled(exec, affine, &enabled));
    EXPECT(enabled == 0 && first_after(exec, other) == 4);
    OK(cuGraphNodeSetEnabled(exec, affine, 1));
    EXPECT(first_after(exec, other) == 41);
    set_again(graph, affine, exec);

    // Another graph of the same shape.
    OK(cuGraphClone(&changed, graph));
    OK(cuGraphNodeFindInClone(&node, affine, changed));
    term = 5;
    OK(cuGraphKernelNodeSetParams(node, &launch));
    OK(cuGraphExecUpdate(exec, changed, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    EXPECT(first_after(exec, other) == 35);

    more_layers();
    copied_by_way_of_host();
    within_the_program();
    without_memory();
    in_another_context();
    other_words();
    EXPECT(first_after(exec, other) == 35);

    // What may not change.
    OK(cuGraphClone(&longer, graph));
    OK(cuGraphAddEmptyNode(&extra, longer, NULL, 0));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, longer, &info));
    EXPECT(info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, fill, &launch));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, extra, &launch));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, extra, 0));
    within.dstMemoryType = CU_MEMORYTYPE_HOST;
    within.dstHost = host;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, copy, &within, context));
    EXPECT(first_after(exec, other) == 35);

    // Misuse.
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&longer, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, graph, (CUgraphNode[]){fill, fill}, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, graph, &extra, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &fill, &affine, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &fill, &fill, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &fill, &copy, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams(fill, &launch));
    OK(cuGraphAddDependencies(graph, &copy, &fill, NULL, 1));
    CUgraphExec none;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&none, graph, 0)); // a cycle
    OK(cuGraphDestroyNode(copy));
    OK(cuGraphDestroy(graph));
    OK(cuGraphExecDestroy(exec));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(exec));
    return check_failed;
}
