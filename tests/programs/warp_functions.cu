// Shuffles, votes, matches and reductions within a warp, some with half of its lanes.
//
// compile: -arch=compute_80 -code=compute_80
#include "check.h"

__global__ void warps(const int *data, unsigned *out) {
    const int lane = threadIdx.x % 32, i = blockIdx.x * blockDim.x + threadIdx.x;
    const int value = data[i];
    unsigned hash = 0;
    hash = hash * 31 + __shfl_sync(0xffffffff, value, (lane * 5) % 32);
    hash = hash * 31 + __shfl_up_sync(0xffffffff, value, 3);
    hash = hash * 31 + __shfl_down_sync(0xffffffff, value, 7, 16);
    hash = hash * 31 + __shfl_xor_sync(0xffffffff, value, 9);
    hash = hash * 31 + __ballot_sync(0xffffffff, value % 3 == 0);
    hash = hash * 31 + __any_sync(0xffffffff, value == 50) * 2 + __all_sync(0xffffffff, value >= 0);
    hash = hash * 31 + __match_any_sync(0xffffffff, value % 5);
    if (lane % 2 == 0)
        hash = hash * 31 + __shfl_sync(0x55555555, value, (lane + 2) % 32);
    __syncwarp();
    hash = hash * 31 + __reduce_add_sync(0xffffffff, static_cast<unsigned>(value));
    int scan = value;
    for (int step = 1; step < 32; step *= 2) {
        const int left = __shfl_up_sync(0xffffffff, scan, step);
        if (lane >= step)
            scan += left;
    }
    out[i] = hash * 31 + scan;
}

static unsigned expected(const int *warp, int lane) {
    unsigned hash = 0, ballot = 0, match = 0, sum = 0;
    int any = 0, all = 1, scan = 0;
    for (int i = 0; i < 32; i++) {
        ballot |= (warp[i] % 3 == 0 ? 1u : 0u) << i;
        match |= (warp[i] % 5 == warp[lane] % 5 ? 1u : 0u) << i;
        any |= warp[i] == 50;
        all &= warp[i] >= 0;
        sum += warp[i];
        scan += i <= lane ? warp[i] : 0;
    }
    hash = hash * 31 + warp[lane * 5 % 32];
    hash = hash * 31 + warp[lane >= 3 ? lane - 3 : lane];
    hash = hash * 31 + warp[lane % 16 + 7 < 16 ? lane + 7 : lane];
    hash = hash * 31 + warp[lane ^ 9];
    hash = hash * 31 + ballot;
    hash = hash * 31 + any * 2 + all;
    hash = hash * 31 + match;
    if (lane % 2 == 0)
        hash = hash * 31 + warp[(lane + 2) % 32];
    hash = hash * 31 + sum;
    return hash * 31 + scan;
}

int main() {
    constexpr int COUNT = 1024;
    int data[COUNT], *device;
    unsigned out[COUNT], *device_out;
    for (int i = 0; i < COUNT; i++)
        data[i] = (i * 7919) % 97;
    RT_OK(cudaMalloc(&device, sizeof data));
    RT_OK(cudaMalloc(&device_out, sizeof out));
    RT_OK(cudaMemcpy(device, data, sizeof data, cudaMemcpyHostToDevice));
    warps<<<COUNT / 128, 128>>>(device, device_out);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(out, device_out, sizeof out, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        wrong += out[i] != expected(&data[i / 32 * 32], i % 32);
    EXPECT(wrong == 0);
    digest("lanes", out, sizeof out);
    return check_failed;
}
