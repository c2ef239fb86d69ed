// Two devices, each with a primary context and one of its own: memory, modules, launches, copies and fills on
// each, what belongs to which, what the memory of one costs the other, and whose a failure is.
//
// suite: devices
#include <pthread.h>

#include "driver.h"

enum { COUNT = 1 << 12 };

static CUcontext primary[2], own[2];
static CUdeviceptr memory[2][2], variable[2][2]; // by device; of the primary context, of the own one
static CUfunction count_up[2][2];
static unsigned pattern[COUNT], back[COUNT];

static unsigned counted(CUdeviceptr counter, CUfunction function, unsigned first) {
    unsigned value = 0;
    QUIET(cuMemsetD32(counter, first, 1));
    QUIET(LAUNCH(function, 3, 1, NULL, &counter));
    QUIET(cuMemcpyDtoH(&value, counter, 4));
    return value;
}

static void begin(int i) {
    CUdevice here = -1;
    CUmodule of_primary, of_own;
    OK(cuDevicePrimaryCtxRetain(&primary[i], i));
    OK(cuCtxSetCurrent(primary[i]));
    OK(cuCtxGetDevice(&here));
    EXPECT(here == i);
    OK(cuModuleLoadData(&of_primary, kernels_ptx));
    OK(cuModuleGetFunction(&count_up[i][0], of_primary, "count_atomically"));
    OK(cuModuleGetGlobal(&variable[i][0], NULL, of_primary, "global_words"));
    OK(cuMemAlloc(&memory[i][0], COUNT * 4));
    OK(cuCtxCreate(&own[i], NULL, CU_CTX_SCHED_AUTO, i));
    here = -1;
    OK(cuCtxGetDevice(&here));
    EXPECT(here == i);
    OK(cuModuleLoadData(&of_own, kernels_ptx));
    OK(cuModuleGetFunction(&count_up[i][1], of_own, "count_atomically"));
    OK(cuModuleGetGlobal(&variable[i][1], NULL, of_own, "global_words"));
    OK(cuMemAlloc(&memory[i][1], COUNT * 4));
    OK(cuCtxPopCurrent(NULL));
}

static void names(void) {
    CUuuid uuid[2];
    char bus[2][32];
    int count = 0;
    CUdevice found = -1;
    OK(cuDeviceGetCount(&count));
    EXPECT(count == 2);
    for (int i = 0; i < 2; i++) {
        OK(cuDeviceGetUuid(&uuid[i], i));
        OK(cuDeviceGetPCIBusId(bus[i], sizeof bus[i], i));
        OK(cuDeviceGetByPCIBusId(&found, bus[i]));
        EXPECT(found == i);
        digest("uuid", &uuid[i], sizeof uuid[i]);
    }
    EXPECT(memcmp(&uuid[0], &uuid[1], sizeof uuid[0]) != 0);
    EXPECT(strcmp(bus[0], bus[1]) != 0);
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&found, 2));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&primary[0], 2));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate(&own[0], NULL, 0, 2));
}

static void belongs(CUdeviceptr address, int i, int j) {
    CUcontext owner = NULL;
    int ordinal = -1;
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    EXPECT(owner == (j == 0 ? primary[i] : own[i]));
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    EXPECT(ordinal == i);
}

static void belongings(int i, int j) {
    belongs(memory[i][j], i, j);
    belongs(variable[i][j], i, j);
}

static size_t free_on(int i) {
    size_t free = 0, total = 0;
    QUIET(cuCtxPushCurrent(primary[i]));
    QUIET(cuMemGetInfo(&free, &total));
    QUIET(cuCtxPopCurrent(NULL));
    return free;
}

// What one device gives is not the other's.
static void costs(void) {
    size_t before[2] = {free_on(0), free_on(1)};
    CUdeviceptr large = 0;
    OK(cuCtxPushCurrent(primary[1]));
    OK(cuMemAlloc(&large, 64 << 20));
    EXPECT(free_on(0) == before[0]);
    EXPECT(before[1] - free_on(1) >= 64 << 20);
    OK(cuMemFree(large));
    EXPECT(free_on(1) == before[1]);
    OK(cuCtxPopCurrent(NULL));
}

// A stream, an event and a stream-ordered allocation on each.
static void streams(int i) {
    CUstream stream;
    CUevent event;
    CUdevice device = -1;
    CUdeviceptr ordered = 0;
    CUmemoryPool pool = NULL, other = NULL;
    int ordinal = -1;
    OK(cuCtxPushCurrent(own[i]));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuStreamGetDevice(stream, &device));
    EXPECT(device == i);
    OK(cuMemAllocAsync(&ordered, COUNT * 4, stream));
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ordered));
    EXPECT(ordinal == i);
    OK(cuMemsetD32Async(ordered, 0x50 + i, COUNT, stream));
    OK(cuEventRecord(event, stream));
    OK(cuEventSynchronize(event));
    OK(cuMemcpyDtoHAsync(back, ordered, COUNT * 4, stream));
    OK(cuMemFreeAsync(ordered, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(back[0] == 0x50u + (unsigned)i && back[COUNT - 1] == back[0]);
    OK(cuDeviceGetDefaultMemPool(&pool, i));
    OK(cuDeviceGetMemPool(&other, i));
    EXPECT(pool != NULL && pool == other);
    OK(cuDeviceGetMemPool(&other, 1 - i));
    EXPECT(pool != other);
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    OK(cuCtxPopCurrent(NULL));
}

// The current context is each thread's own.
static void *thread(void *argument) {
    int i = *(int *)argument;
    CUdeviceptr counter = 0;
    for (int round = 0; round < 20; round++) {
        QUIET(cuCtxSetCurrent(round % 2 == 0 ? primary[i] : own[i]));
        QUIET(cuMemAlloc(&counter, 4));
        if (counted(counter, count_up[i][round % 2], 10u * (unsigned)round) != 10u * (unsigned)round + 3)
            check_failed = 1;
        QUIET(cuMemFree(counter));
    }
    return NULL;
}

static void threads(void) {
    pthread_t running[4];
    int devices[4] = {0, 1, 0, 1};
    for (int i = 0; i < 4; i++)
        pthread_create(&running[i], NULL, thread, &devices[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(running[i], NULL);
    EXPECT(!check_failed);
}

// One device's context ends, or is released; the other's goes on.
static void ends(void) {
    CUcontext current = NULL;
    unsigned flags;
    int active = -1;
    OK(cuCtxSetCurrent(primary[1]));
    OK(cuCtxDestroy(own[0]));
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(!active);
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    EXPECT(active);
    EXPECT(counted(memory[1][0], count_up[1][0], 700) == 703);
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == primary[1]);
    OK(cuDevicePrimaryCtxRetain(&primary[0], 0));
    OK(cuCtxSetCurrent(primary[0]));
    OK(cuMemAlloc(&memory[0][0], COUNT * 4));
    OK(cuMemcpyHtoD(memory[0][0], pattern, sizeof pattern));
    OK(cuMemcpyDtoH(back, memory[0][0], sizeof back));
    EXPECT(memcmp(pattern, back, sizeof back) == 0);
}

static cuuint64_t graph_memory(CUdevice which, CUgraphMem_attribute attribute) {
    cuuint64_t value = 0;
    QUIET(cuDeviceGetGraphMemAttribute(which, attribute, &value));
    return value;
}

// Memory of graphs is counted where it is.
static void graphs(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}},
        .bytesize = 1 << 20};
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    OK(cuCtxPushCurrent(primary[1]));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    EXPECT(graph_memory(1, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) >= params.bytesize);
    EXPECT(graph_memory(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    EXPECT(graph_memory(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 0);
    OK(cuMemFree(params.dptr));
    OK(cuDeviceGraphMemTrim(0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    EXPECT(graph_memory(1, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuCtxPopCurrent(NULL));
}

// What is executable stays on its devices.
static void updates(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode nodes[2];
    unsigned word = 0;
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = memory[1][0], .value = 5, .elementSize = 4, .width = 1, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory[1][0],
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory[1][0] + 4,
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1};
    OK(cuCtxPushCurrent(primary[1]));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&nodes[0], graph, NULL, 0, &fill, primary[1]));
    OK(cuGraphAddMemcpyNode(&nodes[1], graph, nodes, 1, &copy, primary[1]));
    OK(cuGraphInstantiate(&exec, graph, 0));
    fill.value = 6;
    fill.dst = memory[0][0];
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, nodes[0], &fill, primary[1]));
    copy.srcDevice = memory[0][0];
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, nodes[1], &copy, primary[1]));
    OK(cuCtxSynchronize());
    OK(cuGraphLaunch(exec, NULL));
    OK(cuMemcpyDtoH(&word, memory[1][0] + 4, sizeof word));
    EXPECT(word == 5);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuCtxPopCurrent(NULL));
}

// A context that failed says so by its streams and events, too, whatever is current.
static void fails(void) {
    CUdeviceptr nowhere = 8;
    CUstream stream;
    CUevent event;
    OK(cuCtxSetCurrent(primary[1]));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, stream)); // before the launch: behind it, it might fail already
    OK(LAUNCH(count_up[1][0], 1, 1, stream, &nowhere));
    OK(cuCtxSetCurrent(primary[0]));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventSynchronize(event));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventQuery(event));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(back, memory[0][0], sizeof back));
    EXPECT(memcmp(pattern, back, sizeof back) == 0);
    OK(cuCtxSetCurrent(primary[1]));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

int main(void) {
    OK(cuInit(0));
    names();
    begin(0);
    begin(1);
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            belongings(i, j);
            OK(cuCtxSetCurrent(j == 0 ? primary[i] : own[i]));
            unsigned first = 100u * (unsigned)(2 * i + j);
            EXPECT(counted(memory[i][j], count_up[i][j], first) == first + 3);
            for (unsigned k = 0; k < COUNT; k++)
                pattern[k] = k * 2654435761u + first;
            OK(cuMemcpyHtoD(memory[i][j], pattern, sizeof pattern));
            OK(cuMemcpyDtoH(back, memory[i][j], sizeof back));
            EXPECT(memcmp(pattern, back, sizeof back) == 0);
        }
    }
    costs();
    streams(0);
    streams(1);
    threads();
    updates();
    ends();
    graphs();
    fails();
    return check_failed;
}
