// Texture and surface references, as programs before CUDA 5 have them: variables of a module to which arrays
// and memory are bound, and through which its kernels read and write. A launch takes along what is bound
// then.
//
// compile: -Wno-deprecated-declarations
#include "driver.h"

enum { WIDTH = 32, HEIGHT = 8, COUNT = WIDTH * HEIGHT, ROUNDS = 8 };

static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".global .texref plane;\n.global .texref line;\n.global .surfref canvas;\n.global .u32 number = 7;\n"
    ".visible .entry fetch(.param .u64 out, .param .f32 dx) {\n"
    "  .reg .b64 %o; .reg .b32 %x, %y, %i; .reg .f32 %u, %v, %dx, %r<4>;\n"
    "  ld.param.u64 %o, [out]; ld.param.f32 %dx, [dx];\n"
    "  mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; mad.lo.u32 %i, %y, 32, %x; mad.wide.u32 %o, %i, 4, %o;\n"
    "  cvt.rn.f32.u32 %u, %x; cvt.rn.f32.u32 %v, %y; add.f32 %u, %u, %dx; add.f32 %v, %v, 0f3F000000;\n"
    "  tex.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [plane, {%u, %v}];\n"
    "  st.global.f32 [%o], %r0; ret; }\n"
    ".visible .entry index(.param .u64 out) {\n"
    "  .reg .b64 %t, %o; .reg .b32 %x, %y, %r<4>;\n"
    "  ld.param.u64 %o, [out]; mov.u64 %t, line;\n"
    "  mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; mad.lo.u32 %x, %y, 32, %x; mad.wide.u32 %o, %x, 4, %o;\n"
    "  tex.1d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%t, {%x}]; st.global.b32 [%o], %r0; ret; }\n"
    ".visible .entry paint(.param .f32 amount) {\n"
    "  .reg .b32 %x, %y, %v; .reg .f32 %a, %f;\n"
    "  ld.param.f32 %a, [amount];\n"
    "  mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; shl.b32 %x, %x, 2;\n"
    "  suld.b.2d.b32.trap %v, [canvas, {%x, %y}];\n"
    "  mov.b32 %f, %v; add.f32 %f, %f, %a; mov.b32 %v, %f;\n"
    "  sust.b.2d.b32.trap [canvas, {%x, %y}], %v; ret; }\n";

static CUmodule code;
static CUfunction fetch, read_index, paint;
static CUtexref plane, line;
static CUsurfref canvas;
static CUarray first, second;
static CUdeviceptr out, words;
static float model[2][COUNT];

static void fill(CUarray array, float *values, float start) {
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = values,
                          .srcPitch = WIDTH * 4,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = WIDTH * 4,
                          .Height = HEIGHT};
    for (int i = 0; i < COUNT; i++)
        values[i] = start + (float)(i * 37 % 101);
    OK(cuMemcpy2D(&copy));
}

static void launch_fetch(CUdeviceptr to, float dx) {
    QUIET(cuLaunchKernel(fetch, HEIGHT, 1, 1, WIDTH, 1, 1, 0, NULL, (void *[]){&to, &dx}, NULL));
}

static int wrong_plane(const float *wanted, float dx) {
    float got[COUNT];
    int wrong = 0;
    launch_fetch(out, dx);
    QUIET(cuMemcpyDtoH(got, out, sizeof got));
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            int next = x + 1 < WIDTH ? x + 1 : x, i = y * WIDTH + x;
            wrong += got[i] != (dx == 1 ? (wanted[i] + wanted[y * WIDTH + next]) / 2 : wanted[i]);
        }
    return wrong;
}

static int wrong_line(unsigned from, unsigned step) {
    unsigned got[COUNT];
    int wrong = 0;
    QUIET(cuLaunchKernel(read_index, HEIGHT, 1, 1, WIDTH, 1, 1, 0, NULL, (void *[]){&out}, NULL));
    QUIET(cuMemcpyDtoH(got, out, sizeof got));
    for (unsigned i = 0; i < COUNT; i++)
        wrong += got[i] != (from + i) * step;
    return wrong;
}

static void reading(void) {
    CUdeviceptr both = allocate(2 * COUNT * 4);
    float got[2][COUNT];
    int wrong = 0;
    OK(cuTexRefSetArray(plane, first, CU_TRSA_OVERRIDE_FORMAT));
    OK(cuSurfRefSetArray(canvas, first, 0));
    for (int round = 0; round < ROUNDS; round++) {
        float amount = (float)round;
        QUIET(cuLaunchKernel(paint, HEIGHT, 1, 1, WIDTH, 1, 1, 0, NULL, (void *[]){&amount}, NULL));
        for (int i = 0; i < COUNT; i++)
            model[0][i] += amount;
        QUIET(cuTexRefSetFilterMode(plane, CU_TR_FILTER_MODE_POINT));
        wrong += wrong_plane(model[0], 0.5f);
        QUIET(cuTexRefSetFilterMode(plane, CU_TR_FILTER_MODE_LINEAR));
        wrong += wrong_plane(model[0], 1);
        wrong += wrong_line(0, 3);
    }
    EXPECT(wrong == 0);
    // what is bound when a kernel is launched is what it reads
    OK(cuTexRefSetFilterMode(plane, CU_TR_FILTER_MODE_POINT));
    launch_fetch(both, 0.5f);
    OK(cuTexRefSetArray(plane, second, CU_TRSA_OVERRIDE_FORMAT));
    launch_fetch(both + COUNT * 4, 0.5f);
    OK(cuMemcpyDtoH(got, both, sizeof got));
    EXPECT(memcmp(got[0], model[0], sizeof got[0]) == 0);
    EXPECT(memcmp(got[1], model[1], sizeof got[1]) == 0);
    // rows of memory, with a pitch
    CUDA_ARRAY_DESCRIPTOR desc = {WIDTH, HEIGHT, CU_AD_FORMAT_FLOAT, 1};
    OK(cuTexRefSetAddress2D(plane, &desc, both, WIDTH * 4));
    EXPECT(wrong_plane(model[0], 0.5f) == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress2D(plane, &desc, both, WIDTH * 4 - 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress2D(plane, NULL, both, WIDTH * 4));
    EXPECT(wrong_plane(model[0], 0.5f) == 0);
    OK(cuMemFree(both));
}

static void settings(void) {
    CUaddress_mode mode;
    CUfilter_mode filter;
    CUarray_format format;
    CUarray array;
    CUmipmappedArray mipmap;
    CUdeviceptr address = 0;
    int channels, most_anisotropy;
    unsigned flags;
    float bias, least, most, colour[4], border[4] = {0.25f, 0.5f, 0.75f, 1};
    CUtexref own;
    OK(cuTexRefCreate(&own));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefGetArray(&array, own));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefGetMipmappedArray(&mipmap, own));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefGetAddress(&address, own));
    OK(cuTexRefSetAddressMode(own, 0, CU_TR_ADDRESS_MODE_WRAP));
    OK(cuTexRefSetAddressMode(own, 1, CU_TR_ADDRESS_MODE_MIRROR));
    OK(cuTexRefSetAddressMode(own, 2, CU_TR_ADDRESS_MODE_BORDER));
    OK(cuTexRefGetAddressMode(&mode, own, 1));
    EXPECT(mode == CU_TR_ADDRESS_MODE_MIRROR);
    OK(cuTexRefGetAddressMode(&mode, own, 2));
    EXPECT(mode == CU_TR_ADDRESS_MODE_BORDER);
    OK(cuTexRefSetFilterMode(own, CU_TR_FILTER_MODE_LINEAR));
    OK(cuTexRefGetFilterMode(&filter, own));
    EXPECT(filter == CU_TR_FILTER_MODE_LINEAR);
    OK(cuTexRefSetMipmapFilterMode(own, CU_TR_FILTER_MODE_LINEAR));
    OK(cuTexRefGetMipmapFilterMode(&filter, own));
    EXPECT(filter == CU_TR_FILTER_MODE_LINEAR);
    OK(cuTexRefSetMipmapLevelBias(own, 0.5f));
    OK(cuTexRefGetMipmapLevelBias(&bias, own));
    OK(cuTexRefSetMipmapLevelClamp(own, 1, 3));
    OK(cuTexRefGetMipmapLevelClamp(&least, &most, own));
    EXPECT(bias == 0.5f && least == 1 && most == 3);
    OK(cuTexRefSetMaxAnisotropy(own, 8));
    OK(cuTexRefGetMaxAnisotropy(&most_anisotropy, own));
    EXPECT(most_anisotropy == 8);
    OK(cuTexRefSetBorderColor(own, border));
    OK(cuTexRefGetBorderColor(colour, own));
    EXPECT(memcmp(border, colour, sizeof border) == 0);
    OK(cuTexRefSetFlags(own, CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES));
    OK(cuTexRefGetFlags(&flags, own));
    EXPECT(flags == (CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES));
    OK(cuTexRefSetFormat(own, CU_AD_FORMAT_SIGNED_INT16, 2));
    OK(cuTexRefGetFormat(&format, &channels, own));
    EXPECT(format == CU_AD_FORMAT_SIGNED_INT16 && channels == 2);
    OK(cuTexRefSetArray(own, first, CU_TRSA_OVERRIDE_FORMAT));
    OK(cuTexRefGetFormat(&format, &channels, own));
    EXPECT(format == CU_AD_FORMAT_FLOAT && channels == 1);
    OK(cuTexRefGetArray(&array, own));
    EXPECT(array == first);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefGetAddress(&address, own));
    size_t offset = 99;
    OK(cuTexRefSetAddress(&offset, own, words, COUNT * 4));
    EXPECT(offset == 0);
    OK(cuTexRefSetAddress(&offset, own, words + 16, 64));
    EXPECT(offset == 16);
    OK(cuTexRefGetAddress(&address, own));
    EXPECT(address == words);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress(NULL, own, words + 16, 64));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefGetArray(&array, own));
    OK(cuTexRefSetAddress(NULL, own, 0, 0));
    OK(cuTexRefDestroy(own));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefDestroy(NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetFlags(NULL, 0));
}

static void errors(void) {
    CUtexref reference;
    CUsurfref surface;
    CUarray array;
    CUdeviceptr address;
    CUfilter_mode filter;
    size_t size;
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&reference, code, "nobody"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&reference, code, "canvas"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&reference, code, "number"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetSurfRef(&surface, code, "plane"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&address, &size, code, "plane"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleGetTexRef(NULL, code, "plane"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleGetTexRef(&reference, code, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetTexRef(&reference, NULL, "plane"));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetSurfRef(&surface, NULL, "canvas"));
    OK(cuModuleGetTexRef(&reference, code, "plane"));
    EXPECT(reference == plane);
    OK(cuModuleGetSurfRef(&surface, code, "canvas"));
    EXPECT(surface == canvas);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetFilterMode(NULL, CU_TR_FILTER_MODE_POINT));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetFilterMode((CUtexref)canvas, CU_TR_FILTER_MODE_POINT));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetFilterMode(plane, 7));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddressMode(plane, 3, CU_TR_ADDRESS_MODE_WRAP));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddressMode(plane, 0, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetFormat(plane, CU_AD_FORMAT_FLOAT, 3));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetFormat(plane, 0x77, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetFlags(plane, 0x400));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetBorderColor(plane, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefGetFilterMode(NULL, plane));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefGetFilterMode(&filter, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetArray(plane, first, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetArray(plane, NULL, CU_TRSA_OVERRIDE_FORMAT));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetMipmappedArray(plane, NULL, CU_TRSA_OVERRIDE_FORMAT));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress(&size, plane, 4096, 64));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexRefDestroy(plane));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfRefSetArray(canvas, second, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfRefSetArray(canvas, first, 1));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuSurfRefSetArray(canvas, NULL, 0));
    OK(cuSurfRefGetArray(&array, canvas));
    EXPECT(array == first);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfRefGetArray(NULL, canvas));
    OK(cuParamSetTexRef(fetch, CU_PARAM_TR_DEFAULT, plane));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuParamSetTexRef(fetch, 0, plane));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuParamSetTexRef(NULL, CU_PARAM_TR_DEFAULT, plane));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuParamSetTexRef(fetch, CU_PARAM_TR_DEFAULT, NULL));
}

int main(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {WIDTH, HEIGHT, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
    unsigned numbers[2 * COUNT];
    CUsurfref empty;
    start();
    OK(cuModuleLoadData(&code, ptx));
    OK(cuModuleGetFunction(&fetch, code, "fetch"));
    OK(cuModuleGetFunction(&read_index, code, "index"));
    OK(cuModuleGetFunction(&paint, code, "paint"));
    OK(cuModuleGetTexRef(&plane, code, "plane"));
    OK(cuModuleGetTexRef(&line, code, "line"));
    OK(cuModuleGetSurfRef(&canvas, code, "canvas"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfRefGetArray((CUarray *)&empty, canvas));
    OK(cuArray3DCreate(&first, &shape));
    shape.Flags = 0;
    OK(cuArray3DCreate(&second, &shape));
    fill(first, model[0], 0);
    fill(second, model[1], 500);
    out = allocate(COUNT * 4);
    words = allocate(sizeof numbers);
    for (unsigned i = 0; i < 2 * COUNT; i++)
        numbers[i] = 3 * i;
    OK(cuMemcpyHtoD(words, numbers, sizeof numbers));
    OK(cuTexRefSetAddressMode(plane, 0, CU_TR_ADDRESS_MODE_CLAMP));
    OK(cuTexRefSetFormat(line, CU_AD_FORMAT_UNSIGNED_INT32, 1));
    OK(cuTexRefSetFlags(line, CU_TRSF_READ_AS_INTEGER));
    OK(cuTexRefSetAddress(NULL, line, words, sizeof numbers));
    settings();
    reading();
    errors();
    OK(cuModuleUnload(code));
    OK(cuArrayDestroy(first));
    OK(cuArrayDestroy(second));
    return check_failed;
}
