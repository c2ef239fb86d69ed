// What the driver has to say comes to the program's standard error: why an image does not load, what is not
// supported (but for what a device without it says too), and every thread's failed assertion.
//
// device: sim   a GPU's driver says less
#include "driver.h"

static const char assert_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n"
    ".global .align 1 .b8 what[6] = {105, 32, 60, 32, 54, 0};\n" // i < 6
    ".global .align 1 .b8 file[5] = {97, 46, 99, 117, 0};\n"     // a.cu
    ".global .align 1 .b8 name[5] = {102, 97, 105, 108, 0};\n"   // fail
    ".visible .entry fail(.param .u64 p) {\n"
    "  .reg .pred %q;\n  .reg .u32 %t, %b, %n, %i;\n  .reg .u64 %a, %w, %f, %m;\n"
    "  ld.param.u64 %a, [p];\n  mov.u32 %t, %tid.x;\n  mov.u32 %b, %ctaid.x;\n  mov.u32 %n, %ntid.x;\n"
    "  mad.lo.u32 %i, %b, %n, %t;\n  setp.lt.u32 %q, %i, 6;\n  @%q bra FINE;\n"
    "  mov.u64 %w, what;\n  cvta.global.u64 %w, %w;\n  mov.u64 %f, file;\n  cvta.global.u64 %f, %f;\n"
    "  mov.u64 %m, name;\n  cvta.global.u64 %m, %m;\n"
    "  { .param .b64 x0;\n .param .b64 x1;\n .param .b32 x2;\n .param .b64 x3;\n .param .b64 x4;\n"
    "  st.param.b64 [x0], %w;\n st.param.b64 [x1], %f;\n st.param.b32 [x2], 12;\n st.param.b64 [x3], %m;\n"
    "  st.param.b64 [x4], 1;\n  call.uni __assertfail, (x0, x1, x2, x3, x4);\n }\n"
    "FINE:\n  atom.global.add.u32 %i, [%a], 1;\n  ret;\n}\n";

// A fatbin with one text, which is for newer devices.
static const struct {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
    uint16_t kind, unknown;
    uint32_t entry_header_size;
    uint64_t stored;
    uint32_t compressed, options, toolkit, capability, others[8];
} newer = {0xba55ed50, 1, 16, 64, 1, 0, 64, 0, 0, 0, 0, 999, {0}};

static void refused(void) {
    CUexternalMemory memory;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD};
    CUmemGenericAllocationHandle handle;
    CUmulticastObjectProp objects = {.numDevices = 1, .size = 2 << 20};
    CUmemAllocationProp fabric = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC};
    CUgraph graph;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    for (int i = 0; i < 2; i++) {
        FAILS(CUDA_ERROR_NOT_SUPPORTED,
              cuStreamBeginRecaptureToGraph(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, NULL));
        FAILS(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalMemory(&memory, &description));
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphicsUnregisterResource(NULL));
        FAILS(CUDA_ERROR_NOT_SUPPORTED,
              cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
        FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMulticastCreate(&handle, &objects));
        FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, 2 << 20, &fabric, 0));
    }
}

int main(void) {
    start();
    CUmodule loaded;
    CUfunction fail;
    CUdeviceptr data = allocate(4);
    OK(cuMemsetD32(data, 0, 1));
    FAILS(CUDA_ERROR_INVALID_PTX,
          cuModuleLoadData(&loaded, ".version 7.0\n.target sm_80\n.visible .entry x() {"));
    FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&loaded, &newer));
    refused();
    OK(cuModuleLoadData(&loaded, assert_ptx));
    OK(cuModuleGetFunction(&fail, loaded, "fail"));
    OK(LAUNCH(fail, 2, 4, NULL, &data));
    FAILS(CUDA_ERROR_ASSERT, cuCtxSynchronize());
    return check_failed;
}
