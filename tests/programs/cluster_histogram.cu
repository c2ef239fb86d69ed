// A histogram whose bins are divided among the shared memory of a cluster's blocks, a ring of blocks that
// hand a sum on, and clusters that the kernel itself asks for.
//
// compile: -gencode arch=compute_90,code=compute_90 -std=c++17
// device: sim, with clusters: it says to be of compute capability 9.0
// suite: clusters
#include <cooperative_groups.h>
#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void histogram(int *bins, int bin_count, int bins_per_block, const int *data, int count) {
    extern __shared__ int mine[];
    const auto cluster = cg::this_cluster();
    for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x)
        mine[i] = 0;
    cluster.sync(); // nobody counts in a block that has not begun
    const int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const int bin = data[i] < 0 ? 0 : data[i] >= bin_count ? bin_count - 1 : data[i];
        int *theirs = cluster.map_shared_rank(mine, bin / bins_per_block);
        atomicAdd(&theirs[bin % bins_per_block], 1);
    }
    cluster.sync(); // nobody ends while others count in it
    int *to = bins + cluster.block_rank() * bins_per_block;
    for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x)
        atomicAdd(&to[i], mine[i]);
}

// Each block's sum goes to the next one's shared memory, round by round.
__global__ void __cluster_dims__(4, 1, 1) ring(int *sums) {
    __shared__ int inbox[2];
    const auto cluster = cg::this_cluster();
    const unsigned rank = cluster.block_rank(), next = (rank + 1) % cluster.num_blocks();
    int sum = 0, handed = 1 << rank;
    for (int round = 0; round < 4; round++) {
        if (threadIdx.x == 0)
            *cluster.map_shared_rank(&inbox[round % 2], next) = handed;
        auto token = cluster.barrier_arrive();
        sum += handed;
        cluster.barrier_wait(std::move(token));
        handed = inbox[round % 2];
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum + 100 * int(cluster.query_shared_rank(cluster.map_shared_rank(inbox, next)));
    cluster.sync();
}

static bool counted(int cluster_size, const std::vector<int> &data, const int *device_data) {
    constexpr int BINS = 256, BLOCKS = 16, THREADS = 96;
    const int per_block = BINS / cluster_size;
    std::vector<int> bins(BINS), expected(BINS);
    int *device_bins;
    for (int value : data)
        expected[value < 0 ? 0 : value >= BINS ? BINS - 1 : value]++;
    RT_QUIET(cudaMalloc(&device_bins, BINS * sizeof(int)));
    RT_QUIET(cudaMemset(device_bins, 0, BINS * sizeof(int)));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster_size;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = BLOCKS;
    config.blockDim = THREADS;
    config.dynamicSmemBytes = per_block * sizeof(int);
    config.attrs = &attribute;
    config.numAttrs = 1;
    RT_OK(
        cudaLaunchKernelEx(&config, histogram, device_bins, BINS, per_block, device_data, int(data.size())));
    RT_OK(cudaMemcpy(bins.data(), device_bins, BINS * sizeof(int), cudaMemcpyDeviceToHost));
    digest("bins", bins.data(), BINS * sizeof(int));
    RT_QUIET(cudaFree(device_bins));
    return bins == expected;
}

int main() {
    std::vector<int> data(5000), sums(8);
    int *device_data, *device_sums;
    for (size_t i = 0; i < data.size(); i++)
        data[i] = int(i * i * 7 % 300) - 20;
    RT_OK(cudaMalloc(&device_data, data.size() * sizeof(int)));
    RT_OK(cudaMemcpy(device_data, data.data(), data.size() * sizeof(int), cudaMemcpyHostToDevice));
    for (int size = 1; size <= 8; size *= 2)
        EXPECT(counted(size, data, device_data));

    RT_OK(cudaFuncSetAttribute(histogram, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    EXPECT(counted(16, data, device_data));

    cudaFuncAttributes attributes;
    RT_OK(cudaFuncGetAttributes(&attributes, ring));
    EXPECT(attributes.requiredClusterWidth == 4 && attributes.requiredClusterHeight == 1);
    RT_OK(cudaMalloc(&device_sums, sums.size() * sizeof(int)));
    ring<<<8, 40>>>(device_sums);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(sums.data(), device_sums, sums.size() * sizeof(int), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int block = 0; block < 8; block++)
        wrong += sums[block] != 15 + 100 * ((block % 4 + 1) % 4);
    EXPECT(wrong == 0);
    ring<<<6, 40>>>(device_sums);
    RT_CALL(cudaGetLastError());
    return check_failed;
}
