// The first handle of memory is given while kernels work on it, which wait for the program: they go on, and
// nothing that they write is lost.
#include <stdbool.h>

#include "driver.h"

enum { BLOCKS = 4, APART = 1 << 18, BYTES = BLOCKS * APART };

// Each block counts in a word of its own until it is told to stop, and says how far it has come.
static const char count_ptx[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry count(.param .u64 words, .param .u64 said, .param .u64 told) {\n"
    "  .reg .pred %p; .reg .u64 %rd<5>; .reg .u32 %r<4>;\n"
    "  ld.param.u64 %rd1, [words];\n"
    "  ld.param.u64 %rd2, [said];\n"
    "  ld.param.u64 %rd3, [told];\n"
    "  mov.u32 %r1, %ctaid.x;\n"
    "  mul.wide.u32 %rd4, %r1, 262144;\n"
    "  add.u64 %rd1, %rd1, %rd4;\n"
    "  mul.wide.u32 %rd4, %r1, 4;\n"
    "  add.u64 %rd2, %rd2, %rd4;\n"
    "  mov.u32 %r2, 0;\n"
    "again:\n"
    "  add.u32 %r2, %r2, 1;\n"
    "  st.volatile.global.u32 [%rd1], %r2;\n"
    "  st.volatile.u32 [%rd2], %r2;\n"
    "  ld.volatile.u32 %r3, [%rd3];\n"
    "  setp.eq.u32 %p, %r3, 0;\n"
    "  @%p bra again;\n"
    "  ret;\n"
    "}\n";

static CUstream stream;
static volatile unsigned *said, *told;

// False: nothing works there.
static bool goes_on(void) {
    const unsigned before = *said;
    while (*said == before)
        if (cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
            return false;
    return true;
}

int main(void) {
    CUmodule counting;
    CUfunction count;
    CUipcMemHandle handle;
    start();
    CUdeviceptr words = allocate(BYTES);
    OK(cuMemHostAlloc((void **)&said, BLOCKS * 4, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostAlloc((void **)&told, 4, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuModuleLoadData(&counting, count_ptx));
    OK(cuModuleGetFunction(&count, counting, "count"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32(words, 7, BYTES / 4));
    OK(cuCtxSynchronize());
    *told = 0;
    memset((void *)(uintptr_t)said, 0, BLOCKS * 4);
    OK(LAUNCH(count, BLOCKS, 1, stream, &words, &said, &told));
    EXPECT(goes_on());
    OK(cuIpcGetMemHandle(&handle, words));
    EXPECT(goes_on());
    *told = 1;
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < BLOCKS; i++) {
        unsigned counted[2] = {0};
        QUIET(cuMemcpyDtoH(counted, words + (CUdeviceptr)i * APART, sizeof counted));
        EXPECT(counted[0] == said[i] && counted[0] > 0 && counted[1] == 7);
    }
    return check_failed;
}
