// Page-locked memory in kernels, however it came to be: allocated without a word of the device, under the
// program's own pointer; registered, by the pointer that CUDA gives for it.
#include <pthread.h>

#include "graphs.h"

enum { WORDS = 1 << 14, BYTES = WORDS * 4, ASKING = 4 };

static CUstream stream;
static CUdeviceptr memory;

static void launch(CUdeviceptr data) {
    unsigned count = WORDS, factor = 2, term = 1;
    QUIET(LAUNCH(kernel("affine"), WORDS / 256, 256, stream, &data, &count, &factor, &term));
    QUIET(cuStreamSynchronize(stream));
}

static int holds(const unsigned *data, unsigned factor, unsigned term) {
    for (unsigned i = 0; i < WORDS; i++)
        if (data[i] != i * factor + term)
            return 0;
    return 1;
}

static void begin(unsigned *data) {
    for (unsigned i = 0; i < WORDS; i++)
        data[i] = i;
}

static void finish(CUgraph graph) {
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

// A graph's kernel writes it, its copies take it from there and bring it back.
static void captured(unsigned *data) {
    unsigned count = WORDS, factor = 2, term = 1;
    CUgraph graph;
    begin(data);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    QUIET(LAUNCH(kernel("affine"), WORDS / 256, 256, stream, &data, &count, &factor, &term));
    OK(cuMemcpyHtoDAsync(memory, data, BYTES, stream));
    QUIET(LAUNCH(kernel("affine"), WORDS / 256, 256, stream, &memory, &count, &factor, &term));
    OK(cuMemcpyDtoHAsync(data, memory, BYTES, stream));
    OK(cuStreamEndCapture(stream, &graph));
    finish(graph);
    EXPECT(holds(data, 4, 3));
}

static void CUDA_CB called(void *count) {
    ++*(unsigned *)count;
}

// A graph is the first to give it to a kernel, and copies to and from the rest of it.
static void made_by_graph(bool calls) {
    unsigned *data, count = 1, factor = 2, term = 1, times = 0, out[2];
    CUgraph graph;
    CUgraphExec exec;
    OK(cuMemHostAlloc((void **)&data, BYTES, 0));
    memset(data, 0, BYTES);
    OK(cuMemsetD32Async(memory, 1, 1, stream));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    QUIET(LAUNCH(kernel("affine"), 1, 1, stream, &data, &count, &factor, &term));
    QUIET(LAUNCH(kernel("affine"), 1, 1, stream, &memory, &count, &factor, &term));
    OK(cuMemcpyDtoHAsync(data + 2, memory, 4, stream));
    OK(cuMemcpyHtoDAsync(memory + 4, data + 4, 4, stream));
    if (calls)
        OK(cuLaunchHostFunc(stream, called, &times));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 1; i <= 2; i++) {
        data[4] = 5 * i;
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(out, memory, sizeof out));
        EXPECT(data[0] == (i == 1 ? 1 : 3) && data[2] == out[0] && out[0] == (i == 1 ? 3 : 7) &&
               out[1] == 5 * i);
    }
    EXPECT(times == (calls ? 2 : 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(data));
}

// What a graph writes there while it is the program's alone comes before what it writes when the device has
// it.
static void in_order(void) {
    const unsigned numbers[] = {1, 2};
    unsigned *data, own = 77;
    CUgraph graph;
    OK(cuMemHostAlloc((void **)&data, BYTES, 0));
    OK(cuMemcpyHtoD(memory, numbers, sizeof numbers));
    OK(cuCtxSynchronize());
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemcpyDtoHAsync(data, memory, 4, stream));
    OK(cuMemcpyAsync((CUdeviceptr)(data + 1), (CUdeviceptr)&own, 4, stream));
    OK(cuMemsetD32Async((CUdeviceptr)(data + 1), 9, 1, stream));
    OK(cuMemcpyDtoHAsync(data, memory + 4, 4, stream));
    OK(cuStreamEndCapture(stream, &graph));
    finish(graph);
    EXPECT(data[0] == 2 && data[1] == 9);
    OK(cuMemFreeHost(data));
}

// A graph's copies that call it the device's.
static void in_nodes(unsigned *data) {
    CUDA_MEMCPY3D out = copy_to_device((CUdeviceptr)data, NULL, BYTES),
                  in = copy_to_device(memory, NULL, BYTES);
    CUgraph graph;
    CUgraphNode first, second;
    OK(cuMemsetD32Async(memory, 3, WORDS, stream));
    OK(cuGraphCreate(&graph, 0));
    out.srcMemoryType = in.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    out.srcDevice = memory;
    in.srcDevice = (CUdeviceptr)data;
    in.WidthInBytes /= 2;
    in.dstDevice += BYTES / 2;
    begin(data);
    OK(cuGraphAddMemcpyNode(&first, graph, NULL, 0, &in, context));
    OK(cuGraphAddMemcpyNode(&second, graph, &first, 1, &out, context));
    finish(graph);
    EXPECT(data[0] == 3 && data[WORDS / 2 - 1] == 3 && data[WORDS - 1] == WORDS / 2 - 1);
}

static void used(unsigned *data, CUdeviceptr address) {
    unsigned plain[4] = {0}, type = 0;
    begin(data);
    launch(address);
    EXPECT(holds(data, 2, 1));
    data[0] = 5;
    launch(address);
    EXPECT(data[0] == 11 && data[1] == 7);
    data[0] = 1;
    EXPECT(holds(data, 4, 3) == 0);
    data[0] = 3;
    EXPECT(holds(data, 4, 3));
    OK(cuMemcpyDtoH(plain, address, sizeof plain));
    EXPECT(plain[1] == 7);
    OK(cuMemsetD32(address, 9, WORDS));
    OK(cuCtxSynchronize());
    EXPECT(holds(data, 0, 9));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    EXPECT(type == CU_MEMORYTYPE_HOST);
    void *host = NULL;
    OK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 4));
    EXPECT(host == data + 1);
    // The device has it mapped, but the program has not.
    CUmemGenericAllocationHandle handle;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    unsigned long long rights;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&handle, (void *)address));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&rights, &here, address));
    const unsigned on = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
}

static pthread_barrier_t together;

// It is told in the place of what it asks about.
static void *asks(void *place) {
    CUdeviceptr *address = place;
    QUIET(cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    QUIET(cuMemHostGetDevicePointer(address, (void *)*address, 0));
    return NULL;
}

// Threads that ask for the device's address of registered memory at once are told the same one.
static void asked_at_once(unsigned *data) {
    pthread_t threads[ASKING];
    CUdeviceptr told[ASKING];
    int apart = 0;
    pthread_barrier_init(&together, NULL, ASKING);
    for (int round = 0; round < 20; round++) {
        QUIET(cuMemHostRegister(data, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
        for (int i = 0; i < ASKING; i++) {
            told[i] = (CUdeviceptr)data;
            pthread_create(&threads[i], NULL, asks, &told[i]);
        }
        for (int i = 0; i < ASKING; i++) {
            pthread_join(threads[i], NULL);
            apart += told[i] != told[0];
        }
        QUIET(cuMemHostUnregister(data));
    }
    EXPECT(apart == 0);
}

int main(void) {
    unsigned *data, *own = malloc(BYTES + 100);
    CUdeviceptr address = 0, again = 0;
    start();
    memory = allocate(BYTES);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    OK(cuMemHostAlloc((void **)&data, BYTES, 0));
    begin(data);
    OK(cuMemcpyHtoD(memory, data, BYTES)); // before any kernel has it
    in_nodes(data);
    used(data, (CUdeviceptr)data);
    captured(data);
    in_nodes(data);
    begin(data);
    OK(cuMemcpyHtoDAsync(memory, data, BYTES, stream));
    memset(data, 0, 16);
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoHAsync(data, memory, BYTES, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(data[WORDS - 1] == WORDS - 1);
    OK(cuMemFreeHost(data));

    OK(cuMemAllocHost((void **)&data, BYTES));
    OK(cuMemcpyDtoD((CUdeviceptr)data, memory, BYTES)); // whatever a copy calls it
    OK(cuCtxSynchronize());
    EXPECT(data[WORDS - 1] == WORDS - 1);
    OK(cuMemHostGetDevicePointer(&address, data, 0));
    EXPECT(address == (CUdeviceptr)data);
    used(data, address);
    captured(data);
    OK(cuMemFreeHost(data));

    OK(cuMemHostAlloc((void **)&data, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    captured(data);
    in_nodes(data);
    OK(cuMemFreeHost(data));

    data = (unsigned *)((char *)own + 20);
    OK(cuMemHostRegister(data, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&address, data, 0));
    OK(cuMemHostGetDevicePointer(&again, data + 3, 0));
    EXPECT(again == address + 12);
    used(data, address);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&again, data, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(NULL, data, 0));
    OK(cuMemHostUnregister(data));
    EXPECT(holds(data, 0, 9));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&again, data, 0));
    asked_at_once(data);
    made_by_graph(false);
    made_by_graph(true);
    in_order();
    OK(cuMemHostRegister(data, BYTES, 0));
    in_nodes(data);
    OK(cuMemHostUnregister(data));
    free(own);
    return check_failed;
}
