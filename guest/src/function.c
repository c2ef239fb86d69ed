/* What can be asked of a kernel or a function; a CUkernel is taken wherever a CUfunction is. */
#include "channel.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "module.h"

static CUresult get_attribute(struct gf_callable *callable, CUfunction_attribute attrib, int *value) {
    if (value == NULL || (unsigned)attrib >= CU_FUNC_ATTRIBUTE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *value = callable->attributes[attrib];
    return CUDA_SUCCESS;
}

/* What CUDA refuses at once; the rest is the server's to judge. */
static CUresult check_set(struct gf_callable *callable, CUfunction_attribute attrib, int value) {
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    int optin = gf_session.device.attributes[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN];
    switch ((int)attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        return value < 0 || value > optin - callable->info->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES]
                   ? CUDA_ERROR_INVALID_VALUE
                   : CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return value < -1 || value > 100 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return value < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get_param(struct gf_callable *callable, size_t index, size_t *offset, size_t *size) {
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (offset == NULL || index >= callable->info->param_count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = callable->info->params[index].offset;
    if (size != NULL) {
        *size = callable->info->params[index].size;
    }
    return CUDA_SUCCESS;
}

static CUresult get_param_count(struct gf_callable *callable, size_t *count) {
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *count = callable->info->param_count;
    return CUDA_SUCCESS;
}

static CUresult get_name(struct gf_callable *callable, const char **name) {
    if (name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *name = callable->info->name;
    return CUDA_SUCCESS;
}

CUresult gf_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
    return get_attribute(gf_callable_find((uint64_t)hfunc), attrib, pi);
}

CUresult gf_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
    struct gf_callable *callable = gf_callable_find((uint64_t)hfunc);
    CUresult result = check_set(callable, attrib, value);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    callable->attributes[attrib] = value;
    struct gf_req_cuFuncSetAttribute request = {.hfunc = (uint64_t)hfunc, .attrib = attrib, .value = value};
    return gf_send_struct(GF_OP_cuFuncSetAttribute, &request);
}

CUresult gf_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
    if (dev < 0 || dev >= gf_session.device_count) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return get_attribute(gf_kernel_find(kernel), attrib, pi);
}

CUresult gf_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
    struct gf_callable *callable = gf_kernel_find(kernel);
    if (dev < 0 || dev >= gf_session.device_count) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    CUresult result = check_set(callable, attrib, val);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    callable->attributes[attrib] = val;
    struct gf_req_cuKernelSetAttribute request = {
        .attrib = attrib, .val = val, .kernel = (uint64_t)kernel, .dev = dev};
    return gf_send_struct(GF_OP_cuKernelSetAttribute, &request);
}

CUresult gf_cuKernelGetName(const char **name, CUkernel hfunc) {
    return get_name(gf_kernel_find(hfunc), name);
}

CUresult gf_cuFuncGetName(const char **name, CUfunction hfunc) {
    return get_name(gf_callable_find((uint64_t)hfunc), name);
}

CUresult gf_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
    return get_param(gf_kernel_find(kernel), paramIndex, paramOffset, paramSize);
}

CUresult gf_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
    return get_param(gf_callable_find((uint64_t)func), paramIndex, paramOffset, paramSize);
}

CUresult gf_cuKernelGetParamCount(CUkernel kernel, size_t *paramCount) {
    return get_param_count(gf_kernel_find(kernel), paramCount);
}

CUresult gf_cuFuncGetParamCount(CUfunction func, size_t *paramCount) {
    return get_param_count(gf_callable_find((uint64_t)func), paramCount);
}

CUresult gf_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
    struct gf_callable *callable = gf_callable_find((uint64_t)hfunc);
    if (hmod == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (gf_handle_kind(callable->object.owner) == GF_HANDLE_LIBRARY) {
        return gf_library_module((CUlibrary)callable->object.owner, (uint64_t *)hmod);
    }
    *hmod = (CUmodule)callable->object.owner;
    return CUDA_SUCCESS;
}

CUresult gf_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    if (state == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (gf_callable_find((uint64_t)function) == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult gf_cuFuncLoad(CUfunction function) {
    return gf_callable_find((uint64_t)function) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult gf_cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
    if ((unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return gf_callable_find((uint64_t)hfunc) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
