// Of a launch's attributes a captured kernel keeps those that nodes have, however many others there are. A
// launch that need not wait for the end of what comes before it gets a programmatic edge from kernels, and an
// event that a launch records is a place in the graph.
#include "graphs.h"

enum { THREADS = 64, MANY = 40 };

static CUfunction affine;
static CUdeviceptr data;
static CUstream origin, other;

static CUresult launch(CUstream stream, unsigned factor, CUlaunchAttribute *attributes, unsigned count) {
    unsigned words = THREADS, term = 1;
    CUlaunchConfig configuration = {1, 1, 1, THREADS, 1, 1, 0, stream, attributes, count};
    return cuLaunchKernelEx(&configuration, affine, (void *[]){&data, &words, &factor, &term}, NULL);
}

static unsigned run(CUgraph graph) {
    CUgraphExec exec;
    unsigned value = 0;
    OK(cuMemsetD32(data, 1, THREADS));
    OK(cuCtxSynchronize()); // streams here do not wait for the default one
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, origin));
    OK(cuStreamSynchronize(origin));
    OK(cuMemcpyDtoH(&value, data, 4));
    OK(cuGraphExecDestroy(exec));
    return value;
}

static void edges_of(CUgraph graph, const char *what) {
    CUgraphNode from[4], to[4];
    CUgraphEdgeData edges[4];
    size_t count = 4;
    OK(cuGraphGetEdges(graph, from, to, edges, &count));
    for (size_t i = 0; i < count; i++)
        printf("%s: from port %d, type %d, to port %d\n", what, edges[i].from_port, edges[i].type,
               edges[i].to_port);
}

static void many(void) {
    CUlaunchAttribute attributes[MANY] = {{.id = CU_LAUNCH_ATTRIBUTE_IGNORE}};
    CUgraph graph;
    CUgraphNode node;
    CUkernelNodeAttrValue value = {0}, read;
    size_t count = 1;
    for (int i = MANY / 2; i < MANY; i++) {
        attributes[i].id =
            i % 2 == 0 ? CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW : CU_LAUNCH_ATTRIBUTE_PRIORITY;
        attributes[i].value.priority = i % 2 == 0 ? 0 : -1;
    }
    OK(launch(NULL, 1, attributes, MANY));
    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch(origin, 3, attributes, MANY));
    OK(cuStreamEndCapture(origin, &graph));
    OK(cuGraphGetNodes(graph, &node, &count));
    OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &read));
    EXPECT(read.priority == -1);
    value.priority = -2;
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &read));
    EXPECT(read.priority == -2);
    EXPECT(run(graph) == 4);
    OK(cuGraphDestroy(graph));
}

// A captured kernel has its stream's priority, unless its launch has one of its own.
static void priorities(void) {
    CUlaunchAttribute own = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -1};
    CUkernelNodeAttrValue read;
    CUstream urgent;
    CUgraph graph;
    CUgraphNode nodes[2];
    size_t count = 2;
    int least, greatest;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    OK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest));
    OK(cuStreamBeginCapture(urgent, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch(urgent, 2, NULL, 0));
    OK(launch(urgent, 3, &own, 1));
    OK(cuStreamEndCapture(urgent, &graph));
    OK(cuGraphGetNodes(graph, nodes, &count));
    OK(cuGraphKernelNodeGetAttribute(nodes[0], CU_LAUNCH_ATTRIBUTE_PRIORITY, &read));
    EXPECT(read.priority == greatest);
    OK(cuGraphKernelNodeGetAttribute(nodes[1], CU_LAUNCH_ATTRIBUTE_PRIORITY, &read));
    EXPECT(read.priority == -1);
    EXPECT(run(graph) == 10);

    CUgraphExec by_stream, by_node;
    CUgraphExecUpdateResultInfo info;
    CUgraph plain;
    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch(origin, 2, NULL, 0));
    OK(launch(origin, 3, &own, 1));
    OK(cuStreamEndCapture(origin, &plain));
    OK(cuGraphInstantiate(&by_stream, graph, 0));
    OK(cuGraphInstantiate(&by_node, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    OK(cuGraphExecUpdate(by_stream, plain, &info));
    OK(cuGraphExecUpdate(by_node, graph, &info));
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(by_node, plain, &info));
    EXPECT(info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(cuGraphExecDestroy(by_stream));
    OK(cuGraphExecDestroy(by_node));
    OK(cuGraphDestroy(plain));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(urgent));
}

static void of_launches_alone(void) {
    static const CUlaunchAttributeID ids[] = {
        CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
    unsigned words = THREADS, factor = 2, term = 1;
    void *arguments[] = {&data, &words, &factor, &term};
    CUDA_KERNEL_NODE_PARAMS params = launch_of(affine, 1, THREADS, arguments);
    CUkernelNodeAttrValue value = {0};
    CUgraph graph;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    for (unsigned i = 0; i < sizeof ids / sizeof *ids; i++)
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute(node, ids[i], &value));
    OK(cuGraphDestroy(graph));
}

static void programmatic(void) {
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchAttribute not_early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    CUgraph graph;
    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch(origin, 2, &early, 1));
    OK(launch(origin, 3, &early, 1));
    OK(launch(origin, 5, &not_early, 1));
    OK(cuStreamEndCapture(origin, &graph));
    edges_of(graph, "behind a kernel");
    EXPECT(run(graph) == 51);
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(data, 7, THREADS, origin));
    OK(launch(origin, 2, &early, 1));
    OK(cuStreamEndCapture(origin, &graph));
    edges_of(graph, "behind a fill");
    EXPECT(run(graph) == 15);
    OK(cuGraphDestroy(graph));
}

// An event that waits for a kernel's end is waited for to the end, also by a launch that may begin early, and
// where another event of that kernel is waited for besides.
static void full_beside_early(void) {
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    CUevent begun, ended;
    CUgraph graph;
    OK(cuEventCreate(&begun, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&ended, CU_EVENT_DISABLE_TIMING));
    CUlaunchAttribute records = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
                                 .value.programmaticEvent = {begun, 0, 1}};
    for (int which = 0; which < 3; which++) {
        OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(launch(origin, 2, &records, 1));
        OK(cuEventRecord(ended, origin));
        if (which > 0)
            OK(cuStreamWaitEvent(other, begun, 0));
        OK(cuStreamWaitEvent(other, ended, 0));
        if (which == 2)
            OK(cuMemsetD32Async(data, 3, THREADS, other));
        else
            OK(launch(other, 3, &early, which == 0));
        OK(cuEventRecord(ended, other));
        OK(cuStreamWaitEvent(origin, ended, 0));
        OK(cuStreamEndCapture(origin, &graph));
        CUgraphNode from[4], to[4];
        CUgraphEdgeData edges[4];
        size_t count = 4, plain = 0;
        OK(cuGraphGetEdges(graph, from, to, edges, &count));
        for (size_t i = 0; i < count; i++)
            plain += edges[i].type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
        EXPECT(plain == 1 && count == (which == 1 ? 2 : 1));
        OK(cuGraphDestroy(graph));
    }
    OK(cuEventDestroy(begun));
    OK(cuEventDestroy(ended));
}

static void events(void) {
    CUevent event, timed;
    CUgraph graph;
    unsigned value = 0;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&timed, CU_EVENT_DEFAULT));
    CUlaunchAttribute both[2] = {
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, .value.programmaticEvent = {event, 0, 1}},
        {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT}};
    OK(cuMemsetD32(data, 1, THREADS));
    OK(cuCtxSynchronize()); // streams here do not wait for the default one
    OK(launch(origin, 2, both, 1));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(launch(other, 3, NULL, 0));
    OK(cuStreamSynchronize(other));
    OK(cuMemcpyDtoH(&value, data, 4));
    EXPECT(value == 10);
    OK(cuEventQuery(event));
    both[0].value.programmaticEvent.flags = CU_EVENT_RECORD_EXTERNAL;
    FAILS(CUDA_ERROR_INVALID_VALUE, launch(origin, 2, both, 1));
    FAILS(CUDA_ERROR_INVALID_HANDLE, launch(origin, 2, &both[1], 1));
    both[1].value.launchCompletionEvent.event = timed;
    FAILS(CUDA_ERROR_INVALID_VALUE, launch(origin, 2, &both[1], 1));
    both[1].value.launchCompletionEvent.event = event;
    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch(origin, 2, &both[1], 1));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(launch(other, 3, NULL, 0));
    OK(cuEventRecord(event, other));
    OK(cuStreamWaitEvent(origin, event, 0));
    OK(cuStreamEndCapture(origin, &graph));
    edges_of(graph, "behind the launch of a kernel");
    EXPECT(run(graph) == 10);
    OK(cuGraphDestroy(graph));
    for (int at_start = 0; at_start < 2; at_start++) {
        both[0].value.programmaticEvent = (typeof(both[0].value.programmaticEvent)){event, 0, at_start};
        OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(launch(origin, 2, both, 1));
        OK(cuStreamWaitEvent(other, event, 0));
        if (at_start) // of anything else but kernels the edge is a plain one
            OK(cuMemsetD32Async(data, 3, THREADS, other));
        OK(launch(other, 3, NULL, 0));
        OK(cuEventRecord(event, other));
        OK(cuStreamWaitEvent(origin, event, 0));
        OK(cuStreamEndCapture(origin, &graph));
        edges_of(graph, at_start ? "a fill behind an event" : "behind an event");
        EXPECT(run(graph) == 10);
        OK(cuGraphDestroy(graph));
    }
    both[0].value.programmaticEvent = (typeof(both[0].value.programmaticEvent)){event, 0, 1};
    OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch(origin, 2, both, 1));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(launch(other, 3, NULL, 0));
    OK(cuEventRecord(event, other));
    OK(cuStreamWaitEvent(origin, event, 0));
    OK(cuStreamEndCapture(origin, &graph));
    edges_of(graph, "behind the begin of a kernel");
    OK(cuGraphDestroy(graph));
}

int main(void) {
    start();
    affine = kernel("affine");
    data = allocate(THREADS * 4);
    OK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    many();
    priorities();
    of_launches_alone();
    programmatic();
    full_beside_early();
    events();
    return check_failed;
}
