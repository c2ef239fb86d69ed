// Streams that wait for a word of memory, and write one: each comparison, both widths, across streams, and
// what is refused. What a program writes to page-locked memory before it writes the word is what is copied
// behind it, however much that is, and none of these copies is waited for.
#include <pthread.h>

#include "driver.h"

enum { LARGE = 48 << 20, SIDE = 64 };

static unsigned *page_locked(size_t bytes, unsigned flags) {
    void *memory = NULL;
    QUIET(cuMemHostAlloc(&memory, bytes, flags));
    return memory;
}

// There and back, more than can be on its way at a time.
static void behind_a_word(CUstream stream, CUdeviceptr flag, volatile unsigned *word, unsigned *from,
                          unsigned *to) {
    CUdeviceptr between = allocate(LARGE);
    OK(cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyHtoDAsync(between, from, LARGE, stream));
    OK(cuMemcpyDtoHAsync(to, between, LARGE, stream));
    for (unsigned i = 0; i < LARGE / 4; i += 1024)
        from[i] = i + 5;
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    *word = 1;
    OK(cuStreamSynchronize(stream));
    unsigned wrong = 0;
    for (unsigned i = 0; i < LARGE / 4; i += 1024)
        wrong += to[i] != i + 5;
    EXPECT(wrong == 0);
    OK(cuMemFree(between));
}

// The same in a graph, whose first node waits.
static void behind_a_node(CUstream stream, CUdeviceptr flag, volatile unsigned *word, unsigned *from,
                          unsigned *to) {
    CUdeviceptr between = allocate(4096);
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamWaitValue32(stream, flag, 2, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyHtoDAsync(between, from, 4096, stream));
    OK(cuMemcpyDtoHAsync(to, between, 4096, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    from[7] = 777;
    *word = 2;
    OK(cuStreamSynchronize(stream));
    EXPECT(to[7] == 777);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(between));
}

static void array_behind_a_word(CUstream stream, CUdeviceptr flag, volatile unsigned *word, unsigned *from,
                                unsigned *to) {
    CUarray array;
    OK(cuArrayCreate(&array, &(CUDA_ARRAY_DESCRIPTOR){SIDE, SIDE, CU_AD_FORMAT_UNSIGNED_INT32, 1}));
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = from,
                        .srcPitch = 4 * SIDE,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = array,
                        .WidthInBytes = 4 * SIDE,
                        .Height = SIDE};
    CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                         .srcArray = array,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = to,
                         .dstPitch = 4 * SIDE,
                         .WidthInBytes = 4 * SIDE,
                         .Height = SIDE};
    from[SIDE * SIDE - 1] = 4711;
    to[SIDE * SIDE - 1] = 0;
    OK(cuStreamWaitValue32(stream, flag, 3, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpy2DAsync(&in, stream));
    OK(cuMemcpy2DAsync(&out, stream));
    EXPECT(to[SIDE * SIDE - 1] == 0);
    *word = 3;
    OK(cuStreamSynchronize(stream));
    EXPECT(to[SIDE * SIDE - 1] == 4711);
    OK(cuArrayDestroy(array));
}

// Fills of memory that the program sees too, and copies of an array to it: none is waited for.
static void shared_behind_a_word(CUstream stream, CUdeviceptr flag, volatile unsigned *word) {
    unsigned *mapped = page_locked(8 * SIDE, CU_MEMHOSTALLOC_DEVICEMAP), *row = page_locked(4 * SIDE, 0);
    CUdeviceptr seen, managed;
    CUarray array;
    OK(cuMemHostGetDevicePointer(&seen, mapped, 0));
    OK(cuMemAllocManaged(&managed, 4 * SIDE, CU_MEM_ATTACH_GLOBAL));
    OK(cuArrayCreate(&array, &(CUDA_ARRAY_DESCRIPTOR){SIDE, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1}));
    CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                         .srcArray = array,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = mapped + SIDE,
                         .WidthInBytes = 4 * SIDE,
                         .Height = 1};
    row[SIDE - 1] = 4712;
    OK(cuMemcpyHtoA(array, 0, row, 4 * SIDE));
    row[SIDE - 1] = 0;
    OK(cuStreamWaitValue32(stream, flag, 4, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD32Async(seen, 7, SIDE, stream));
    OK(cuMemsetD32Async(managed, 8, SIDE, stream));
    OK(cuMemcpy2DAsync(&out, stream));
    OK(cuMemcpyAtoHAsync(row, array, 0, 4 * SIDE, stream));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    *word = 4;
    OK(cuStreamSynchronize(stream));
    EXPECT(mapped[SIDE - 1] == 7 && mapped[2 * SIDE - 1] == 4712);
    EXPECT(((unsigned *)managed)[SIDE - 1] == 8);
    EXPECT(row[SIDE - 1] == 4712);
    OK(cuArrayDestroy(array));
    OK(cuMemFree(managed));
    OK(cuMemFreeHost(mapped));
    OK(cuMemFreeHost(row));
}

// Who writes it next does not wait for the default stream.
static void cleared(CUdeviceptr flag) {
    QUIET(cuMemsetD32(flag, 0, 1));
    QUIET(cuStreamSynchronize(NULL));
}

static void *writes_a_word(void *flag) {
    CUstream stream;
    QUIET(cuCtxSetCurrent(context));
    QUIET(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    QUIET(cuStreamWriteValue32(stream, (CUdeviceptr)flag, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    QUIET(cuStreamSynchronize(stream));
    return NULL;
}

// The default stream waits, and a copy in stands in it: who writes the word does not wait for that.
// Returns what came, which is 5.
static unsigned in_the_default_stream(void) {
    CUdeviceptr flag = allocate(4), memory = allocate(64);
    unsigned data[16] = {[15] = 5}, back = 0;
    cleared(flag);
    QUIET(cuStreamWaitValue32(NULL, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    QUIET(cuMemcpyHtoDAsync(memory, data, sizeof data, NULL));
    data[15] = 6;
    writes_a_word((void *)flag);
    QUIET(cuMemcpyDtoH(&back, memory + 60, 4));
    return back;
}

// The same, and the program waits for the copy.
static void in_the_default_stream_to_the_end(void) {
    CUdeviceptr flag = allocate(4), memory = allocate(64);
    unsigned data[16] = {[15] = 6}, back = 0;
    pthread_t writer;
    cleared(flag);
    OK(cuStreamWaitValue32(NULL, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT(pthread_create(&writer, NULL, writes_a_word, (void *)flag) == 0);
    OK(cuMemcpyHtoD(memory, data, sizeof data));
    data[15] = 7;
    pthread_join(writer, NULL);
    OK(cuMemcpyDtoH(&back, memory + 60, 4));
    EXPECT(back == 6);
}

// Page-locked memory is the device's under the program's own address, whatever it was allocated for: for
// words, and for a node that fills it.
static void by_its_own_address(CUstream stream) {
    volatile unsigned *words = page_locked(8192, 0);
    unsigned *filled = page_locked(64, 0);
    CUdeviceptr own = (CUdeviceptr)words;
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = (CUdeviceptr)filled, .value = 9, .elementSize = 4, .width = 16, .height = 1};
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    OK(cuStreamWaitValue32(stream, own, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamWriteValue32(stream, own + 4096, 5, CU_STREAM_WRITE_VALUE_DEFAULT));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    words[0] = 1;
    OK(cuStreamSynchronize(stream));
    EXPECT(words[1024] == 5);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(filled[15] == 9);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(filled));
    OK(cuMemFreeHost((void *)words));
}

static void copies(CUstream stream) {
    unsigned *from = page_locked(LARGE, 0), *to = page_locked(LARGE, 0);
    volatile unsigned *word = page_locked(4, CU_MEMHOSTALLOC_DEVICEMAP);
    CUdeviceptr flag;
    OK(cuMemHostGetDevicePointer(&flag, (void *)word, 0));
    *word = 0;
    behind_a_word(stream, flag, word, from, to);
    behind_a_node(stream, flag, word, from, to);
    array_behind_a_word(stream, flag, word, from, to);
    shared_behind_a_word(stream, flag, word);
    OK(cuMemFreeHost(from));
    OK(cuMemFreeHost(to));
    OK(cuMemFreeHost((void *)word));
}

int main(void) {
    CUstream first, second;
    unsigned words[4] = {0};
    start();
    CUdeviceptr flags = allocate(64), counter = allocate(4);
    OK(cuMemsetD8(flags, 0, 64));
    OK(cuMemsetD32(counter, 0, 1));
    OK(cuStreamSynchronize(NULL)); // a stream that does not block waits for nothing of the default stream
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    // The second goes on when the first has written, one comparison after another.
    OK(cuStreamWaitValue32(second, flags, 5, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamWaitValue64(second, flags + 8, 1ull << 40, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWaitValue32(second, flags + 16, 4, CU_STREAM_WAIT_VALUE_AND));
    OK(cuStreamWaitValue32(second, flags + 20, 0xfffffffe, CU_STREAM_WAIT_VALUE_NOR));
    OK(LAUNCH(kernel("count_up"), 1, 1, second, &counter));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    OK(cuStreamWriteValue32(first, flags, 5, CU_STREAM_WRITE_VALUE_DEFAULT));
    OK(cuStreamWriteValue64(first, flags + 8, (1ull << 40) + 3, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
    OK(cuStreamWriteValue32(first, flags + 16, 6, CU_STREAM_WRITE_VALUE_DEFAULT));
    OK(cuStreamSynchronize(second));
    OK(cuMemcpyDtoH(words, counter, 4));
    EXPECT(words[0] == 1);
    OK(cuMemcpyDtoH(words, flags, sizeof words));
    EXPECT(words[0] == 5 && words[2] == 3 && words[3] == 1u << 8);
    CUstreamBatchMemOpParams batch[3] = {{0}};
    batch[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    batch[0].waitValue.address = flags;
    batch[0].waitValue.value = 5;
    batch[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    batch[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    batch[1].writeValue.address = flags + 8;
    batch[1].writeValue.value64 = 77;
    batch[2].operation = CU_STREAM_MEM_OP_BARRIER;
    OK(cuStreamBatchMemOp(first, 3, batch, 0));
    OK(cuStreamSynchronize(first));
    OK(cuMemcpyDtoH(words, flags, sizeof words));
    EXPECT(words[2] == 77 && words[3] == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 257, batch, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 3, batch, 1));
    batch[2].operation = 99;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 3, batch, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(first, flags + 2, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(first, flags + 4, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(first, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(first, flags, 0, 8));
    copies(first);
    EXPECT(pageable_copies_may_wait() || in_the_default_stream() == 5);
    in_the_default_stream_to_the_end();
    by_its_own_address(first);
    return check_failed;
}
