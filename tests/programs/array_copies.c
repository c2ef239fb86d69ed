// Arrays of one, two and three dimensions and of layers: what may be made, and every way to copy to and from
// them.
#include "driver.h"

enum { WIDTH = 12, HEIGHT = 5, DEPTH = 3, TEXEL = 8, ROW = WIDTH * TEXEL, BYTES = ROW * HEIGHT * DEPTH };

static unsigned char source[BYTES], back[BYTES];

static CUarray make(size_t width, size_t height, size_t depth, unsigned flags) {
    CUarray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR desc = {width, height, depth, CU_AD_FORMAT_UNSIGNED_INT16, 4, flags};
    QUIET(cuArray3DCreate(&array, &desc));
    return array;
}

static void refuse(size_t width, size_t height, size_t depth, unsigned channels, unsigned flags) {
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR desc = {width, height, depth, CU_AD_FORMAT_UNSIGNED_INT8, channels, flags};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate(&array, &desc));
}

static void shapes(void) {
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR flat = {WIDTH, 0, CU_AD_FORMAT_HALF, 2}, flat_back;
    CUDA_ARRAY3D_DESCRIPTOR deep_back, huge = {131072, 65536, 0, CU_AD_FORMAT_FLOAT, 4, 0};
    OK(cuArrayCreate(&array, &flat));
    OK(cuArrayGetDescriptor(&flat_back, array));
    EXPECT(memcmp(&flat, &flat_back, sizeof flat) == 0);
    OK(cuArray3DGetDescriptor(&deep_back, array));
    EXPECT(deep_back.Width == WIDTH && deep_back.Height == 0 && deep_back.Depth == 0 && deep_back.Flags == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArray3DGetDescriptor(NULL, array));
    OK(cuArrayDestroy(array));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate(NULL, &flat));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate(&array, NULL));
    flat = (CUDA_ARRAY_DESCRIPTOR){0};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate(&array, &flat));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuArray3DCreate(&array, &huge));
    refuse(4, 4, 0, 3, 0);
    refuse(4, 0, 4, 1, 0);
    refuse(131073, 0, 0, 1, 0);
    const unsigned graphics = CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT;
    array = make(8, 8, 0, graphics);
    OK(cuArray3DGetDescriptor(&deep_back, array));
    EXPECT(deep_back.Flags == graphics);
    OK(cuArrayDestroy(array));
    refuse(4, 4, 0, 1, CUDA_ARRAY3D_LAYERED);
    refuse(4, 4, 5, 1, CUDA_ARRAY3D_CUBEMAP);
    refuse(4, 3, 6, 1, CUDA_ARRAY3D_CUBEMAP);
    refuse(4, 4, 6, 1, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER);
    refuse(4, 4, 0, 1, 0xdeadbe00);
}

static void memory_is_counted(void) {
    size_t before, with, after, total;
    OK(cuMemGetInfo(&before, &total));
    CUarray array = make(1024, 1024, 0, 0);
    OK(cuMemGetInfo(&with, &total));
    EXPECT(before - with >= 8u << 20);
    OK(cuArrayDestroy(array));
    OK(cuMemGetInfo(&after, &total));
    EXPECT(after == before);
}

static void whole(CUarray array, int to_array, void *memory, CUstream stream) {
    CUDA_MEMCPY3D copy = {.WidthInBytes = ROW, .Height = HEIGHT, .Depth = DEPTH};
    if (to_array) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = memory;
        copy.srcPitch = ROW, copy.srcHeight = HEIGHT;
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = array;
    } else {
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY, copy.srcArray = array;
        copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = memory;
        copy.dstPitch = ROW, copy.dstHeight = HEIGHT;
    }
    QUIET(stream ? cuMemcpy3DAsync(&copy, stream) : cuMemcpy3D(&copy));
    if (stream)
        QUIET(cuStreamSynchronize(stream));
}

static void boxes(void) {
    CUarray deep = make(WIDTH, HEIGHT, DEPTH, 0), layers = make(WIDTH, HEIGHT, DEPTH, CUDA_ARRAY3D_LAYERED);
    CUdeviceptr memory = allocate(BYTES);
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    whole(deep, 1, source, NULL);
    whole(deep, 0, back, stream);
    EXPECT(memcmp(source, back, BYTES) == 0);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = deep,
                          .srcXInBytes = 2 * TEXEL,
                          .srcY = 1,
                          .srcZ = 1,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = layers,
                          .dstXInBytes = TEXEL,
                          .dstY = 2,
                          .WidthInBytes = 4 * TEXEL,
                          .Height = 3,
                          .Depth = 2};
    OK(cuMemcpy3DAsync(&copy, stream));
    OK(cuStreamSynchronize(stream));
    whole(layers, 0, back, NULL);
    int wrong = 0;
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 3; y++)
            wrong += memcmp(back + (z * HEIGHT + y + 2) * ROW + TEXEL,
                            source + ((z + 1) * HEIGHT + y + 1) * ROW + 2 * TEXEL, 4 * TEXEL) != 0;
    EXPECT(wrong == 0);
    // To memory and back, with a pitch of its own.
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = deep,
                          .srcXInBytes = TEXEL,
                          .srcY = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .dstPitch = 64,
                          .WidthInBytes = 5 * TEXEL,
                          .Height = 4};
    OK(cuMemcpy2D(&rows));
    OK(cuMemcpyDtoH(back, memory, 4 * 64));
    wrong = 0;
    for (int y = 0; y < 4; y++)
        wrong += memcmp(back + y * 64, source + (y + 1) * ROW + TEXEL, 5 * TEXEL) != 0;
    EXPECT(wrong == 0);
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                        .srcDevice = memory,
                        .srcPitch = 64,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = layers,
                        .WidthInBytes = 5 * TEXEL,
                        .Height = 4};
    OK(cuMemcpy2DAsync(&in, stream));
    OK(cuStreamSynchronize(stream));
    whole(layers, 0, back, NULL);
    EXPECT(memcmp(back, source + ROW + TEXEL, 5 * TEXEL) == 0);
    in.WidthInBytes = 5 * TEXEL + 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&in));
    in.WidthInBytes = ROW, in.srcPitch = ROW, in.dstXInBytes = TEXEL;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&in));
    in.dstXInBytes = 0, in.dstY = 3;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&in));
    copy.srcZ = 2;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&copy));
    copy.srcZ = 0, copy.srcLOD = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&copy));
    copy.srcLOD = 0, copy.srcArray = NULL;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&copy));
    OK(cuArrayDestroy(deep));
    copy.srcArray = deep;
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpy3D(&copy));
    OK(cuArrayDestroy(layers));
    OK(cuStreamDestroy(stream));
}

static void lines(void) {
    CUarray line = make(256, 0, 0, 0), other = make(256, 0, 0, 0), flat = make(256, 2, 0, 0);
    CUdeviceptr memory = allocate(BYTES);
    OK(cuMemcpyHtoA(line, 0, source, BYTES));
    OK(cuMemcpyAtoA(other, 64, line, 128, 256));
    OK(cuMemcpyAtoD(memory, other, 64, 256));
    OK(cuMemcpyDtoA(line, 0, memory, 256));
    OK(cuMemcpyAtoH(back, line, 0, BYTES));
    EXPECT(memcmp(back, source + 128, 256) == 0 && memcmp(back + 256, source + 256, BYTES - 256) == 0);
    OK(cuMemcpyHtoAAsync(line, 8, source, 8, NULL));
    OK(cuMemcpyAtoHAsync(back, line, 0, 24, NULL));
    OK(cuStreamSynchronize(NULL));
    EXPECT(memcmp(back + 8, source, 8) == 0);
    OK(cuMemcpyHtoA(line, 0, source, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA(line, 8, source, 256 * TEXEL));
    OK(cuMemcpyHtoA(flat, 8, source, 8)); // its first line
    OK(cuMemcpyAtoH(back, flat, 8, 8));
    EXPECT(memcmp(back, source, 8) == 0);
    CUarray narrow = NULL;
    OK(cuArrayCreate(&narrow, &(CUDA_ARRAY_DESCRIPTOR){256, 0, CU_AD_FORMAT_UNSIGNED_INT16, 2}));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoA(narrow, 0, line, 0, 64)); // whose texels are smaller
    OK(cuArrayDestroy(narrow));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA(NULL, 0, source, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoD(memory + BYTES, line, 0, 256));
    OK(cuArrayDestroy(flat));
    OK(cuArrayDestroy(line));
    OK(cuArrayDestroy(other));
}

int main(void) {
    start();
    for (int i = 0; i < BYTES; i++)
        source[i] = (unsigned char)(i * 7 + i / 256);
    shapes();
    memory_is_counted();
    boxes();
    lines();
    return check_failed;
}
