// A kernel and the program talk to each other while the kernel runs: both poll memory that they share, in
// pages of their own, the program also without any call, and while another context has nothing to do. After
// an error the program still has what it wrote, and after a reset it gets new memory.
#include <stdbool.h>

#include "driver.h"

// Says 1, waits until it is told something, and says that plus 1.
static const char talk_ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                               ".visible .entry talk(.param .u64 said, .param .u64 told) {\n"
                               "  .reg .pred %p; .reg .u64 %rd<3>; .reg .u32 %r<2>;\n"
                               "  ld.param.u64 %rd1, [said];\n"
                               "  ld.param.u64 %rd2, [told];\n"
                               "  mov.u32 %r1, 1;\n"
                               "  st.volatile.u32 [%rd1], %r1;\n"
                               "again:\n"
                               "  ld.volatile.u32 %r1, [%rd2];\n"
                               "  setp.eq.u32 %p, %r1, 0;\n"
                               "  @%p bra again;\n"
                               "  add.u32 %r1, %r1, 1;\n"
                               "  st.volatile.u32 [%rd1], %r1;\n"
                               "  ret;\n"
                               "}\n";

static volatile unsigned *mapped(void) {
    void *memory = NULL;
    OK(cuMemHostAlloc(&memory, 4, CU_MEMHOSTALLOC_DEVICEMAP));
    return memory;
}

static void another_is_idle(void) {
    CUcontext other;
    OK(cuCtxCreate(&other, NULL, 0, device));
    OK(cuCtxSynchronize());
    OK(cuCtxDestroy(other));
}

/* `calls`: the program asks about the stream while it polls. */
static void talk(bool calls) {
    volatile unsigned *said = mapped(), *told = mapped();
    CUmodule talking;
    CUfunction function;
    CUstream stream;
    OK(cuModuleLoadData(&talking, talk_ptx));
    OK(cuModuleGetFunction(&function, talking, "talk"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    *said = *told = 0;
    OK(LAUNCH(function, 1, 1, stream, &said, &told));
    while (*said == 0 && (!calls || cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)) {
    }
    EXPECT(*said == 1);
    another_is_idle();
    *told = 41;
    while (!calls && *said != 42) {
    }
    OK(cuStreamSynchronize(stream));
    EXPECT(*said == 42);
    OK(cuMemFreeHost((void *)said));
    OK(cuMemFreeHost((void *)told));
}

static void lives(void) {
    CUdeviceptr address, nowhere = 8;
    CUcontext other;
    OK(cuCtxCreate(&other, NULL, 0, device));
    OK(cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_GLOBAL));
    *(unsigned *)address = 3;
    OK(cuCtxDestroy(other));
    OK(cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_GLOBAL));
    *(unsigned *)address = 7;
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &nowhere));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    EXPECT(*(unsigned *)address == 7);
    OK(cuDevicePrimaryCtxReset(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_GLOBAL));
    *(unsigned *)address = 10;
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &address));
    OK(cuCtxSynchronize());
    EXPECT(*(unsigned *)address == 11);
}

int main(void) {
    start();
    talk(true);
    if (check_failed == 0) { /* nobody would end it where kernels do nothing */
        talk(false);
    }
    lives();
    return check_failed;
}
