// Green contexts: how a device's multiprocessors are split, what is refused, streams and work in parts of
// them, events of all of a context's work, and what is left when one ends.
//
// device: sim how many multiprocessors a GPU puts together differs from card to card
#include "driver.h"

enum { COUNT = 4096 };

static CUdevResource all, groups[3], rest;

static CUresult count_each(CUfunction affine, CUstream stream, CUdeviceptr words) {
    unsigned count = COUNT, one = 1;
    return LAUNCH(affine, COUNT / 256, 256, stream, &words, &count, &one, &one);
}

static void split(void) {
    unsigned count = 0;
    CUdevResource other;
    OK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(all.type == CU_DEV_RESOURCE_TYPE_SM);
    unsigned least = all.sm.minSmPartitionSize, whole = all.sm.smCount;
    int attribute = 0;
    QUIET(cuDeviceGetAttribute(&attribute, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    EXPECT(whole == (unsigned)attribute && least > 0 && least % all.sm.smCoscheduledAlignment == 0);
    OK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 0));
    EXPECT(count == whole / least);
    OK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, least + 1));
    EXPECT(count == whole / (least + all.sm.smCoscheduledAlignment));
    OK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING,
                                   0));
    EXPECT(count == whole / 2);
    count = 3;
    OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, least));
    EXPECT(count == 3 && groups[0].sm.smCount == least && groups[2].sm.smCount == least);
    EXPECT(rest.sm.smCount == whole - 3 * least);
    count = 3;
    OK(cuDevSmResourceSplitByCount(groups, &count, &all, &other, 0, whole / least * least));
    EXPECT(count == 1 && groups[0].sm.smCount == whole / least * least);
    EXPECT(other.type == (whole % least ? CU_DEV_RESOURCE_TYPE_SM : CU_DEV_RESOURCE_TYPE_INVALID));
    count = 3;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplitByCount(groups, &count, &all, NULL, 0, whole + 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplitByCount(groups, &count, &all, NULL, 8, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplitByCount(groups, NULL, &all, NULL, 0, 0));
    FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
          cuDevSmResourceSplitByCount(groups, &count, &rest, NULL, 0, 0));
    memset(&other, 0, sizeof other);
    FAILS(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDevSmResourceSplitByCount(groups, &count, &other, NULL, 0, 0));
    other.type = CU_DEV_RESOURCE_TYPE_SM;
    other.sm.smCount = 16;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplitByCount(groups, &count, &other, NULL, 0, 0));
    OK(cuDeviceGetDevResource(device, &other, CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG));
    EXPECT(other.wqConfig.device == device && other.wqConfig.wqConcurrencyLimit > 0);
    FAILS(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDeviceGetDevResource(device, &other, 7));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDevResource(99, &other, CU_DEV_RESOURCE_TYPE_SM));
}

static void split_as_told(void) {
    CU_DEV_SM_RESOURCE_GROUP_PARAMS told[2] = {{.smCount = 8, .coscheduledSmCount = 2}, {0}};
    CUdevResource parts[2];
    OK(cuDevSmResourceSplit(parts, 2, &all, &rest, 0, told));
    EXPECT(parts[0].sm.smCount == 8 && parts[0].sm.smCoscheduledAlignment == 2);
    EXPECT(told[1].smCount == parts[1].sm.smCount && told[1].coscheduledSmCount == 0);
    EXPECT(parts[1].sm.smCount > 0 && parts[1].sm.smCount + 8 <= all.sm.smCount);
    told[0].smCount = 7;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplit(parts, 2, &all, &rest, 0, told));
    told[0] = (CU_DEV_SM_RESOURCE_GROUP_PARAMS){.smCount = all.sm.smCount / 2 * 2};
    told[1] = (CU_DEV_SM_RESOURCE_GROUP_PARAMS){.smCount = 2, .coscheduledSmCount = 2};
    told[0].flags = CU_DEV_SM_RESOURCE_GROUP_BACKFILL;
    FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevSmResourceSplit(parts, 2, &all, &rest, 0, told));
    told[0].smCount = 8;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplit(parts, 2, &all, &rest, 1, told));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplit(parts, 0, &all, &rest, 0, told));
    told[0] = (CU_DEV_SM_RESOURCE_GROUP_PARAMS){.flags = CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID};
    FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevSmResourceSplit(parts, 1, &all, NULL, 0, told));
    told[0] = (CU_DEV_SM_RESOURCE_GROUP_PARAMS){.smCount = 8, .coscheduledSmCount = 2};
    OK(cuDevSmResourceSplit(parts, 1, &all, &rest, 0, told));
    OK(cuDevSmResourceSplit(parts, 1, &rest, NULL, 0, told));
    FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
          cuDevSmResourceSplit(parts, 1, &parts[0], NULL, 0, told));
}

static void describe(void) {
    CUdevResourceDesc desc = NULL;
    CUgreenCtx green = NULL;
    CUdevResource other[2];
    unsigned count = 3;
    QUIET(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDevResourceGenerateDesc(&desc, groups, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDevResourceGenerateDesc(NULL, groups, 1));
    other[0] = other[1] = groups[0];
    FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevResourceGenerateDesc(&desc, other, 2));
    count = 1;
    QUIET(cuDevSmResourceSplitByCount(&other[1], &count, &all, NULL, 0, 0));
    FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevResourceGenerateDesc(&desc, other, 2));
    memset(other, 0, sizeof other);
    FAILS(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDevResourceGenerateDesc(&desc, other, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, NULL, device, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuDevResourceGenerateDesc(&desc, groups, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, desc, device, 6));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuGreenCtxCreate(&green, desc, 99, CU_GREEN_CTX_DEFAULT_STREAM));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(NULL, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
}

static CUgreenCtx make(CUdevResource *resources, unsigned count) {
    CUdevResourceDesc desc = NULL;
    CUgreenCtx green = NULL;
    OK(cuDevResourceGenerateDesc(&desc, resources, count));
    OK(cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static void check_words(CUdeviceptr words, unsigned wanted) {
    static unsigned found[COUNT];
    int right = 1;
    OK(cuMemcpyDtoH(found, words, sizeof found));
    for (int i = 0; i < COUNT; i++)
        right &= found[i] == wanted;
    EXPECT(right);
}

static void work(CUgreenCtx green, unsigned multiprocessors, CUfunction affine) {
    CUcontext named = NULL, found = NULL;
    CUgreenCtx of = NULL;
    CUdevResource have;
    CUstream stream = NULL, plain = NULL;
    unsigned flags = 0;
    int priority = 1;
    unsigned long long id = 0, again = 0;
    OK(cuGreenCtxGetDevResource(green, &have, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(have.sm.smCount == multiprocessors);
    OK(cuCtxFromGreenCtx(&named, green));
    EXPECT(named != NULL && named != context && (void *)named != (void *)green);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)green));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxGetId(NULL, &id));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0));
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, -99));
    OK(cuStreamGetFlags(stream, &flags));
    OK(cuStreamGetPriority(stream, &priority));
    EXPECT(flags == CU_STREAM_NON_BLOCKING && priority < 0);
    OK(cuStreamGetGreenCtx(stream, &of));
    EXPECT(of == green);
    OK(cuStreamGetCtx(stream, &found));
    EXPECT(found == named);
    OK(cuStreamGetCtx_v2(stream, &found, &of));
    EXPECT(found == context && of == green);
    OK(cuStreamGetGreenCtx(NULL, &of));
    EXPECT(of == NULL);
    OK(cuStreamGetDevResource(stream, &have, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(have.sm.smCount == multiprocessors);
    FAILS(CUDA_ERROR_INVALID_RESOURCE_TYPE,
          cuStreamGetDevResource(stream, &have, CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG));
    FAILS(CUDA_ERROR_INVALID_RESOURCE_TYPE,
          cuStreamGetDevResource(stream, &have, CU_DEV_RESOURCE_TYPE_WORKQUEUE));

    // A kernel of the primary context's module, on its memory, in the green context's stream.
    CUdeviceptr words = allocate(COUNT * 4), more;
    OK(cuMemsetD32Async(words, 7, COUNT, stream));
    OK(count_each(affine, stream, words));
    OK(cuStreamSynchronize(stream));
    check_words(words, 8);

    OK(cuCtxPushCurrent(named));
    OK(cuCtxGetCurrent(&found));
    EXPECT(found == named);
    OK(cuGreenCtxGetId(green, &id));
    OK(cuGreenCtxGetId(NULL, &again));
    EXPECT(id == again);
    OK(cuCtxGetDevResource(named, &have, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(have.sm.smCount == multiprocessors);
    OK(cuStreamGetGreenCtx(NULL, &of));
    EXPECT(of == green);
    OK(cuStreamGetGreenCtx(CU_STREAM_PER_THREAD, &of));
    EXPECT(of == green);
    OK(cuStreamGetCtx(CU_STREAM_PER_THREAD, &found));
    EXPECT(found == named);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamGetCtx_v2(CU_STREAM_PER_THREAD, &found, &of));
    OK(cuStreamCreate(&plain, CU_STREAM_DEFAULT));
    OK(cuStreamGetGreenCtx(plain, &of));
    EXPECT(of == green);
    OK(cuMemAlloc(&more, COUNT * 4));
    OK(cuMemsetD32(more, 1, COUNT));
    OK(count_each(affine, plain, more));
    OK(count_each(affine, NULL, more));
    OK(cuCtxSynchronize());
    check_words(more, 3);
    OK(cuCtxPopCurrent(&found));
    EXPECT(found == named);
    OK(cuStreamDestroy(plain));
    OK(cuMemcpyDtoD(words, more, COUNT * 4)); // memory is the primary context's
    check_words(words, 3);
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(words));
    OK(cuMemFree(more));
}

static void events(CUgreenCtx green, CUgreenCtx other, CUfunction affine) {
    CUevent all_done = NULL, part_done = NULL;
    CUstream streams[3];
    CUdeviceptr words = allocate(COUNT * 4);
    QUIET(cuEventCreate(&all_done, CU_EVENT_DEFAULT));
    QUIET(cuEventCreate(&part_done, CU_EVENT_DISABLE_TIMING));
    QUIET(cuGreenCtxStreamCreate(&streams[0], green, CU_STREAM_NON_BLOCKING, 0));
    QUIET(cuGreenCtxStreamCreate(&streams[1], other, CU_STREAM_NON_BLOCKING, 0));
    QUIET(cuStreamCreate(&streams[2], CU_STREAM_NON_BLOCKING));
    QUIET(cuMemsetD32(words, 0, COUNT));
    QUIET(cuCtxSynchronize());
    for (int round = 0; round < 20; round++) {
        // Each step of the chain is in another context's stream, and nothing else orders them.
        QUIET(count_each(affine, streams[0], words));
        QUIET(cuGreenCtxRecordEvent(green, part_done));
        QUIET(cuGreenCtxWaitEvent(other, part_done));
        QUIET(count_each(affine, streams[1], words));
        QUIET(cuCtxRecordEvent(context, all_done));
        QUIET(cuCtxWaitEvent(context, all_done));
        QUIET(count_each(affine, streams[2], words));
        QUIET(cuCtxRecordEvent(NULL, all_done));
        QUIET(cuGreenCtxWaitEvent(green, all_done));
    }
    // Who waits for one waits for its own work, whatever the primary context has to do.
    CUcontext named = NULL;
    CUdeviceptr flag = allocate(4);
    OK(cuMemsetD32(flag, 0, 1));
    OK(cuCtxSynchronize());
    OK(cuStreamWaitValue32(streams[2], flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuCtxFromGreenCtx(&named, green));
    OK(cuCtxPushCurrent(named));
    OK(cuCtxSynchronize());
    OK(cuCtxPopCurrent(&named));
    OK(cuMemsetD32Async(flag, 1, 1, streams[0]));
    OK(cuStreamSynchronize(streams[2]));
    OK(cuMemFree(flag));
    OK(cuCtxRecordEvent(context, all_done));
    OK(cuEventSynchronize(all_done));
    OK(cuEventQuery(all_done));
    check_words(words, 60);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuCtxRecordEvent(context, (CUevent)streams[0]));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuGreenCtxWaitEvent(green, NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxRecordEvent(NULL, part_done));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxRecordEvent((CUcontext)green, part_done));

    CUgraph graph = NULL;
    OK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuGreenCtxRecordEvent(other, part_done));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGreenCtxRecordEvent(green, part_done));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(streams[0], &graph));
    OK(cuStreamBeginCapture(streams[2], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(part_done, streams[2]));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGreenCtxWaitEvent(green, part_done));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(streams[2], &graph));
    for (int i = 0; i < 3; i++)
        OK(cuStreamDestroy(streams[i]));
    OK(cuEventDestroy(all_done));
    OK(cuEventDestroy(part_done));
    OK(cuMemFree(words));
}

// No more blocks at once than its multiprocessors hold.
static void cooperative(CUgreenCtx green, unsigned multiprocessors, CUfunction affine) {
    CUstream stream = NULL;
    CUdeviceptr words = allocate(COUNT * 4);
    int resident = 0;
    QUIET(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, affine, 256, 0));
    QUIET(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    unsigned most = (unsigned)resident * multiprocessors;
    unsigned count = COUNT, one = 1;
    void *parameters[] = {&words, &count, &one, &one};
    OK(cuLaunchCooperativeKernel(affine, most, 1, 1, 256, 1, 1, 0, stream, parameters));
    FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
          cuLaunchCooperativeKernel(affine, most + 1, 1, 1, 256, 1, 1, 0, stream, parameters));
    OK(cuLaunchCooperativeKernel(affine, most + 1, 1, 1, 256, 1, 1, 0, NULL, parameters));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(words));
}

static void end(CUgreenCtx green) {
    CUcontext named = NULL, found = NULL;
    CUstream stream = NULL;
    CUgreenCtx of = NULL;
    CUdeviceptr kept = 0;
    unsigned value = 0;
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuCtxFromGreenCtx(&named, green));
    OK(cuCtxPushCurrent(named));
    OK(cuMemAlloc(&kept, 4));
    OK(cuMemsetD32(kept, 5, 1));
    OK(cuMemsetD32Async(kept, 5, 1, CU_STREAM_PER_THREAD));
    OK(cuGreenCtxDestroy(green));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemsetD32(kept, 6, 1));
    OK(cuCtxPopCurrent(&found));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(named));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(green));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxFromGreenCtx(&named, green));
    FAILS(CUDA_ERROR_STREAM_DETACHED, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_STREAM_DETACHED, cuStreamGetGreenCtx(stream, &of));
    OK(cuStreamDestroy(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    // The thread's own stream in the primary context is another one.
    OK(cuMemsetD32Async(kept, 5, 1, CU_STREAM_PER_THREAD));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuMemcpyDtoH(&value, kept, 4));
    EXPECT(value == 5);
    OK(cuMemFree(kept));
}

int main(void) {
    start();
    CUfunction affine = kernel("affine");
    split();
    split_as_told();
    describe();
    CUdevResource queue;
    QUIET(cuDeviceGetDevResource(device, &queue, CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG));
    queue.wqConfig.wqConcurrencyLimit = 3;
    queue.wqConfig.sharingScope = CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED;
    CUdevResource parts[3] = {groups[0], queue}, pair[2] = {groups[1], groups[2]}, have;
    OK(cuDeviceGetDevResource(device, &parts[2], CU_DEV_RESOURCE_TYPE_WORKQUEUE)); // as cuda-core asks for it
    EXPECT(parts[2].type == CU_DEV_RESOURCE_TYPE_WORKQUEUE);
    CUgreenCtx green = make(parts, 3), other = make(pair, 2), whole = make(&all, 1);
    OK(cuGreenCtxGetDevResource(green, &have, CU_DEV_RESOURCE_TYPE_WORKQUEUE));
    OK(cuGreenCtxGetDevResource(green, &have, CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG));
    EXPECT(have.wqConfig.wqConcurrencyLimit == 3 &&
           have.wqConfig.sharingScope == CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED);
    work(green, groups[0].sm.smCount, affine);
    work(other, 2 * groups[0].sm.smCount, affine);
    work(whole, all.sm.smCount, affine);
    // A green context's resource may be split again.
    unsigned count = 2;
    OK(cuGreenCtxGetDevResource(other, &have, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(parts, &count, &have, NULL, 0, 0));
    EXPECT(count == 2);
    CUgreenCtx half = make(&parts[1], 1);
    work(half, groups[0].sm.smCount, affine);
    events(green, other, affine);
    cooperative(green, groups[0].sm.smCount, affine);
    end(half);
    end(green);
    end(other);
    // By the name that it has as a context, as the runtime ends one.
    CUcontext named = NULL;
    OK(cuCtxFromGreenCtx(&named, whole));
    CUcontext again = NULL;
    OK(cuCtxFromGreenCtx(&again, (CUgreenCtx)named));
    EXPECT(again == named);
    OK(cuGreenCtxDestroy((CUgreenCtx)named));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxFromGreenCtx(&again, (CUgreenCtx)named));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy((CUgreenCtx)named));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(whole));

    // The primary context takes them along.
    green = make(&all, 1);
    OK(cuDevicePrimaryCtxReset(device));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(green));
    return check_failed;
}
