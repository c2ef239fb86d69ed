// Kernels whose threads need each other, as textbooks write them; twin.c is the same in plain C.
#include <cooperative_groups.h>

enum { TILE = 16, CLUSTERS = 16 };

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int tile = 0; tile < n; tile += TILE) {
        as[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++)
            sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void reduce(const float *in, float *out, int n) {
    __shared__ float part[256];
    float sum = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
        sum += in[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}

// Inclusive sums within each part of 256.
extern "C" __global__ void scan(const int *in, int *out) {
    __shared__ int sums[8];
    int i = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, value = in[i];
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(~0u, value, step);
        if (lane >= step)
            value += other;
    }
    if (lane == 31)
        sums[warp] = value;
    __syncthreads();
    for (int w = 0; w < warp; w++)
        value += sums[w];
    out[i] = value;
}

extern "C" __global__ void stencil(const float *in, float *out, int n) {
    __shared__ float row[256 + 8];
    int i = blockIdx.x * 256 + threadIdx.x, at = threadIdx.x + 4;
    row[at] = in[i + 4];
    if (threadIdx.x < 4) {
        row[threadIdx.x] = in[i];
        row[at + 256] = in[i + 260];
    }
    __syncthreads();
    float sum = 0;
    for (int offset = -4; offset <= 4; offset++)
        sum += row[at + offset] * (5 - abs(offset));
    out[i] = sum;
}

// Which of the centres each point is nearest to, and the sums of the points of each.
extern "C" __global__ void kmeans(const float *x, const float *y, const float *centres, int *nearest,
                                  float *sums, int n) {
    __shared__ float local[2 * CLUSTERS], own[3 * CLUSTERS];
    if (threadIdx.x < 2 * CLUSTERS)
        local[threadIdx.x] = centres[threadIdx.x];
    if (threadIdx.x < 3 * CLUSTERS)
        own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float best = 3e38f;
        int which = 0;
        for (int k = 0; k < CLUSTERS; k++) {
            float dx = x[i] - local[2 * k], dy = y[i] - local[2 * k + 1], distance = dx * dx + dy * dy;
            if (distance < best) {
                best = distance;
                which = k;
            }
        }
        nearest[i] = which;
        atomicAdd(&own[3 * which], x[i]);
        atomicAdd(&own[3 * which + 1], y[i]);
        atomicAdd(&own[3 * which + 2], 1.0f);
    }
    __syncthreads();
    if (threadIdx.x < 3 * CLUSTERS)
        atomicAdd(&sums[threadIdx.x], own[threadIdx.x]);
}

extern "C" __global__ void grid_alone(int *out) {
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = 1;
}

extern "C" __global__ void grid_sync(int *out) {
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0)
        out[blockIdx.x] = 1;
}
