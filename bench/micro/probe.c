// Measures driver calls from inside a program, natively or through gpuferry; prints `measured NAME VALUE`.
//
//   probe [NAME ...]    only what has these names; without one, everything
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

static char **names; // that were given

static int wanted(const char *name) {
    for (char **each = names; *each; each++)
        if (strcmp(*each, name) == 0)
            return 1;
    return !*names;
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

// Seconds for so many contexts to begin and end.
static double contexts(int count) {
    static CUcontext made[EVENTS];
    const double began = now();
    CUcontext was;
    for (int i = 0; i < count; i++) {
        QUIET(cuCtxCreate(&made[i], NULL, 0, device));
        QUIET(cuCtxPopCurrent(&was));
    }
    for (int i = 0; i < count; i++)
        QUIET(cuCtxDestroy(made[i]));
    QUIET(cuCtxSynchronize());
    return now() - began;
}

static double best(double (*seconds)(int), int count) {
    double least = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        const double took = seconds(count);
        least = took < least ? took : least;
    }
    return least;
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
        double least = 1e9;                                                                                  \
        for (int round = 0; wanted(name) && round < ROUNDS; round++) {                                       \
            double began = now();                                                                            \
            __VA_ARGS__;                                                                                     \
            double took = (now() - began) / (per);                                                           \
            least = took < least ? took : least;                                                             \
        }                                                                                                    \
        if (wanted(name))                                                                                    \
            measured(name, least);                                                                           \
    } while (0)

// What the program itself spends on a launch: few enough that nothing on the way fills up.
static void launches_handed_over(CUfunction function, CUstream stream, CUdeviceptr memory) {
    const uint64_t before = bytes_sent();
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        const double began = now();
        for (int i = 0; i < BURST; i++)
            QUIET(LAUNCH(function, 1, 1, stream, &memory));
        const double took = (now() - began) / BURST;
        best = took < best ? took : best;
        QUIET(cuStreamSynchronize(stream));
    }
    measured("launch_enqueue", best);
    measured("launch_bytes", (double)(bytes_sent() - before) / ((double)BURST * ROUNDS));
}

// An image that the server has from its first load on.
static void loads(void) {
    char *image = large_image();
    CUmodule module;
    QUIET(cuModuleLoadData(&module, image));
    QUIET(cuCtxSynchronize());
    BEST("load", 1, {
        QUIET(cuModuleLoadData(&module, image));
        QUIET(cuModuleUnload(module));
    });
    measured("image_bytes", (double)IMAGE);
    free(image);
}

int main(int argc, char **argv) {
    double began = now();
    int count = 0;
    QUIET(cuInit(0));
    QUIET(cuDeviceGetCount(&count));
    measured("first_call", now() - began);
    names = argv + 1;
    if (argc == 2 && strcmp(argv[1], "first_call") == 0)
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
    if (wanted("launch_enqueue"))
        launches_handed_over(count_up, stream, memory);
    BEST("alloc_free", PAIRS, {
        for (int i = 0; i < PAIRS; i++) {
            QUIET(cuMemAlloc(&scratch, 1 << 16));
            QUIET(cuMemFree(scratch));
        }
    });
    if (wanted("teardown")) {
        measured("teardown", best(teardown, EVENTS));
        measured("teardown_tenth", best(teardown, EVENTS / 10));
    }
    if (wanted("contexts")) {
        measured("contexts", best(contexts, EVENTS));
        measured("contexts_tenth", best(contexts, EVENTS / 10));
    }
    BEST("h2d", 1, {
        QUIET(cuMemcpyHtoDAsync(memory, host, COPY, stream));
        QUIET(cuStreamSynchronize(stream));
    });
    BEST("d2h", 1, {
        QUIET(cuMemcpyDtoHAsync(host, memory, COPY, stream));
        QUIET(cuStreamSynchronize(stream));
    });
    measured("copy_bytes", (double)COPY);
    if (wanted("load"))
        loads();
    return check_failed;
}
