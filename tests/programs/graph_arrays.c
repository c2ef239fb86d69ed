// A program of rounds that launches a graph whose copies have an array at one end or both, as captured and as
// added; a copy gets more layers than it had, and another array, and every round sees what it set last.
#include "graphs.h"
#include "rounds.h"

enum { WIDTH = 16, HEIGHT = 4, LAYERS = 3, WORDS = WIDTH * HEIGHT * LAYERS, ROW = WIDTH * 4 };

static unsigned *host, *back;
static CUdeviceptr memory;
static CUarray first, second;
static CUstream stream;

static CUarray new_array(void) {
    const CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = WIDTH,
                                           .Height = HEIGHT,
                                           .Depth = LAYERS,
                                           .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                           .NumChannels = 1};
    CUarray array = NULL;
    OK(cuArray3DCreate(&array, &shape));
    return array;
}

static CUDA_MEMCPY3D volume(void) {
    return (CUDA_MEMCPY3D){.srcPitch = ROW,
                           .srcHeight = HEIGHT,
                           .dstPitch = ROW,
                           .dstHeight = HEIGHT,
                           .WidthInBytes = ROW,
                           .Height = HEIGHT,
                           .Depth = LAYERS};
}

static CUDA_MEMCPY3D into(CUarray array) {
    CUDA_MEMCPY3D copy = volume();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    return copy;
}

static CUDA_MEMCPY3D out_of(CUarray array) {
    CUDA_MEMCPY3D copy = volume();
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array;
    return copy;
}

// Rows 1 and 2 of layers 0 and 1, from the eighth byte on, lie a layer and a row further in the other array.
static CUDA_MEMCPY3D part(CUarray to, CUarray from) {
    CUDA_MEMCPY3D copy = into(to);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = from;
    copy.srcXInBytes = 8;
    copy.srcY = 1;
    copy.dstXInBytes = 4;
    copy.dstY = 2;
    copy.dstZ = 1;
    copy.WidthInBytes = 24;
    copy.Height = copy.Depth = 2;
    return copy;
}

// From the program's memory by the first array and the device's memory to the second, part of it by way of
// both.
static CUgraph captured(void) {
    CUgraph graph = NULL;
    CUDA_MEMCPY3D in = into(first), middle = out_of(first), again = into(second);
    CUDA_MEMCPY3D between = part(second, first);
    in.srcMemoryType = CU_MEMORYTYPE_HOST;
    in.srcHost = host;
    middle.dstMemoryType = again.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    middle.dstDevice = again.srcDevice = memory;
    unsigned count = WORDS, factor = 3, term = 1;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpy3DAsync(&in, stream));
    OK(cuMemcpy3DAsync(&middle, stream));
    OK(LAUNCH(kernel("affine"), 1, WORDS, stream, &memory, &count, &factor, &term));
    OK(cuMemcpy3DAsync(&again, stream));
    OK(cuMemcpy3DAsync(&between, stream));
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

static void expect_round(unsigned seed, unsigned layers) {
    int right = 1;
    for (unsigned i = 0; i < WORDS; i++) {
        unsigned x = i % WIDTH, y = i / WIDTH % HEIGHT, z = i / WIDTH / HEIGHT;
        int is_part = x >= 1 && x < 7 && y >= 2 && z >= 1;
        unsigned from = ((z - 1) * HEIGHT + y - 1) * WIDTH + x + 1;
        unsigned wanted = z >= layers ? 0 : is_part ? seed + from : (seed + i) * 3 + 1;
        right = right && back[i] == wanted;
    }
    EXPECT(right);
}

int main(int argc, char **argv) {
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&host, WORDS * 4, 0));
    OK(cuMemHostAlloc((void **)&back, WORDS * 4, 0));
    memory = allocate(WORDS * 4);
    first = new_array();
    second = new_array();
    CUgraph graph = captured();
    CUgraphNode last, out;
    CUgraphNode nodes[5];
    size_t count = 5;
    OK(cuGraphGetNodes(graph, nodes, &count));
    EXPECT(count == 5);
    last = nodes[4];
    CUDA_MEMCPY3D to_host = out_of(second), told;
    to_host.dstMemoryType = CU_MEMORYTYPE_HOST;
    to_host.dstHost = back;
    to_host.dstPitch = ROW;
    to_host.Depth = 1;
    OK(cuGraphAddMemcpyNode(&out, graph, &last, 1, &to_host, context));
    OK(cuGraphMemcpyNodeGetParams(last, &told));
    EXPECT(told.srcArray == first && told.dstArray == second && told.dstZ == 1);
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphInstantiate(&exec, graph, 0));
    int rounds = rounds_wanted(argc, argv);
    for (int round = 0; round < rounds; round++) {
        begin_round(round);
        to_host.Depth = (size_t)round % LAYERS + 1;
        OK(cuGraphMemcpyNodeSetParams(out, &to_host));
        OK(cuGraphExecUpdate(exec, graph, &info));
        for (unsigned i = 0; i < WORDS; i++)
            host[i] = i + (unsigned)round * 1000;
        memset(back, 0, WORDS * 4);
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        expect_round((unsigned)round * 1000, (unsigned)to_host.Depth);
    }

    CUDA_MEMCPY3D wrong = to_host;
    wrong.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    wrong.srcDevice = memory;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, out, &wrong, context));
    wrong = to_host;
    wrong.srcZ = 1;
    wrong.Depth = LAYERS;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&out, graph, NULL, 0, &wrong, context));
    wrong = into(first);
    wrong.srcMemoryType = CU_MEMORYTYPE_HOST;
    wrong.srcHost = host;
    wrong.WidthInBytes = 6;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&out, graph, NULL, 0, &wrong, context));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return check_failed;
}
