/* Graphs: making, ending, copying, and what can be asked about them and their nodes. */
#include "graph.h"
#include <stdlib.h>

CUresult cuGraphCreate(CUgraph *out, unsigned int flags) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && flags == 0);
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_new(NULL);
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = SIM_POINTER(CUgraph, graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(handle);
    SIM_REQUIRE(graph && !graph->parent && !sim_graph_is_captured(graph));
    sim_graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    SIM_REQUIRE(node && !node->graph->capture && !sim_node_is_captured(node));
    if (sim_graph_has_memory(node->graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_node_remove(node);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *out, CUgraph handle) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out);
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(handle), *clone;
    SIM_REQUIRE(graph && !graph->capture);
    const CUgraphNodeType alone[] = {CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE,
                                     CU_GRAPH_NODE_TYPE_CONDITIONAL};
    if (graph->conditions)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < SIM_COUNT(alone); i++)
        if (sim_graph_contains(graph, alone[i]))
            return CUDA_ERROR_NOT_SUPPORTED;
    SIM_TRY(sim_graph_clone(graph, NULL, &clone));
    *out = SIM_POINTER(CUgraph, clone);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode handle, CUgraph clone_handle) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out);
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    struct sim_graph *clone = sim_graph_find(clone_handle);
    SIM_REQUIRE(node && clone);
    struct sim_node *found = sim_graph_clone_of(clone, node->object.handle);
    SIM_REQUIRE(found);
    *out = SIM_POINTER(CUgraphNode, found);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetId(CUgraph handle, unsigned int *id) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(handle);
    SIM_REQUIRE(graph && id);
    *id = graph->id;
    return CUDA_SUCCESS;
}

/* What CUDA's lists of nodes have in common: how many there are if there is nowhere to write to, else as many
 * as fit, which must be one at least if there are any, and NULL in what is left over. */
struct list {
    CUgraphNode *nodes, *second;
    CUgraphEdgeData *edges;
    size_t room, count;
    bool lossy; /* an edge has data that nobody asked for */
};

static void put(struct list *list, const struct sim_node *first, const struct sim_node *second,
                const CUgraphEdgeData *data) {
    if (list->nodes && list->count < list->room) {
        list->nodes[list->count] = SIM_POINTER(CUgraphNode, first);
        if (list->second)
            list->second[list->count] = SIM_POINTER(CUgraphNode, second);
        if (list->edges)
            list->edges[list->count] = *data;
        else if (data && !sim_edge_is_plain(data))
            list->lossy = true;
    }
    list->count++;
}

static CUresult finish(struct list *list, size_t *count) {
    SIM_REQUIRE(!list->nodes || list->room > 0 || list->count == 0);
    if (list->lossy)
        return CUDA_ERROR_LOSSY_QUERY;
    if (list->nodes && list->count > list->room)
        list->count = list->room;
    for (size_t i = list->count; list->nodes && i < list->room; i++) {
        list->nodes[i] = NULL;
        if (list->second)
            list->second[i] = NULL;
    }
    *count = list->count;
    return CUDA_SUCCESS;
}

static CUresult list_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count, bool roots_only) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(handle);
    SIM_REQUIRE(graph && count);
    struct list list = {.nodes = nodes, .room = *count};
    for (size_t i = 0; i < graph->node_count; i++) {
        struct sim_node *node =
            graph->nodes[roots_only ? graph->node_count - 1 - i : i]; /* as NVIDIA's does */
        if (!roots_only || node->dependencies.count == 0)
            put(&list, node, NULL, NULL);
    }
    return finish(&list, count);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_nodes(graph, nodes, count, false);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_nodes(graph, nodes, count, true);
}

CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
                            size_t *count) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(handle);
    SIM_REQUIRE(graph && count && !from == !to && (from || !edges));
    struct list list = {.nodes = from, .second = to, .edges = edges, .room = *count};
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct sim_links *links = &graph->nodes[i]->dependencies;
        for (size_t j = 0; j < links->count; j++)
            put(&list, links->items[j].from, graph->nodes[i], &links->items[j].data);
    }
    return finish(&list, count);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edges,
                                       size_t *count) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    SIM_REQUIRE(node && count && (nodes || !edges));
    struct list list = {.nodes = nodes, .edges = edges, .room = *count};
    for (size_t i = 0; i < node->dependencies.count; i++)
        put(&list, node->dependencies.items[i].from, NULL, &node->dependencies.items[i].data);
    return finish(&list, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count) {
    return cuGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edges,
                                         size_t *count) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    SIM_REQUIRE(node && count && (nodes || !edges));
    struct list list = {.nodes = nodes, .edges = edges, .room = *count};
    for (size_t i = 0; i < node->graph->node_count; i++) {
        const struct sim_links *links = &node->graph->nodes[i]->dependencies;
        for (size_t j = 0; j < links->count; j++)
            if (links->items[j].from == node)
                put(&list, node->graph->nodes[i], NULL, &links->items[j].data);
    }
    return finish(&list, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count) {
    return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    SIM_REQUIRE(node && type);
    *type = node->params.type;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode handle, CUgraph *graph) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    SIM_REQUIRE(node && graph);
    *graph = SIM_POINTER(CUgraph, node->graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetLocalId(CUgraphNode handle, unsigned int *id) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    SIM_REQUIRE(node && id);
    *id = node->id;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetToolsId(CUgraphNode handle, unsigned long long *id) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_node *node = sim_node_find(handle);
    SIM_REQUIRE(node && id);
    *id = (unsigned long long)node->graph->id << 32 | node->id;
    return CUDA_SUCCESS;
}
