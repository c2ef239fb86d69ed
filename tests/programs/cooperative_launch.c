// Cooperative launches: every block meets all others, and what cannot be on the device together is refused.
//
// compile: -Wno-deprecated-declarations
#include "driver.h"

enum { BLOCKS = 16, THREADS = 64 };

// Each block adds one to a counter and waits until all have: it ends only if all blocks run at once.
static const char meet_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry meet(.param .u64 p_counter, .param .u64 p_seen) {\n"
    "  .reg .pred %p;\n  .reg .u32 %t, %n, %v, %b;\n  .reg .u64 %c, %s, %o;\n"
    "  ld.param.u64 %c, [p_counter];\n  ld.param.u64 %s, [p_seen];\n"
    "  mov.u32 %t, %tid.x;\n  mov.u32 %n, %nctaid.x;\n  mov.u32 %b, %ctaid.x;\n"
    "  setp.ne.u32 %p, %t, 0;\n  @%p bra DONE;\n"
    "  atom.global.add.u32 %v, [%c], 1;\n"
    "AGAIN:\n  ld.volatile.global.u32 %v, [%c];\n  setp.lt.u32 %p, %v, %n;\n  @%p bra AGAIN;\n"
    "  mul.wide.u32 %o, %b, 4;\n  add.u64 %s, %s, %o;\n  st.global.u32 [%s], %v;\n"
    "DONE:\n  ret;\n}\n";

static CUdeviceptr counter, seen;

static void expect_met(const char *what) {
    unsigned values[BLOCKS];
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(values, seen, sizeof values));
    for (unsigned i = 0; i < BLOCKS; i++)
        EXPECT(values[i] == BLOCKS);
    printf("%s: the last block saw %u\n", what, values[BLOCKS - 1]);
    OK(cuMemsetD32(counter, 0, 1));
    OK(cuMemsetD32(seen, 0, BLOCKS));
    OK(cuCtxSynchronize()); // the next launch is on a stream that does not wait for this one
}

int main(void) {
    start();
    CUmodule loaded;
    CUfunction meet;
    CUstream stream;
    OK(cuModuleLoadData(&loaded, meet_ptx));
    OK(cuModuleGetFunction(&meet, loaded, "meet"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    counter = allocate(4);
    seen = allocate(4 * BLOCKS);
    OK(cuMemsetD32(counter, 0, 1));
    OK(cuMemsetD32(seen, 0, BLOCKS));
    void *arguments[] = {&counter, &seen};
    int can, processors, blocks;
    OK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device));
    OK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    EXPECT(can == 1);

    OK(cuLaunchCooperativeKernel(meet, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, arguments));
    expect_met("cuLaunchCooperativeKernel");
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchConfig config = {BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, &attribute, 1};
    OK(cuLaunchKernelEx(&config, meet, arguments, NULL));
    expect_met("the attribute");
    CUDA_LAUNCH_PARAMS one = {meet, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, arguments};
    OK(cuLaunchCooperativeKernelMultiDevice(&one, 1, 0));
    expect_met("of several devices, one");

    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, meet, THREADS, 0));
    unsigned most = (unsigned)(blocks * processors);
    FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
          cuLaunchCooperativeKernel(meet, most + 1, 1, 1, THREADS, 1, 1, 0, NULL, arguments));
    FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
          cuLaunchCooperativeKernel(meet, 65535, 65535, 1, THREADS, 1, 1, 0, NULL, arguments));
    FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
          cuLaunchCooperativeKernel(meet, 1, 1, 1, THREADS, 1, 1, 1 << 20, NULL, arguments));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchCooperativeKernel(NULL, 1, 1, 1, THREADS, 1, 1, 0, NULL, arguments));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuLaunchCooperativeKernel(meet, 0, 1, 1, THREADS, 1, 1, 0, NULL, arguments));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernel(meet, 1, 1, 1, 1025, 1, 1, 0, NULL, arguments));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(NULL, 1, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(&one, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(&one, 65, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(&one, 1, 4));
    one.hStream = NULL;
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchCooperativeKernelMultiDevice(&one, 1, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(&one, 1u << 31, 0));

    OK(cuLaunchCooperativeKernel(meet, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, arguments));
    expect_met("after what was refused");
    OK(cuStreamDestroy(stream));
    return check_failed;
}
