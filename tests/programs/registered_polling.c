// A program polls memory that it has registered without making any call, while a kernel, or a write in a
// stream, writes it; a kernel polls it while the program writes.
#include <stddef.h>
#include <time.h>

#include "driver.h"

// For each turn: says the turn's number, waits until it is told the same.
static const char talk_ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                               ".visible .entry talk(.param .u64 box, .param .u32 turns) {\n"
                               "  .reg .pred %p; .reg .u64 %rd<2>; .reg .u32 %r<4>;\n"
                               "  ld.param.u64 %rd1, [box];\n"
                               "  ld.param.u32 %r1, [turns];\n"
                               "  mov.u32 %r2, 0;\n"
                               "next:\n"
                               "  add.u32 %r2, %r2, 1;\n"
                               "  st.volatile.u32 [%rd1], %r2;\n"
                               "again:\n"
                               "  ld.volatile.u32 %r3, [%rd1+4];\n"
                               "  setp.ne.u32 %p, %r3, %r2;\n"
                               "  @%p bra again;\n"
                               "  setp.ne.u32 %p, %r2, %r1;\n"
                               "  @%p bra next;\n"
                               "  ret;\n"
                               "}\n";

enum { TURNS = 5, PATIENCE = 60 };

struct box {
    volatile unsigned said, told, written;
};

static int becomes(volatile unsigned *word, unsigned wanted) {
    time_t late = time(NULL) + PATIENCE;
    while (*word != wanted && time(NULL) < late)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    return *word == wanted;
}

int main(void) {
    struct box *box = NULL;
    CUdeviceptr seen = 0;
    CUmodule talking;
    CUfunction talk;
    CUstream stream, gated;
    unsigned turns = TURNS;
    if (posix_memalign((void **)&box, 4096, 4096) != 0)
        return 2;
    memset(box, 0, 4096);
    start();
    CUdeviceptr gate = allocate(4);
    OK(cuMemsetD32(gate, 0, 1));
    OK(cuStreamSynchronize(NULL)); // a stream that does not block waits for nothing of the default stream
    OK(cuModuleLoadData(&talking, talk_ptx));
    OK(cuModuleGetFunction(&talk, talking, "talk"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&gated, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostRegister(box, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&seen, box, 0));
    OK(LAUNCH(talk, 1, 1, stream, &seen, &turns));
    for (unsigned turn = 1; turn <= TURNS && check_failed == 0; turn++) {
        EXPECT(becomes(&box->said, turn));
        box->told = turn;
    }
    if (check_failed) // the kernel waits for ever
        return check_failed;
    OK(cuStreamSynchronize(stream));

    OK(cuStreamWaitValue32(gated, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamWriteValue32(gated, seen + offsetof(struct box, written), 7, 0));
    EXPECT(box->written == 0);
    OK(cuStreamWriteValue32(stream, gate, 1, 0));
    EXPECT(becomes(&box->written, 7));
    OK(cuStreamSynchronize(gated));
    OK(cuMemHostUnregister(box));
    free(box);
    return check_failed;
}
