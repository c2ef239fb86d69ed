/* Graphs and their nodes as objects. */
#include "graph.h"
#include "conditional.h"
#include "graph_user.h"
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t next_graph_id = 1;

void sim_graphs_lock(void) {
    pthread_mutex_lock(&lock);
}

void sim_graphs_unlock(void) {
    struct sim_user_object *ended = sim_user_take_ended();
    pthread_mutex_unlock(&lock);
    sim_user_destroy(ended);
}

/* Objects end only under the lock, so the reference need not be kept. */
static void *find(uint64_t handle, enum sim_kind kind) {
    void *object = sim_acquire(handle, kind);
    if (object)
        sim_release(object);
    return object;
}

struct sim_graph *sim_graph_find(CUgraph handle) {
    return find(SIM_HANDLE(handle), SIM_GRAPH);
}

struct sim_node *sim_node_find(CUgraphNode handle) {
    return find(SIM_HANDLE(handle), SIM_GRAPH_NODE);
}

struct sim_graph *sim_graph_new(struct sim_node *parent) {
    struct sim_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return NULL;
    graph->id = next_graph_id++;
    graph->parent = parent;
    if (!sim_handle_open(graph, SIM_GRAPH, NULL, free)) {
        free(graph);
        return NULL;
    }
    return graph;
}

static void close_object(struct sim_object *object, enum sim_kind kind) {
    if (sim_handle_close(object->handle, kind))
        sim_release(object);
}

static void free_node(struct sim_node *node) {
    sim_node_clear(node);
    free(node->dependencies.items);
    close_object(&node->object, SIM_GRAPH_NODE);
}

void sim_graph_free(struct sim_graph *graph) {
    for (size_t i = 0; i < graph->node_count; i++)
        free_node(graph->nodes[i]);
    free(graph->nodes);
    sim_conditional_forget(graph);
    sim_user_release_all(graph);
    close_object(&graph->object, SIM_GRAPH);
}

static struct sim_node *new_node(struct sim_graph *graph) {
    if (graph->node_count == graph->node_capacity) {
        size_t capacity = graph->node_capacity ? graph->node_capacity * 2 : 8;
        struct sim_node **nodes = realloc(graph->nodes, capacity * sizeof(struct sim_node *));
        if (!nodes)
            return NULL;
        graph->nodes = nodes;
        graph->node_capacity = capacity;
    }
    struct sim_node *node = calloc(1, sizeof *node);
    if (!node)
        return NULL;
    node->graph = graph;
    if (!sim_handle_open(node, SIM_GRAPH_NODE, NULL, free)) {
        free(node);
        return NULL;
    }
    node->id = graph->next_node_id++;
    node->place = graph->node_count;
    graph->nodes[graph->node_count++] = node;
    return node;
}

CUresult sim_graph_add(struct sim_graph *graph, const struct sim_node_work *work,
                       const struct sim_links *links, struct sim_node **out) {
    struct sim_node *node = new_node(graph);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_node_assign(node, work);
    for (size_t i = 0; result == CUDA_SUCCESS && i < links->count; i++)
        if (!sim_links_add(&node->dependencies, links->items[i].from, &links->items[i].data))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        graph->node_count--;
        free_node(node);
        return result;
    }
    if (out)
        *out = node;
    return CUDA_SUCCESS;
}

void sim_node_remove(struct sim_node *node) {
    struct sim_graph *graph = node->graph;
    size_t kept = 0;
    for (size_t i = 0; i < graph->node_count; i++) {
        struct sim_node *other = graph->nodes[i];
        if (other == node)
            continue;
        struct sim_links *links = &other->dependencies;
        size_t left = 0;
        for (size_t j = 0; j < links->count; j++)
            if (links->items[j].from != node)
                links->items[left++] = links->items[j];
        links->count = left;
        graph->nodes[kept++] = other;
    }
    graph->node_count = kept;
    free_node(node);
}

void sim_graph_number(struct sim_graph *graph) {
    for (size_t i = 0; i < graph->node_count; i++)
        graph->nodes[i]->place = i;
}

/* The copy has its nodes at the same places. */
static CUresult clone_node(const struct sim_node *node, struct sim_graph *clone) {
    struct sim_node *copy = new_node(clone);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    copy->id = node->id;
    copy->original = node->object.handle;
    copy->disabled = node->disabled;
    return sim_node_copy(copy, node);
}

static CUresult link_clone(const struct sim_node *node, struct sim_graph *clone) {
    struct sim_links *links = &clone->nodes[node->place]->dependencies;
    for (size_t i = 0; i < node->dependencies.count; i++) {
        const struct sim_link *link = &node->dependencies.items[i];
        if (!sim_links_add(links, clone->nodes[link->from->place], &link->data))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult sim_graph_clone(const struct sim_graph *graph, struct sim_node *parent, struct sim_graph **out) {
    struct sim_graph *clone = sim_graph_new(parent);
    if (!clone)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_graph_number((struct sim_graph *)graph);
    CUresult result = sim_user_copy_all(graph, clone) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    /* an edge may lead to an earlier node, so all nodes are there before any is linked */
    for (size_t i = 0; result == CUDA_SUCCESS && i < graph->node_count; i++)
        result = clone_node(graph->nodes[i], clone);
    for (size_t i = 0; result == CUDA_SUCCESS && i < graph->node_count; i++)
        result = link_clone(graph->nodes[i], clone);
    if (result != CUDA_SUCCESS) {
        sim_graph_free(clone);
        return result;
    }
    clone->next_node_id = graph->next_node_id;
    *out = clone;
    return CUDA_SUCCESS;
}

struct sim_node *sim_graph_clone_of(struct sim_graph *clone, uint64_t original) {
    for (size_t i = 0; i < clone->node_count; i++) {
        struct sim_node *node = clone->nodes[i];
        if (node->original == original)
            return node;
        for (unsigned j = 0; j < node->body_count; j++) {
            struct sim_node *inner = sim_graph_clone_of(node->bodies[j], original);
            if (inner)
                return inner;
        }
    }
    return NULL;
}

bool sim_graph_contains(const struct sim_graph *graph, CUgraphNodeType type) {
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct sim_node *node = graph->nodes[i];
        if (node->params.type == type)
            return true;
        for (unsigned j = 0; j < node->body_count; j++)
            if (sim_graph_contains(node->bodies[j], type))
                return true;
    }
    return false;
}
