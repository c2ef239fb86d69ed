// What a launch, a function, a question about occupancy and a node of a graph may say of clusters, and what a
// kernel then finds.
//
// device: sim, with clusters: it says to be of compute capability 9.0
// suite: clusters
#include <cuda.h>

#include "check.h"

#define KERNEL(name, directives)                                                                             \
    ".visible .entry " name "(.param .u64 to) " directives " {\n"                                            \
    "    .reg .b32 %r<4>; .reg .b64 %x<4>; .shared .align 4 .b8 word[4];\n"                                  \
    "    ld.param.u64 %x0, [to];\n"                                                                          \
    "    mov.u32 %r0, %ctaid.x;\n"                                                                           \
    "    mov.u32 %r1, %cluster_nctarank;\n"                                                                  \
    "    st.shared.u32 [word], %r1;\n"                                                                       \
    "    barrier.cluster.arrive;\n"                                                                          \
    "    barrier.cluster.wait;\n"                                                                            \
    "    sub.u32 %r2, %r1, 1;\n"                                                                             \
    "    mapa.shared::cluster.u32 %r2, word, %r2;\n"                                                         \
    "    ld.shared::cluster.u32 %r1, [%r2];\n"                                                               \
    "    barrier.cluster.arrive;\n"                                                                          \
    "    barrier.cluster.wait;\n"                                                                            \
    "    mad.wide.u32 %x1, %r0, 4, %x0;\n"                                                                   \
    "    st.global.u32 [%x1], %r1;\n"                                                                        \
    "    ret;\n"                                                                                             \
    "}\n"

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n" KERNEL("plain", "")
    KERNEL("pairs", ".reqnctapercluster 2") KERNEL("must", ".explicitcluster")
        KERNEL("few", ".maxclusterrank 4");

enum { BLOCKS = 32 };

static CUdeviceptr words;

static CUlaunchAttribute cluster_of(unsigned x, unsigned y, unsigned z) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    attribute.value.clusterDim.x = x;
    attribute.value.clusterDim.y = y;
    attribute.value.clusterDim.z = z;
    return attribute;
}

static CUlaunchAttribute portable(CUlaunchAttributePortableClusterMode mode) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE};
    attribute.value.portableClusterSizeMode = mode;
    return attribute;
}

// A launch of `blocks` blocks; what the kernel found, or what the launch said.
static void launch(const char *what, CUfunction function, unsigned blocks, CUlaunchAttribute *attributes,
                   unsigned count) {
    CUlaunchConfig config = {blocks, 1, 1, 32, 1, 1, 0, NULL, attributes, count};
    unsigned found[BLOCKS] = {0};
    QUIET(cuMemsetD32(words, 0, BLOCKS));
    CUresult at_once = cuLaunchKernelEx(&config, function, (void *[]){&words}, NULL);
    CUresult later = cuCtxSynchronize();
    QUIET(cuMemcpyDtoH(found, words, sizeof found));
    printf("%s: %d, later %d, clusters of %u\n", what, at_once, later, found[0]);
    int same = 1;
    for (unsigned i = 0; i < BLOCKS; i++)
        same = same && found[i] == (i < blocks ? found[0] : 0);
    EXPECT(same && later == CUDA_SUCCESS && (at_once == CUDA_SUCCESS) == (found[0] != 0));
}

static void launch_cluster(const char *what, CUfunction function, unsigned blocks,
                           CUlaunchAttribute attribute) {
    launch(what, function, blocks, &attribute, 1);
}

static void show(const char *name, CUfunction function) {
    printf("%s:", name);
    for (int id = CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET;
         id <= CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE; id++) {
        int value = -1;
        QUIET(cuFuncGetAttribute(&value, (CUfunction_attribute)id, function));
        printf(" %d", value);
    }
    printf("\n");
}

static void set_required(CUfunction function, int x, int y, int z) {
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, x));
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, y));
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, z));
}

static void occupancy(const char *what, CUfunction function, CUlaunchAttribute *attributes, unsigned count) {
    CUlaunchConfig config = {BLOCKS, 1, 1, 256, 1, 1, 0, NULL, attributes, count};
    int size = -1, clusters = -1;
    CUresult of_size = cuOccupancyMaxPotentialClusterSize(&size, function, &config);
    CUresult of_clusters = cuOccupancyMaxActiveClusters(&clusters, function, &config);
    printf("%s: %d, size %d; %d, clusters %d\n", what, of_size, size, of_clusters, clusters);
}

// What the function may not have at a launch fits nowhere.
static void of_too_much(CUfunction function) {
    CUlaunchConfig config = {BLOCKS, 1, 1, 32, 1, 1, 50 << 10, NULL, NULL, 0};
    int clusters = -1;
    OK(cuOccupancyMaxActiveClusters(&clusters, function, &config));
    EXPECT(clusters == 0);
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50 << 10));
    OK(cuOccupancyMaxActiveClusters(&clusters, function, &config));
    EXPECT(clusters > 0);
}

static void of_no_grid(CUfunction function) {
    CUlaunchConfig config = {1, 0, 1, 256, 1, 1, 0, NULL, NULL, 0};
    int found;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxPotentialClusterSize(&found, function, &config));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxActiveClusters(&found, function, &config));
}

static void graphs(CUfunction plain, CUfunction must) {
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUlaunchAttribute four = cluster_of(4, 1, 1);
    CUlaunchConfig config = {8, 1, 1, 32, 1, 1, 0, NULL, &four, 1};
    CUkernelNodeAttrValue value;
    unsigned found[BLOCKS];
    size_t count = 1;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    config.hStream = stream;
    OK(cuMemsetD32(words, 0, BLOCKS));
    OK(cuCtxSynchronize()); // the stream does not wait for the default one
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuLaunchKernelEx(&config, plain, (void *[]){&words}, NULL));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, &node, &count));
    OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
    EXPECT(value.clusterDim.x == 4 && value.clusterDim.y == 1 && value.clusterDim.z == 1);
    value.clusterDim.x = 3;
    FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE,
          cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
    for (unsigned size = 4; size >= 2; size /= 2) {
        value.clusterDim.x = size;
        OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
        OK(cuGraphInstantiate(&exec, graph, 0));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(found, words, sizeof found));
        EXPECT(found[0] == size && found[7] == size && found[8] == 0);
        OK(cuGraphExecDestroy(exec));
    }
    OK(cuGraphDestroy(graph));

    // A node is told after it was added, a capture brings it along.
    OK(cuGraphCreate(&graph, 0));
    CUDA_KERNEL_NODE_PARAMS params = {.func = must,
                                      .gridDimX = 8,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 32,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&words}};
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(found, words, sizeof found));
    EXPECT(found[0] == 2 && found[7] == 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuLaunchKernelEx(&config, must, (void *[]){&words}, NULL));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
}

static CUgraph new_graph(CUfunction function, unsigned value, unsigned size, CUgraphNode nodes[2]) {
    CUgraph graph = NULL;
    CUcontext context;
    CUDA_MEMSET_NODE_PARAMS fill = {words + 64, 0, value, 4, 1, 1};
    CUDA_KERNEL_NODE_PARAMS params = {.func = function,
                                      .gridDimX = 8,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 32,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&words}};
    CUkernelNodeAttrValue cluster = {.clusterDim = {size, 1, 1}};
    OK(cuCtxGetCurrent(&context));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&nodes[0], graph, NULL, 0, &fill, context));
    OK(cuGraphAddKernelNode(&nodes[1], graph, nodes, 1, &params));
    OK(cuGraphKernelNodeSetAttribute(nodes[1], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster));
    return graph;
}

static void expect(CUgraphExec exec, unsigned value, unsigned size) {
    unsigned found[BLOCKS];
    OK(cuMemsetD32(words, 0, BLOCKS));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuMemcpyDtoH(found, words, sizeof found));
    EXPECT(found[0] == size && found[7] == size && found[16] == value);
}

// An executable graph takes a kernel's attributes from the graph that updates it, and loses nothing by it.
static void updates(CUfunction function) {
    CUgraphNode nodes[2], others[2];
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    CUgraph graph = new_graph(function, 1, 4, nodes), other = new_graph(function, 2, 2, others);
    OK(cuGraphInstantiate(&exec, graph, 0));
    expect(exec, 1, 4);
    OK(cuGraphExecUpdate(exec, other, &info));
    expect(exec, 2, 2);
    OK(cuGraphNodeSetEnabled(exec, nodes[0], 0));
    OK(cuGraphExecUpdate(exec, graph, &info));
    expect(exec, 0, 4);
    OK(cuGraphNodeSetEnabled(exec, nodes[0], 1));
    expect(exec, 1, 4);

    // Six blocks make no clusters of four.
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraphNode six;
    OK(cuGraphKernelNodeGetParams(nodes[1], &params));
    params.gridDimX = 6;
    FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuGraphExecKernelNodeSetParams(exec, nodes[1], &params));
    FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuGraphKernelNodeSetParams(nodes[1], &params));
    OK(cuGraphExecUpdate(exec, graph, &info)); // which has the node as it was
    OK(cuCtxSynchronize());
    expect(exec, 1, 4);
    OK(cuGraphAddKernelNode(&six, other, NULL, 0, &params));
    FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuGraphKernelNodeCopyAttributes(six, nodes[1]));
    OK(cuGraphKernelNodeCopyAttributes(six, others[1]));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(other));
}

int main(void) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction plain, pairs, must, few;
    int has = 0;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, device));
    EXPECT(has == 1);
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&plain, module, "plain"));
    OK(cuModuleGetFunction(&pairs, module, "pairs"));
    OK(cuModuleGetFunction(&must, module, "must"));
    OK(cuModuleGetFunction(&few, module, "few"));
    OK(cuMemAlloc(&words, BLOCKS * sizeof(unsigned)));
    show("plain", plain);
    show("pairs", pairs);
    show("must", must);

    launch("no attribute", plain, 6, NULL, 0);
    launch_cluster("of one", plain, 6, cluster_of(1, 1, 1));
    launch_cluster("of six", plain, 6, cluster_of(6, 1, 1));
    launch_cluster("of eight", plain, 32, cluster_of(8, 1, 1));
    launch_cluster("of none", plain, 6, cluster_of(2, 0, 1));
    launch_cluster("that does not divide", plain, 6, cluster_of(4, 1, 1));
    launch_cluster("in y, where there is one", plain, 6, cluster_of(2, 2, 1));
    launch_cluster("of sixteen", plain, 32, cluster_of(16, 1, 1));
    CUlaunchAttribute large[] = {cluster_of(16, 1, 1),
                                 portable(CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE)};
    launch("of sixteen, by the launch", plain, 32, large, 2);
    OK(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    launch_cluster("of sixteen, by the function", plain, 32, cluster_of(16, 1, 1));
    large[1] = portable(CU_LAUNCH_PORTABLE_CLUSTER_MODE_REQUIRE_PORTABLE);
    launch("of sixteen, which are to be portable", plain, 32, large, 2);
    show("plain", plain);
    OK(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0));

    launch("of two, by the kernel", pairs, 6, NULL, 0);
    launch_cluster("of two, by both", pairs, 6, cluster_of(2, 1, 1));
    launch_cluster("of three, against the kernel", pairs, 6, cluster_of(3, 1, 1));
    launch("seven blocks in pairs", pairs, 7, NULL, 0);
    FAILS(CUDA_ERROR_NOT_PERMITTED, cuFuncSetAttribute(pairs, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4));
    launch("unsaid where it must be said", must, 6, NULL, 0);
    launch_cluster("said where it must be", must, 6, cluster_of(3, 1, 1));
    launch_cluster("of four, of four at most", few, 8, cluster_of(4, 1, 1));
    set_required(plain, 3, 1, 1);
    launch("of three, by the function", plain, 6, NULL, 0);
    launch_cluster("of two, against the function", plain, 6, cluster_of(2, 1, 1));
    OK(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 0));
    launch("of three in two dimensions", plain, 6, NULL, 0);
    set_required(plain, 0, 0, 0);
    launch("of what is said again", plain, 6, NULL, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, -1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 1));

    CUlaunchAttribute two = cluster_of(2, 1, 1), nine = cluster_of(9, 1, 1);
    of_too_much(few);
    of_no_grid(plain);
    occupancy("no attribute", plain, NULL, 0);
    occupancy("of two", plain, &two, 1);
    occupancy("of nine", plain, &nine, 1);
    occupancy("of sixteen", plain, large, 1);
    large[1] = portable(CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE);
    occupancy("of sixteen, by the launch", plain, large, 2);
    occupancy("of two, by the kernel", pairs, NULL, 0);
    graphs(plain, must);
    updates(plain);
    OK(cuModuleUnload(module));
    return check_failed;
}
