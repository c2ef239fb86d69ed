// What a texture gives: every format and number of channels, addressing beyond its edges, filtering with
// weights of eight bits, numbers from 0 to 1; layers, the faces of a cube, levels and volumes.
#include <cmath>

#include "check.h"

enum { SIDE = 8, TEXELS = SIDE * SIDE };

static float *out, got[TEXELS * 4], plane[TEXELS];

__global__ void at(cudaTextureObject_t t, float *to, float x, float y) {
    *to = tex2D<float>(t, x, y);
}

__global__ void all(cudaTextureObject_t t, float *to) {
    to[threadIdx.y * SIDE + threadIdx.x] = tex2D<float>(t, threadIdx.x + .5f, threadIdx.y + .5f);
}

template <typename T> __global__ void texel(cudaTextureObject_t t, T *to) {
    *to = tex2D<T>(t, 1.5f, .5f);
}

__global__ void layer(cudaTextureObject_t t, float *to) {
    to[blockIdx.x * 4 + threadIdx.x] =
        tex2DLayered<float>(t, threadIdx.x % 2 + .5f, threadIdx.x / 2 + .5f, blockIdx.x);
}

__global__ void face(cudaTextureObject_t t, float *to) {
    const float sign = threadIdx.x % 2 ? -1 : 1;
    const unsigned axis = threadIdx.x / 2;
    to[threadIdx.x] = texCubemap<float>(t, axis == 0 ? sign : 0, axis == 1 ? sign : 0, axis == 2 ? sign : 0);
}

__global__ void level(cudaTextureObject_t t, float *to) {
    to[threadIdx.x] = tex2DLod<float>(t, .5f, .5f, (float)threadIdx.x);
}

__global__ void write_volume(cudaSurfaceObject_t s) {
    surf3Dwrite((float)(threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z), s, threadIdx.x * 4, threadIdx.y,
                threadIdx.z);
}

__global__ void read_volume(cudaTextureObject_t t, float *to) {
    to[(threadIdx.z * 4 + threadIdx.y) * 4 + threadIdx.x] =
        tex3D<float>(t, threadIdx.x + .5f, threadIdx.y + .5f, threadIdx.z + .5f);
}

static cudaTextureObject_t texture(cudaArray_t array, const cudaTextureDesc &how) {
    cudaResourceDesc what = {};
    cudaTextureObject_t made = 0;
    what.resType = cudaResourceTypeArray;
    what.res.array.array = array;
    RT_QUIET(cudaCreateTextureObject(&made, &what, &how, nullptr));
    return made;
}

static float sample(cudaTextureObject_t t, float x, float y) {
    float value = -1;
    at<<<1, 1>>>(t, out, x, y);
    RT_QUIET(cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

static cudaTextureDesc mode(cudaTextureAddressMode address, cudaTextureFilterMode filter, bool normalised) {
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = address;
    how.filterMode = filter;
    how.normalizedCoords = normalised;
    return how;
}

// The second of four texels, as it was written.
template <typename T> static bool reads(T value) {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
    cudaArray_t array;
    T texels[4] = {}, back = {};
    texels[1] = value;
    RT_QUIET(cudaMallocArray(&array, &format, 4, 1));
    RT_QUIET(
        cudaMemcpy2DToArray(array, 0, 0, texels, sizeof texels, sizeof texels, 1, cudaMemcpyHostToDevice));
    cudaTextureObject_t t = texture(array, cudaTextureDesc{});
    texel<<<1, 1>>>(t, (T *)out);
    RT_QUIET(cudaMemcpy(&back, out, sizeof back, cudaMemcpyDeviceToHost));
    RT_QUIET(cudaDestroyTextureObject(t));
    RT_QUIET(cudaFreeArray(array));
    return memcmp(&back, &value, sizeof value) == 0;
}

template <typename T> static void normalised(T low, T high, float wanted_low, float wanted_high) {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
    cudaArray_t array;
    T texels[2] = {low, high};
    cudaTextureDesc how = {};
    how.readMode = cudaReadModeNormalizedFloat;
    RT_QUIET(cudaMallocArray(&array, &format, 2, 1));
    RT_QUIET(
        cudaMemcpy2DToArray(array, 0, 0, texels, sizeof texels, sizeof texels, 1, cudaMemcpyHostToDevice));
    cudaTextureObject_t t = texture(array, how);
    EXPECT(fabsf(sample(t, .5f, .5f) - wanted_low) < 1e-6f);
    EXPECT(fabsf(sample(t, 1.5f, .5f) - wanted_high) < 1e-6f);
    RT_QUIET(cudaDestroyTextureObject(t));
    RT_QUIET(cudaFreeArray(array));
}

static cudaArray_t solid(cudaExtent extent, unsigned flags, const float *texels, size_t width, size_t height,
                         size_t depth) {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    cudaMemcpy3DParms copy = {};
    RT_QUIET(cudaMalloc3DArray(&array, &format, extent, flags));
    copy.srcPtr = make_cudaPitchedPtr((void *)texels, width * 4, width, height);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(width, height, depth);
    copy.kind = cudaMemcpyHostToDevice;
    if (texels != nullptr)
        RT_QUIET(cudaMemcpy3D(&copy));
    return array;
}

static void edges(cudaArray_t array) {
    cudaTextureObject_t t = texture(array, mode(cudaAddressModeClamp, cudaFilterModePoint, false));
    all<<<1, dim3(SIDE, SIDE)>>>(t, out);
    RT_QUIET(cudaMemcpy(got, out, sizeof plane, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(got, plane, sizeof plane) == 0);
    EXPECT(sample(t, -3, -3) == 0 && sample(t, 100, 100) == 63);
    RT_QUIET(cudaDestroyTextureObject(t));
    t = texture(array, mode(cudaAddressModeWrap, cudaFilterModePoint, false)); // of texels: clamps
    EXPECT(sample(t, 9.5f, .5f) == 7);
    RT_QUIET(cudaDestroyTextureObject(t));
    t = texture(array, mode(cudaAddressModeWrap, cudaFilterModePoint, true));
    EXPECT(sample(t, 1 + 2.5f / SIDE, .5f / SIDE) == 2 && sample(t, -.5f / SIDE, .5f / SIDE) == 7);
    RT_QUIET(cudaDestroyTextureObject(t));
    t = texture(array, mode(cudaAddressModeMirror, cudaFilterModePoint, true));
    EXPECT(sample(t, 1 + .5f / SIDE, .5f / SIDE) == 7 && sample(t, -2.5f / SIDE, .5f / SIDE) == 2);
    RT_QUIET(cudaDestroyTextureObject(t));
    cudaTextureDesc border = mode(cudaAddressModeBorder, cudaFilterModePoint, false);
    t = texture(array, border);
    EXPECT(sample(t, -1, .5f) == 0 && sample(t, 1.5f, .5f) == 1);
    RT_QUIET(cudaDestroyTextureObject(t));
}

static void filtering(cudaArray_t array) {
    cudaTextureObject_t t = texture(array, mode(cudaAddressModeClamp, cudaFilterModeLinear, false));
    EXPECT(sample(t, .5f, .5f) == 0 && sample(t, 1, .5f) == .5f && sample(t, 1, 1) == 4.5f);
    int coarse = 1; // weights have eight bits behind the point
    for (int i = 0; i < 16; i++)
        coarse &= fmodf(sample(t, 1.5f + i / 1000.f, .5f) * 256, 1) == 0;
    EXPECT(coarse);
    RT_QUIET(cudaDestroyTextureObject(t));
    t = texture(array,
                mode(cudaAddressModeClamp, cudaFilterModeLinear, true)); // multiplied by the size first
    EXPECT(sample(t, 1.f / SIDE, .5f / SIDE) == .5f);
    RT_QUIET(cudaDestroyTextureObject(t));
}

static void kinds() {
    float texels[96];
    for (int i = 0; i < 96; i++)
        texels[i] = i;
    cudaArray_t array = solid(make_cudaExtent(2, 2, 3), cudaArrayLayered, texels, 2, 2, 3);
    cudaTextureObject_t t = texture(array, cudaTextureDesc{});
    layer<<<3, 4>>>(t, out);
    RT_OK(cudaMemcpy(got, out, 12 * 4, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(got, texels, 12 * 4) == 0);
    RT_QUIET(cudaDestroyTextureObject(t));
    RT_QUIET(cudaFreeArray(array));

    for (int i = 0; i < 96; i++)
        texels[i] = i / 16;
    array = solid(make_cudaExtent(4, 4, 6), cudaArrayCubemap, texels, 4, 4, 6);
    t = texture(array, mode(cudaAddressModeClamp, cudaFilterModePoint, true));
    face<<<1, 6>>>(t, out);
    RT_OK(cudaMemcpy(got, out, 6 * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 6; i++)
        EXPECT(got[i] == i);
    RT_QUIET(cudaDestroyTextureObject(t));
    RT_QUIET(cudaFreeArray(array));

    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t levels;
    RT_OK(cudaMallocMipmappedArray(&levels, &format, make_cudaExtent(8, 8, 0), 4));
    for (unsigned i = 0; i < 4; i++) {
        size_t side = 8 >> i;
        for (float &value : plane)
            value = i + 1.f;
        RT_QUIET(cudaGetMipmappedArrayLevel(&array, levels, i));
        RT_QUIET(cudaMemcpy2DToArray(array, 0, 0, plane, side * 4, side * 4, side, cudaMemcpyHostToDevice));
    }
    cudaResourceDesc what = {};
    cudaTextureDesc how = mode(cudaAddressModeClamp, cudaFilterModePoint, true);
    what.resType = cudaResourceTypeMipmappedArray;
    what.res.mipmap.mipmap = levels;
    how.maxMipmapLevelClamp = 3;
    RT_OK(cudaCreateTextureObject(&t, &what, &how, nullptr));
    level<<<1, 4>>>(t, out);
    RT_OK(cudaMemcpy(got, out, 4 * 4, cudaMemcpyDeviceToHost));
    EXPECT(got[0] == 1 && got[1] == 2 && got[2] == 3 && got[3] == 4);
    RT_OK(cudaDestroyTextureObject(t));
    RT_OK(cudaFreeMipmappedArray(levels));

    array = solid(make_cudaExtent(4, 4, 4), cudaArraySurfaceLoadStore, nullptr, 4, 4, 4);
    cudaSurfaceObject_t surface;
    what = {};
    what.res.array.array = array;
    RT_OK(cudaCreateSurfaceObject(&surface, &what));
    write_volume<<<1, dim3(4, 4, 4)>>>(surface);
    t = texture(array, cudaTextureDesc{});
    read_volume<<<1, dim3(4, 4, 4)>>>(t, out);
    RT_OK(cudaMemcpy(got, out, 64 * 4, cudaMemcpyDeviceToHost));
    EXPECT(got[0] == 0 && got[1] == 1 && got[4] == 10 && got[63] == 333);
    RT_OK(cudaDestroySurfaceObject(surface));
}

int main() {
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    for (int i = 0; i < TEXELS; i++)
        plane[i] = i;
    RT_OK(cudaMalloc(&out, sizeof got));
    RT_OK(cudaMallocArray(&array, &format, SIDE, SIDE));
    RT_OK(cudaMemcpy2DToArray(array, 0, 0, plane, SIDE * 4, SIDE * 4, SIDE, cudaMemcpyHostToDevice));
    edges(array);
    filtering(array);
    RT_OK(cudaFreeArray(array));
    EXPECT(reads<unsigned char>(200) && reads(make_uchar2(1, 255)) && reads(make_uchar4(1, 2, 3, 254)));
    EXPECT(reads<signed char>(-100) && reads(make_char2(-1, 1)) && reads(make_char4(-1, 2, -3, 4)));
    EXPECT(reads<unsigned short>(60000) && reads(make_ushort2(1, 65535)) && reads(make_ushort4(1, 2, 3, 4)));
    EXPECT(reads<short>(-30000) && reads(make_short2(-1, 1)) && reads(make_short4(-1, 2, -3, 4)));
    EXPECT(reads<unsigned>(4000000000u) && reads(make_uint2(1, ~0u)) && reads(make_uint4(1, 2, 3, ~0u)));
    EXPECT(reads<int>(-2000000000) && reads(make_int2(-1, 1)) && reads(make_int4(-1, 2, -3, 4)));
    EXPECT(reads<float>(.25f) && reads(make_float2(1, -2)) && reads(make_float4(1, 2, -3, 1e30f)));
    normalised<unsigned char>(0, 255, 0, 1);
    normalised<unsigned char>(51, 128, .2f, 128 / 255.f);
    normalised<signed char>(-128, 127, -1, 1);
    normalised<unsigned short>(13107, 65535, .2f, 1);
    normalised<short>(-32768, -32767, -1, -1);
    kinds();
    return check_failed;
}
