/* Edges: reading them from calls, adding and removing them. */
#include "graph.h"
#include <stdlib.h>
#include <string.h>

bool sim_links_add(struct sim_links *links, struct sim_node *from, const CUgraphEdgeData *data) {
    if (links->count == links->capacity) {
        size_t capacity = links->capacity ? links->capacity * 2 : 4;
        struct sim_link *items = realloc(links->items, capacity * sizeof *items);
        if (!items)
            return false;
        links->items = items;
        links->capacity = capacity;
    }
    links->items[links->count++] = (struct sim_link){from, data ? *data : (CUgraphEdgeData){0}};
    return true;
}

bool sim_edge_is_plain(const CUgraphEdgeData *data) {
    static const CUgraphEdgeData plain;
    return memcmp(data, &plain, sizeof plain) == 0;
}

CUresult sim_edge_check(const struct sim_node *from, const CUgraphEdgeData *data) {
    static const unsigned char zeros[sizeof data->reserved];
    SIM_REQUIRE(memcmp(data->reserved, zeros, sizeof zeros) == 0 && data->to_port == 0);
    SIM_REQUIRE(data->type <= CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    SIM_REQUIRE(data->from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
    SIM_REQUIRE((data->type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT) ==
                (data->from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT));
    SIM_REQUIRE(sim_edge_is_plain(data) || from->params.type == CU_GRAPH_NODE_TYPE_KERNEL);
    return CUDA_SUCCESS;
}

static struct sim_link *find_link(struct sim_links *links, const struct sim_node *from,
                                  const CUgraphEdgeData *data) {
    for (size_t i = 0; i < links->count; i++)
        if (links->items[i].from == from && memcmp(&links->items[i].data, data, sizeof *data) == 0)
            return &links->items[i];
    return NULL;
}

bool sim_links_include(struct sim_links *links, struct sim_node *from, const CUgraphEdgeData *data) {
    return find_link(links, from, data) || sim_links_add(links, from, data);
}

CUresult sim_links_read(struct sim_graph *graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                        size_t count, struct sim_links *links) {
    static const CUgraphEdgeData plain;
    SIM_REQUIRE(nodes || !count);
    for (size_t i = 0; i < count; i++) {
        struct sim_node *node = sim_node_find(nodes[i]);
        SIM_REQUIRE(node && node->graph == graph);
        SIM_TRY(sim_edge_check(node, data ? &data[i] : &plain));
        SIM_REQUIRE(!find_link(links, node, data ? &data[i] : &plain));
        if (!sim_links_add(links, node, data ? &data[i] : &plain))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* The two ends of an edge between different nodes of the graph. */
static CUresult ends(struct sim_graph *graph, CUgraphNode from_handle, CUgraphNode to_handle,
                     struct sim_node **from, struct sim_node **to) {
    *from = sim_node_find(from_handle);
    *to = sim_node_find(to_handle);
    SIM_REQUIRE(*from && *to && *from != *to && (*from)->graph == graph && (*to)->graph == graph);
    return CUDA_SUCCESS;
}

static CUresult add_one(struct sim_graph *graph, CUgraphNode from_handle, CUgraphNode to_handle,
                        const CUgraphEdgeData *data) {
    struct sim_node *from, *to;
    SIM_TRY(ends(graph, from_handle, to_handle, &from, &to));
    SIM_TRY(sim_edge_check(from, data));
    SIM_REQUIRE(sim_edge_is_plain(data) || to->params.type == CU_GRAPH_NODE_TYPE_KERNEL);
    SIM_REQUIRE(!find_link(&to->dependencies, from, data));
    return sim_links_add(&to->dependencies, from, data) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult remove_one(struct sim_graph *graph, CUgraphNode from_handle, CUgraphNode to_handle,
                           const CUgraphEdgeData *data) {
    struct sim_node *from, *to;
    SIM_TRY(ends(graph, from_handle, to_handle, &from, &to));
    struct sim_link *link = find_link(&to->dependencies, from, data);
    SIM_REQUIRE(link);
    struct sim_link *last = &to->dependencies.items[--to->dependencies.count];
    memmove(link, link + 1, (size_t)((char *)last - (char *)link));
    return CUDA_SUCCESS;
}

typedef CUresult change_edge(struct sim_graph *, CUgraphNode, CUgraphNode, const CUgraphEdgeData *);

/* All of the changes or, if one cannot be, none. */
static CUresult change(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                       const CUgraphEdgeData *data, size_t count, change_edge *apply, change_edge *undo) {
    static const CUgraphEdgeData plain;
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(handle);
    SIM_REQUIRE(graph && ((from && to) || !count));
    SIM_REQUIRE(apply != remove_one || !graph->capture);
    if (count && apply == remove_one && sim_graph_has_memory(graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count; i++) {
        CUresult result = apply(graph, from[i], to[i], data ? &data[i] : &plain);
        if (result == CUDA_SUCCESS)
            continue;
        while (i--)
            undo(graph, from[i], to[i], data ? &data[i] : &plain);
        return result;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count) {
    return change(graph, from, to, data, count, add_one, remove_one);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    return change(graph, from, to, NULL, count, add_one, remove_one);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count) {
    return change(graph, from, to, data, count, remove_one, add_one);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t count) {
    return change(graph, from, to, NULL, count, remove_one, add_one);
}
