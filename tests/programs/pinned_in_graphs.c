// Page-locked memory in graphs, however the device came to have it: mapped, by a kernel before the graph, by
// the graph's own, or because a node calls it the device's; and registered memory, which it has elsewhere.
#include "graphs.h"

enum { WORDS = 1 << 12, BYTES = WORDS * 4 };

static CUstream stream;
static CUdeviceptr memory;

static int holds(const unsigned *data, unsigned factor, unsigned term) {
    for (unsigned i = 0; i < WORDS; i++)
        if (data[i] != i * factor + term)
            return 0;
    return 1;
}

static void begin(unsigned *data) {
    for (unsigned i = 0; i < WORDS; i++)
        data[i] = i;
}

static void finish(CUgraph graph) {
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

// A graph's kernel writes it, its copies take it from there and bring it back.
static void captured(unsigned *data) {
    unsigned count = WORDS, factor = 2, term = 1;
    CUgraph graph;
    begin(data);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    QUIET(LAUNCH(kernel("affine"), WORDS / 256, 256, stream, &data, &count, &factor, &term));
    OK(cuMemcpyHtoDAsync(memory, data, BYTES, stream));
    QUIET(LAUNCH(kernel("affine"), WORDS / 256, 256, stream, &memory, &count, &factor, &term));
    OK(cuMemcpyDtoHAsync(data, memory, BYTES, stream));
    OK(cuStreamEndCapture(stream, &graph));
    finish(graph);
    EXPECT(holds(data, 4, 3));
}

static void CUDA_CB called(void *count) {
    ++*(unsigned *)count;
}

// A graph is the first to give it to a kernel, and copies to and from the rest of it.
static void made_by_graph(bool calls) {
    unsigned *data, count = 1, factor = 2, term = 1, times = 0, out[2];
    CUgraph graph;
    CUgraphExec exec;
    OK(cuMemHostAlloc((void **)&data, BYTES, 0));
    memset(data, 0, BYTES);
    OK(cuMemsetD32Async(memory, 1, 1, stream));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    QUIET(LAUNCH(kernel("affine"), 1, 1, stream, &data, &count, &factor, &term));
    QUIET(LAUNCH(kernel("affine"), 1, 1, stream, &memory, &count, &factor, &term));
    OK(cuMemcpyDtoHAsync(data + 2, memory, 4, stream));
    OK(cuMemcpyHtoDAsync(memory + 4, data + 4, 4, stream));
    if (calls)
        OK(cuLaunchHostFunc(stream, called, &times));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 1; i <= 2; i++) {
        data[4] = 5 * i;
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(out, memory, sizeof out));
        EXPECT(data[0] == (i == 1 ? 1 : 3) && data[2] == out[0] && out[0] == (i == 1 ? 3 : 7) &&
               out[1] == 5 * i);
    }
    EXPECT(times == (calls ? 2 : 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(data));
}

// What a graph writes there while it is the program's alone comes before what it writes when the device has
// it.
static void in_order(void) {
    const unsigned numbers[] = {1, 2};
    unsigned *data, own = 77;
    CUgraph graph;
    OK(cuMemHostAlloc((void **)&data, BYTES, 0));
    OK(cuMemcpyHtoD(memory, numbers, sizeof numbers));
    OK(cuCtxSynchronize());
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemcpyDtoHAsync(data, memory, 4, stream));
    OK(cuMemcpyAsync((CUdeviceptr)(data + 1), (CUdeviceptr)&own, 4, stream));
    OK(cuMemsetD32Async((CUdeviceptr)(data + 1), 9, 1, stream));
    OK(cuMemcpyDtoHAsync(data, memory + 4, 4, stream));
    OK(cuStreamEndCapture(stream, &graph));
    finish(graph);
    EXPECT(data[0] == 2 && data[1] == 9);
    OK(cuMemFreeHost(data));
}

// A graph's copies that call it the device's.
static void in_nodes(unsigned *data) {
    CUDA_MEMCPY3D out = copy_to_device((CUdeviceptr)data, NULL, BYTES),
                  in = copy_to_device(memory, NULL, BYTES);
    CUgraph graph;
    CUgraphNode first, second;
    OK(cuMemsetD32Async(memory, 3, WORDS, stream));
    OK(cuGraphCreate(&graph, 0));
    out.srcMemoryType = in.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    out.srcDevice = memory;
    in.srcDevice = (CUdeviceptr)data;
    in.WidthInBytes /= 2;
    in.dstDevice += BYTES / 2;
    begin(data);
    OK(cuGraphAddMemcpyNode(&first, graph, NULL, 0, &in, context));
    OK(cuGraphAddMemcpyNode(&second, graph, &first, 1, &out, context));
    finish(graph);
    EXPECT(data[0] == 3 && data[WORDS / 2 - 1] == 3 && data[WORDS - 1] == WORDS / 2 - 1);
}

// A graph that is captured anew each time, when the device has had the memory from the first one on.
static void updated(void) {
    unsigned *data, count = 1, factor = 1, term = 1;
    CUgraph graph;
    CUgraphExec exec = NULL;
    CUgraphExecUpdateResultInfo info;
    OK(cuMemHostAlloc((void **)&data, BYTES, 0));
    memset(data, 0, BYTES);
    for (int i = 0; i < 3; i++) {
        CUdeviceptr word = (CUdeviceptr)(data + 1);
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(cuMemcpyHtoDAsync(memory, data, 4, stream));
        QUIET(LAUNCH(kernel("affine"), 1, 1, stream, &memory, &count, &factor, &term));
        QUIET(LAUNCH(kernel("affine"), 1, 1, stream, &word, &count, &factor, &term));
        OK(cuMemcpyDtoHAsync(data, memory, 4, stream));
        OK(cuStreamEndCapture(stream, &graph));
        if (exec)
            OK(cuGraphExecUpdate(exec, graph, &info));
        else
            OK(cuGraphInstantiate(&exec, graph, 0));
        OK(cuGraphDestroy(graph));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
    }
    EXPECT(data[0] == 3 && data[1] == 3);
    OK(cuGraphExecDestroy(exec));
    OK(cuMemFreeHost(data));
}

// A captured copy of what the device has becomes one of what only the program has, and the other way round.
static void set(bool in) {
    unsigned *data[2], *found = malloc(BYTES), count = WORDS, factor = 2, term = 1, times = 0;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode copy, fill;
    CUDA_MEMCPY3D copies[2];
    const CUDA_MEMSET_NODE_PARAMS none = {.dst = memory, .elementSize = 4, .width = 1, .height = 1};
    size_t one = 1;
    for (int i = 0; i < 2; i++) {
        OK(cuMemHostAlloc((void **)&data[i], BYTES, 0));
        begin(data[i]);
        copies[i] = in ? copy_to_device(memory, data[i], BYTES) : copy_to_host(data[i], memory, BYTES);
    }
    QUIET(LAUNCH(kernel("affine"), WORDS / 256, 256, stream, &data[1], &count, &factor, &term));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(in ? cuMemcpyHtoDAsync(memory, data[1], BYTES, stream)
          : cuMemcpyDtoHAsync(data[1], memory, BYTES, stream));
    OK(cuLaunchHostFunc(stream, called, &times));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetRootNodes(graph, &copy, &one));
    OK(cuGraphAddMemsetNode(&fill, graph, &copy, 1, &none, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphNodeSetEnabled(exec, fill, 0));
    for (unsigned i = 0; i < 4; i++) {
        unsigned *own = data[i % 2];
        OK(cuGraphExecMemcpyNodeSetParams(exec, copy, &copies[i % 2], context));
        OK(cuMemsetD32Async(memory, 7, WORDS, stream));
        begin(own);
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(found, memory, BYTES));
        EXPECT(memcmp(found, own, BYTES) == 0 && own[1] == (in ? 1 : 7) && times == i + 1);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(data[0]));
    OK(cuMemFreeHost(data[1]));
    free(found);
}

int main(void) {
    unsigned *data, *own = malloc(BYTES + 100);
    start();
    memory = allocate(BYTES);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    OK(cuMemHostAlloc((void **)&data, BYTES, 0));
    in_nodes(data);
    captured(data);
    OK(cuMemFreeHost(data));

    OK(cuMemHostAlloc((void **)&data, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    captured(data);
    in_nodes(data);
    OK(cuMemFreeHost(data));

    data = (unsigned *)((char *)own + 20);
    OK(cuMemHostRegister(data, BYTES, 0));
    in_nodes(data);
    OK(cuMemHostUnregister(data));
    free(own);

    made_by_graph(false);
    made_by_graph(true);
    in_order();
    updated();
    set(true);
    set(false);
    return check_failed;
}
