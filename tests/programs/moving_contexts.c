// Two contexts of one device, each with modules of its own (one of them twice), a library in both, memory and
// a stream.
#include "driver.h"
#include "rounds.h"

enum { CONTEXTS = 2, COUNT = 64 };

struct side {
    CUcontext context;
    CUmodule module, twin;
    CUstream stream;
    CUdeviceptr result, words, twin_words, library_words;
    CUfunction mix, twin_mix, library_mix;
    unsigned model[3][COUNT];
};

static CUlibrary library;
static CUkernel library_kernel;

static void set_up(struct side *side, unsigned number) {
    unsigned weights[16];
    CUdeviceptr constants;
    QUIET(cuModuleLoadData(&side->module, kernels_ptx));
    QUIET(cuModuleLoadData(&side->twin, kernels_ptx));
    QUIET(cuStreamCreate(&side->stream, CU_STREAM_NON_BLOCKING));
    QUIET(cuMemAlloc(&side->result, sizeof side->model[0]));
    QUIET(cuModuleGetGlobal(&side->words, NULL, side->module, "global_words"));
    QUIET(cuModuleGetGlobal(&side->twin_words, NULL, side->twin, "global_words"));
    QUIET(cuLibraryGetGlobal(&side->library_words, NULL, library, "global_words"));
    QUIET(cuModuleGetFunction(&side->mix, side->module, "mix_globals"));
    QUIET(cuModuleGetFunction(&side->twin_mix, side->twin, "mix_globals"));
    QUIET(cuKernelGetFunction(&side->library_mix, library_kernel));
    for (unsigned i = 0; i < 16; i++)
        weights[i] = i * i + number;
    QUIET(cuModuleGetGlobal(&constants, NULL, side->module, "constant_words"));
    QUIET(cuMemcpyHtoD(constants, weights, sizeof weights));
}

static unsigned mix(struct side *side, CUfunction function, unsigned *model, unsigned weight) {
    unsigned got[COUNT], wrong = 0;
    QUIET(LAUNCH(function, 1, COUNT, side->stream, &side->result));
    QUIET(cuMemcpyDtoHAsync(got, side->result, sizeof got, side->stream));
    QUIET(cuStreamSynchronize(side->stream));
    for (unsigned i = 0; i < COUNT; i++) {
        model[i] = model[i] * 3 + (weight ? i % 16 * (i % 16) + weight : 0);
        wrong += got[i] != model[i];
    }
    return wrong;
}

static void show(const char *when, const struct side *sides) {
    for (int i = 0; i < CONTEXTS; i++) {
        show_pointer(when, "result", sides[i].result);
        show_pointer(when, "variable", sides[i].words);
        show_pointer(when, "twin's variable", sides[i].twin_words);
        show_pointer(when, "library's variable", sides[i].library_words);
    }
}

int main(int argc, char **argv) {
    const int rounds = rounds_wanted(argc, argv);
    static struct side sides[CONTEXTS];
    start();
    OK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&library_kernel, library, "mix_globals"));
    sides[0].context = context;
    OK(cuCtxCreate(&sides[1].context, NULL, CU_CTX_SCHED_AUTO, device));
    for (int i = 0; i < CONTEXTS; i++) {
        OK(cuCtxSetCurrent(sides[i].context));
        set_up(&sides[i], 1 + i);
        for (unsigned n = 0; n < COUNT; n++)
            sides[i].model[0][n] = sides[i].model[1][n] = sides[i].model[2][n] = n * 11 + i;
        OK(cuMemcpyHtoD(sides[i].words, sides[i].model[0], sizeof sides[i].model[0]));
        OK(cuMemcpyHtoD(sides[i].twin_words, sides[i].model[1], sizeof sides[i].model[1]));
        OK(cuMemcpyHtoD(sides[i].library_words, sides[i].model[2], sizeof sides[i].model[2]));
    }
    show("start", sides);
    for (int round = 0; round < rounds; round++) {
        begin_round(round + 1);
        for (int i = 0; i < CONTEXTS; i++) {
            struct side *side = &sides[(i + round) % CONTEXTS];
            CUdeviceptr words = 0, library_words = 0;
            OK(cuCtxSetCurrent(side->context));
            EXPECT(mix(side, side->mix, side->model[0], 1 + (unsigned)(side - sides)) == 0);
            EXPECT(mix(side, side->twin_mix, side->model[1], 0) == 0);
            EXPECT(mix(side, side->library_mix, side->model[2], 0) == 0);
            digest("words", side->model[0], sizeof side->model[0]);
            OK(cuModuleGetGlobal(&words, NULL, side->module, "global_words"));
            OK(cuLibraryGetGlobal(&library_words, NULL, library, "global_words"));
            EXPECT(words == side->words && library_words == side->library_words);
        }
    }
    show("end", sides);
    OK(cuCtxDestroy(sides[1].context));
    OK(cuLibraryUnload(library));
    OK(cuDevicePrimaryCtxRelease(device));
    return check_failed || check_repeated;
}
