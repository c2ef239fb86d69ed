// Green contexts of several groups of multiprocessors, streams in them and in none, one that has ended and
// left a stream behind, and an event of all that a context was given.
//
// device: sim how many multiprocessors a GPU puts together differs from card to card
#include "driver.h"
#include "rounds.h"

enum { GREENS = 3, COUNT = 1024 };

static CUgreenCtx greens[GREENS];
static CUstream streams[GREENS], within, left_over;
static CUcontext named;
static unsigned expected[GREENS];

static CUgreenCtx make(CUdevResource *resources, unsigned count) {
    CUdevResourceDesc desc = NULL;
    CUgreenCtx green = NULL;
    QUIET(cuDevResourceGenerateDesc(&desc, resources, count));
    QUIET(cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static void make_all(void) {
    CUdevResource all, groups[4];
    unsigned count = 4;
    QUIET(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    QUIET(cuDevSmResourceSplitByCount(groups, &count, &all, NULL, 0, 0));
    greens[0] = make(groups, 1);
    greens[1] = make(groups + 1, 2);
    CUgreenCtx short_lived = make(groups + 3, 1);
    QUIET(cuGreenCtxStreamCreate(&left_over, short_lived, CU_STREAM_NON_BLOCKING, 0));
    greens[2] = make(&all, 1);
    for (int i = 0; i < GREENS; i++)
        QUIET(cuGreenCtxStreamCreate(&streams[i], greens[i], CU_STREAM_NON_BLOCKING, 0));
    QUIET(cuGreenCtxDestroy(short_lived));
    QUIET(cuCtxFromGreenCtx(&named, greens[1]));
    QUIET(cuCtxPushCurrent(named));
    QUIET(cuStreamCreate(&within, CU_STREAM_DEFAULT));
    QUIET(cuCtxPopCurrent(NULL));
}

static void step(CUfunction affine, CUdeviceptr words, CUevent done) {
    static unsigned found[COUNT];
    unsigned count = COUNT, factor = 3, term = 1;
    for (int i = 0; i < GREENS; i++) {
        CUdeviceptr part = words + (unsigned)i * COUNT * 4;
        QUIET(LAUNCH(affine, COUNT / 256, 256, streams[i], &part, &count, &factor, &term));
        expected[i] = expected[i] * factor + term;
    }
    QUIET(cuGreenCtxRecordEvent(greens[1], done));
    QUIET(cuStreamWaitEvent(within, done, 0));
    CUdeviceptr second = words + COUNT * 4;
    QUIET(LAUNCH(affine, COUNT / 256, 256, within, &second, &count, &factor, &term));
    expected[1] = expected[1] * factor + term;
    QUIET(cuCtxRecordEvent(context, done));
    QUIET(cuCtxWaitEvent(context, done));
    for (int i = 0; i < GREENS; i++) {
        int right = 1;
        QUIET(cuMemcpyDtoH(found, words + (unsigned)i * COUNT * 4, sizeof found));
        for (int k = 0; k < COUNT; k++)
            right &= found[k] == expected[i];
        EXPECT(right);
    }
    QUIET(cuEventQuery(done));
}

static void look(void) {
    CUdevResource have;
    CUgreenCtx of = NULL;
    for (int i = 0; i < GREENS; i++) {
        QUIET(cuStreamGetDevResource(streams[i], &have, CU_DEV_RESOURCE_TYPE_SM));
        printf("a stream on %u multiprocessors\n", have.sm.smCount);
    }
    QUIET(cuStreamGetGreenCtx(within, &of));
    EXPECT(of == greens[1]);
    FAILS(CUDA_ERROR_STREAM_DETACHED, cuStreamSynchronize(left_over));
}

int main(int argc, char **argv) {
    const int wanted = rounds_wanted(argc, argv);
    start();
    CUfunction affine = kernel("affine");
    CUdeviceptr words = allocate(GREENS * COUNT * 4);
    CUevent done = NULL;
    QUIET(cuMemsetD32(words, 0, GREENS * COUNT));
    QUIET(cuEventCreate(&done, CU_EVENT_DEFAULT));
    show_pointer("start", "words", words);
    make_all();
    for (int round = 0; round < wanted; round++) {
        begin_round(round);
        look();
        step(affine, words, done);
    }
    show_pointer("end", "words", words);
    OK(cuStreamDestroy(left_over));
    OK(cuStreamDestroy(within));
    for (int i = 0; i < GREENS; i++)
        OK(cuGreenCtxDestroy(greens[i]));
    for (int i = 0; i < GREENS; i++)
        OK(cuStreamDestroy(streams[i]));
    return check_failed;
}
