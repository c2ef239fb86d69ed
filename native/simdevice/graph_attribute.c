/* Attributes of kernel nodes. They are those of a launch, and are checked as those. */
#include "driver_interop/launch_attribute.h"
#include "graph.h"
#include <stdlib.h>
#include <string.h>

static CUlaunchAttribute *find(const struct sim_node *node, CUlaunchAttributeID id) {
    for (unsigned i = 0; i < node->attribute_count; i++)
        if (node->attributes[i].id == id)
            return &node->attributes[i];
    return NULL;
}

static CUresult check_window(const CUaccessPolicyWindow *window) {
    SIM_REQUIRE(window->hitRatio >= 0 && window->hitRatio <= 1);
    SIM_REQUIRE(window->num_bytes <= SIM_MAX_WINDOW && window->missProp != CU_ACCESS_PROPERTY_PERSISTING);
    return CUDA_SUCCESS;
}

/* The node's attributes become these, which it takes over, if it can be launched with them. */
static CUresult replace(struct sim_node *node, CUlaunchAttribute *attributes, unsigned count) {
    struct sim_node changed = *node;
    struct sim_op *op;
    changed.attributes = attributes;
    changed.attribute_count = count;
    CUresult result = sim_node_op(&changed, &op);
    if (result != CUDA_SUCCESS) {
        free(attributes);
        return result;
    }
    sim_op_discard(op);
    free(node->attributes);
    node->attributes = attributes;
    node->attribute_count = count;
    return CUDA_SUCCESS;
}

/* A copy with room for one more. */
static CUlaunchAttribute *copy_of(const struct sim_node *node) {
    CUlaunchAttribute *copy = calloc(node->attribute_count + 1, sizeof *copy);
    if (copy && node->attribute_count)
        memcpy(copy, node->attributes, node->attribute_count * sizeof *copy);
    return copy;
}

static struct sim_node *find_kernel(CUgraphNode handle) {
    struct sim_node *node = sim_node_find(handle);
    return node && node->params.type == CU_GRAPH_NODE_TYPE_KERNEL ? node : NULL;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue *value) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = find_kernel(handle);
    SIM_REQUIRE(node && value && gf_attribute_is_of_nodes(id));
    if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
        SIM_TRY(check_window(&value->accessPolicyWindow));
    CUlaunchAttribute *attributes = copy_of(node);
    if (!attributes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned count = node->attribute_count;
    const CUlaunchAttribute *known = find(node, id);
    unsigned place = known ? (unsigned)(known - node->attributes) : count++;
    attributes[place] = (CUlaunchAttribute){.id = id, .value = *value};
    return replace(node, attributes, count);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue *value) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = find_kernel(handle);
    SIM_REQUIRE(node && value);
    const CUlaunchAttribute *known = find(node, id);
    switch ((int)id) { /* those that a node of a graph has */
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
        break;
    default:
        SIM_REQUIRE(known);
    }
    if (known)
        *value = known->value;
    else
        memset(value, 0, sizeof *value);
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle, CUgraphNode from_handle) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *to = find_kernel(to_handle), *from = find_kernel(from_handle);
    SIM_REQUIRE(to && from && to->context == from->context);
    if (to == from)
        return CUDA_SUCCESS;
    CUlaunchAttribute *attributes = copy_of(from);
    if (!attributes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return replace(to, attributes, from->attribute_count);
}
