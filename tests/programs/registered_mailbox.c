// A kernel and the program talk to each other by words of memory that the program has registered, side by
// side, while the program asks how far the kernel is; other work that is given meanwhile, whose words lie
// between those, disturbs nothing.
#include <time.h>

#include "driver.h"

// For each turn: says the turn's number, waits until it is told the same; adds up what it was told.
static const char talk_ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                               ".visible .entry talk(.param .u64 box, .param .u32 turns) {\n"
                               "  .reg .pred %p; .reg .u64 %rd<2>; .reg .u32 %r<6>;\n"
                               "  ld.param.u64 %rd1, [box];\n"
                               "  ld.param.u32 %r1, [turns];\n"
                               "  mov.u32 %r2, 0;\n"
                               "  mov.u32 %r4, 0;\n"
                               "next:\n"
                               "  add.u32 %r2, %r2, 0x10101;\n"
                               "  st.volatile.u32 [%rd1], %r2;\n"
                               "again:\n"
                               "  ld.volatile.u32 %r3, [%rd1+4];\n"
                               "  setp.ne.u32 %p, %r3, %r2;\n"
                               "  @%p bra again;\n"
                               "  add.u32 %r4, %r4, %r3;\n"
                               "  sub.u32 %r1, %r1, 1;\n"
                               "  setp.ne.u32 %p, %r1, 0;\n"
                               "  @%p bra next;\n"
                               "  st.volatile.u32 [%rd1+12], %r4;\n"
                               "  ret;\n"
                               "}\n";

enum { TURNS = 5, STEP = 0x10101, PATIENCE = 60 };

struct box {
    volatile unsigned said, told, counter, sum;
};

// Asks about the kernel until the word is there, unless the kernel ends or never comes to it.
static int hears(struct box *box, unsigned word, CUstream stream) {
    time_t late = time(NULL) + PATIENCE;
    while (box->said != word && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY && time(NULL) < late) {
    }
    return box->said == word;
}

int main(void) {
    struct box *box = NULL;
    CUdeviceptr seen = 0;
    CUmodule talking;
    CUfunction talk;
    CUstream first, second;
    unsigned turns = TURNS, sum = 0;
    if (posix_memalign((void **)&box, 4096, 4096) != 0)
        return 2;
    memset(box, 0, 4096);
    start();
    OK(cuModuleLoadData(&talking, talk_ptx));
    OK(cuModuleGetFunction(&talk, talking, "talk"));
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostRegister(box, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&seen, box, 0));
    CUdeviceptr counter = seen + 8;
    OK(LAUNCH(talk, 1, 1, first, &seen, &turns));
    for (unsigned turn = 1; turn <= TURNS && check_failed == 0; turn++) {
        EXPECT(hears(box, turn * STEP, first));
        box->counter = 10 * turn;
        OK(LAUNCH(kernel("count_up"), 1, 1, second, &counter));
        OK(cuStreamSynchronize(second));
        EXPECT(box->counter == 10 * turn + 1);
        box->told = turn * STEP;
        sum += turn * STEP;
    }
    if (check_failed) // the kernel waits for ever
        return check_failed;
    OK(cuStreamSynchronize(first));
    EXPECT(box->said == TURNS * STEP && box->sum == sum && box->told == TURNS * STEP);
    EXPECT(box->counter == 10 * TURNS + 1);
    OK(cuMemHostUnregister(box));
    free(box);
    return check_failed;
}
