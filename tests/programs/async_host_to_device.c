// Pageable host memory may be changed as soon as an asynchronous copy from it has returned; page-locked
// memory once its stream was waited for.
#include <stdbool.h>

#include "driver.h"

enum { WORDS = 20000, ROUNDS = 20 };

static const char awaits[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                             ".visible .entry await(.param .u64 word) {\n"
                             ".reg .pred %p; .reg .b32 %r; .reg .b64 %a;\n"
                             "ld.param.u64 %a, [word];\n"
                             "again: ld.volatile.global.u32 %r, [%a];\n"
                             "setp.eq.u32 %p, %r, 0;\n"
                             "@%p bra again;\n"
                             "ret;\n}\n";

// A stream that does not wait for the legacy one does not wait for what is under way there, copies included:
// what comes first there waits for it.
static void held_by_another(CUstream stream, bool by_value) {
    static unsigned words[16];
    CUmodule waiting;
    CUfunction await;
    CUarray array;
    CUdeviceptr word = allocate(4), memory = allocate(sizeof words);
    printf("held by a %s\n", by_value ? "value" : "kernel");
    OK(cuModuleLoadData(&waiting, awaits));
    OK(cuModuleGetFunction(&await, waiting, "await"));
    OK(cuArrayCreate(&array, &(CUDA_ARRAY_DESCRIPTOR){16, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1}));
    OK(cuMemsetD32(word, 0, 1));
    OK(cuCtxSynchronize());
    if (by_value)
        OK(cuStreamWaitValue32(NULL, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    else
        OK(LAUNCH(await, 1, 1, NULL, &word));
    if (!pageable_copies_may_wait()) {
        QUIET(cuMemcpyHtoAAsync(array, 0, words, sizeof words, NULL));
        QUIET(cuMemcpyHtoDAsync(memory, words, sizeof words, NULL));
    }
    OK(cuMemsetD32Async(word, 1, 1, stream));
    OK(cuCtxSynchronize());
    OK(cuArrayDestroy(array));
    OK(cuModuleUnload(waiting));
}

int main(void) {
    static unsigned pageable[WORDS], back[WORDS];
    unsigned *pinned, wrong = 0;
    CUstream stream;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&pinned, sizeof pageable, 0));
    CUdeviceptr slots = allocate(sizeof pageable * ROUNDS);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned *host = round % 2 ? pinned : pageable;
        for (unsigned i = 0; i < WORDS; i++)
            host[i] = i * 31 + round;
        QUIET(cuMemcpyHtoDAsync(slots + round * sizeof pageable, host, sizeof pageable, stream));
        if (host == pinned)
            QUIET(cuStreamSynchronize(stream));
    }
    OK(cuStreamSynchronize(stream));
    for (unsigned round = 0; round < ROUNDS; round++) {
        QUIET(cuMemcpyDtoH(back, slots + round * sizeof back, sizeof back));
        for (unsigned i = 0; i < WORDS; i++)
            wrong += back[i] != i * 31 + round;
    }
    EXPECT(wrong == 0);
    digest("last", back, sizeof back);
    OK(cuMemFreeHost(pinned));
    held_by_another(stream, false);
    held_by_another(stream, true);
    return check_failed;
}
