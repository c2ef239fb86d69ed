// Events of several processes: a record in one is waited for in another, by its host and by its streams, in
// both directions; and CUDA's errors for what is no such event.
#define _GNU_SOURCE
#include <sys/mman.h>

#include "driver.h"

#include "processes.h"

enum { LAZY = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, BOTH = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING };
enum { ROUNDS = 100, BYTES = 8 << 20 };

struct handles {
    CUipcMemHandle memory;
    CUipcEventHandle first, second;
};

static unsigned word_at(CUdeviceptr address) {
    unsigned word = 0;
    QUIET(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

// Memory of both processes' own.
static unsigned char *mapped(int file) {
    return mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

// What both processes have mapped is ordered by events as memory of the device is: what one copies out, the
// other's stream copies in behind it.
static void share_host_memory(CUevent first, CUevent second, CUstream stream, CUdeviceptr gate) {
    int file = memfd_create("both", 0);
    CUdeviceptr memory = allocate(BYTES);
    EXPECT(ftruncate(file, BYTES) == 0);
    unsigned char *both = mapped(file);
    OK(cuMemHostRegister(both, BYTES, 0));
    OK(cuMemsetD8(memory, 9, BYTES));
    OK(cuCtxSynchronize());
    OK(cuStreamWaitValue32(stream, gate, 3, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyDtoHAsync(both, memory, BYTES, stream));
    OK(cuEventRecord(first, stream));
    tell_descriptor(file);
    await();
    QUIET(cuMemsetD32(gate, 3, 1));
    await();
    OK(cuEventSynchronize(second));
    EXPECT(both[0] == 10 && both[BYTES - 1] == 10);
    go();
    close(file);
}

static void use_host_memory(CUevent first, CUevent second, CUstream stream) {
    int file = hear_descriptor();
    CUdeviceptr memory = allocate(BYTES);
    unsigned char *both = mapped(file);
    OK(cuMemHostRegister(both, BYTES, 0));
    OK(cuStreamWaitEvent(stream, first, 0));
    OK(cuMemcpyHtoDAsync(memory, both, BYTES, stream));
    go();
    OK(cuStreamSynchronize(stream));
    EXPECT(word_at(memory) == 0x09090909 && word_at(memory + BYTES - 4) == 0x09090909);
    OK(cuMemsetD8Async(memory, 10, BYTES, stream));
    OK(cuMemcpyDtoHAsync(both, memory, BYTES, stream));
    OK(cuEventRecord(second, stream));
    go();
    await();
    close(file);
}

static void importer(void) {
    struct handles handles;
    CUdeviceptr words = 0, own = allocate(16);
    CUevent first = NULL, second = NULL, none = NULL;
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    hear(&handles, sizeof handles);
    OK(cuIpcOpenMemHandle(&words, handles.memory, LAZY));
    OK(cuIpcOpenEventHandle(&first, handles.first));
    OK(cuIpcOpenEventHandle(&second, handles.second));
    OK(cuEventQuery(second));
    OK(cuEventSynchronize(second));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(first));
    OK(cuStreamWaitEvent(stream, first, 0));
    OK(cuMemcpyDtoDAsync(own, words, 4, stream));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    go();
    OK(cuEventSynchronize(first));
    OK(cuEventQuery(first));
    OK(cuStreamSynchronize(stream));
    EXPECT(word_at(own) == 5);
    OK(cuMemsetD32Async(words, 6, 1, stream));
    OK(cuEventRecord(second, stream));
    go();
    await();

    // each waits for the other's last record, on its streams alone
    for (int i = 0; i < ROUNDS; i++) {
        QUIET(cuStreamWaitEvent(stream, first, 0));
        QUIET(LAUNCH(kernel("count_up"), 1, 1, stream, &words));
        QUIET(cuEventRecord(second, stream));
        go();
        await();
    }
    OK(cuStreamSynchronize(stream));

    go();
    use_host_memory(first, second, stream);

    // all of a context's work waits for all of another process's
    await();
    OK(cuCtxWaitEvent(context, first));
    OK(cuMemcpyDtoDAsync(own, words, 4, stream));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    go();
    OK(cuStreamSynchronize(stream));
    EXPECT(word_at(own) == 50);
    OK(cuMemsetD32Async(words, 51, 1, stream));
    OK(cuCtxRecordEvent(context, second));
    go();
    await();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenEventHandle(NULL, handles.first));
    memset(&handles.first, 0x5a, sizeof handles.first);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenEventHandle(&none, handles.first));
    float time;
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&time, first, second));
    OK(cuEventDestroy(first));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(first));
    go(); // the second ends with the process
}

int main(int count, char **arguments) {
    const char *role = role_of(count, arguments);
    start();
    if (strcmp(role, "importer") == 0) {
        importer();
        return check_failed;
    }
    struct handles handles;
    CUdeviceptr words = allocate(4096), gate = allocate(4096);
    CUevent first, second, plain, none;
    CUstream stream;
    unsigned expected = 6 + 2 * ROUNDS;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&none, CU_EVENT_INTERPROCESS));
    OK(cuEventCreate(&first, BOTH));
    OK(cuEventCreate(&second, BOTH | CU_EVENT_BLOCKING_SYNC));
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetMemHandle(&handles.memory, words));
    OK(cuIpcGetEventHandle(&handles.first, first));
    OK(cuIpcGetEventHandle(&handles.second, second));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetEventHandle(NULL, first));
    CUipcEventHandle refused = {{1}}, zeros = {{0}};
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&refused, plain));
    EXPECT(memcmp(&refused, &zeros, sizeof zeros) == 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&none, handles.first));

    OK(cuMemsetD32(gate, 0, 1));
    OK(cuMemsetD32(words, 0, 1));
    OK(cuCtxSynchronize());
    OK(cuStreamWaitValue32(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD32Async(words, 5, 1, stream));
    OK(cuEventRecord(first, stream));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(first));
    pid_t child = spawn(arguments[0], "importer");
    tell(&handles, sizeof handles);
    await();
    QUIET(cuMemsetD32(gate, 1, 1));
    await();
    OK(cuEventSynchronize(second));
    EXPECT(word_at(words) == 6);
    go();
    for (int i = 0; i < ROUNDS; i++) {
        await();
        QUIET(cuStreamWaitEvent(stream, second, 0));
        QUIET(LAUNCH(kernel("count_up"), 1, 1, stream, &words));
        QUIET(cuEventRecord(first, stream));
        go();
    }
    await();
    OK(cuStreamSynchronize(stream));
    EXPECT(word_at(words) == expected);
    share_host_memory(first, second, stream, gate);
    OK(cuStreamWaitValue32(stream, gate, 2, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD32Async(words, 50, 1, stream));
    OK(cuCtxRecordEvent(context, first));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(first));
    go();
    await();
    QUIET(cuMemsetD32(gate, 2, 1));
    await();
    OK(cuEventSynchronize(second));
    EXPECT(word_at(words) == 51);
    go();
    await();
    EXPECT(ended_well(child));
    OK(cuEventRecord(second, stream));
    OK(cuEventSynchronize(second));
    OK(cuEventDestroy(first));
    OK(cuEventDestroy(second));
    OK(cuMemFree(words));
    return check_failed;
}
