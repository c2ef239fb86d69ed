#include "reach.h"
#include "addresses.h"
#include "engine.h"
#include <stdio.h>

static bool checked;

/* The system puts libraries there for a process whose stack has no limit. */
static bool range_is_free(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL)
        return false;
    bool is_free = true;
    char line[512];
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            is_free &= end <= SIM_DEVICE_BEGIN || begin >= SIM_DEVICE_END + SIM_DEVICE_MARGIN / 2;
    }
    fclose(maps);
    return is_free;
}

bool sim_check_kernels(bool check) {
    checked = check;
    return !check || range_is_free();
}

bool sim_kernels_checked(void) {
    return checked;
}

static bool lies_in(uint64_t address, uint64_t size, const void *begin, uint64_t length) {
    uint64_t offset = address - (uint64_t)(uintptr_t)begin;
    return offset <= length && size <= length - offset;
}

/* What is shared in the cluster, each block's for itself. */
static bool lies_in_cluster(uint64_t address, uint64_t size, const struct sim_block *block) {
    uint64_t shared = sim_shared_size(block->shared_static, block->shared_dynamic);
    uint64_t offset = address - (uint64_t)(uintptr_t)block->window;
    uint64_t within = offset % SIM_CLUSTER_STRIDE;
    return offset / SIM_CLUSTER_STRIDE < block->cluster_size && within <= shared && size <= shared - within;
}

/* Device memory, where pages say the rest, and what the block and the thread have beside it. */
static bool reaches(const struct sim_thread *t, uint64_t address, uint64_t size, bool writes) {
    const struct sim_block *block = t->block;
    const struct sim_run *run = sim_cta_of((struct sim_thread *)(uintptr_t)t)->worker->run;
    return (address >= SIM_DEVICE_BEGIN && address < SIM_DEVICE_END && size <= SIM_DEVICE_END - address) ||
           lies_in(address, size, t->local, (uint64_t)(t->local_end - t->local)) ||
           lies_in_cluster(address, size, block) ||
           lies_in(address, size, run->workspace, sizeof run->workspace) ||
           (!writes && lies_in(address, size, block->params, run->grid->kernel->info->param_bytes));
}

void sim_rt_illegal(struct sim_thread *t, uint64_t address) {
    sim_run_fail(sim_cta_of(t)->worker->run, CUDA_ERROR_ILLEGAL_ADDRESS,
                 "access outside its state space at %#llx", (unsigned long long)address);
    sim_worker_abort(sim_cta_of(t)->worker);
}

void sim_rt_reach(struct sim_thread *t, uint64_t address, uint32_t size, uint32_t writes) {
    if (!reaches(t, address, size, writes != 0))
        sim_rt_illegal(t, address);
}

void sim_require_reach(struct sim_thread *t, const void *at, size_t size) {
    uint64_t address = (uint64_t)(uintptr_t)at;
    if (checked && !reaches(t, address, size, false))
        sim_rt_illegal(t, address);
}

void sim_take_text(struct sim_thread *t, const char *from, char *to, size_t size) {
    size_t length = 0;
    for (; length + 1 < size; length++) {
        sim_require_reach(t, from + length, 1);
        to[length] = from[length];
        if (to[length] == '\0')
            return;
    }
    to[length] = '\0';
}
