// What no program may do, and NVIDIA's driver dies of or does something with: handles of graphs, nodes, links
// and libraries that have ended, parameters that are not there. Here each is refused, and nothing is changed.
//
// device: sim   NVIDIA's driver (H200, 580.159.04) does not survive these
// compile: -Wno-deprecated-declarations
#include "graphs.h"
#include "link.h"

static CUdeviceptr data;

static void CUDA_CB nothing(void *unused) {
    (void)unused;
}

static void graphs(void) {
    CUgraph graph;
    CUgraphNode host_node, copy, node;
    CUgraphNodeType type;
    CUgraphExec exec;
    CUDA_KERNEL_NODE_PARAMS launch;
    CUDA_HOST_NODE_PARAMS host = {nothing, NULL};
    OK(cuGraphCreate(&graph, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddChildGraphNode(&node, graph, NULL, 0, graph));
    CUDA_MEM_ALLOC_NODE_PARAMS no_access = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .accessDescCount = 1,
        .bytesize = 64};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&node, graph, NULL, 0, &no_access));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    OK(cuGraphAddHostNode(&host_node, graph, &node, 1, &host));
    OK(cuGraphAddHostNode(&copy, graph, &node, 1, &host));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroyNode(host_node));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(host_node));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(host_node, &type));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecHostNodeSetParams(exec, host_node, &host));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuGraphDestroy(graph));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(node, &type));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams(copy, &launch));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuGraphExecDestroy(exec));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuThreadExchangeStreamCaptureMode(NULL));
}

static void links_and_libraries(void) {
    CUlinkState state;
    CUlibrary library;
    CUdeviceptr global;
    size_t size;
    void *yes = (void *)1;
    OK(cuLinkCreate(0, NULL, NULL, &state));
    OK(cuLinkDestroy(state));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(state));
    FAILS(CUDA_ERROR_INVALID_HANDLE, ADD_PTX(state, caller_ptx, "gone"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, &yes, 1));
    OK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryUnload(library));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetManaged(&global, &size, library, "total"));
}

// What a wait has told is known, and forgotten when what was waited for ends.
static void known_waits(void) {
    CUstream stream;
    CUevent event;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuMemsetD32Async(data, 3, 1, stream));
    OK(cuEventRecord(event, stream));
    OK(cuEventSynchronize(event));
    OK(cuStreamSynchronize(stream));
    OK(cuEventDestroy(event));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
    OK(cuStreamDestroy(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize((CUstream)0x1234));
}

static void legacy_launches(void) {
    CUfunction affine = kernel("affine"), never = kernel("count_up"); // which has no shape
    OK(cuFuncSetBlockShape(affine, 64, 1, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuParamSeti(affine, -4, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuParamSeti(affine, 4094, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuParamSetv(affine, 0, NULL, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuParamSetSize(affine, 4097));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchGrid(affine, 0, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchGrid(affine, 1, -1));
    OK(cuParamSetSize(affine, 0)); // and the kernel has some
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunch(affine));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunch(never));
}

int main(void) {
    unsigned value = 0;
    start();
    data = allocate(64);
    graphs();
    links_and_libraries();
    known_waits();
    legacy_launches();
    OK(cuMemcpyDtoH(&value, data, 4));
    EXPECT(value == 3);
    return check_failed;
}
