// All that a program does first is done by a thread with a stack of 32 KiB, from cuInit on: the session's
// begin, memory, copies of every size, a module, launches, streams, events, a graph, and the end of it all.
// What a program does again and again is done by a thread with the least stack that there is.
//
// device: sim (NVIDIA's driver dies where a thread has 16 KiB)
#include <pthread.h>

#include "driver.h"

enum { STACK = 32 << 10, LEAST = 16 << 10, WORDS = 1 << 18 };

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
    OK(cuStreamSynchronize(NULL)); // a stream that does not wait for this one writes there next
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

static void values(CUdeviceptr at, CUstream stream) {
    enum { COUNT = 64 };
    static CUstreamBatchMemOpParams each[COUNT];
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = context, .count = COUNT, .paramArray = each};
    CUgraph made;
    CUgraphNode node;
    CUgraphExec exec;
    for (unsigned i = 0; i < COUNT; i++) {
        each[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        each[i].writeValue.address = at + 4 * i;
        each[i].writeValue.value = i;
    }
    OK(cuStreamBatchMemOp(stream, COUNT, each, 0));
    OK(cuGraphCreate(&made, 0));
    OK(cuGraphAddBatchMemOpNode(&node, made, NULL, 0, &batch));
    OK(cuGraphInstantiate(&exec, made, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(made));
}

static void *frequent(void *filling) {
    CUstream stream;
    CUevent event;
    CUdeviceptr pooled = 0;
    unsigned count = WORDS, seed = 5;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr to = allocate(sizeof words);
    copies(to, stream);
    values(to, stream);
    OK(cuMemAllocAsync(&pooled, 4096, stream));
    OK(cuMemsetD8Async(pooled, 1, 4096, stream));
    OK(cuMemFreeAsync(pooled, stream));
    OK(LAUNCH((CUfunction)filling, WORDS / 256, 256, stream, &to, &count, &seed));
    OK(cuEventRecord(event, stream));
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    OK(cuStreamQuery(stream));
    OK(cuMemcpyDtoH(words, to, sizeof words));
    digest("filled with the least stack", words, sizeof words);
    OK(cuMemFree(to));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    OK(cuCtxSynchronize());
    return NULL;
}

static void by_thread(size_t stack, void *(*begin)(void *), void *argument) {
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    EXPECT(pthread_attr_setstacksize(&small, stack) == 0);
    int created = pthread_create(&thread, &small, begin, argument);
    EXPECT(created == 0 && pthread_join(thread, NULL) == 0);
    pthread_attr_destroy(&small);
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
    CUfunction fill = kernel("fill");
    OK(LAUNCH(fill, WORDS / 256, 256, stream, &to, &count, &seed));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(words, to, sizeof words));
    EXPECT(words[WORDS - 1] == ((WORDS - 1) ^ seed) * 2654435761u);
    by_thread(LEAST, frequent, fill);
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(to));
    OK(cuModuleUnload(module));
    OK(cuDevicePrimaryCtxRelease(device));
    return unused;
}

int main(void) {
    by_thread(STACK, work, NULL);
    return check_failed;
}
