// Boxes of tensors come to shared memory and go back by one instruction each, as the programming guide has
// it: into all blocks of a cluster, over the edges, swizzled, and as sums.
//
// compile: -gencode arch=compute_90,code=compute_90 -std=c++17
// device: sim, with clusters: it says to be of compute capability 9.0
// suite: clusters
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <vector>

#include "check.h"

namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int WIDTH = 100, HEIGHT = 60, ACROSS = 32, DOWN = 16;

__device__ void arrive_and_wait(barrier &bar, unsigned bytes) {
    barrier::arrival_token token;
    if (threadIdx.x == 0)
        token = cuda::device::barrier_arrive_tx(bar, 1, bytes);
    else
        token = bar.arrive();
    bar.wait(std::move(token));
}

// Adds one to each number of a tile of the tensor.
__global__ void add_one(const __grid_constant__ CUtensorMap map) {
    __shared__ alignas(128) int tile[DOWN][ACROSS];
    __shared__ barrier bar;
    const int x = blockIdx.x * ACROSS, y = blockIdx.y * DOWN;
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const int32_t corner[2] = {x, y};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &map, corner,
                                  cuda::device::barrier_native_handle(bar));
    }
    arrive_and_wait(bar, sizeof tile);
    for (int i = threadIdx.x; i < DOWN * ACROSS; i += blockDim.x)
        tile[i / ACROSS][i % ACROSS] += 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        const int32_t corner[2] = {x, y};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map, corner, tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}

// Each block adds its numbers to the same box.
__global__ void add_up(const __grid_constant__ CUtensorMap map) {
    __shared__ alignas(128) int tile[DOWN][ACROSS];
    for (int i = threadIdx.x; i < DOWN * ACROSS; i += blockDim.x)
        tile[i / ACROSS][i % ACROSS] = i + blockIdx.x;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        const int32_t corner[2] = {90, -3};
        ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &map, corner,
                                         tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

// The swizzled tile, read as the manual says where each chunk of 16 bytes is; by the first block for all.
__global__ void __cluster_dims__(2) swizzled(const __grid_constant__ CUtensorMap map, int *out) {
    __shared__ alignas(1024) int tile[DOWN][ACROSS];
    __shared__ barrier bar;
    auto cluster = cooperative_groups::this_cluster();
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    cluster.sync();
    if (threadIdx.x == 0 && cluster.block_rank() == 0) {
        const int32_t corner[2] = {7, 50};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &map, corner,
                                  cuda::device::barrier_native_handle(bar), (uint16_t)3);
    }
    arrive_and_wait(bar, sizeof tile);
    for (int i = threadIdx.x; i < DOWN * ACROSS; i += blockDim.x) {
        const int y = i / ACROSS, x = i % ACROSS, chunk = (x / 4) ^ (y % 8);
        out[cluster.block_rank() * DOWN * ACROSS + i] = tile[y][chunk * 4 + x % 4];
    }
    cluster.sync();
}

static CUtensorMap map_of(void *tensor, CUtensorMapSwizzle swizzle) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    RT_QUIET(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                              &status));
    auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
    const cuuint64_t sizes[] = {WIDTH, HEIGHT}, strides[] = {WIDTH * sizeof(int)};
    const cuuint32_t box[] = {ACROSS, DOWN}, steps[] = {1, 1};
    CUtensorMap map;
    EXPECT(encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, tensor, sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
    return map;
}

int main() {
    std::vector<int> host(WIDTH * HEIGHT), back(host.size());
    int *tensor, *out, wrong = 0;
    for (size_t i = 0; i < host.size(); i++)
        host[i] = (int)(i * 7);
    RT_OK(cudaMalloc(&tensor, host.size() * sizeof(int)));
    RT_OK(cudaMalloc(&out, 2 * ACROSS * DOWN * sizeof(int)));
    RT_OK(cudaMemcpy(tensor, host.data(), host.size() * sizeof(int), cudaMemcpyHostToDevice));
    const CUtensorMap plain = map_of(tensor, CU_TENSOR_MAP_SWIZZLE_NONE);

    add_one<<<dim3(4, 4), 128>>>(plain); // beyond the edges, too
    RT_OK(cudaMemcpy(back.data(), tensor, host.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < host.size(); i++)
        wrong += back[i] != ++host[i];
    EXPECT(wrong == 0);

    add_up<<<5, 64>>>(plain);
    RT_OK(cudaMemcpy(back.data(), tensor, host.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (int y = 0; y < DOWN - 3; y++)
        for (int x = 90; x < WIDTH; x++)
            host[y * WIDTH + x] += 5 * ((y + 3) * ACROSS + x - 90) + 10;
    EXPECT(back == host);

    swizzled<<<2, 64>>>(map_of(tensor, CU_TENSOR_MAP_SWIZZLE_128B), out);
    std::vector<int> tiles(2 * ACROSS * DOWN);
    RT_OK(cudaMemcpy(tiles.data(), out, tiles.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 2 * ACROSS * DOWN; i++) {
        const int x = 7 + i % ACROSS, y = 50 + i / ACROSS % DOWN;
        wrong += tiles[i] != (x < WIDTH && y < HEIGHT ? host[y * WIDTH + x] : 0);
    }
    EXPECT(wrong == 0);
    return check_failed;
}
