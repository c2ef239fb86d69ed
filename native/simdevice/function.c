/* CUfunction and CUkernel: a kernel in a module, a kernel in a library. */
#include "card.h"
#include "cluster.h"

static CUresult acquire_entry(CUkernel handle, struct sim_entry **entry) {
    SIM_TRY(sim_enter());
    *entry = sim_acquire(SIM_HANDLE(handle), SIM_KERNEL);
    return *entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The kernel as a function of a context (NULL: the current one), with a reference. */
static CUresult entry_function(struct sim_entry *entry, struct sim_context *context,
                               struct sim_function **function) {
    struct sim_module *module;
    if (!context)
        SIM_TRY(sim_context_current(&context));
    SIM_TRY(sim_library_module(entry->library, context, &module));
    SIM_TRY(sim_module_function(module, entry->index, function));
    sim_retain(*function);
    return CUDA_SUCCESS;
}

CUresult sim_function_acquire(CUfunction handle, struct sim_function **out) {
    return sim_function_acquire_in(NULL, handle, out);
}

CUresult sim_function_acquire_in(struct sim_context *context, CUfunction handle, struct sim_function **out) {
    SIM_TRY(sim_enter());
    struct sim_function *function = sim_acquire(SIM_HANDLE(handle), SIM_FUNCTION);
    if (function) {
        CUresult result = sim_context_check(function->module->context);
        if (result != CUDA_SUCCESS)
            sim_release(function);
        *out = function;
        return result;
    }
    struct sim_entry *entry;
    SIM_TRY(acquire_entry((CUkernel)handle, &entry));
    CUresult result = entry_function(entry, context, out);
    sim_release(entry);
    return result;
}

uint32_t sim_function_max_dynamic(const struct sim_kernel_info *info,
                                  const struct sim_function_attributes *attributes) {
    int set = atomic_load_explicit(&attributes->max_dynamic_shared, memory_order_relaxed);
    if (set >= 0)
        return (uint32_t)set;
    return info->shared_static < SIM_SHARED_PER_BLOCK ? SIM_SHARED_PER_BLOCK - info->shared_static : 0;
}

static int required_cluster(const struct sim_kernel_info *info,
                            const struct sim_function_attributes *attributes, unsigned axis) {
    return info->cluster[0] ? (int)info->cluster[axis] : atomic_load(&attributes->cluster[axis]);
}

static CUresult get_attribute(const struct sim_kernel_info *info,
                              const struct sim_function_attributes *attributes,
                              CUfunction_attribute attribute, int *value) {
    SIM_REQUIRE(value);
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)info->max_threads;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)info->shared_static;
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = (int)info->const_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)info->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)info->registers;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = (int)info->ptx_version;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)info->binary_version;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int)sim_function_max_dynamic(info, attributes);
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = atomic_load(&attributes->carveout);
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        *value = (int)info->explicit_cluster;
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *value = required_cluster(info, attributes, attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = atomic_load(&attributes->non_portable);
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = atomic_load(&attributes->scheduling);
        break;
    default:
        SIM_REQUIRE((int)attribute > 0 && attribute < CU_FUNC_ATTRIBUTE_MAX);
        *value = 0; /* caching */
    }
    return CUDA_SUCCESS;
}

uint32_t sim_function_as_loaded(const struct sim_kernel_info *info, CUfunction_attribute attribute) {
    const struct sim_function_attributes unset = {.max_dynamic_shared = -1, .carveout = -1};
    int value = 0;
    get_attribute(info, &unset, attribute, &value);
    return (uint32_t)value;
}

static CUresult set_attribute(const struct sim_kernel_info *info, struct sim_function_attributes *attributes,
                              CUfunction_attribute attribute, int value) {
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        SIM_REQUIRE(value >= 0 && (uint32_t)value <= sim_card()->shared_per_block_optin &&
                    info->shared_static + (uint32_t)value <= sim_card()->shared_per_block_optin);
        atomic_store(&attributes->max_dynamic_shared, value);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        SIM_REQUIRE(value >= -1 && value <= 100);
        atomic_store(&attributes->carveout, value);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        SIM_REQUIRE(value >= 0 && sim_has_clusters());
        if (info->cluster[0])
            return CUDA_ERROR_NOT_PERMITTED; /* the code says it */
        atomic_store(&attributes->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH], value);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        SIM_REQUIRE(value >= 0);
        atomic_store(&attributes->non_portable, value);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        SIM_REQUIRE(value >= 0);
        atomic_store(&attributes->scheduling, value);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult param_info(const struct sim_kernel_info *info, size_t index, size_t *offset, size_t *size) {
    SIM_REQUIRE(offset && index < info->param_count);
    *offset = info->params[index].offset;
    if (size)
        *size = info->params[index].size;
    return CUDA_SUCCESS;
}

/* Modules are loaded lazily: of what was only listed NVIDIA's driver does not know this yet. */
static bool needs_loading(CUfunction_attribute attribute) {
    return attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ||
           attribute == CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES ||
           attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) {
    struct sim_function *function;
    SIM_TRY(sim_function_acquire(handle, &function));
    bool known = function->module->library || atomic_load(&function->known) || sim_image_eager() ||
                 !needs_loading(attribute);
    CUresult result = known ? get_attribute(function->info, function->attributes, attribute, value)
                            : CUDA_ERROR_FUNCTION_NOT_LOADED;
    sim_release(function);
    return result;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    struct sim_function *function;
    SIM_TRY(sim_function_acquire(handle, &function));
    CUresult result = set_attribute(function->info, function->attributes, attribute, value);
    sim_release(function);
    return result;
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
    struct sim_function *function;
    SIM_REQUIRE((unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL);
    SIM_TRY(sim_function_acquire(handle, &function));
    sim_release(function);
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
    struct sim_function *function;
    SIM_REQUIRE((unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
    SIM_TRY(sim_function_acquire(handle, &function));
    sim_release(function);
    return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle) {
    struct sim_function *function;
    SIM_REQUIRE(module && handle);
    SIM_TRY(sim_function_acquire(handle, &function));
    *module = SIM_POINTER(CUmodule, function->module);
    sim_release(function);
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction handle) {
    struct sim_function *function;
    SIM_REQUIRE(name && sim_function_acquire(handle, &function) == CUDA_SUCCESS);
    *name = function->info->name;
    sim_release(function);
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size) {
    struct sim_function *function;
    SIM_TRY(sim_function_acquire(handle, &function));
    CUresult result = param_info(function->info, index, offset, size);
    sim_release(function);
    return result;
}

CUresult cuFuncGetParamCount(CUfunction handle, size_t *count) {
    struct sim_function *function;
    SIM_REQUIRE(count);
    SIM_TRY(sim_function_acquire(handle, &function));
    *count = function->info->param_count;
    sim_release(function);
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle) {
    struct sim_function *function;
    SIM_REQUIRE(state);
    SIM_TRY(sim_function_acquire(handle, &function));
    *state = atomic_load(&function->kernel) || sim_image_eager() ? CU_FUNCTION_LOADING_STATE_LOADED
                                                                 : CU_FUNCTION_LOADING_STATE_UNLOADED;
    sim_release(function);
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle) {
    struct sim_function *function;
    SIM_TRY(sim_function_acquire(handle, &function));
    struct sim_kernel *kernel;
    CUresult result = sim_kernel_prepare(function->module->image, function->index, &kernel);
    if (result == CUDA_SUCCESS)
        atomic_store(&function->kernel, kernel);
    atomic_store(&function->known, result == CUDA_SUCCESS || atomic_load(&function->known));
    sim_release(function);
    return result;
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel handle) {
    struct sim_entry *entry;
    struct sim_function *function;
    SIM_REQUIRE(out);
    SIM_TRY(acquire_entry(handle, &entry));
    CUresult result = entry_function(entry, NULL, &function);
    if (result == CUDA_SUCCESS) {
        *out = SIM_POINTER(CUfunction, function);
        sim_release(function);
    }
    sim_release(entry);
    return result;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel handle) {
    struct sim_entry *entry;
    SIM_REQUIRE(library);
    SIM_TRY(acquire_entry(handle, &entry));
    *library = SIM_POINTER(CUlibrary, entry->library);
    sim_release(entry);
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle, CUdevice device) {
    struct sim_entry *entry;
    SIM_TRY(acquire_entry(handle, &entry));
    CUresult result = sim_device_at(device)
                          ? get_attribute(entry->info, &entry->attributes[device], attribute, value)
                          : CUDA_ERROR_INVALID_DEVICE;
    sim_release(entry);
    return result;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device) {
    struct sim_entry *entry;
    SIM_TRY(acquire_entry(handle, &entry));
    CUresult result = sim_device_at(device)
                          ? set_attribute(entry->info, &entry->attributes[device], attribute, value)
                          : CUDA_ERROR_INVALID_DEVICE;
    sim_release(entry);
    return result;
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) {
    struct sim_entry *entry;
    SIM_REQUIRE((unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL);
    SIM_TRY(acquire_entry(handle, &entry));
    sim_release(entry);
    return sim_device_at(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuKernelGetName(const char **name, CUkernel handle) {
    struct sim_entry *entry;
    SIM_REQUIRE(name && acquire_entry(handle, &entry) == CUDA_SUCCESS);
    *name = entry->info->name;
    sim_release(entry);
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *size) {
    struct sim_context *context; /* NVIDIA's driver may have to load the kernel there */
    struct sim_entry *entry;
    SIM_TRY(sim_context_current(&context));
    SIM_TRY(acquire_entry(handle, &entry));
    CUresult result = param_info(entry->info, index, offset, size);
    sim_release(entry);
    return result;
}

CUresult cuKernelGetParamCount(CUkernel handle, size_t *count) {
    struct sim_entry *entry;
    SIM_REQUIRE(count);
    SIM_TRY(acquire_entry(handle, &entry));
    *count = entry->info->param_count;
    sim_release(entry);
    return CUDA_SUCCESS;
}
