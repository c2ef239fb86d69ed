/* cuGraphDebugDotPrint: a graph as Graphviz draws it. */
#include "driver_interop/graph_dot.c.h"

#include "calls.h"
#include "graph.h"
#include "module.h"
#include "objects.h"

static unsigned id_of(const struct gf_model *model) {
    const struct gf_graph *graph = gf_graph_find((CUgraph)model->handle);
    return graph == NULL ? 0 : graph->id;
}

static void print_graph(FILE *file, const void *pointer, unsigned flags) {
    const struct gf_model *model = pointer;
    unsigned id = id_of(model);
    dot_graph_begin(file, id);
    for (const struct gf_node *n = model->first; n != NULL; n = n->next) {
        const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &n->params.kernel;
        const struct gf_callable *callable =
            n->params.type != CU_GRAPH_NODE_TYPE_KERNEL
                ? NULL
                : gf_callable_find(kernel->func != NULL ? (uint64_t)kernel->func : (uint64_t)kernel->kern);
        dot_node(file,
                 &(struct dot_node){.graph = id,
                                    .id = n->id,
                                    .handle = n->handle,
                                    .params = &n->params,
                                    .kernel = callable == NULL ? NULL : callable->info->name},
                 flags);
        for (unsigned i = 0; i < n->edge_count; i++) {
            dot_edge(file, id, n->edges[i].from->id, n->id);
        }
        for (unsigned i = 0; i < n->body_count; i++) {
            print_graph(file, n->bodies[i], flags);
        }
    }
    fprintf(file, "}\n");
}

CUresult gf_graph_dot(const struct gf_model *model, const char *path, unsigned flags) {
    gf_graphs_lock();
    CUresult result = dot_file(path, print_graph, model, flags);
    gf_graphs_unlock();
    return result;
}

CUresult gf_node_tools_id(const struct gf_node *node, unsigned long long *id) {
    *id = (unsigned long long)id_of(node->model) << 32 | node->id;
    return CUDA_SUCCESS;
}
