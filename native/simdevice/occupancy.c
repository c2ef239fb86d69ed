/* Occupancy, by the rules of compute capability 8.0 in CUDA's manual. */
#include "card.h"
#include "cluster.h"
#include "refused.h"

enum {
    REGISTER_UNIT = 256, /* registers are given to a warp in units of this many */
    PARTITIONS = 4,      /* of a multiprocessor, each with its share of registers and warps */
    SHARED_UNIT = 128,
};

uint32_t sim_occupancy_blocks(const struct sim_kernel_info *info, uint32_t threads, uint64_t dynamic_shared) {
    uint32_t warps = (threads + SIM_WARP - 1) / SIM_WARP;
    uint32_t blocks = sim_card()->blocks_per_multiprocessor,
             by_warps = sim_card()->threads_per_multiprocessor / SIM_WARP / warps;
    if (by_warps < blocks)
        blocks = by_warps;
    if (info->registers) {
        uint64_t per_warp = sim_round_up((uint64_t)info->registers * SIM_WARP, REGISTER_UNIT);
        uint64_t by_registers = SIM_REGISTERS_PER_SM / PARTITIONS / per_warp * PARTITIONS / warps;
        if (by_registers < blocks)
            blocks = (uint32_t)by_registers;
    }
    uint64_t shared = info->shared_static + dynamic_shared;
    if (shared > sim_card()->shared_per_block_optin)
        return 0;
    uint64_t by_shared =
        sim_card()->shared_per_multiprocessor / sim_round_up(shared + SIM_SHARED_RESERVED, SHARED_UNIT);
    return by_shared < blocks ? (uint32_t)by_shared : blocks;
}

/* What the function may not have at a launch fits nowhere (cuda_occupancy.h). */
static uint32_t blocks_of(const struct sim_function *function, uint32_t threads, uint64_t dynamic_shared) {
    bool allowed = threads <= function->info->max_threads &&
                   dynamic_shared <= sim_function_max_dynamic(function->info, function->attributes);
    return allowed ? sim_occupancy_blocks(function->info, threads, dynamic_shared) : 0;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int block_size,
                                                              size_t dynamic_shared, unsigned int flags) {
    struct sim_function *function;
    SIM_REQUIRE(blocks && block_size > 0 && (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) == 0);
    SIM_TRY(sim_function_acquire(handle, &function));
    *blocks = (int)blocks_of(function, (uint32_t)block_size, dynamic_shared);
    sim_release(function);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                     size_t dynamic_shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic_shared,
                                                                CU_OCCUPANCY_DEFAULT);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid_size, int *block_size, CUfunction handle,
                                                   CUoccupancyB2DSize shared_of_block, size_t dynamic_shared,
                                                   int limit, unsigned int flags) {
    struct sim_function *function;
    SIM_REQUIRE(grid_size && block_size && limit >= 0 &&
                (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) == 0);
    SIM_TRY(sim_function_acquire(handle, &function));
    uint32_t most = function->info->max_threads, best_size = 0, best_blocks = 0;
    if (limit && (uint32_t)limit < most)
        most = (uint32_t)limit;
    /* from the largest size down, in whole warps: of equal occupancy the larger block wins */
    for (uint32_t size = (uint32_t)sim_round_up(most, SIM_WARP); size; size -= SIM_WARP) {
        uint32_t threads = size < most ? size : most;
        uint32_t blocks =
            blocks_of(function, threads, shared_of_block ? shared_of_block((int)threads) : dynamic_shared);
        if (blocks * threads > best_blocks * best_size) {
            best_size = threads;
            best_blocks = blocks;
        }
    }
    sim_release(function);
    *block_size = (int)best_size;
    *grid_size = (int)(best_blocks * sim_multiprocessors());
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, CUfunction function,
                                          CUoccupancyB2DSize shared_of_block, size_t dynamic_shared,
                                          int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size, block_size, function, shared_of_block,
                                                     dynamic_shared, limit, CU_OCCUPANCY_DEFAULT);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *size, CUfunction handle, int blocks,
                                                 int block_size) {
    struct sim_function *function;
    SIM_REQUIRE(size && blocks > 0 && block_size > 0);
    SIM_TRY(sim_function_acquire(handle, &function));
    const struct sim_kernel_info *info = function->info;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if ((uint32_t)block_size <= info->max_threads &&
        (uint32_t)blocks <= sim_occupancy_blocks(info, (uint32_t)block_size, 0)) {
        uint32_t each = sim_card()->shared_per_multiprocessor / (uint32_t)blocks / SHARED_UNIT * SHARED_UNIT -
                        SIM_SHARED_RESERVED;
        uint32_t available = each - info->shared_static,
                 most = sim_function_max_dynamic(info, function->attributes);
        *size = available < most ? available : most;
        result = CUDA_SUCCESS;
    }
    sim_release(function);
    return result;
}

/* 0: no such block, or no grid of them. */
static uint64_t threads_of(const CUlaunchConfig *config) {
    const uint64_t most = SIM_MAX_THREADS_PER_BLOCK;
    if (config->blockDimX > most || config->blockDimY > most || config->blockDimZ > most ||
        !config->gridDimX || !config->gridDimY || !config->gridDimZ)
        return 0;
    uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
    return threads <= most ? threads : 0;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction handle, const CUlaunchConfig *config) {
    struct sim_function *function;
    SIM_REQUIRE(size && config);
    SIM_TRY(sim_refuse_stream(config->hStream));
    SIM_TRY(sim_function_acquire(handle, &function));
    bool valid = threads_of(config) && (config->attrs || !config->numAttrs);
    if (valid)
        *size = (int)sim_cluster_most(function, config);
    sim_release(function);
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The grid does not matter to how many there may be at once. */
static CUresult cluster_blocks(const struct sim_function *function, const CUlaunchConfig *config,
                               uint32_t *blocks) {
    CUlaunchConfig any_grid = *config;
    struct sim_cluster_shape shape;
    any_grid.gridDimX = any_grid.gridDimY = any_grid.gridDimZ = 0;
    SIM_TRY(sim_cluster_shape(function, &any_grid, &shape));
    *blocks = shape.blocks[0] * shape.blocks[1] * shape.blocks[2];
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle, const CUlaunchConfig *config) {
    struct sim_function *function;
    uint32_t blocks;
    SIM_REQUIRE(clusters && config && (config->attrs || !config->numAttrs));
    SIM_TRY(sim_refuse_stream(config->hStream));
    uint64_t threads = threads_of(config);
    SIM_REQUIRE(threads);
    SIM_TRY(sim_function_acquire(handle, &function));
    CUresult result = cluster_blocks(function, config, &blocks);
    if (result == CUDA_SUCCESS)
        *clusters = (int)(blocks_of(function, (uint32_t)threads, config->sharedMemBytes) *
                          sim_multiprocessors() / blocks);
    sim_release(function);
    return result;
}
