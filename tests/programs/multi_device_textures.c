// A texture is its context's, also where each device numbers its textures from 1: kernels of both devices
// read their own, what one is made of is told by the context that is current, and one that ends is not the
// other device's.
//
// suite: devices
#include "driver.h"

static const char ptx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry index(.param .u64 texture, .param .u64 out) {\n"
    "  .reg .b64 %t, %o; .reg .b32 %x, %r<4>;\n"
    "  ld.param.u64 %t, [texture]; ld.param.u64 %o, [out];\n"
    "  mov.u32 %x, 3;\n"
    "  tex.1d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%t, {%x}]; st.global.b32 [%o], %r0; ret; }\n";

static CUcontext primary[2];
static CUfunction read_index[2];
static CUdeviceptr words[2], out[2];
static CUtexObject object[2];

static void make(int i) {
    CUmodule code;
    CUDA_TEXTURE_DESC sampler = {.flags = CU_TRSF_READ_AS_INTEGER};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
    OK(cuDevicePrimaryCtxRetain(&primary[i], i));
    OK(cuCtxSetCurrent(primary[i]));
    OK(cuModuleLoadData(&code, ptx));
    OK(cuModuleGetFunction(&read_index[i], code, "index"));
    OK(cuMemAlloc(&words[i], 64));
    OK(cuMemAlloc(&out[i], 4));
    OK(cuMemsetD32(words[i], 10u + (unsigned)i, 16));
    resource.res.linear.devPtr = words[i];
    resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = 64;
    OK(cuTexObjectCreate(&object[i], &resource, &sampler, NULL));
}

static unsigned value_of(int i) {
    unsigned value = 0;
    OK(cuCtxSetCurrent(primary[i]));
    OK(LAUNCH(read_index[i], 1, 1, NULL, &object[i], &out[i]));
    OK(cuMemcpyDtoH(&value, out[i], 4));
    return value;
}

int main(void) {
    CUDA_RESOURCE_DESC resource;
    OK(cuInit(0));
    make(0);
    make(1);
    printf("the same number: %d\n", object[0] == object[1]);
    for (int i = 0; i < 2; i++) {
        EXPECT(value_of(i) == 10u + (unsigned)i);
        OK(cuTexObjectGetResourceDesc(&resource, object[i]));
        EXPECT(resource.res.linear.devPtr == words[i]);
    }
    OK(cuCtxSetCurrent(primary[1]));
    OK(cuTexObjectDestroy(object[1]));
    EXPECT(value_of(0) == 10);
    OK(cuTexObjectGetResourceDesc(&resource, object[0]));
    EXPECT(resource.res.linear.devPtr == words[0]);
    return check_failed;
}
