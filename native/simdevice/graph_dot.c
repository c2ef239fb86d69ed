/* cuGraphDebugDotPrint: a graph as Graphviz draws it. */
#include "graph.h"
#include <stdio.h>

static const char *const names[] = {
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

static void print_kernel(FILE *file, const struct sim_node *node) {
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &node->params.kernel;
    struct sim_function *function;
    if (sim_function_acquire(node->function, &function) != CUDA_SUCCESS)
        return;
    fprintf(file, "\\n%s\\n<<<(%u,%u,%u),(%u,%u,%u),%u>>>", function->info->name, k->gridDimX, k->gridDimY,
            k->gridDimZ, k->blockDimX, k->blockDimY, k->blockDimZ, k->sharedMemBytes);
    sim_release(function);
}

static void print_node(FILE *file, const struct sim_node *node, unsigned flags) {
    bool all = flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;
    const CUgraphNodeParams *p = &node->params;
    fprintf(file, "\"graph_%u_node_%u\"[label=\"%u\\n%s", node->graph->id, node->id, node->id,
            names[p->type]);
    if (p->type == CU_GRAPH_NODE_TYPE_KERNEL)
        print_kernel(file, node);
    if (p->type == CU_GRAPH_NODE_TYPE_MEMCPY && (all || flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
        fprintf(file, "\\n%zu x %zu x %zu bytes", p->memcpy.copyParams.WidthInBytes,
                p->memcpy.copyParams.Height, p->memcpy.copyParams.Depth);
    if (p->type == CU_GRAPH_NODE_TYPE_MEMSET && (all || flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
        fprintf(file, "\\nvalue 0x%x, %u bytes, %zu x %zu", p->memset.value, p->memset.elementSize,
                p->memset.width, p->memset.height);
    if (all || flags & CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)
        fprintf(file, "\\n0x%llx", (unsigned long long)node->object.handle);
    fprintf(file, "\"];\n");
}

static void print_graph(FILE *file, const struct sim_graph *graph, unsigned flags) {
    fprintf(file, "subgraph cluster_%u {\nlabel=\"graph_%u\"\n", graph->id, graph->id);
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct sim_node *node = graph->nodes[i];
        print_node(file, node, flags);
        for (size_t j = 0; j < node->dependencies.count; j++)
            fprintf(file, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";\n", graph->id,
                    node->dependencies.items[j].from->id, graph->id, node->id);
        for (unsigned j = 0; j < node->body_count; j++)
            print_graph(file, node->bodies[j], flags);
    }
    fprintf(file, "}\n");
}

CUresult cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned int flags) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(handle);
    SIM_REQUIRE(graph && path);
    FILE *file = fopen(path, "we");
    if (!file)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(file, "digraph dot {\n");
    print_graph(file, graph, flags);
    fprintf(file, "}\n");
    bool written = !ferror(file);
    return fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
