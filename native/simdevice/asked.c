/* What kernels ask by the functions of CUDA's device runtime. */
#include "graph.h"
#include "device.h"

enum { /* as compiler/device_runtime.py has them */
       ORDINAL,
       COUNT,
       ATTRIBUTE,
       LIMIT,
       VERSION,
       NO_CHOICE,
       BLOCKS,
       OF_FUNCTION,
};
enum { INVALID_VALUE = 1, INVALID_DEVICE_FUNCTION = 98, INVALID_DEVICE = 101 }; /* cudaError_t */

static int64_t attribute(uint64_t which, int64_t ordinal) {
    int value;
    if (which == 0 || which >= CU_DEVICE_ATTRIBUTE_MAX)
        return -INVALID_VALUE;
    if (ordinal < 0 || ordinal >= sim_device_count())
        return -INVALID_DEVICE;
    const struct sim_device *device = sim_device_at((CUdevice)ordinal);
    return sim_device_attribute(device, (CUdevice_attribute)which, &value) == CUDA_SUCCESS ? value
                                                                                           : -INVALID_VALUE;
}

static int64_t limit(struct sim_context *context, uint64_t which) {
    if (which >= CU_LIMIT_MAX)
        return -INVALID_VALUE;
    pthread_mutex_lock(&context->lock);
    size_t value = context->limits[which];
    pthread_mutex_unlock(&context->lock);
    return (int64_t)value;
}

static int64_t blocks(const struct sim_kernel_info *info, int64_t threads, uint64_t shared) {
    if (threads <= 0)
        return -INVALID_VALUE;
    return (uint64_t)threads <= info->max_threads ? sim_occupancy_blocks(info, (uint32_t)threads, shared) : 0;
}

int64_t sim_asked_by_kernel(struct sim_context *context, const struct sim_kernel_info *info, uint32_t what,
                            uint64_t of, uint64_t more, uint64_t most) {
    switch (what) {
    case ORDINAL:
        return context->device->ordinal;
    case COUNT:
        return sim_device_count();
    case ATTRIBUTE:
        return attribute(of, (int64_t)more);
    case LIMIT:
        return limit(context, of);
    case VERSION:
        return CUDA_VERSION;
    case NO_CHOICE:
        return 0;
    default:
        if (info == NULL)
            return -INVALID_DEVICE_FUNCTION;
        return what == BLOCKS ? blocks(info, (int64_t)more, most)
                              : sim_function_as_loaded(info, (CUfunction_attribute)more);
    }
}
