// Graphs made by chance, of kernels, fills, functions of the program, and copies between device, arrays and
// page-locked memory, one behind another, half of them in a child graph; launched again and again while nodes
// are given other parameters and are switched off and on. What they leave in memory is compared between runs.
#include "graphs.h"

enum { REGIONS = 6, WORDS = 256, NODES = 14, HALF = NODES / 2, GRAPHS = 16, LAUNCHES = 4, ROW = 64 };
enum kind { KERNEL, FILL, COPY, FUNCTION };

static uint64_t state;
static CUdeviceptr memory[REGIONS];
static unsigned *host[REGIONS], total;
static CUarray arrays[2];
static CUstream streams[2];
static enum kind kinds[NODES];
static CUgraphNode nodes[NODES];
static CUmemorytype from_types[NODES], to_types[NODES];
static int flat[NODES]; // a copy of one row, which may change

static unsigned chance(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static void CUDA_CB called(void *data) {
    unsigned *words = data;
    total = total * 31 + words[3];
    words[5] += 7;
}

static CUDA_MEMCPY3D copy_between(CUmemorytype from, CUmemorytype to, int flat) {
    unsigned source = chance(REGIONS), target = (source + 1 + chance(REGIONS - 1)) % REGIONS;
    return (CUDA_MEMCPY3D){.srcMemoryType = from,
                           .srcHost = host[source],
                           .srcDevice = memory[source],
                           .srcArray = arrays[source % 2],
                           .srcPitch = ROW,
                           .srcHeight = 4,
                           .dstMemoryType = to,
                           .dstHost = host[target],
                           .dstDevice = memory[target],
                           .dstArray = arrays[(source + 1) % 2],
                           .dstPitch = ROW,
                           .dstHeight = 4,
                           .WidthInBytes = 16 * (1 + chance(3)),
                           .Height = flat ? 1 : 1 + chance(4),
                           .Depth = flat ? 1 : 1 + chance(3)};
}

static void choose_ends(int node) {
    static const CUmemorytype types[] = {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_HOST};
    flat[node] = chance(2);
    from_types[node] = types[chance(3)];
    to_types[node] = types[chance(from_types[node] == CU_MEMORYTYPE_HOST ? 2 : 3)];
}

// Its parameters are by chance; with `exec` those of a node that is there.
// A copy of rows stays what it is, and none comes in place of another one.
static CUresult update_copy(CUgraphExec exec, int node, const CUDA_MEMCPY3D *copy) {
    CUDA_MEMCPY3D now;
    QUIET(cuGraphMemcpyNodeGetParams(nodes[node], &now));
    int rows = now.Height > 1 || now.Depth > 1 || copy->Height > 1 || copy->Depth > 1;
    CUresult result = cuGraphExecMemcpyNodeSetParams(exec, nodes[node], copy, context);
    EXPECT(!rows || result == CUDA_ERROR_INVALID_VALUE);
    return rows ? CUDA_SUCCESS : result;
}

static void set_node(CUgraphExec exec, CUgraph graph, CUgraphNode *after, int node) {
    CUdeviceptr data = memory[chance(REGIONS)];
    unsigned count = WORDS, factor = 1 + chance(9), term = chance(9);
    void *arguments[] = {&data, &count, &factor, &term};
    CUDA_KERNEL_NODE_PARAMS launch = launch_of(kernel("affine"), 1, WORDS, arguments);
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = data + 4 * term, .value = factor, .elementSize = 4, .width = 1 + chance(50), .height = 1};
    CUDA_MEMCPY3D copy = copy_between(from_types[node], to_types[node], flat[node]);
    CUDA_HOST_NODE_PARAMS function = {called, host[chance(REGIONS)]};
    size_t before = after != NULL && *after != NULL;
    switch (kinds[node]) {
    case KERNEL:
        QUIET(exec ? cuGraphExecKernelNodeSetParams(exec, nodes[node], &launch)
                   : cuGraphAddKernelNode(&nodes[node], graph, after, before, &launch));
        break;
    case FILL:
        QUIET(exec ? cuGraphExecMemsetNodeSetParams(exec, nodes[node], &fill, context)
                   : cuGraphAddMemsetNode(&nodes[node], graph, after, before, &fill, context));
        break;
    case COPY:
        QUIET(exec ? update_copy(exec, node, &copy)
                   : cuGraphAddMemcpyNode(&nodes[node], graph, after, before, &copy, context));
        break;
    default:
        QUIET(exec ? cuGraphExecHostNodeSetParams(exec, nodes[node], &function)
                   : cuGraphAddHostNode(&nodes[node], graph, after, before, &function));
    }
}

static void refill(void) {
    CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = host[0],
                        .srcPitch = ROW,
                        .srcHeight = 4,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .WidthInBytes = ROW,
                        .Height = 4,
                        .Depth = 3};
    for (unsigned i = 0; i < REGIONS; i++) {
        QUIET(cuMemsetD32(memory[i], i + 1, WORDS));
        for (unsigned word = 0; word < WORDS; word++)
            host[i][word] = i * 1000 + word;
    }
    for (int i = 0; i < 2; i++) {
        in.dstArray = arrays[i];
        QUIET(cuMemcpy3D(&in));
    }
    QUIET(cuCtxSynchronize());
    total = 0;
}

static void launch(CUgraphExec exec, CUstream stream) {
    unsigned words[2][REGIONS][WORDS];
    QUIET(cuGraphLaunch(exec, stream));
    QUIET(cuStreamSynchronize(stream));
    for (int i = 0; i < REGIONS; i++) {
        QUIET(cuMemcpyDtoH(words[0][i], memory[i], sizeof words[0][i]));
        memcpy(words[1][i], host[i], sizeof words[1][i]);
    }
    digest("memory", words, sizeof words);
    printf("functions: %u\n", total);
}

static void run(unsigned seed) {
    CUgraph graph, child, clone;
    CUgraphNode last[2] = {NULL, NULL}, inner;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    state = seed * 77777 + 1;
    refill();
    unsigned most = COPY + 1 + chance(2); // every other one without functions
    QUIET(cuGraphCreate(&graph, 0));
    QUIET(cuGraphCreate(&child, 0));
    for (int node = 0; node < NODES; node++) {
        int within = node >= HALF;
        kinds[node] = (enum kind)chance(most);
        choose_ends(node);
        set_node(NULL, within ? child : graph, &last[within], node);
        last[within] = nodes[node];
    }
    QUIET(cuGraphAddChildGraphNode(&inner, graph, &last[0], 1, child));
    QUIET(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < LAUNCHES; i++) {
        launch(exec, streams[i % 2]);
        for (int change = 0; change < 3; change++) {
            int node = (int)chance(HALF);
            set_node(exec, NULL, NULL, node);
            if (kinds[node] != FUNCTION)
                QUIET(cuGraphNodeSetEnabled(exec, nodes[node], chance(2)));
        }
        host[chance(REGIONS)][chance(WORDS)] += 5;
    }
    QUIET(cuGraphClone(&clone, graph));
    QUIET(cuGraphExecUpdate(exec, clone, &info));
    launch(exec, streams[0]);
    QUIET(cuGraphExecDestroy(exec));
    QUIET(cuGraphDestroy(clone));
    QUIET(cuGraphDestroy(child));
    QUIET(cuGraphDestroy(graph));
}

int main(void) {
    const CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = ROW / 4, .Height = 4, .Depth = 3, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    start();
    for (int i = 0; i < REGIONS; i++) {
        memory[i] = allocate(WORDS * 4);
        OK(cuMemHostAlloc((void **)&host[i], WORDS * 4, 0));
    }
    for (int i = 0; i < 2; i++) {
        OK(cuArray3DCreate(&arrays[i], &shape));
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    for (unsigned seed = 0; seed < GRAPHS; seed++)
        run(seed);
    expect_it_still_works();
    return check_repeated > 0 || check_failed;
}
