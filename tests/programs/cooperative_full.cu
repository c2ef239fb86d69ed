// A cooperative launch of as many blocks as the device holds at once, as programs make it that synchronise
// the whole grid.
#include <cooperative_groups.h>

#include "check.h"

enum { THREADS = 256 };

__global__ void count(unsigned *found) {
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    atomicAdd(&found[0], 1);
    grid.sync();
    if (grid.thread_rank() == 0)
        found[1] = found[0];
}

int main() {
    unsigned *found, seen[2] = {};
    int blocks = 0, multiprocessors = 0;
    RT_OK(cudaMalloc(&found, sizeof seen));
    RT_OK(cudaMemset(found, 0, sizeof seen));
    RT_OK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    RT_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, count, THREADS, 0));
    blocks *= multiprocessors;
    void *arguments[] = {&found};
    RT_OK(cudaLaunchCooperativeKernel((void *)count, blocks, THREADS, arguments, 0, nullptr));
    RT_OK(cudaMemcpy(seen, found, sizeof seen, cudaMemcpyDefault));
    EXPECT(blocks > multiprocessors && seen[0] == blocks * THREADS && seen[1] == seen[0]);
    return check_failed;
}
