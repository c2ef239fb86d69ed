// Copies from device to device, plain, asynchronous, by cuMemcpy without a direction, and peer within the
// session.
#include "driver.h"

enum { WORDS = 10000 };

// A copy between contexts waits for both, and is no end of what is captured in one of them.
static void beside_a_capture(CUdeviceptr memory) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext own;
    CUstream stream;
    CUgraph graph;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxCreate(&own, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD32Async(memory, 9, 1, stream));
    OK(cuMemcpyPeer(memory + 4, context, memory, own, 4));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuCtxDestroy(own));
    OK(cuCtxSetCurrent(context));
}

int main(void) {
    static unsigned words[WORDS];
    unsigned count = WORDS, seed = 77, wrong = 0;
    start();
    CUdeviceptr memory[6];
    for (int i = 0; i < 6; i++) {
        memory[i] = allocate(sizeof words);
        QUIET(cuMemsetD32(memory[i], 0, WORDS));
    }
    OK(LAUNCH(kernel("fill"), (WORDS + 255) / 256, 256, NULL, &memory[0], &count, &seed));
    OK(cuMemcpyDtoD(memory[1], memory[0], sizeof words));
    OK(cuMemcpyDtoDAsync(memory[2], memory[1], sizeof words, NULL));
    OK(cuMemcpy(memory[3], memory[2], sizeof words));
    OK(cuMemcpyPeer(memory[4], context, memory[3], context, sizeof words));
    OK(cuMemcpyPeerAsync(memory[5], context, memory[4], context, sizeof words - 4, NULL));
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)words, memory[5], sizeof words));
    for (unsigned i = 0; i < WORDS; i++)
        wrong += words[i] != (i + 1 < WORDS ? (i ^ seed) * 2654435761u : 0);
    EXPECT(wrong == 0);
    digest("words", words, sizeof words);
    words[0] = 5;
    OK(cuMemcpyAsync(memory[0], (CUdeviceptr)(uintptr_t)words, 4, NULL));
    OK(cuMemcpyDtoH(words + 1, memory[0], 4));
    EXPECT(words[1] == 5);
    beside_a_capture(memory[0]);
    return check_failed;
}
