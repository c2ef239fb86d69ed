// All that a program does first is done by a thread with a stack of 32 KiB, from cuInit on: the session's
// begin, memory, copies of every size, a module, launches, streams, events, a graph, and the end of it all.
#include <pthread.h>

#include "driver.h"

enum { STACK = 32 << 10, WORDS = 1 << 18 };

static unsigned words[WORDS];

static void copies(CUdeviceptr to, CUstream stream) {
    for (size_t size = 4; size <= sizeof words; size *= 16) {
        QUIET(cuMemcpyHtoD(to, words, size));
        QUIET(cuMemcpyDtoH(words, to, size));
        QUIET(cuMemcpyHtoDAsync(to, words, size, stream));
        QUIET(cuMemcpyDtoHAsync(words, to, size, stream));
        QUIET(cuStreamSynchronize(stream));
    }
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                         .srcHost = words,
                         .srcPitch = 64,
                         .srcHeight = 16,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = to,
                         .dstPitch = 128,
                         .dstHeight = 16,
                         .WidthInBytes = 64,
                         .Height = 16,
                         .Depth = 16};
    OK(cuMemcpy3D(&box));
    OK(cuMemsetD2D32(to, 128, 5, 16, 256));
}

static void graph(CUdeviceptr to, CUstream stream) {
    CUgraph made, captured;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = to, .elementSize = 4, .value = 7, .width = WORDS, .height = 1};
    OK(cuGraphCreate(&made, 0));
    OK(cuGraphAddMemsetNode(&node, made, NULL, 0, &fill, context));
    OK(cuGraphInstantiate(&exec, made, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(made));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(to, 8, WORDS, stream));
    OK(cuStreamEndCapture(stream, &captured));
    OK(cuGraphInstantiate(&exec, captured, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(captured));
}

static void *work(void *unused) {
    CUstream stream;
    CUevent event;
    CUmodule broken;
    void *host;
    size_t free_bytes, total;
    char name[64];
    start();
    OK(cuDeviceGetName(name, sizeof name, device));
    CUdeviceptr to = allocate(sizeof words);
    OK(cuStreamCreate(&stream, 0));
    OK(cuEventCreate(&event, 0));
    copies(to, stream);
    graph(to, stream);
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(NULL, event, 0));
    OK(cuEventSynchronize(event));
    OK(cuMemcpyDtoH(words, to, sizeof words));
    digest("filled by the graph", words, sizeof words);
    OK(cuMemHostAlloc(&host, 1 << 16, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemFreeHost(host));
    OK(cuMemGetInfo(&free_bytes, &total));
    FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&broken, ".version 7.0\n.target sm_80\n.entry k( {}"));
    unsigned count = WORDS, seed = 3;
    OK(LAUNCH(kernel("fill"), WORDS / 256, 256, stream, &to, &count, &seed));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(words, to, sizeof words));
    EXPECT(words[WORDS - 1] == ((WORDS - 1) ^ seed) * 2654435761u);
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(to));
    OK(cuModuleUnload(module));
    OK(cuDevicePrimaryCtxRelease(device));
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    EXPECT(pthread_attr_setstacksize(&small, STACK) == 0);
    int created = pthread_create(&thread, &small, work, NULL);
    EXPECT(created == 0 && pthread_join(thread, NULL) == 0);
    return check_failed;
}
