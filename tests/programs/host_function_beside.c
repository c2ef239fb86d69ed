// While a function of the program runs in a stream, calls of every kind are made, of which some wait for the
// device: the function returns, and so do they.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "driver.h"

#define PAGE 4096

static atomic_int begun;
static CUstream stream, other;

static void CUDA_CB work(void *data) {
    (void)data;
    atomic_fetch_add(&begun, 1);
    usleep(10000);
}

static void begin_work(void) {
    const int before = atomic_load(&begun);
    QUIET(cuLaunchHostFunc(stream, work, NULL));
    while (atomic_load(&begun) == before)
        usleep(100);
}

#define BESIDE(call) (begin_work(), OK(call))

static void arrays(void) {
    CUarray array;
    CUmipmappedArray mipmap;
    CUtexObject texture;
    const CUDA_ARRAY_DESCRIPTOR flat = {16, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    const CUDA_ARRAY3D_DESCRIPTOR pyramid = {16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    const CUDA_TEXTURE_DESC how = {0};
    BESIDE(cuArrayCreate(&array, &flat));
    BESIDE(cuMipmappedArrayCreate(&mipmap, &pyramid, 3));
    const CUDA_RESOURCE_DESC what = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    BESIDE(cuTexObjectCreate(&texture, &what, &how, NULL));
    BESIDE(cuTexObjectDestroy(texture));
    BESIDE(cuArrayDestroy(array));
    BESIDE(cuMipmappedArrayDestroy(mipmap));
}

static void memory(void) {
    static _Alignas(PAGE) char page[2 * PAGE];
    CUdeviceptr plain, pitched, ordered, managed;
    CUmemoryPool pool, before;
    size_t pitch, left, total;
    void *locked;
    const CUmemPoolProps pinned = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    BESIDE(cuMemAllocHost(&locked, PAGE));
    BESIDE(cuMemHostRegister(page, sizeof page, 0));
    BESIDE(cuMemAlloc(&plain, 4 << 20));
    BESIDE(cuMemAllocPitch(&pitched, &pitch, 100, 10, 4));
    BESIDE(cuMemAllocManaged(&managed, 65536, CU_MEM_ATTACH_GLOBAL));
    BESIDE(cuMemAllocAsync(&ordered, PAGE, other));
    BESIDE(cuMemGetInfo(&left, &total));
    BESIDE(cuMemcpyHtoD(plain, page, sizeof page));
    BESIDE(cuMemcpyDtoH(page, plain, sizeof page));
    BESIDE(cuMemcpyDtoHAsync(page, plain, sizeof page, other));
    BESIDE(cuMemcpyDtoD(pitched, plain, 64));
    BESIDE(cuMemsetD8(plain, 1, 64));
    BESIDE(cuMemFreeAsync(ordered, other));
    BESIDE(cuMemPoolCreate(&pool, &pinned));
    BESIDE(cuDeviceGetMemPool(&before, device));
    BESIDE(cuMemPoolTrimTo(before, 0));
    BESIDE(cuMemPoolDestroy(pool));
    BESIDE(cuMemFree(managed));
    BESIDE(cuMemFree(pitched));
    BESIDE(cuMemFree(plain));
    BESIDE(cuMemHostUnregister(page));
    BESIDE(cuMemFreeHost(locked));
}

static void mappings(void) {
    const CUmemAllocationProp pinned = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {pinned.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    const size_t size = 2 << 20;
    BESIDE(cuMemAddressReserve(&range, size, 0, 0, 0));
    BESIDE(cuMemCreate(&handle, size, &pinned, 0));
    BESIDE(cuMemMap(range, size, 0, handle, 0));
    BESIDE(cuMemSetAccess(range, size, &access, 1));
    BESIDE(cuMemUnmap(range, size));
    BESIDE(cuMemRelease(handle));
    BESIDE(cuMemAddressFree(range, size));
}

static void graphs(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    BESIDE(cuGraphCreate(&graph, 0));
    BESIDE(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    BESIDE(cuGraphInstantiate(&exec, graph, 0));
    BESIDE(cuGraphLaunch(exec, other));
    BESIDE(cuGraphExecDestroy(exec));
    BESIDE(cuGraphDestroy(graph));
    BESIDE(cuDeviceGraphMemTrim(device));
}

static void code(void) {
    CUmodule again;
    CUlibrary library;
    CUkernel count_up;
    CUfunction function;
    const CUdeviceptr counter = allocate(4);
    BESIDE(cuModuleLoadData(&again, kernels_ptx));
    BESIDE(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    BESIDE(cuLibraryGetKernel(&count_up, library, "count_up"));
    BESIDE(cuKernelGetFunction(&function, count_up));
    BESIDE(LAUNCH(function, 1, 1, other, &(CUdeviceptr){counter}));
    BESIDE(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    BESIDE(cuLibraryUnload(library));
    BESIDE(cuModuleUnload(again));
    BESIDE(cuMemFree(counter));
}

static void contexts(void) {
    CUcontext second;
    CUevent event;
    BESIDE(cuEventCreate(&event, CU_EVENT_DEFAULT));
    BESIDE(cuEventRecord(event, other));
    BESIDE(cuEventSynchronize(event));
    BESIDE(cuEventDestroy(event));
    BESIDE(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2 << 20));
    BESIDE(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    BESIDE(cuCtxResetPersistingL2Cache());
    BESIDE(cuCtxCreate(&second, NULL, 0, device));
    begin_work();
    OK(cuCtxDestroy(second));
    OK(cuCtxSetCurrent(context));
    BESIDE(cuStreamDestroy(other));
    BESIDE(cuStreamDestroy(stream));
    OK(cuDevicePrimaryCtxReset(device));
}

static atomic_int launching, released;
static CUgraphExec launched;

static void CUDA_CB hold(void *data) {
    (void)data;
    atomic_fetch_add(&begun, 1);
    while (!atomic_load(&released))
        usleep(100);
}

static void *launch(void *result) {
    QUIET(cuCtxSetCurrent(context));
    atomic_store(&launching, 1);
    *(CUresult *)result = cuGraphLaunch(launched, stream);
    return NULL;
}

// A launch that copies from pageable memory may wait for the function before it. Other threads, on which that
// may wait, have graphs of their own meanwhile.
static void threads(void) {
    enum { SIZE = 1 << 20, ROUNDS = 2000 };
    static unsigned char pageable[SIZE];
    unsigned char last = 0;
    CUgraph graph, another;
    CUgraphNode node;
    CUresult result = CUDA_ERROR_UNKNOWN;
    pthread_t thread;
    CUdeviceptr to = allocate(SIZE);
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = pageable,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = to,
                                .WidthInBytes = SIZE,
                                .Height = 1,
                                .Depth = 1};
    memset(pageable, 5, SIZE);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&another, 0));
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context));
    OK(cuGraphInstantiate(&launched, graph, 0));
    const int before = atomic_load(&begun);
    OK(cuLaunchHostFunc(stream, hold, NULL));
    while (atomic_load(&begun) == before)
        usleep(100);
    pthread_create(&thread, NULL, launch, &result);
    while (!atomic_load(&launching))
        usleep(100);
    for (int i = 0; i < ROUNDS; i++) {
        QUIET(cuGraphAddEmptyNode(&node, another, NULL, 0));
        QUIET(cuGraphDestroyNode(node));
    }
    atomic_store(&released, 1);
    pthread_join(thread, NULL);
    EXPECT(result == CUDA_SUCCESS);
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&last, to + SIZE - 1, 1));
    EXPECT(last == 5);
}

// An array of another context is there at once, whatever that context's blocking streams wait for.
static void array_elsewhere(void) {
    static unsigned char row[16] = {7}, back[16];
    const CUDA_ARRAY_DESCRIPTOR line = {sizeof row, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = row,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .WidthInBytes = sizeof row,
                          .Height = 1};
    CUcontext second;
    CUstream held, free_one;
    CUarray array;
    const int before = atomic_load(&begun);
    OK(cuCtxCreate(&second, NULL, 0, device));
    OK(cuStreamCreate(&held, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
    atomic_store(&released, 0);
    OK(cuLaunchHostFunc(held, hold, NULL));
    while (atomic_load(&begun) == before)
        usleep(100);
    OK(cuArrayCreate(&array, &line));
    copy.dstArray = array;
    OK(cuMemcpy2DAsync(&copy, free_one));
    OK(cuStreamSynchronize(free_one));
    atomic_store(&released, 1);
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = array,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = back,
                           .WidthInBytes = sizeof row,
                           .Height = 1};
    OK(cuMemcpy2D(&copy));
    EXPECT(memcmp(row, back, sizeof row) == 0);
    OK(cuCtxDestroy(second));
    OK(cuCtxSetCurrent(context));
}

int main(void) {
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    arrays();
    memory();
    mappings();
    graphs();
    threads();
    array_elsewhere();
    code();
    contexts();
    EXPECT(atomic_load(&begun) == 64);
    return check_failed;
}
