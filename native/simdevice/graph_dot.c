/* cuGraphDebugDotPrint: a graph as Graphviz draws it. */
#include "driver_interop/graph_dot.c.h"
#include "graph.h"

static void print_node(FILE *file, const struct sim_node *node, unsigned flags) {
    struct dot_node dot = {
        .graph = node->graph->id, .id = node->id, .handle = node->object.handle, .params = &node->params};
    struct sim_function *function = NULL;
    if (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL &&
        sim_function_acquire(node->function, &function) == CUDA_SUCCESS)
        dot.kernel = function->info->name;
    dot_node(file, &dot, flags);
    if (function)
        sim_release(function);
}

static void print_graph(FILE *file, const void *pointer, unsigned flags) {
    const struct sim_graph *graph = pointer;
    dot_graph_begin(file, graph->id);
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct sim_node *node = graph->nodes[i];
        print_node(file, node, flags);
        for (size_t j = 0; j < node->dependencies.count; j++)
            dot_edge(file, graph->id, node->dependencies.items[j].from->id, node->id);
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
    return dot_file(path, print_graph, graph, flags);
}
