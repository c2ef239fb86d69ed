// Measures driver calls from inside a program, natively or through gpuferry; prints `measured NAME VALUE`.
// With the argument `connect` it measures its first call only.
#include <dlfcn.h>
#include <time.h>

#include "driver.h"
#include "wire/stats.h"

enum {
    SYNCS = 3000,
    ASYNCS = 50000,
    LAUNCHES = 20000,
    PAIRS = 20000,
    BURST = 1000,
    EVENTS = 10000,
    ROUNDS = 5
};
static const size_t COPY = (size_t)128 << 20, IMAGE = (size_t)8 << 20;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static uint64_t bytes_sent(void) {
    void (*read_stats)(struct gf_stats *) =
        (void (*)(struct gf_stats *))dlsym(RTLD_DEFAULT, "gpuferry_stats");
    struct gf_stats stats = {0};
    if (read_stats)
        read_stats(&stats);
    return stats.bytes_sent;
}

static void measured(const char *name, double value) {
    printf("measured %s %.9g\n", name, value);
}

// Seconds for a context with so many events in it to go, while as many younger ones stay elsewhere.
static double teardown(int events) {
    static CUevent stay[EVENTS];
    CUcontext doomed, was;
    CUevent event;
    QUIET(cuCtxGetCurrent(&was));
    QUIET(cuCtxCreate(&doomed, NULL, 0, device));
    for (int i = 0; i < events; i++)
        QUIET(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    QUIET(cuCtxSetCurrent(was));
    for (int i = 0; i < events; i++)
        QUIET(cuEventCreate(&stay[i], CU_EVENT_DISABLE_TIMING));
    QUIET(cuCtxSynchronize());
    double began = now();
    QUIET(cuCtxDestroy(doomed));
    QUIET(cuCtxSynchronize());
    double took = now() - began;
    for (int i = 0; i < events; i++)
        QUIET(cuEventDestroy(stay[i]));
    QUIET(cuCtxSynchronize());
    return took;
}

static double best_teardown(int events) {
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double took = teardown(events);
        best = took < best ? took : best;
    }
    return best;
}

// So many contexts begin and end.
static void contexts(int count) {
    static CUcontext made[EVENTS];
    CUcontext was;
    for (int i = 0; i < count; i++) {
        QUIET(cuCtxCreate(&made[i], NULL, 0, device));
        QUIET(cuCtxPopCurrent(&was));
    }
    for (int i = 0; i < count; i++)
        QUIET(cuCtxDestroy(made[i]));
    QUIET(cuCtxSynchronize());
}

// A large image, most of it a comment.
static char *large_image(void) {
    const size_t length = strlen(kernels_ptx);
    char *image = malloc(IMAGE + 1);
    if (!image)
        exit(1);
    memcpy(image, kernels_ptx, length);
    memset(image + length, ' ', IMAGE - length);
    memcpy(image + length, "\n//", 3);
    image[IMAGE] = 0;
    return image;
}

// The best of a few rounds: the machine is shared, and what disturbs only ever adds.
#define BEST(name, per, ...)                                                                                 \
    do {                                                                                                     \
        double best = 1e9;                                                                                   \
        for (int round = 0; round < ROUNDS; round++) {                                                       \
            double began = now();                                                                            \
            __VA_ARGS__;                                                                                     \
            double took = (now() - began) / (per);                                                           \
            best = took < best ? took : best;                                                                \
        }                                                                                                    \
        measured(name, best);                                                                                \
    } while (0)

int main(int argc, char **argv) {
    double began = now();
    int count = 0;
    QUIET(cuInit(0));
    QUIET(cuDeviceGetCount(&count));
    measured("first_call", now() - began);
    if (argc > 1 && strcmp(argv[1], "connect") == 0)
        return check_failed;
    start();
    CUstream stream;
    unsigned *host;
    QUIET(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    QUIET(cuMemHostAlloc((void **)&host, COPY, 0));
    memset(host, 1, COPY);
    CUdeviceptr memory = allocate(COPY), scratch;
    CUfunction count_up = kernel("count_up");
    QUIET(LAUNCH(count_up, 1, 1, stream, &memory));
    QUIET(cuCtxSynchronize());

    BEST("sync_call", SYNCS, {
        for (int i = 0; i < SYNCS; i++) {
            QUIET(cuMemsetD8Async(memory, 0, 1, stream));
            QUIET(cuStreamSynchronize(stream));
        }
    });
    CUevent event;
    unsigned word;
    QUIET(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    QUIET(cuEventRecord(event, stream));
    QUIET(cuEventSynchronize(event));
    BEST("event_query", ASYNCS, {
        for (int i = 0; i < ASYNCS; i++)
            QUIET(cuEventQuery(event));
    });
    BEST("idle_sync", ASYNCS, {
        for (int i = 0; i < ASYNCS; i++)
            QUIET(cuStreamSynchronize(stream));
    });
    BEST("small_d2h", SYNCS, {
        for (int i = 0; i < SYNCS; i++)
            QUIET(cuMemcpyDtoH(&word, memory, sizeof word));
    });
    BEST("async_call", ASYNCS, {
        for (int i = 0; i < ASYNCS; i++)
            QUIET(cuMemsetD8Async(memory, 0, 1, stream));
        QUIET(cuStreamSynchronize(stream));
    });
    BEST("launch", LAUNCHES, {
        for (int i = 0; i < LAUNCHES; i++)
            QUIET(LAUNCH(count_up, 1, 1, stream, &memory));
        QUIET(cuStreamSynchronize(stream));
    });
    // Few enough that nothing on the way fills up: what the program itself spends on a launch.
    const uint64_t before = bytes_sent();
    double handed_over = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        const double start_time = now();
        for (int i = 0; i < BURST; i++)
            QUIET(LAUNCH(count_up, 1, 1, stream, &memory));
        const double took = (now() - start_time) / BURST;
        handed_over = took < handed_over ? took : handed_over;
        QUIET(cuStreamSynchronize(stream));
    }
    measured("launch_enqueue", handed_over);
    measured("launch_bytes", (double)(bytes_sent() - before) / ((double)BURST * ROUNDS));
    BEST("alloc_free", PAIRS, {
        for (int i = 0; i < PAIRS; i++) {
            QUIET(cuMemAlloc(&scratch, 1 << 16));
            QUIET(cuMemFree(scratch));
        }
    });
    measured("teardown", best_teardown(EVENTS));
    measured("teardown_tenth", best_teardown(EVENTS / 10));
    BEST("contexts", 1, contexts(EVENTS));
    BEST("contexts_tenth", 1, contexts(EVENTS / 10));
    BEST("h2d", 1, {
        QUIET(cuMemcpyHtoDAsync(memory, host, COPY, stream));
        QUIET(cuStreamSynchronize(stream));
    });
    BEST("d2h", 1, {
        QUIET(cuMemcpyDtoHAsync(host, memory, COPY, stream));
        QUIET(cuStreamSynchronize(stream));
    });
    measured("copy_bytes", (double)COPY);
    char *image = large_image();
    CUmodule module;
    QUIET(cuModuleLoadData(&module, image)); // from now on the server has it
    QUIET(cuCtxSynchronize());
    BEST("load", 1, {
        QUIET(cuModuleLoadData(&module, image));
        QUIET(cuModuleUnload(module));
    });
    measured("image_bytes", (double)IMAGE);
    free(image);
    return check_failed;
}
