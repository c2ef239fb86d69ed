// Kernels of the driver-API programs, compiled to PTX text.

extern "C" __global__ void add(const float *a, const float *b, float *sum, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        sum[i] = a[i] + b[i];
}

// data[i] = data[i] * factor + term: applying it in another order gives another result.
extern "C" __global__ void affine(unsigned *data, unsigned count, unsigned factor, unsigned term) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[i] = data[i] * factor + term;
}

extern "C" __global__ void fill(unsigned *data, unsigned count, unsigned seed) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[i] = (i ^ seed) * 2654435761u;
}

extern "C" __global__ void count_up(unsigned *counter) {
    *counter += 1;
}

extern "C" __global__ void count_atomically(unsigned *counter) {
    atomicAdd(counter, 1u);
}

// Copies only after some work, so that whoever should wait for it and does not sees the old content. The work
// is a generator that never yields 0, which no compiler knows.
extern "C" __global__ void slow_copy(unsigned *destination, const unsigned *source, unsigned count,
                                     unsigned delay) {
    unsigned work = 1;
    for (unsigned i = 0; i < delay; i++) {
        work ^= work << 13;
        work ^= work >> 17;
        work ^= work << 5;
    }
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        destination[i] = work ? source[i] : 0;
}

extern "C" __global__ void store(unsigned *address, unsigned value) {
    *address = value;
}

extern "C" __global__ void load(unsigned *result, const unsigned *address) {
    *result = *address;
}

extern "C" __global__ void trap(unsigned *data) {
    if (data[0] != 0xffffffffu)
        __trap();
}

extern "C" __global__ void reverse(unsigned *data) {
    extern __shared__ unsigned shared[];
    shared[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void where(uint3 *blocks, uint3 *threads) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
    blocks[i] = blockIdx;
    threads[i] = threadIdx;
}

extern "C" {
__device__ unsigned global_words[64];
__constant__ unsigned constant_words[16];
}

extern "C" __global__ void mix_globals(unsigned *result) {
    const unsigned i = threadIdx.x;
    global_words[i] = global_words[i] * 3 + constant_words[i % 16];
    result[i] = global_words[i];
}
