/* What a launch may be: shapes, attributes, and the parameters' values. */
#include "launch.h"

#include <string.h>

#include "codecs.h"
#include "context.h"
#include "module.h"

static int limit(CUdevice_attribute attribute) {
    return gf_device_here()->attributes[attribute];
}

static bool in_grid(unsigned value, CUdevice_attribute attribute) {
    return value > 0 && value <= (unsigned)limit(attribute);
}

/* Clusters of more than one block need a device that has them. */
static CUresult check_cluster_attributes(const CUlaunchConfig *c) {
    for (unsigned i = 0; i < c->numAttrs && c->attrs != NULL; i++) {
        const CUlaunchAttribute *a = &c->attrs[i];
        if (a->id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
            a->id != CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION) {
            continue;
        }
        uint64_t blocks = (uint64_t)a->value.clusterDim.x * a->value.clusterDim.y * a->value.clusterDim.z;
        if (blocks == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (blocks > 1 && limit(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return CUDA_SUCCESS;
}

static const CUlaunchAttributeValue *find(const CUlaunchConfig *c, CUlaunchAttributeID id) {
    const CUlaunchAttributeValue *found = NULL;
    for (unsigned i = 0; i < c->numAttrs && c->attrs != NULL; i++) {
        if (c->attrs[i].id == id) {
            found = &c->attrs[i].value;
        }
    }
    return found;
}

bool gf_launch_is_cooperative(const CUlaunchConfig *c) {
    const CUlaunchAttributeValue *value = find(c, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    return value != NULL && value->cooperative != 0;
}

bool gf_launch_is_programmatic(const CUlaunchConfig *c) {
    const CUlaunchAttributeValue *value = find(c, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    return value != NULL && value->programmaticStreamSerializationAllowed != 0;
}

/* Whether a cluster may have more blocks than CUDA promises on each device that has clusters: the launch's
 * own word goes before the function's. */
static bool may_be_large(const CUlaunchConfig *c, const struct gf_callable *callable) {
    const CUlaunchAttributeValue *mode = find(c, CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE);
    if (mode != NULL && mode->portableClusterSizeMode != CU_LAUNCH_PORTABLE_CLUSTER_MODE_DEFAULT) {
        return mode->portableClusterSizeMode == CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE;
    }
    return gf_callable_setting(callable, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) != 0;
}

bool gf_launch_lacks_cluster(const CUlaunchConfig *c, const struct gf_callable *callable) {
    return gf_callable_setting(callable, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) != 0 &&
           gf_callable_setting(callable, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) == 0 &&
           find(c, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) == NULL;
}

/* What a cluster may be. How large one may be that need not be portable, the device's driver knows. */
static CUresult check_clusters(const CUlaunchConfig *c, const struct gf_callable *callable) {
    enum { PORTABLE = 8 };
    const CUlaunchAttributeValue *asked = find(c, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    const unsigned grid[3] = {c->gridDimX, c->gridDimY, c->gridDimZ};
    unsigned needed[3], blocks[3];
    bool is_needed = false;
    for (int axis = 0; axis < 3; axis++) {
        needed[axis] =
            (unsigned)gf_callable_setting(callable, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + axis);
        is_needed = is_needed || needed[axis] > 0;
    }
    if (limit(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0 || (asked == NULL && !is_needed)) {
        return CUDA_SUCCESS;
    }
    memcpy(blocks, asked != NULL ? (const void *)&asked->clusterDim : needed, sizeof blocks);
    uint64_t size = 1;
    for (int axis = 0; axis < 3; axis++) {
        if (blocks[axis] == 0 || (needed[axis] > 0 && blocks[axis] != needed[axis]) ||
            grid[axis] % blocks[axis] != 0) {
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        }
        size *= blocks[axis]; /* each at most the grid's, whose product has room */
    }
    return size <= PORTABLE || may_be_large(c, callable) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

CUresult gf_launch_check(const CUlaunchConfig *c, const struct gf_callable *callable) {
    CUresult result = check_cluster_attributes(c);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!in_grid(c->gridDimX, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) ||
        !in_grid(c->gridDimY, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) ||
        !in_grid(c->gridDimZ, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z) ||
        !in_grid(c->blockDimX, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) ||
        !in_grid(c->blockDimY, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) ||
        !in_grid(c->blockDimZ, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t threads = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;
    if (threads > (uint64_t)limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) ||
        threads > (uint64_t)gf_callable_setting(callable, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (c->sharedMemBytes >
        (unsigned)gf_callable_setting(callable, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)) {
        return gf_launch_is_cooperative(c) ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                                           : CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t registers =
        (uint64_t)gf_callable_setting(callable, CU_FUNC_ATTRIBUTE_NUM_REGS) * ((threads + 31) / 32 * 32);
    if (registers > (uint64_t)limit(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)) {
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    return check_clusters(c, callable);
}

CUresult gf_launch_check_in(uint64_t context, const CUlaunchConfig *config,
                            const struct gf_callable *callable) {
    const struct gf_lent before = gf_context_lend(context);
    CUresult result = gf_launch_check(config, callable);
    gf_context_return(before);
    return result;
}

CUresult gf_launch_attributes(const CUlaunchConfig *config, struct gf_launch_attribute *travel,
                              uint32_t *count) {
    *count = 0;
    if (config->numAttrs > 0 && config->attrs == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < config->numAttrs; i++) {
        struct gf_launch_attribute image;
        _Static_assert(sizeof image == sizeof(CUlaunchAttribute), "WIRE.md 8");
        CUresult result = gf_encode_CUlaunchAttribute(&config->attrs[i], NULL, &image);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (gf_drops_CUlaunchAttribute(&config->attrs[i])) {
            continue;
        }
        uint32_t place = 0;
        while (place < *count && travel[place].id != image.id) {
            place++;
        }
        travel[place] = image;
        *count += place == *count;
    }
    return CUDA_SUCCESS;
}

/* The buffer that `extra` describes. */
static CUresult find_buffer(void **extra, const void **buffer, size_t *size) {
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            *buffer = extra[i + 1];
        } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1] != NULL) {
            *size = *(const size_t *)extra[i + 1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult gf_launch_pack(const struct gf_kernel_info *info, void **kernelParams, void **extra, char *packed) {
    if (extra != NULL) {
        const void *buffer = NULL;
        size_t size = 0;
        CUresult result =
            kernelParams != NULL ? CUDA_ERROR_INVALID_VALUE : find_buffer(extra, &buffer, &size);
        const size_t given = size < info->param_bytes ? size : info->param_bytes;
        if (result == CUDA_SUCCESS &&
            (size > PARAMS_MAX || (buffer == NULL && size > 0) || (given == 0 && info->param_bytes > 0))) {
            result = CUDA_ERROR_INVALID_VALUE;
        }
        if (result == CUDA_SUCCESS && given > 0) { /* NCCL gives as much of 4 KiB as a launch needs */
            memset((char *)memcpy(packed, buffer, given) + given, 0, info->param_bytes - given);
        }
        return result;
    }
    if (info->param_count > 0 && kernelParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(packed, 0, info->param_bytes);
    for (uint32_t i = 0; i < info->param_count; i++) {
        if (kernelParams[i] == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        memcpy(packed + info->params[i].offset, kernelParams[i], info->params[i].size);
    }
    return CUDA_SUCCESS;
}
