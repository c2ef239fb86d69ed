// Textures over arrays and memory, and surfaces, read and written by kernels that get their numbers as
// parameters. Some are destroyed in between, so that the numbers of those that stay have gaps: a session that
// moves keeps them.
#include "driver.h"

enum { WIDTH = 40, HEIGHT = 24, COUNT = WIDTH * HEIGHT, ROUNDS = 12 };

static const char ptx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry fetch(.param .u64 texture, .param .u64 out, .param .f32 dx, .param .f32 dy) {\n"
    "  .reg .b64 %t, %o; .reg .b32 %x, %y, %i; .reg .f32 %u, %v, %dx, %dy, %r<4>;\n"
    "  ld.param.u64 %t, [texture]; ld.param.u64 %o, [out];\n"
    "  ld.param.f32 %dx, [dx]; ld.param.f32 %dy, [dy];\n"
    "  mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; mad.lo.u32 %i, %y, 40, %x; mad.wide.u32 %o, %i, 4, %o;\n"
    "  cvt.rn.f32.u32 %u, %x; cvt.rn.f32.u32 %v, %y; add.f32 %u, %u, %dx; add.f32 %v, %v, %dy;\n"
    "  tex.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%t, {%u, %v}];\n"
    "  st.global.f32 [%o], %r0; ret; }\n"
    ".visible .entry index(.param .u64 texture, .param .u64 out) {\n"
    "  .reg .b64 %t, %o; .reg .b32 %x, %y, %r<4>;\n"
    "  ld.param.u64 %t, [texture]; ld.param.u64 %o, [out];\n"
    "  mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; mad.lo.u32 %x, %y, 40, %x; mad.wide.u32 %o, %x, 4, %o;\n"
    "  tex.1d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%t, {%x}]; st.global.b32 [%o], %r0; ret; }\n"
    ".visible .entry add(.param .u64 surface, .param .f32 amount) {\n"
    "  .reg .b64 %s; .reg .b32 %x, %y; .reg .f32 %a; .reg .b32 %v;\n"
    "  ld.param.u64 %s, [surface]; ld.param.f32 %a, [amount];\n"
    "  mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; shl.b32 %x, %x, 2;\n"
    "  suld.b.2d.b32.trap %v, [%s, {%x, %y}];\n"
    "  { .reg .f32 %f; mov.b32 %f, %v; add.f32 %f, %f, %a; mov.b32 %v, %f; }\n"
    "  sust.b.2d.b32.trap [%s, {%x, %y}], %v; ret; }\n";

static CUmodule code;
static CUfunction fetch, read_index, add;
static CUarray image;
static CUdeviceptr out, words;
static float model[COUNT];

static CUDA_RESOURCE_DESC of_array(CUarray array) {
    CUDA_RESOURCE_DESC desc = {.resType = CU_RESOURCE_TYPE_ARRAY};
    desc.res.array.hArray = array;
    return desc;
}

static CUtexObject texture(CUarray array, CUfilter_mode filter) {
    CUtexObject object = 0;
    CUDA_RESOURCE_DESC resource = of_array(array);
    CUDA_TEXTURE_DESC sampler = {.filterMode = filter,
                                 .addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP}};
    QUIET(cuTexObjectCreate(&object, &resource, &sampler, NULL));
    return object;
}

/* Rows of 8 floats, 160 bytes apart: behind the last one nothing needs to be. */
static void rows(void) {
    CUdeviceptr data = allocate((HEIGHT - 1) * 160 + 32), to = allocate(sizeof model);
    CUtexObject object = 0;
    CUDA_TEXTURE_DESC sampler = {0};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_PITCH2D};
    float last = 0, nothing = 0;
    resource.res.pitch2D.devPtr = data;
    resource.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
    resource.res.pitch2D.numChannels = 1;
    resource.res.pitch2D.width = 8;
    resource.res.pitch2D.height = HEIGHT;
    resource.res.pitch2D.pitchInBytes = 160;
    OK(cuMemsetD32(data + (HEIGHT - 1) * 160 + 28, 0x40e00000, 1)); // 7
    OK(cuTexObjectCreate(&object, &resource, &sampler, NULL));
    OK(cuLaunchKernel(fetch, HEIGHT, 1, 1, 8, 1, 1, 0, NULL, (void *[]){&object, &to, &nothing, &nothing},
                      NULL));
    OK(cuMemcpyDtoH(&last, to + ((HEIGHT - 1) * WIDTH + 7) * 4, 4));
    EXPECT(last == 7);
    OK(cuTexObjectDestroy(object));
    OK(cuMemFree(data));
    OK(cuMemFree(to));
}

static void fill(void) {
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = model,
                          .srcPitch = WIDTH * 4,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = image,
                          .WidthInBytes = WIDTH * 4,
                          .Height = HEIGHT};
    for (int i = 0; i < COUNT; i++)
        model[i] = (float)(i * 37 % 101);
    OK(cuMemcpy2D(&copy));
}

static int wrong_fetches(CUtexObject object, float dx, float dy) {
    float got[COUNT];
    int wrong = 0;
    QUIET(
        cuLaunchKernel(fetch, HEIGHT, 1, 1, WIDTH, 1, 1, 0, NULL, (void *[]){&object, &out, &dx, &dy}, NULL));
    QUIET(cuMemcpyDtoH(got, out, sizeof got));
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            // At 1, a bilinear fetch of the middle of four texels; at 0.5 the texel itself.
            int right = x + 1 < WIDTH ? x + 1 : x, below = y + 1 < HEIGHT ? y + 1 : y;
            float wanted = model[y * WIDTH + x];
            if (dx == 1)
                wanted = (wanted + model[y * WIDTH + right] + model[below * WIDTH + x] +
                          model[below * WIDTH + right]) /
                         4;
            wrong += got[y * WIDTH + x] != wanted;
        }
    return wrong;
}

static int wrong_words(CUtexObject object) {
    unsigned got[COUNT];
    int wrong = 0;
    QUIET(cuLaunchKernel(read_index, HEIGHT, 1, 1, WIDTH, 1, 1, 0, NULL, (void *[]){&object, &out}, NULL));
    QUIET(cuMemcpyDtoH(got, out, sizeof got));
    for (unsigned i = 0; i < COUNT; i++)
        wrong += got[i] != 7 * i;
    return wrong;
}

static CUtexObject linear(void) {
    CUtexObject object = 0;
    CUDA_RESOURCE_DESC desc = {.resType = CU_RESOURCE_TYPE_LINEAR};
    CUDA_TEXTURE_DESC sampler = {0};
    desc.res.linear.devPtr = words;
    desc.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
    desc.res.linear.numChannels = 1;
    desc.res.linear.sizeInBytes = COUNT * 4;
    OK(cuTexObjectCreate(&object, &desc, &sampler, NULL));
    return object;
}

static void errors(CUtexObject good, CUsurfObject surface) {
    CUtexObject object;
    CUDA_RESOURCE_DESC desc = of_array(image), back;
    CUDA_TEXTURE_DESC sampler = {0}, sampler_back;
    CUDA_RESOURCE_VIEW_DESC part;
    OK(cuTexObjectGetResourceDesc(&back, good));
    EXPECT(back.resType == CU_RESOURCE_TYPE_ARRAY && back.res.array.hArray == image);
    OK(cuTexObjectGetTextureDesc(&sampler_back, good));
    EXPECT(sampler_back.filterMode == CU_TR_FILTER_MODE_POINT);
    OK(cuTexObjectGetResourceViewDesc(&part, good)); // of all of it
    OK(cuSurfObjectGetResourceDesc(&back, surface));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceDesc(NULL, good));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceDesc(&back, 0));
    OK(cuTexObjectDestroy(0)); // nobody looks whether there is one
    OK(cuTexObjectDestroy(54321));
    OK(cuSurfObjectDestroy(54321));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(NULL, &desc, &sampler, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, NULL, &sampler, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &desc, NULL, NULL));
    sampler.flags = 0x4000;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &desc, &sampler, NULL));
    sampler.flags = 0;
    desc.flags = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &desc, &sampler, NULL));
    desc = of_array(NULL);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &desc, &sampler, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&object, &desc));
    desc = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_LINEAR};
    desc.res.linear.devPtr = words + 4;
    desc.res.linear.format = CU_AD_FORMAT_FLOAT;
    desc.res.linear.numChannels = 1;
    desc.res.linear.sizeInBytes = 64;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &desc, &sampler, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&object, &desc));
}

/* The launch that uses it waits for a value meanwhile, and another texture is made. */
static void destroyed_behind_its_launch(void) {
    CUstream stream;
    CUdeviceptr flag = allocate(4);
    CUtexObject object = texture(image, CU_TR_FILTER_MODE_POINT), other;
    float nothing = 0, got[COUNT];
    OK(cuMemsetD32(flag, 0, 1));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuLaunchKernel(fetch, HEIGHT, 1, 1, WIDTH, 1, 1, 0, stream,
                      (void *[]){&object, &out, &nothing, &nothing}, NULL));
    OK(cuTexObjectDestroy(object));
    OK(cuTexObjectDestroy(object));
    other = linear();
    OK(cuMemsetD32(flag, 1, 1));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(got, out, sizeof got));
    EXPECT(memcmp(got, model, sizeof got) == 0);
    OK(cuTexObjectDestroy(other));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(flag));
}

int main(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {WIDTH, HEIGHT, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
    unsigned numbers[COUNT];
    CUsurfObject surface = 0;
    CUtexObject later[ROUNDS];
    start();
    OK(cuModuleLoadData(&code, ptx));
    OK(cuModuleGetFunction(&fetch, code, "fetch"));
    OK(cuModuleGetFunction(&read_index, code, "index"));
    OK(cuModuleGetFunction(&add, code, "add"));
    OK(cuArray3DCreate(&image, &shape));
    out = allocate(sizeof model);
    words = allocate(sizeof numbers);
    for (unsigned i = 0; i < COUNT; i++)
        numbers[i] = 7 * i;
    OK(cuMemcpyHtoD(words, numbers, sizeof numbers));
    fill();
    CUtexObject passing = texture(image, CU_TR_FILTER_MODE_POINT),
                bilinear = texture(image, CU_TR_FILTER_MODE_LINEAR);
    CUtexObject gone = linear(), point = texture(image, CU_TR_FILTER_MODE_POINT), memory = linear();
    CUDA_RESOURCE_DESC desc = of_array(image);
    OK(cuSurfObjectCreate(&surface, &desc));
    EXPECT(passing != bilinear && gone != point && point != memory);
    OK(cuTexObjectDestroy(passing));
    OK(cuTexObjectDestroy(gone));
    OK(cuTexObjectDestroy(gone));
    errors(point, surface);
    rows();
    destroyed_behind_its_launch();
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        float amount = (float)round;
        QUIET(cuLaunchKernel(add, HEIGHT, 1, 1, WIDTH, 1, 1, 0, NULL, (void *[]){&surface, &amount}, NULL));
        for (int i = 0; i < COUNT; i++)
            model[i] += amount;
        wrong += wrong_fetches(point, 0.5f, 0.5f) + wrong_fetches(bilinear, 1, 1) + wrong_words(memory);
        later[round] = texture(image, CU_TR_FILTER_MODE_LINEAR);
        wrong += wrong_fetches(later[round], 1, 1);
        if (round % 3 == 0)
            QUIET(cuTexObjectDestroy(later[round]));
    }
    EXPECT(wrong == 0);
    for (int round = 0; round < ROUNDS; round++)
        if (round % 3 != 0)
            QUIET(cuTexObjectDestroy(later[round]));
    OK(cuTexObjectDestroy(bilinear));
    OK(cuTexObjectDestroy(point));
    OK(cuTexObjectDestroy(memory));
    OK(cuSurfObjectDestroy(surface));
    OK(cuArrayDestroy(image));
    return check_failed;
}
