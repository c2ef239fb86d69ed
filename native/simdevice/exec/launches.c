#include "launches.h"
#include "device_limits.h"
#include "engine.h"
#include <stdlib.h>
#include <string.h>

enum {
    DEEPEST = 24,
    MOST_PENDING = 1 << 16,
    ROOMS = 4 << 20,
    MOST_BLOCKS_YZ = 65535,
    MOST_THREADS_Z = 64,
    SHARED_PER_BLOCK = 48 << 10
};
enum { TAIL = 3 }; /* cudaStreamTailLaunch */
enum {             /* cudaError_t */
       INVALID_VALUE = 1,
       MEMORY_ALLOCATION = 2,
       INVALID_CONFIGURATION = 9,
       MAX_DEPTH_EXCEEDED = 65,
       PENDING_COUNT_EXCEEDED = 69,
       INVALID_DEVICE_FUNCTION = 98,
};

struct sim_launch {
    struct sim_launch *next;
    struct sim_kernel *kernel;
    uint32_t grid[3], block[3], shared;
    uint32_t depth;
    void *room;                    /* where the kernel that launches it puts the parameters */
    _Alignas(16) uint8_t params[]; /* what they were when it did */
};

static struct sim_run *run_of(const struct sim_thread *t) {
    return sim_cta_of((struct sim_thread *)(uintptr_t)t)->worker->run;
}

static void append(struct sim_launch_queue *queue, struct sim_launch *launch) {
    launch->next = NULL;
    if (queue->last != NULL)
        queue->last->next = launch;
    else
        queue->first = launch;
    queue->last = launch;
}

static void join(struct sim_launch_queue *before, const struct sim_launch_queue *behind) {
    if (before->last != NULL)
        before->last->next = behind->first;
    else
        before->first = behind->first;
    if (behind->last != NULL)
        before->last = behind->last;
}

static uint32_t fail(struct sim_launches *launches, uint32_t error) {
    pthread_mutex_lock(&launches->lock);
    launches->error = error;
    pthread_mutex_unlock(&launches->lock);
    return error;
}

static bool fits(const struct sim_kernel_info *info, const struct sim_launch *launch) {
    const uint32_t *grid = launch->grid, *block = launch->block;
    uint64_t threads = (uint64_t)block[0] * block[1];
    if (grid[0] == 0 || grid[0] > INT32_MAX || grid[1] == 0 || grid[1] > MOST_BLOCKS_YZ || grid[2] == 0 ||
        grid[2] > MOST_BLOCKS_YZ || threads == 0 || threads > MAX_BLOCK_THREADS || block[2] == 0 ||
        block[2] > MOST_THREADS_Z)
        return false;
    threads *= block[2];
    return threads <= info->max_threads && sim_block_as_required(info, block[0], block[1], block[2]) &&
           (info->cluster[0] == 0 || info->cluster[0] * info->cluster[1] * info->cluster[2] == 1) &&
           (uint64_t)info->shared_static + launch->shared <= SHARED_PER_BLOCK;
}

/* The kernel whose address in device code that is, of the image that `one` is of. */
static struct sim_kernel *find(const struct sim_kernel *one, uint64_t handle) {
    for (uint32_t i = 0; handle != 0 && i < one->count; i++)
        if (one->all[i].info->handle == handle)
            return &one->all[i];
    return NULL;
}

/* Whether there are more than threads could be about to launch. Rooms do not bound them: a kernel may free
 * its own. */
static bool crowded(struct sim_launches *launches) {
    pthread_mutex_lock(&launches->lock);
    bool most = launches->count > 2 * MOST_PENDING;
    pthread_mutex_unlock(&launches->lock);
    return most;
}

static uint32_t prepare(struct sim_run *run, uint64_t handle, struct sim_launch *asked, void **room) {
    asked->kernel = find(run->grid->kernel, handle);
    if (asked->kernel == NULL)
        return INVALID_DEVICE_FUNCTION;
    const struct sim_kernel_info *info = asked->kernel->info;
    if (!fits(info, asked))
        return INVALID_CONFIGURATION;
    struct sim_launches *launches = &run->launches;
    if (crowded(launches))
        return MEMORY_ALLOCATION;
    struct sim_launch *launch = malloc(sizeof *launch + info->param_bytes);
    void *taken = sim_heap_take(info->param_bytes + 1u, 16, run->grid->heap_limit + ROOMS);
    if (launch == NULL || taken == NULL) {
        if (taken != NULL)
            sim_heap_give(taken);
        free(launch);
        return MEMORY_ALLOCATION;
    }
    *launch = *asked;
    launch->room = *room = taken;
    pthread_mutex_lock(&launches->lock);
    launch->depth = launches->depth + 1;
    launch->next = launches->prepared;
    launches->prepared = launch;
    launches->count++;
    pthread_mutex_unlock(&launches->lock);
    return 0;
}

void *sim_rt_launch_room(struct sim_thread *t, uint64_t handle, uint32_t grid_x, uint32_t grid_y,
                         uint32_t grid_z, uint32_t block_x, uint32_t block_y, uint32_t block_z,
                         uint32_t shared) {
    struct sim_run *run = run_of(t);
    struct sim_launch asked = {
        .grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}, .shared = shared};
    void *room = NULL;
    uint32_t error = prepare(run, handle, &asked, &room);
    if (error != 0)
        fail(&run->launches, error);
    return room;
}

/* Takes the launch that has that room out of those that are prepared. */
static struct sim_launch *claim(struct sim_launches *launches, const void *room) {
    pthread_mutex_lock(&launches->lock);
    struct sim_launch **link = &launches->prepared;
    while (*link != NULL && (*link)->room != room)
        link = &(*link)->next;
    struct sim_launch *launch = *link;
    if (launch != NULL)
        *link = launch->next;
    pthread_mutex_unlock(&launches->lock);
    return launch;
}

static void discard(struct sim_launch *launch) {
    if (launch->room != NULL)
        sim_heap_give(launch->room);
    free(launch);
}

uint32_t sim_rt_launch(struct sim_thread *t, void *room, uint64_t stream) {
    struct sim_run *run = run_of(t);
    struct sim_launches *launches = &run->launches;
    struct sim_launch *launch = claim(launches, room);
    if (launch == NULL)
        return fail(launches, INVALID_VALUE);
    memcpy(launch->params, room, launch->kernel->info->param_bytes);
    sim_heap_give(room);
    launch->room = NULL;
    if (stream == TAIL)
        launch->depth--;
    pthread_mutex_lock(&launches->lock);
    uint32_t error = launch->depth > DEEPEST          ? MAX_DEPTH_EXCEEDED
                     : launches->count > MOST_PENDING ? PENDING_COUNT_EXCEEDED
                                                      : 0;
    if (error == 0) {
        append(stream == TAIL ? &launches->tail : &launches->now, launch);
    } else {
        launches->count--;
        launches->error = error;
    }
    pthread_mutex_unlock(&launches->lock);
    if (error != 0)
        discard(launch);
    return error;
}

uint32_t sim_rt_launch_error(struct sim_thread *t, uint32_t clear) {
    struct sim_launches *launches = &run_of(t)->launches;
    pthread_mutex_lock(&launches->lock);
    uint32_t error = launches->error;
    if (clear)
        launches->error = 0;
    pthread_mutex_unlock(&launches->lock);
    return error;
}

int64_t sim_rt_asked(struct sim_thread *t, uint32_t what, uint64_t of, uint64_t more, uint64_t most) {
    const struct sim_grid *grid = run_of(t)->grid;
    const struct sim_kernel *kernel = find(grid->kernel, of);
    return grid->asked(grid->context, kernel != NULL ? kernel->info : NULL, what, of, more, most);
}

void sim_launches_put(struct sim_launches *launches, struct sim_launch_queue *left) {
    for (struct sim_launch *launch = launches->prepared, *next; launch != NULL; launch = next) {
        next = launch->next;
        discard(launch);
    }
    join(&launches->now, &launches->tail);
    join(&launches->now, left);
    *left = launches->now;
}

bool sim_launches_take(struct sim_launch_queue *left, const struct sim_grid *parent, struct sim_grid *grid,
                       uint32_t *depth, void **parameters) {
    struct sim_launch *launch = left->first;
    if (launch == NULL)
        return false;
    left->first = launch->next;
    if (left->first == NULL)
        left->last = NULL;
    *parameters = launch;
    *depth = launch->depth;
    *grid = *parent;
    memcpy(grid->grid, launch->grid, sizeof grid->grid);
    memcpy(grid->block, launch->block, sizeof grid->block);
    for (int i = 0; i < 3; i++)
        grid->cluster[i] = 1;
    grid->explicit_cluster = grid->cooperative = 0;
    grid->first = 0;
    grid->shared_dynamic = launch->shared;
    grid->params = launch->params;
    grid->kernel = launch->kernel;
    return true;
}
