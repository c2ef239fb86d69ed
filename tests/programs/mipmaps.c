// Mipmapped arrays: their levels are filled by copies and by a kernel through a surface, and read by a kernel
// through one texture over all of them, again and again, so that a session that moves keeps them. Normalised
// formats; and what a device without sparse arrays, planes and deferred mappings answers.
#include "driver.h"

enum { WIDTH = 32, HEIGHT = 16, LEVELS = 5, COUNT = WIDTH * HEIGHT, ROUNDS = 8 };

static const char ptx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry fetch(.param .u64 texture, .param .u64 out, .param .f32 level, .param .u32 width,\n"
    "                      .param .u32 height) {\n"
    "  .reg .b64 %t, %o; .reg .b32 %x, %y, %i, %w, %h; .reg .f32 %u, %v, %fw, %fh, %l, %r<4>;\n"
    "  ld.param.u64 %t, [texture]; ld.param.u64 %o, [out]; ld.param.f32 %l, [level];\n"
    "  ld.param.u32 %w, [width]; ld.param.u32 %h, [height];\n"
    "  mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; mad.lo.u32 %i, %y, %w, %x; mad.wide.u32 %o, %i, 4, %o;\n"
    "  cvt.rn.f32.u32 %u, %x; cvt.rn.f32.u32 %v, %y; add.f32 %u, %u, 0f3F000000; add.f32 %v, %v, "
    "0f3F000000;\n"
    "  cvt.rn.f32.u32 %fw, %w; cvt.rn.f32.u32 %fh, %h; div.rn.f32 %u, %u, %fw; div.rn.f32 %v, %v, %fh;\n"
    "  tex.level.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%t, {%u, %v}], %l;\n"
    "  st.global.f32 [%o], %r0; ret; }\n"
    ".visible .entry store(.param .u64 surface, .param .f32 value) {\n"
    "  .reg .b64 %s; .reg .b32 %x, %y, %v; .reg .f32 %f;\n"
    "  ld.param.u64 %s, [surface]; ld.param.f32 %f, [value]; mov.b32 %v, %f;\n"
    "  mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; shl.b32 %x, %x, 2;\n"
    "  sust.b.2d.b32.trap [%s, {%x, %y}], %v; ret; }\n";

static CUmodule code;
static CUfunction fetch, store;
static CUmipmappedArray pyramid;
static CUdeviceptr out;
static float model[LEVELS][COUNT];

static CUarray level_of(CUmipmappedArray mipmap, unsigned number) {
    CUarray level = NULL;
    QUIET(cuMipmappedArrayGetLevel(&level, mipmap, number));
    return level;
}

static void fill(unsigned number) {
    int width = WIDTH >> number, height = HEIGHT >> number;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = model[number],
                          .srcPitch = width * 4,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = level_of(pyramid, number),
                          .WidthInBytes = width * 4,
                          .Height = height};
    for (int i = 0; i < width * height; i++)
        model[number][i] = (float)(number * 1000 + i * 7 % 97);
    OK(cuMemcpy2D(&copy));
}

static CUtexObject texture(CUmipmappedArray mipmap, CUfilter_mode between) {
    CUtexObject object = 0;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    CUDA_TEXTURE_DESC sampler = {.flags = CU_TRSF_NORMALIZED_COORDINATES,
                                 .addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP},
                                 .mipmapFilterMode = between,
                                 .maxMipmapLevelClamp = 16};
    resource.res.mipmap.hMipmappedArray = mipmap;
    QUIET(cuTexObjectCreate(&object, &resource, &sampler, NULL));
    return object;
}

static int wrong_level(CUtexObject object, float level, unsigned number) {
    float got[COUNT];
    unsigned width = WIDTH >> number, height = HEIGHT >> number;
    int wrong = 0;
    QUIET(cuLaunchKernel(fetch, height, 1, 1, width, 1, 1, 0, NULL,
                         (void *[]){&object, &out, &level, &width, &height}, NULL));
    QUIET(cuMemcpyDtoH(got, out, width * height * 4));
    for (unsigned i = 0; i < width * height; i++)
        wrong += got[i] != model[number][i];
    return wrong;
}

static void rounds(void) {
    CUDA_RESOURCE_DESC second = {.resType = CU_RESOURCE_TYPE_ARRAY};
    CUsurfObject surface = 0;
    CUtexObject point = texture(pyramid, CU_TR_FILTER_MODE_POINT);
    unsigned width = WIDTH / 4, height = HEIGHT / 4;
    int wrong = 0;
    second.res.array.hArray = level_of(pyramid, 2);
    OK(cuSurfObjectCreate(&surface, &second));
    for (int round = 0; round < ROUNDS; round++) {
        float value = (float)round;
        QUIET(cuLaunchKernel(store, height, 1, 1, width, 1, 1, 0, NULL, (void *[]){&surface, &value}, NULL));
        for (unsigned i = 0; i < width * height; i++)
            model[2][i] = value;
        for (unsigned number = 0; number < LEVELS; number++)
            wrong += wrong_level(point, (float)number, number);
    }
    EXPECT(wrong == 0);
    // between two levels of one value each
    CUtexObject blend = texture(pyramid, CU_TR_FILTER_MODE_LINEAR);
    float got, half = 3.5f;
    unsigned one = 1;
    model[3][0] = 100, model[4][0] = 200;
    for (unsigned number = 3; number < LEVELS; number++) {
        CUdeviceptr memory = allocate(256);
        OK(cuMemsetD32(memory, number == 3 ? 0x42c80000 : 0x43480000, 64));
        CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = memory,
                              .srcPitch = 64,
                              .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                              .dstArray = level_of(pyramid, number),
                              .WidthInBytes = (WIDTH >> number) * 4,
                              .Height = HEIGHT >> number};
        OK(cuMemcpy2D(&rows));
        OK(cuMemFree(memory));
    }
    OK(cuLaunchKernel(fetch, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&blend, &out, &half, &one, &one}, NULL));
    OK(cuMemcpyDtoH(&got, out, 4));
    EXPECT(got == 150);
    OK(cuTexObjectDestroy(blend));
    OK(cuTexObjectDestroy(point));
    OK(cuSurfObjectDestroy(surface));
}

static void shapes(void) {
    static const struct {
        CUDA_ARRAY3D_DESCRIPTOR desc;
        unsigned wanted, levels;
    } cases[] = {
        {{5, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0}, 9, 3},
        {{8, 8, 8, CU_AD_FORMAT_HALF, 1, 0}, 4, 4},
        {{4, 4, 9, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED}, 3, 3},
        {{8, 8, 6, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_CUBEMAP}, 0, 1},
        {{2, 2, 32, CU_AD_FORMAT_SIGNED_INT16, 2, 0}, 99, 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUmipmappedArray mipmap;
        CUarray level;
        CUDA_ARRAY3D_DESCRIPTOR back = {0};
        int last = (int)cases[i].levels - 1, volume = cases[i].desc.Depth > 0 && cases[i].desc.Flags == 0;
        OK(cuMipmappedArrayCreate(&mipmap, &cases[i].desc, cases[i].wanted));
        OK(cuMipmappedArrayGetLevel(&level, mipmap, (unsigned)last));
        OK(cuArray3DGetDescriptor(&back, level));
        printf("%zu %zu %zu\n", back.Width, back.Height, back.Depth);
        EXPECT(back.Depth == (volume ? cases[i].desc.Depth >> last : cases[i].desc.Depth));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmap, cases[i].levels));
        OK(cuMipmappedArrayDestroy(mipmap));
    }
}

#define REFUSED(error, ...)                                                                                  \
    do {                                                                                                     \
        CUDA_ARRAY3D_DESCRIPTOR desc = {__VA_ARGS__};                                                        \
        FAILS(error, cuMipmappedArrayCreate(&mipmap, &desc, 1));                                             \
    } while (0)

static void errors(void) {
    CUmipmappedArray mipmap;
    CUarray level, again;
    CUDA_ARRAY3D_DESCRIPTOR plain = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    CUarrayMapInfo map = {0};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    CUDA_TEXTURE_DESC sampler = {.flags = CU_TRSF_NORMALIZED_COORDINATES};
    CUtexObject object;
    size_t width = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayCreate(NULL, &plain, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayCreate(&mipmap, NULL, 1));
    REFUSED(CUDA_ERROR_INVALID_VALUE, 0, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0);
    REFUSED(CUDA_ERROR_INVALID_VALUE, 4, 4, 0, CU_AD_FORMAT_FLOAT, 3, 0);
    REFUSED(CUDA_ERROR_INVALID_VALUE, 40000, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0);
    REFUSED(CUDA_ERROR_INVALID_VALUE, 4, 0, 4, CU_AD_FORMAT_FLOAT, 1, 0);
    REFUSED(CUDA_ERROR_INVALID_VALUE, 4, 4, 0, CU_AD_FORMAT_UNORM_INT8X2, 4, 0);
    OK(cuMipmappedArrayCreate(&mipmap, &plain, 7));
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    OK(cuMipmappedArrayGetLevel(&again, mipmap, 1));
    EXPECT(level == again);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(NULL, mipmap, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmap, 7));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayGetLevel(&level, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayGetSparseProperties(&sparse, level));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetSparseProperties(&sparse, mipmap));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayGetMemoryRequirements(&needs, level, device));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetMemoryRequirements(&needs, mipmap, device));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayGetPlane(&again, level, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayGetPlane(&again, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync(&map, 1, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync(NULL, 1, NULL));
    OK(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 4, device));
    EXPECT(width >= 1 << 27);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetTexture1DLinearMaxWidth(NULL, CU_AD_FORMAT_FLOAT, 1, device));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 3, device));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 1, 99));
    OK(cuMipmappedArrayDestroy(mipmap));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(NULL));
    resource.res.mipmap.hMipmappedArray = NULL;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &resource, &sampler, NULL));
}

// Channels that are fractions, as arrays of such formats have them.
static void fractions(void) {
    const unsigned char texels[8] = {255, 51, 0, 1, 0, 255, 102, 2};
    CUDA_ARRAY_DESCRIPTOR desc = {2, 1, CU_AD_FORMAT_UNORM_INT8X4, 4};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    CUDA_TEXTURE_DESC sampler = {.flags = CU_TRSF_NORMALIZED_COORDINATES};
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = texels,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .WidthInBytes = 8,
                          .Height = 1};
    CUtexObject object = 0;
    CUarray array;
    float got[2], level = 0;
    unsigned width = 2, height = 1;
    OK(cuArrayCreate(&array, &desc));
    copy.dstArray = resource.res.array.hArray = array;
    OK(cuMemcpy2D(&copy));
    OK(cuTexObjectCreate(&object, &resource, &sampler, NULL));
    OK(cuLaunchKernel(fetch, 1, 1, 1, 2, 1, 1, 0, NULL, (void *[]){&object, &out, &level, &width, &height},
                      NULL));
    OK(cuMemcpyDtoH(got, out, sizeof got));
    EXPECT(got[0] == 1 && got[1] == 0);
    OK(cuTexObjectDestroy(object));
    OK(cuArrayDestroy(array));
}

int main(void) {
    // One level is stored to: an object needs no SURFACE_LDST.
    CUDA_ARRAY3D_DESCRIPTOR shape = {WIDTH, HEIGHT, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    start();
    OK(cuModuleLoadData(&code, ptx));
    OK(cuModuleGetFunction(&fetch, code, "fetch"));
    OK(cuModuleGetFunction(&store, code, "store"));
    out = allocate(sizeof model);
    shapes();
    errors();
    OK(cuMipmappedArrayCreate(&pyramid, &shape, LEVELS));
    for (unsigned number = 0; number < LEVELS; number++)
        fill(number);
    rounds();
    fractions();
    OK(cuMipmappedArrayDestroy(pyramid));
    return check_failed;
}
