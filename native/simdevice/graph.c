/* Graphs and their nodes as objects. */
#include "graph.h"
#include "condition.h"
#include "graph_exec.h"
#include "graph_memory.h"
#include "graph_user.h"
#include <stdlib.h>
#include <string.h>

static uint32_t next_graph_id = 1;

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

static void clear(struct sim_node *node) {
    sim_graph_memory_clear(node);
    sim_condition_clear(node);
    for (unsigned i = 0; node->body_plans && i < node->body_count; i++)
        sim_plan_free(&node->body_plans[i]);
    free(node->body_plans);
    for (unsigned i = 0; i < node->body_count; i++)
        sim_graph_free(node->bodies[i]);
    free(node->bodies);
    free(node->body_handles);
    free(node->storage);
    free(node->attributes);
}

static void free_node(struct sim_node *node) {
    clear(node);
    free(node->dependencies.items);
    close_object(&node->object, SIM_GRAPH_NODE);
}

void sim_graph_free(struct sim_graph *graph) {
    for (size_t i = 0; i < graph->node_count; i++)
        free_node(graph->nodes[i]);
    free(graph->nodes);
    sim_condition_forget(graph);
    sim_user_release_all(graph);
    close_object(&graph->object, SIM_GRAPH);
}

static CUresult keep_bodies(struct sim_node *node, struct sim_graph **bodies, unsigned count) {
    struct sim_graph **kept = calloc(count + 1, sizeof(struct sim_graph *));
    CUgraph *handles = calloc(count + 1, sizeof *handles);
    if (!kept || !handles) {
        free(kept);
        free(handles);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < count; i++) {
        kept[i] = bodies[i];
        handles[i] = SIM_POINTER(CUgraph, bodies[i]);
    }
    node->bodies = kept;
    node->body_handles = handles;
    node->body_count = count;
    return CUDA_SUCCESS;
}

static CUresult keep_child(struct sim_node *node) {
    CUDA_CHILD_GRAPH_NODE_PARAMS *child = &node->params.graph;
    struct sim_graph *graph = sim_graph_find(child->graph), *body;
    SIM_REQUIRE(graph && graph != node->graph);
    for (struct sim_node *parent = node->graph->parent; parent; parent = parent->graph->parent)
        SIM_REQUIRE(parent->graph != graph);
    bool moves = child->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    if (sim_graph_contains(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL) || (moves && graph->conditions))
        return CUDA_ERROR_NOT_SUPPORTED;
    SIM_REQUIRE(moves ? !graph->parent && !graph->capture
                      : child->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
    /* Memory may move as long as nothing that is executable has it. */
    if (sim_graph_has_memory(graph) && (!moves || graph->instances))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (moves) {
        body = graph;
        body->parent = node;
    } else {
        SIM_TRY(sim_graph_clone(graph, node, &body));
    }
    return keep_bodies(node, &body, 1);
}

static CUresult make_bodies(struct sim_node *node) {
    unsigned count = node->params.conditional.size;
    struct sim_graph *bodies[count];
    for (unsigned i = 0; i < count; i++) {
        bodies[i] = sim_graph_new(node);
        if (!bodies[i]) {
            while (i--)
                sim_graph_free(bodies[i]);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return keep_bodies(node, bodies, count);
}

/* What a node has of its own beside parameters. */
static CUresult keep_owned(struct sim_node *node) {
    switch ((int)node->params.type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return keep_child(node);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return sim_graph_memory_keep(node);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        SIM_TRY(sim_condition_claim(node));
        return make_bodies(node);
    default:
        return CUDA_SUCCESS;
    }
}

/* What `from` does, `to` does from now on. The rest of `to` stays as it is. */
static void move_work(struct sim_node *to, const struct sim_node *from) {
    to->params = from->params;
    to->storage = from->storage;
    to->storage_bytes = from->storage_bytes;
    to->attributes = from->attributes;
    to->attribute_count = from->attribute_count;
    to->function = from->function;
    to->context = from->context;
    to->context_ends = from->context_ends;
    to->bodies = from->bodies;
    to->body_handles = from->body_handles;
    to->body_count = from->body_count;
    to->memory = from->memory;
    to->condition = from->condition;
    to->body_plans = from->body_plans;
    for (unsigned i = 0; i < to->body_count; i++)
        to->bodies[i]->parent = to;
    if (to->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
        to->params.graph =
            (CUDA_CHILD_GRAPH_NODE_PARAMS){to->body_handles[0], CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID};
    if (to->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        to->params.conditional.phGraph_out = to->body_handles;
}

CUresult sim_node_assign(struct sim_node *node, const struct sim_node_work *work) {
    struct sim_node fresh = {.object = node->object, .graph = node->graph, .id = node->id};
    struct sim_op *op = NULL;
    CUresult result = sim_node_keep(&fresh, work);
    if (result == CUDA_SUCCESS)
        result = keep_owned(&fresh);
    fresh.context_ends = fresh.context ? atomic_load(&fresh.context->ends) : 0;
    if (result == CUDA_SUCCESS)
        result = sim_node_op(&fresh, &op);
    if (op)
        sim_op_discard(op);
    if (result != CUDA_SUCCESS) {
        clear(&fresh);
        return result;
    }
    sim_node_keep_place(&fresh, node);
    clear(node);
    move_work(node, &fresh);
    return CUDA_SUCCESS;
}

CUresult sim_node_assign_kept(struct sim_node *node, const struct sim_node_work *work) {
    struct sim_node_work kept = *work;
    kept.context = node->context;
    kept.attributes = node->attributes;
    kept.attribute_count = node->attribute_count;
    return sim_node_assign(node, &kept);
}

static CUresult copy_bodies(struct sim_node *to, const struct sim_node *from) {
    struct sim_graph *bodies[from->body_count + 1];
    for (unsigned i = 0; i < from->body_count; i++) {
        CUresult result = sim_graph_clone(from->bodies[i], to, &bodies[i]);
        if (result != CUDA_SUCCESS) {
            while (i--)
                sim_graph_free(bodies[i]);
            return result;
        }
    }
    return from->body_count ? keep_bodies(to, bodies, from->body_count) : CUDA_SUCCESS;
}

CUresult sim_node_copy(struct sim_node *to, const struct sim_node *from) {
    struct sim_node fresh = {.object = to->object, .graph = to->graph, .id = to->id};
    CUresult result = sim_node_copy_work(&fresh, from);
    if (result == CUDA_SUCCESS)
        result = copy_bodies(&fresh, from);
    sim_graph_memory_share(&fresh, from);
    sim_condition_share(&fresh, from);
    if (result != CUDA_SUCCESS) {
        clear(&fresh);
        return result;
    }
    clear(to);
    move_work(to, &fresh);
    return CUDA_SUCCESS;
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
    for (size_t i = 0; i < links->count; i++) /* before the node uses up what there is but once */
        SIM_REQUIRE(sim_edge_is_plain(&links->items[i].data) ||
                    work->params.type == CU_GRAPH_NODE_TYPE_KERNEL);
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
