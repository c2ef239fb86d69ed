/* Kernel launches. Everything that CUDA reports at once is checked here, before anything is queued. */
#include "capture.h"
#include "cluster.h"
#include "driver_interop/launch_attribute.h"
#include "variance.h"
#include "event.h"
#include "graph.h"
#include "green.h"
#include "log.h"
#include "nvml/live.h"
#include "reference.h"
#include "stream.h"
#include "texture.h"
#include "turns.h"
#include <string.h>

struct launch_op {
    struct sim_op op;
    struct sim_function *function;
    CUfunction given; /* may be a CUkernel */
    struct sim_grid grid;
    struct sim_view_user views;
    bool programmatic; /* it may begin before what comes before it in the stream has ended */
    unsigned attribute_count;
    CUlaunchAttribute *attributes; /* those that a node has, behind the parameters */
    _Alignas(16) uint8_t params[];
};

static CUresult run(struct sim_op *op) {
    int device = op->stream->context->device->machine_ordinal;
    sim_turn_begin(device);
    sim_live_kernel(device, true);
    CUresult result = sim_grid_run(&((struct launch_op *)op)->grid);
    sim_live_kernel(device, false);
    sim_turn_end(device);
    return result;
}

static void drop(struct sim_op *op) {
    const struct sim_grid *grid = &((struct launch_op *)op)->grid;
    sim_references_release((struct sim_bound *)grid->bound, grid->bound_count);
    sim_views_leave(&((struct launch_op *)op)->views);
    sim_release(((struct launch_op *)op)->function);
}

static void describe(const struct sim_op *op, struct sim_node_work *work) {
    const struct launch_op *launch = (const struct launch_op *)op;
    const struct sim_grid *grid = &launch->grid;
    work->params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    work->params.kernel = (CUDA_KERNEL_NODE_PARAMS_v3){
        .func = launch->given,
        .gridDimX = grid->grid[0],
        .gridDimY = grid->grid[1],
        .gridDimZ = grid->grid[2],
        .blockDimX = grid->block[0],
        .blockDimY = grid->block[1],
        .blockDimZ = grid->block[2],
        .sharedMemBytes = (unsigned)grid->shared_dynamic,
    };
    if (launch->given != SIM_POINTER(CUfunction, launch->function)) { /* each in its own member */
        work->params.kernel.func = SIM_POINTER(CUfunction, launch->function);
        work->params.kernel.kern = (CUkernel)launch->given;
    }
    work->function = launch->function;
    work->packed_params = launch->params;
    work->attributes = launch->attributes;
    work->attribute_count = launch->attribute_count;
    work->programmatic = launch->programmatic;
}

static const struct sim_op_class launch_class = {
    .run = SIM_WORK(run), .describe = describe, .drop = drop, .may_spin = true};

static CUresult check_shape(const CUlaunchConfig *c, const struct sim_function *function, bool cooperative) {
    const struct sim_kernel_info *info = function->info;
    SIM_REQUIRE(c->gridDimX && c->gridDimX <= SIM_MAX_GRID_X);
    SIM_REQUIRE(c->gridDimY && c->gridDimY <= SIM_MAX_GRID_Y);
    SIM_REQUIRE(c->gridDimZ && c->gridDimZ <= SIM_MAX_GRID_Z);
    SIM_REQUIRE(c->blockDimX && c->blockDimX <= SIM_MAX_THREADS_PER_BLOCK);
    SIM_REQUIRE(c->blockDimY && c->blockDimY <= SIM_MAX_THREADS_PER_BLOCK);
    SIM_REQUIRE(c->blockDimZ && c->blockDimZ <= SIM_MAX_BLOCK_Z);
    uint32_t threads = c->blockDimX * c->blockDimY * c->blockDimZ;
    SIM_REQUIRE(threads <= info->max_threads);
    SIM_REQUIRE(sim_block_as_required(info, c->blockDimX, c->blockDimY, c->blockDimZ));
    if (c->sharedMemBytes > sim_function_max_dynamic(info, function->attributes))
        return cooperative ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_ERROR_INVALID_VALUE;
    if ((uint64_t)sim_round_up(threads, SIM_WARP) * info->registers > SIM_REGISTERS_PER_SM)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return CUDA_SUCCESS;
}

static CUresult is_one_of(int value, int first, int last) {
    return value >= first && value <= last ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* What a launch can do about each attribute. */
static CUresult check_attribute(struct sim_context *context, const CUlaunchAttribute *attribute,
                                bool *cooperative) {
    switch ((int)attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        *cooperative = attribute->value.cooperative != 0;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: /* which nobody need prefer */
        SIM_REQUIRE(attribute->value.clusterDim.x && attribute->value.clusterDim.y &&
                    attribute->value.clusterDim.z);
        if (sim_has_clusters())
            return CUDA_SUCCESS;
        return attribute->value.clusterDim.x * attribute->value.clusterDim.y *
                           attribute->value.clusterDim.z ==
                       1
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        return is_one_of(attribute->value.syncPolicy, CU_SYNC_POLICY_AUTO, CU_SYNC_POLICY_BLOCKING_SYNC);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return is_one_of(attribute->value.clusterSchedulingPolicyPreference,
                         CU_CLUSTER_SCHEDULING_POLICY_DEFAULT,
                         CU_CLUSTER_SCHEDULING_POLICY_RUBIN_DSMEM_LOCALITY);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return is_one_of(attribute->value.memSyncDomain, CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT,
                         CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
    case CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE:
        return is_one_of(attribute->value.portableClusterSizeMode, CU_LAUNCH_PORTABLE_CLUSTER_MODE_DEFAULT,
                         CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE);
    case CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE:
        return is_one_of(attribute->value.sharedMemoryMode, CU_SHARED_MEMORY_MODE_DEFAULT,
                         CU_SHARED_MEMORY_MODE_PREFER_OVERSIZED_SHARED_MEMORY);
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: /* a permission to start early, which nobody
                                                                   need use */
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        SIM_REQUIRE(attribute->value.programmaticEvent.flags == CU_EVENT_RECORD_DEFAULT);
        return sim_event_of_launch(attribute->value.programmaticEvent.event, context);
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The buffer that `extra` describes. */
static CUresult parse_extra(void **extra, const void **buffer, size_t *size) {
    *buffer = NULL;
    *size = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1])
            *size = *(const size_t *)extra[i + 1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult sim_launch_params(uint8_t *to, const struct sim_kernel_info *info, void **params, void **extra) {
    SIM_REQUIRE(!params || !extra);
    if (extra) {
        const void *buffer;
        size_t size;
        SIM_TRY(parse_extra(extra, &buffer, &size));
        SIM_REQUIRE(!info->param_bytes || (buffer && size));
        size_t given = size < info->param_bytes ? size : info->param_bytes;
        if (given) /* NCCL gives as much of 4 KiB as a launch needs */
            memset((uint8_t *)memcpy(to, buffer, given) + given, 0, info->param_bytes - given);
        return CUDA_SUCCESS;
    }
    SIM_REQUIRE(params || !info->param_count);
    for (uint32_t i = 0; i < info->param_count; i++) {
        SIM_REQUIRE(params[i]);
        memcpy(to + info->params[i].offset, params[i], info->params[i].size);
    }
    return CUDA_SUCCESS;
}

/* Compiled by now. The first launch does it, and says what is wrong with the kernel. */
static CUresult prepare(struct sim_function *function, struct sim_kernel **kernel) {
    *kernel = atomic_load_explicit(&function->kernel, memory_order_acquire);
    if (*kernel)
        return CUDA_SUCCESS;
    SIM_TRY(sim_kernel_prepare(function->module->image, function->index, kernel));
    atomic_store_explicit(&function->kernel, *kernel, memory_order_release);
    return CUDA_SUCCESS;
}

/* How many blocks of the launch the device holds at once. */
static uint64_t resident_blocks(const CUlaunchConfig *c, const struct sim_function *function,
                                unsigned multiprocessors) {
    uint32_t threads = c->blockDimX * c->blockDimY * c->blockDimZ;
    return (uint64_t)sim_occupancy_blocks(function->info, threads, c->sharedMemBytes) * multiprocessors;
}

/* Of each kind the last one counts. */
static void keep_attributes(struct launch_op *op, const CUlaunchConfig *c) {
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const CUlaunchAttribute *a = &c->attrs[i];
        if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            op->programmatic = a->value.programmaticStreamSerializationAllowed != 0;
        if (!gf_attribute_is_of_nodes(a->id))
            continue;
        unsigned place = 0;
        while (place < op->attribute_count && op->attributes[place].id != a->id)
            place++;
        op->attributes[place] = *a;
        op->attribute_count += place == op->attribute_count;
    }
}

CUresult sim_launch_op(struct sim_context *context, struct sim_function *function, const CUlaunchConfig *c,
                       void **params, void **extra, unsigned multiprocessors, struct sim_op **out) {
    bool cooperative = false;
    struct sim_kernel *kernel;
    struct sim_cluster_shape cluster;
    if (context != function->module->context)
        return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < c->numAttrs; i++)
        SIM_TRY(check_attribute(context, &c->attrs[i], &cooperative));
    SIM_TRY(check_shape(c, function, cooperative));
    SIM_TRY(sim_cluster_shape(function, c, &cluster));
    uint32_t cluster_size = cluster.blocks[0] * cluster.blocks[1] * cluster.blocks[2];
    uint64_t resident = resident_blocks(c, function, multiprocessors);
    if (cooperative && (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ > resident)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    if (cluster_size > 1 && resident < cluster_size)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    SIM_TRY(prepare(function, &kernel));
    size_t bytes = sim_round_up(function->info->param_bytes, 16);
    struct launch_op *op = sim_op_new(sizeof *op + bytes + c->numAttrs * sizeof *c->attrs, &launch_class);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_launch_params(op->params, function->info, params, extra);
    struct sim_bound *bound = NULL;
    uint32_t bound_count = 0;
    result = result == CUDA_SUCCESS ? sim_references_take(function->module, &bound, &bound_count) : result;
    if (result != CUDA_SUCCESS) {
        sim_op_release(&op->op);
        return result;
    }
    size_t limits[CU_LIMIT_MAX];
    pthread_mutex_lock(&context->lock);
    memcpy(limits, context->limits, sizeof limits);
    pthread_mutex_unlock(&context->lock);
    sim_retain(function);
    op->function = function;
    op->attributes = (CUlaunchAttribute *)(op->params + bytes);
    keep_attributes(op, c);
    op->grid = (struct sim_grid){
        .kernel = kernel,
        .grid = {c->gridDimX, c->gridDimY, c->gridDimZ},
        .block = {c->blockDimX, c->blockDimY, c->blockDimZ},
        .cluster = {cluster.blocks[0], cluster.blocks[1], cluster.blocks[2]},
        .explicit_cluster = cluster.is_explicit,
        .shared_dynamic = c->sharedMemBytes,
        .params = op->params,
        .globals = function->module->globals,
        .backwards = (uint32_t)sim_draw(SIM_OPEN_BLOCKS, 2),
        .first = sim_draw(SIM_OPEN_BLOCKS, (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ / cluster_size),
        .multiprocessors = multiprocessors,
        .bound = bound,
        .bound_count = bound_count,
        .views = sim_textures_base(context->device),
        .stack_limit = limits[CU_LIMIT_STACK_SIZE],
        .heap_limit = limits[CU_LIMIT_MALLOC_HEAP_SIZE],
        .used = &context->used,
        .cooperative = cooperative,
        .resident = resident,
        .context = context,
        .asked = sim_asked_by_kernel,
    };
    sim_views_enter(&op->views);
    *out = &op->op;
    return CUDA_SUCCESS;
}

static CUresult launch_on(struct sim_stream *stream, CUfunction given, struct sim_function *function,
                          const CUlaunchConfig *c, void **params, void **extra) {
    struct sim_op *op;
    if (sim_cluster_missing(function, c))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    SIM_TRY(
        sim_launch_op(stream->context, function, c, params, extra, sim_green_multiprocessors(stream), &op));
    ((struct launch_op *)op)->given = given;
    sim_message(SIM_LOG_DEBUG, "stream %llu: %s<<<(%u, %u, %u), (%u, %u, %u), %u>>>",
                (unsigned long long)stream->id, function->info->name, c->gridDimX, c->gridDimY, c->gridDimZ,
                c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes);
    SIM_TRY(sim_config_get()->launch_blocking && !sim_stream_captured(stream)
                ? sim_submit_and_wait(stream, op)
                : sim_submit_and_forget(stream, op));
    for (unsigned i = 0; i < c->numAttrs; i++) /* later than it might be */
        if (gf_attribute_records(c->attrs[i].id)) {
            CUevent event = c->attrs[i].value.programmaticEvent.event;
            SIM_TRY(cuEventRecord(event, c->hStream));
            sim_event_set_edge(event, gf_attribute_edge(&c->attrs[i]));
        }
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction handle, void **params, void **extra) {
    struct sim_stream *stream;
    struct sim_function *function;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(config && (config->attrs || !config->numAttrs));
    SIM_TRY(sim_stream_acquire(config->hStream, &stream));
    CUresult result = sim_function_acquire_in(stream->context, handle, &function);
    if (result == CUDA_SUCCESS) {
        result = launch_on(stream, handle, function, config, params, extra);
        sim_release(function);
    }
    sim_release(stream);
    return result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                        CUstream stream, void **params, void **extra) {
    const CUlaunchConfig config = {grid_x,  grid_y, grid_z, block_x, block_y,
                                   block_z, shared, stream, NULL,    0};
    return cuLaunchKernelEx(&config, function, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared, CUstream stream,
                                   void **params) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
    const CUlaunchConfig config = {grid_x,  grid_y, grid_z, block_x,    block_y,
                                   block_z, shared, stream, &attribute, 1};
    return cuLaunchKernelEx(&config, function, params, NULL);
}

/* Of different devices each, and alike in all but stream and parameters. */
static CUresult check_devices(const CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags) {
    uint64_t devices = 0;
    SIM_REQUIRE(list && count && count <= (unsigned)sim_device_count() &&
                !(flags & ~(unsigned)(CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                                      CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC)));
    for (unsigned i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *a = &list[0], *b = &list[i];
        SIM_REQUIRE(a->gridDimX == b->gridDimX && a->gridDimY == b->gridDimY && a->gridDimZ == b->gridDimZ);
        SIM_REQUIRE(a->blockDimX == b->blockDimX && a->blockDimY == b->blockDimY &&
                    a->blockDimZ == b->blockDimZ && a->sharedMemBytes == b->sharedMemBytes);
        struct sim_stream *stream = sim_acquire(SIM_HANDLE(b->hStream), SIM_STREAM);
        if (!stream) /* also NULL */
            return CUDA_ERROR_INVALID_HANDLE;
        uint64_t device = sim_device_bit(stream->context->device);
        sim_release(stream);
        SIM_REQUIRE(!(devices & device));
        devices |= device;
    }
    return CUDA_SUCCESS;
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
                                              unsigned int flags) {
    SIM_TRY(sim_enter());
    SIM_TRY(check_devices(list, count, flags));
    for (unsigned i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *l = &list[i];
        SIM_TRY(cuLaunchCooperativeKernel(l->function, l->gridDimX, l->gridDimY, l->gridDimZ, l->blockDimX,
                                          l->blockDimY, l->blockDimZ, l->sharedMemBytes, l->hStream,
                                          l->kernelParams));
    }
    return CUDA_SUCCESS;
}
