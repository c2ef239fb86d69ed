// NVIDIA's runtime between two processes: memory and an event of the parent, opened by a child that it
// spawns. What the event says is done on one side is there on the other.
#include <cuda_runtime.h>

#include "check.h"

#include "processes.h"

enum { WORDS = 1 << 16 };

struct handles {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event, answer;
};

__global__ static void add(unsigned *words, unsigned amount) {
    words[blockIdx.x * blockDim.x + threadIdx.x] += amount;
}

static bool all(const unsigned *words, unsigned value) {
    static unsigned here[WORDS];
    RT_QUIET(cudaMemcpy(here, words, sizeof here, cudaMemcpyDeviceToHost));
    for (unsigned word : here)
        if (word != value)
            return false;
    return true;
}

static void child() {
    struct handles handles;
    unsigned *words = nullptr;
    cudaEvent_t event, answer;
    cudaStream_t stream;
    RT_QUIET(cudaEventCreateWithFlags(&answer, cudaEventDisableTiming | cudaEventInterprocess));
    RT_QUIET(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    hear(&handles, sizeof handles);
    RT_QUIET(cudaIpcOpenMemHandle((void **)&words, handles.memory, cudaIpcMemLazyEnablePeerAccess));
    RT_QUIET(cudaIpcOpenEventHandle(&event, handles.event));
    RT_QUIET(cudaStreamWaitEvent(stream, event, 0));
    add<<<WORDS / 256, 256, 0, stream>>>(words, 5);
    RT_QUIET(cudaEventRecord(answer, stream));
    RT_QUIET(cudaIpcGetEventHandle(&handles.answer, answer));
    tell(&handles.answer, sizeof handles.answer);
    await();
    EXPECT(all(words, 112));
    cudaPointerAttributes attributes;
    RT_QUIET(cudaPointerGetAttributes(&attributes, words));
    EXPECT(attributes.type == cudaMemoryTypeDevice);
    RT_QUIET(cudaIpcCloseMemHandle(words));
    RT_QUIET(cudaEventDestroy(event));
    RT_QUIET(cudaEventDestroy(answer));
    RT_QUIET(cudaStreamDestroy(stream));
}

int main(int count, char **arguments) {
    if (strcmp(role_of(count, arguments), "child") == 0) {
        child();
        return check_failed;
    }
    struct handles handles;
    unsigned *words;
    cudaEvent_t event, answer;
    RT_QUIET(cudaMalloc(&words, WORDS * sizeof *words));
    RT_QUIET(cudaMemset(words, 0, WORDS * sizeof *words));
    RT_QUIET(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    RT_QUIET(cudaIpcGetMemHandle(&handles.memory, words));
    RT_QUIET(cudaIpcGetEventHandle(&handles.event, event));
    pid_t spawned = spawn(arguments[0], "child");
    add<<<WORDS / 256, 256>>>(words, 7);
    RT_QUIET(cudaEventRecord(event));
    tell(&handles, sizeof handles);
    hear(&handles.answer, sizeof handles.answer);
    RT_QUIET(cudaIpcOpenEventHandle(&answer, handles.answer));
    RT_QUIET(cudaStreamWaitEvent(nullptr, answer, 0));
    add<<<WORDS / 256, 256>>>(words, 100);
    EXPECT(all(words, 112));
    go();
    EXPECT(ended_well(spawned));
    EXPECT(all(words, 112));
    RT_QUIET(cudaEventDestroy(event));
    RT_QUIET(cudaEventDestroy(answer));
    RT_QUIET(cudaFree(words));
    return check_failed;
}
