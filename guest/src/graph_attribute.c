/* Attributes of kernel nodes: those of a launch, checked as those. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "driver_interop/launch_attribute.h"
#include "graph.h"
#include "launch.h"
#include "session.h"

static CUlaunchAttribute *find(const struct gf_node *node, CUlaunchAttributeID id) {
    for (unsigned i = 0; i < node->attribute_count; i++) {
        if (node->attributes[i].id == id) {
            return &node->attributes[i];
        }
    }
    return NULL;
}

static CUresult check(const CUlaunchAttribute *attribute) {
    const CUaccessPolicyWindow *window = &attribute->value.accessPolicyWindow;
    struct gf_launch_attribute travel[GF_LAUNCH_ATTRIBUTES_MAX];
    uint32_t count;
    if (!gf_attribute_is_of_nodes(attribute->id)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
        int most = gf_device_here()->attributes[CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE];
        if (!(window->hitRatio >= 0 && window->hitRatio <= 1) || window->num_bytes > (size_t)most ||
            window->missProp == CU_ACCESS_PROPERTY_PERSISTING) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    const CUlaunchConfig config = {.attrs = (CUlaunchAttribute *)attribute, .numAttrs = 1};
    return gf_launch_attributes(&config, travel, &count);
}

/* With these a node's kernel can be launched. */
static CUresult check_kernel(const struct gf_node *node, CUlaunchAttribute *attributes, unsigned count) {
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->params.kernel;
    CUlaunchConfig config = {.gridDimX = kernel->gridDimX,
                             .gridDimY = kernel->gridDimY,
                             .gridDimZ = kernel->gridDimZ,
                             .blockDimX = kernel->blockDimX,
                             .blockDimY = kernel->blockDimY,
                             .blockDimZ = kernel->blockDimZ,
                             .sharedMemBytes = kernel->sharedMemBytes,
                             .attrs = attributes,
                             .numAttrs = count};
    const void *handle = kernel->func != NULL ? (const void *)kernel->func : (const void *)kernel->kern;
    struct gf_callable *callable = gf_callable_find((uint64_t)handle);
    return callable == NULL ? CUDA_ERROR_INVALID_HANDLE
                            : gf_launch_check_in(node->context, &config, callable);
}

/* With the lock held. A node has no two attributes of one kind, so there is room for one more. */
static CUresult set(struct gf_node *node, const CUlaunchAttribute *attribute) {
    CUlaunchAttribute all[GF_LAUNCH_ATTRIBUTES_MAX];
    unsigned count = node->attribute_count;
    if (count > 0) {
        memcpy(all, node->attributes, count * sizeof *all);
    }
    const CUlaunchAttribute *known = find(node, attribute->id);
    unsigned place = known != NULL ? (unsigned)(known - node->attributes) : count++;
    all[place] = *attribute;
    CUresult result = check_kernel(node, all, count);
    return result == CUDA_SUCCESS ? gf_params_attributes(node, all, count) : result;
}

CUresult gf_node_attribute_set(struct gf_node *node, CUlaunchAttributeID id,
                               const CUlaunchAttributeValue *value) {
    const CUlaunchAttribute attribute = {.id = id, .value = *value};
    if (node->params.type != CU_GRAPH_NODE_TYPE_KERNEL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = check(&attribute);
    gf_graphs_lock();
    result = result == CUDA_SUCCESS ? set(node, &attribute) : result;
    gf_graphs_unlock();
    return result;
}

/* Those that a node has, even if nobody set them. */
static bool is_always_there(CUlaunchAttributeID id) {
    switch ((int)id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return true;
    default:
        return false;
    }
}

CUresult gf_node_attribute_get(const struct gf_node *node, CUlaunchAttributeID id,
                               CUlaunchAttributeValue *value) {
    gf_graphs_lock();
    const CUlaunchAttribute *known = find(node, id);
    bool has = node->params.type == CU_GRAPH_NODE_TYPE_KERNEL && (known != NULL || is_always_there(id));
    if (has) {
        memset(value, 0, sizeof *value);
    }
    if (has && known != NULL) {
        *value = known->value;
    }
    gf_graphs_unlock();
    return has ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult gf_node_attributes_copy(struct gf_node *to, const struct gf_node *from) {
    if (to->params.type != CU_GRAPH_NODE_TYPE_KERNEL || from->params.type != CU_GRAPH_NODE_TYPE_KERNEL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_graphs_lock();
    CUresult result = to == from ? CUDA_SUCCESS
                      : to->context != from->context
                          ? CUDA_ERROR_INVALID_VALUE
                          : check_kernel(to, from->attributes, from->attribute_count);
    if (result == CUDA_SUCCESS && to != from) {
        result = gf_params_attributes(to, from->attributes, from->attribute_count);
    }
    gf_graphs_unlock();
    return result;
}
