/* What cuGraphDebugDotPrint says of a graph, to Graphviz: the guest and the simulated device have graphs of
 * their own, and print the same. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

#include "cuda_driver.h"

static const char *const dot_names[] = {
    [CU_GRAPH_NODE_TYPE_KERNEL] = "KERNEL",
    [CU_GRAPH_NODE_TYPE_MEMCPY] = "MEMCPY",
    [CU_GRAPH_NODE_TYPE_MEMSET] = "MEMSET",
    [CU_GRAPH_NODE_TYPE_HOST] = "HOST",
    [CU_GRAPH_NODE_TYPE_GRAPH] = "GRAPH",
    [CU_GRAPH_NODE_TYPE_EMPTY] = "EMPTY",
    [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "EVENT_WAIT",
    [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "EVENT_RECORD",
    [CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "MEM_ALLOC",
    [CU_GRAPH_NODE_TYPE_MEM_FREE] = "MEM_FREE",
    [CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] = "BATCH_MEM_OP",
    [CU_GRAPH_NODE_TYPE_CONDITIONAL] = "CONDITIONAL",
};

/* By which letters a copy's direction is told. */
static const char dot_ends[] = {[CU_MEMORYTYPE_HOST] = 'H',
                                [CU_MEMORYTYPE_DEVICE] = 'D',
                                [CU_MEMORYTYPE_ARRAY] = 'A',
                                [CU_MEMORYTYPE_UNIFIED] = 'U'};

struct dot_node {
    unsigned graph, id;
    unsigned long long handle;
    const CUgraphNodeParams *params;
    const char *kernel; /* its name, of a kernel's node */
};

static void dot_node(FILE *file, const struct dot_node *node, unsigned flags) {
    bool all = (flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE) != 0;
    const CUgraphNodeParams *p = node->params;
    fprintf(file, "\"graph_%u_node_%u\"[label=\"%u\\n%s", node->graph, node->id, node->id,
            dot_names[p->type]);
    if (p->type == CU_GRAPH_NODE_TYPE_KERNEL && node->kernel != NULL) {
        fprintf(file, "\\n%s\\n<<<(%u,%u,%u),(%u,%u,%u),%u>>>", node->kernel, p->kernel.gridDimX,
                p->kernel.gridDimY, p->kernel.gridDimZ, p->kernel.blockDimX, p->kernel.blockDimY,
                p->kernel.blockDimZ, p->kernel.sharedMemBytes);
    }
    if (p->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        const CUDA_MEMCPY3D *copy = &p->memcpy.copyParams;
        fprintf(file, "\\n%cto%c", dot_ends[copy->srcMemoryType], dot_ends[copy->dstMemoryType]);
        if (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS) != 0) {
            fprintf(file, "\\n%zu x %zu x %zu bytes", copy->WidthInBytes, copy->Height, copy->Depth);
        }
    }
    if (p->type == CU_GRAPH_NODE_TYPE_MEMSET &&
        (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS) != 0)) {
        fprintf(file, "\\nvalue 0x%x, %u bytes, %zu x %zu", p->memset.value, p->memset.elementSize,
                p->memset.width, p->memset.height);
    }
    if (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES) != 0) {
        fprintf(file, "\\n0x%llx", node->handle);
    }
    fprintf(file, "\"];\n");
}

static void dot_edge(FILE *file, unsigned graph, unsigned from, unsigned to) {
    fprintf(file, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";\n", graph, from, graph, to);
}

/* A file with what `print` writes of `graph`. */
static CUresult dot_file(const char *path, void (*print)(FILE *, const void *graph, unsigned flags),
                         const void *graph, unsigned flags) {
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    fprintf(file, "digraph dot {\n");
    print(file, graph, flags);
    fprintf(file, "}\n");
    bool written = ferror(file) == 0;
    return fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static void dot_graph_begin(FILE *file, unsigned graph) {
    fprintf(file, "subgraph cluster_%u {\nlabel=\"graph_%u\"\n", graph, graph);
}
