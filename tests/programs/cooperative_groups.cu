// Cooperative groups inside a block: tiles, a reduction over each, and the block's own barrier.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void sums(const int *data, int *by_tile, int *by_block) {
    __shared__ int total;
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<16>(block);
    if (block.thread_rank() == 0)
        total = 0;
    block.sync();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int sum = cg::reduce(tile, data[i], cg::plus<int>());
    const int largest = cg::reduce(tile, data[i], cg::greater<int>());
    if (tile.thread_rank() == 0) {
        by_tile[i / 16] = sum + 1000000 * largest;
        atomicAdd(&total, sum);
    }
    block.sync();
    if (block.thread_rank() == 0)
        by_block[blockIdx.x] = total;
}

// Groups of several warps, which meet in shared memory that is not the program's (from sm_80 on), beside the
// program's own.
__global__ void groups_of_warps(int *wrong) {
    __shared__ cg::block_tile_memory<256> memory;
    __shared__ int own[256];
    const int thread = threadIdx.x, first = thread / 64 * 64;
    own[thread] = thread;
    const auto block = cg::this_thread_block(memory);
    const auto tile = cg::tiled_partition<64>(block);
    const int sum = cg::reduce(tile, thread, cg::plus<int>());
    const int last = tile.shfl(thread, 63);
    tile.sync();
    if (sum != 64 * first + 2016 || last != first + 63 || own[255 - thread] != 255 - thread)
        atomicAdd(wrong, 1);
}

// Only a grid that was launched cooperatively can synchronise, and its group says so.
__global__ void asks_its_grid(int *valid) {
    *valid = cg::this_grid().is_valid();
}

static int is_valid(int *device) {
    int valid = 2;
    RT_OK(cudaMemcpy(&valid, device, 4, cudaMemcpyDeviceToHost));
    return valid;
}

static void only_cooperative_grids_are_valid(int *device) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *arguments[] = {&device};
    const void *kernel = (const void *)asks_its_grid;
    asks_its_grid<<<1, 1>>>(device);
    EXPECT(is_valid(device) == 0);
    RT_OK(cudaLaunchCooperativeKernel(kernel, 1, 1, arguments, 0, nullptr));
    EXPECT(is_valid(device) == 1);
    RT_OK(cudaStreamCreate(&stream));
    RT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    RT_OK(cudaLaunchCooperativeKernel(kernel, 1, 1, arguments, 0, stream));
    RT_OK(cudaStreamEndCapture(stream, &graph));
    RT_OK(cudaGraphInstantiate(&exec, graph, 0));
    RT_OK(cudaMemset(device, 0, 4));
    RT_OK(cudaGraphLaunch(exec, nullptr));
    EXPECT(is_valid(device) == 1);
}

int main() {
    constexpr int COUNT = 4096, BLOCK = 128;
    std::vector<int> data(COUNT), tiles(COUNT / 16), blocks(COUNT / BLOCK);
    for (int i = 0; i < COUNT; i++)
        data[i] = (i * 37) % 101;
    int *device, *device_tiles, *device_blocks;
    RT_OK(cudaMalloc(&device, COUNT * 4));
    RT_OK(cudaMalloc(&device_tiles, tiles.size() * 4));
    RT_OK(cudaMalloc(&device_blocks, blocks.size() * 4));
    RT_OK(cudaMemcpy(device, data.data(), COUNT * 4, cudaMemcpyHostToDevice));
    sums<<<COUNT / BLOCK, BLOCK>>>(device, device_tiles, device_blocks);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(tiles.data(), device_tiles, tiles.size() * 4, cudaMemcpyDeviceToHost));
    RT_OK(cudaMemcpy(blocks.data(), device_blocks, blocks.size() * 4, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (size_t t = 0; t < tiles.size(); t++) {
        int sum = 0, largest = 0;
        for (int i = 0; i < 16; i++) {
            sum += data[t * 16 + i];
            largest = data[t * 16 + i] > largest ? data[t * 16 + i] : largest;
        }
        wrong += tiles[t] != sum + 1000000 * largest;
    }
    for (size_t b = 0; b < blocks.size(); b++) {
        int sum = 0;
        for (int i = 0; i < BLOCK; i++)
            sum += data[b * BLOCK + i];
        wrong += blocks[b] != sum;
    }
    EXPECT(wrong == 0);
    int *device_wrong;
    RT_OK(cudaMalloc(&device_wrong, 4));
    RT_OK(cudaMemset(device_wrong, 0, 4));
    groups_of_warps<<<3, 256>>>(device_wrong);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(&wrong, device_wrong, 4, cudaMemcpyDeviceToHost));
    EXPECT(wrong == 0);
    only_cooperative_grids_are_valid(device_wrong);
    digest("tiles", tiles.data(), tiles.size() * 4);
    return check_failed;
}
