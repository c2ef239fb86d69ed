// Arrays, mipmapped arrays and lists of copies by way of the runtime, with templates of textures and
// surfaces.
#include "check.h"

enum { WIDTH = 64, HEIGHT = 32, LEVELS = 3 };

__global__ void fetch(cudaTextureObject_t texture, float level, int width, int height, float *out) {
    int x = threadIdx.x, y = blockIdx.x;
    out[y * width + x] = tex2DLod<float>(texture, (x + 0.5f) / width, (y + 0.5f) / height, level);
}

__global__ void twice(cudaSurfaceObject_t surface) {
    int x = threadIdx.x, y = blockIdx.x;
    surf2Dwrite(2 * surf2Dread<float>(surface, x * 4, y), surface, x * 4, y);
}

static float model[LEVELS][WIDTH * HEIGHT], back[WIDTH * HEIGHT];

int main() {
    cudaMipmappedArray_t pyramid;
    cudaArray_t level;
    cudaExtent extent = make_cudaExtent(WIDTH, HEIGHT, 0), found;
    cudaChannelFormatDesc texel = cudaCreateChannelDesc<float>(), told;
    cudaStream_t stream;
    float *out;
    unsigned flags;
    RT_OK(cudaMalloc(&out, sizeof back));
    RT_OK(cudaStreamCreate(&stream));
    RT_OK(cudaMallocMipmappedArray(&pyramid, &texel, extent, LEVELS, cudaArraySurfaceLoadStore));
    for (int i = 0; i < LEVELS; i++) {
        int width = WIDTH >> i, height = HEIGHT >> i;
        for (int k = 0; k < width * height; k++)
            model[i][k] = (float)(i * 100 + k % 89);
        RT_OK(cudaGetMipmappedArrayLevel(&level, pyramid, i));
        RT_OK(cudaArrayGetInfo(&told, &found, &flags, level));
        EXPECT(found.width == (size_t)width && found.height == (size_t)height && told.x == 32);
        RT_OK(
            cudaMemcpy2DToArray(level, 0, 0, model[i], width * 4, width * 4, height, cudaMemcpyHostToDevice));
        cudaResourceDesc desc = {};
        cudaSurfaceObject_t surface;
        desc.resType = cudaResourceTypeArray;
        desc.res.array.array = level;
        RT_OK(cudaCreateSurfaceObject(&surface, &desc));
        twice<<<height, width>>>(surface);
        RT_OK(cudaDeviceSynchronize());
        RT_OK(cudaDestroySurfaceObject(surface));
    }
    cudaResourceDesc whole = {};
    cudaTextureDesc sampler = {};
    cudaTextureObject_t texture;
    whole.resType = cudaResourceTypeMipmappedArray;
    whole.res.mipmap.mipmap = pyramid;
    sampler.normalizedCoords = 1;
    sampler.addressMode[0] = sampler.addressMode[1] = cudaAddressModeClamp;
    sampler.maxMipmapLevelClamp = LEVELS;
    RT_OK(cudaCreateTextureObject(&texture, &whole, &sampler, NULL));
    for (int i = 0; i < LEVELS; i++) {
        int width = WIDTH >> i, height = HEIGHT >> i, wrong = 0;
        fetch<<<height, width>>>(texture, (float)i, width, height, out);
        RT_OK(cudaMemcpy(back, out, width * height * 4, cudaMemcpyDeviceToHost));
        for (int k = 0; k < width * height; k++)
            wrong += back[k] != 2 * model[i][k];
        EXPECT(wrong == 0);
    }
    RT_OK(cudaDestroyTextureObject(texture));
    RT_FAILS(cudaErrorInvalidValue, cudaGetMipmappedArrayLevel(&level, pyramid, LEVELS));
    RT_OK(cudaFreeMipmappedArray(pyramid));
    RT_OK(cudaFreeMipmappedArray(NULL));

    void *to[2] = {out, out + 512};
    const void *from[2] = {model[0], model[1]};
    size_t sizes[2] = {256, 512}, first = 0;
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    RT_OK(cudaMemcpyBatchAsync(to, from, sizes, 2, &attributes, &first, 1, stream));
    RT_OK(cudaStreamSynchronize(stream));
    RT_OK(cudaMemcpy(back, out, 4096, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(back, model[0], 256) == 0 && memcmp(back + 512, model[1], 512) == 0);
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderInvalid;
    RT_FAILS(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 2, &attributes, &first, 1, stream));
    return check_failed;
}
