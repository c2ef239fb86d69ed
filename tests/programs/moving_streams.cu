// Streams with a chain of work each, events that are older than the round that asks for them, and memory of
// every kind: plain, stream-ordered, pinned.
#include "rounds.h"

enum { STREAMS = 4, WORDS = 1 << 16 };

__global__ void step(unsigned *data, unsigned factor) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = data[i] * factor + i;
}

__global__ void combine(unsigned *to, const unsigned *from) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] ^= from[i];
}

int main(int argc, char **argv) {
    const int rounds = rounds_wanted(argc, argv);
    const size_t size = WORDS * sizeof(unsigned);
    cudaStream_t streams[STREAMS];
    cudaEvent_t begun, done[STREAMS], untimed, ends[MOST_ROUNDS];
    unsigned *data[STREAMS], *pinned, *model[STREAMS];
    int priority = 0, lowest = 0, highest = 0, found = 0;
    unsigned flags = 0;
    RT_OK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    RT_OK(cudaHostAlloc(&pinned, size, cudaHostAllocDefault));
    for (int i = 0; i < STREAMS; i++) {
        priority = i % 2 ? highest : lowest;
        RT_OK(cudaStreamCreateWithPriority(&streams[i], i < 2 ? cudaStreamNonBlocking : cudaStreamDefault,
                                           priority));
        if (i == 0)
            RT_OK(cudaMallocAsync(&data[i], size, streams[i]));
        else
            RT_OK(cudaMalloc(&data[i], size));
        RT_OK(cudaMemsetAsync(data[i], 0, size, streams[i]));
        RT_OK(cudaEventCreateWithFlags(&done[i], cudaEventBlockingSync));
        model[i] = static_cast<unsigned *>(calloc(WORDS, sizeof(unsigned)));
    }
    RT_OK(cudaEventCreate(&begun));
    RT_OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    RT_OK(cudaEventRecord(begun, streams[1]));
    RT_OK(cudaEventSynchronize(begun));
    show_pointer("start", "data", reinterpret_cast<uint64_t>(data[0]));
    for (int round = 0; round < rounds; round++) {
        float since_begun = -1, of_round = -1, until_before = 0;
        begin_round(round + 1);
        for (int i = 0; i < STREAMS; i++) {
            step<<<WORDS / 256, 256, 0, streams[i]>>>(data[i], 2 * i + 3);
            RT_QUIET(cudaEventRecord(done[i], streams[i]));
        }
        // each takes from its neighbour, one after the other
        for (int i = 0; i < STREAMS; i++) {
            const int from = (i + 1) % STREAMS;
            RT_QUIET(cudaStreamWaitEvent(streams[i], done[from], 0));
            combine<<<WORDS / 256, 256, 0, streams[i]>>>(data[i], data[from]);
            RT_QUIET(cudaEventRecord(done[i], streams[i]));
            RT_QUIET(cudaStreamWaitEvent(streams[from], done[i], 0));
        }
        RT_OK(cudaEventCreate(&ends[round]));
        RT_OK(cudaEventRecord(ends[round], streams[STREAMS - 1]));
        RT_OK(cudaEventRecord(untimed, streams[0]));
        for (int i = 0; i < STREAMS; i++)
            for (unsigned n = 0; n < WORDS; n++)
                model[i][n] = model[i][n] * (2 * i + 3) + n;
        for (int i = 0; i < STREAMS; i++)
            for (unsigned n = 0; n < WORDS; n++)
                model[i][n] ^= model[(i + 1) % STREAMS][n];
        int wrong = 0;
        for (int i = 0; i < STREAMS; i++) {
            RT_QUIET(cudaMemcpyAsync(pinned, data[i], size, cudaMemcpyDeviceToHost, streams[i]));
            RT_QUIET(cudaStreamSynchronize(streams[i]));
            wrong += memcmp(pinned, model[i], size) != 0;
        }
        EXPECT(wrong == 0);
        digest("data", pinned, size);
        RT_OK(cudaEventQuery(begun));
        RT_OK(cudaEventQuery(untimed));
        RT_OK(cudaEventElapsedTime(&since_begun, begun, ends[round]));
        RT_OK(cudaEventElapsedTime(&of_round, round ? ends[round - 1] : begun, ends[round]));
        if (round)
            RT_OK(cudaEventElapsedTime(&until_before, begun, ends[round - 1]));
        // times add up, whatever lies between; half a microsecond is what they are exact to
        const float difference = since_begun - (until_before + of_round);
        EXPECT(of_round > 0 && since_begun >= of_round);
        EXPECT(difference < 0.01f + since_begun * 1e-5f && difference > -0.01f - since_begun * 1e-5f);
        RT_FAILS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&of_round, begun, untimed));
        RT_OK(cudaStreamGetPriority(streams[1], &found));
        RT_OK(cudaStreamGetFlags(streams[0], &flags));
        EXPECT(found == highest && flags == cudaStreamNonBlocking);
        // a stream of the round: it is gone when the next begins
        cudaStream_t passing;
        RT_OK(cudaStreamCreate(&passing));
        RT_OK(cudaStreamDestroy(passing));
    }
    show_pointer("end", "data", reinterpret_cast<uint64_t>(data[0]));
    RT_OK(cudaFreeAsync(data[0], streams[0]));
    for (int i = 0; i < STREAMS; i++) {
        RT_QUIET(cudaStreamDestroy(streams[i]));
        free(model[i]);
    }
    RT_OK(cudaFreeHost(pinned));
    return check_failed || check_repeated;
}
