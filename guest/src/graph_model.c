/* Models of graphs: nodes and the edges between them, without a word to the server. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "objects.h"
#include "user_object.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void gf_graphs_lock(void) {
    pthread_mutex_lock(&lock);
}

void gf_graphs_unlock(void) {
    pthread_mutex_unlock(&lock);
}

struct gf_model *gf_model_new(void) {
    return calloc(1, sizeof(struct gf_model));
}

static void unlink_node(struct gf_node *node) {
    struct gf_model *model = node->model;
    *(node->previous != NULL ? &node->previous->next : &model->first) = node->next;
    *(node->next != NULL ? &node->next->previous : &model->last) = node->previous;
    model->count--;
}

static void free_node(struct gf_node *node) {
    gf_params_free(node);
    free(node->attributes);
    free(node->edges);
    free(node);
}

void gf_model_free(struct gf_model *model) {
    gf_condition_forget(model);
    while (model->first != NULL) {
        struct gf_node *node = model->first;
        unlink_node(node);
        free_node(node);
    }
    gf_retained_free(model->retained);
    free(model);
}

void gf_node_free(struct gf_node *node) {
    for (struct gf_node *other = node->model->first; other != NULL; other = other->next) {
        for (unsigned i = 0; i < other->edge_count;) {
            if (other->edges[i].from == node) {
                memmove(&other->edges[i], &other->edges[i + 1],
                        (--other->edge_count - i) * sizeof *other->edges);
            } else {
                i++;
            }
        }
    }
    unlink_node(node);
    free_node(node);
}

static struct gf_node *append(struct gf_model *model) {
    struct gf_node *node = calloc(1, sizeof *node);
    if (node != NULL) {
        node->model = model;
        node->id = model->next_id++;
        node->previous = model->last;
        *(model->last != NULL ? &model->last->next : &model->first) = node;
        model->last = node;
        model->count++;
    }
    return node;
}

CUresult gf_node_add(struct gf_model *model, enum gf_form form, const void *params, struct gf_node **added) {
    struct gf_node *node = append(model);
    if (node == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = gf_params_set(node, form, params);
    if (result != CUDA_SUCCESS) {
        unlink_node(node);
        free_node(node);
        model->next_id--;
        return result;
    }
    *added = node;
    return CUDA_SUCCESS;
}

/* Only kernels begin and end edges that are not plain. */
bool gf_is_edge(CUgraphNodeType type, const struct gf_node *from, const CUgraphEdgeData *data) {
    static const CUgraphEdgeData plain;
    if (memcmp(data, &plain, sizeof plain) == 0) {
        return true;
    }
    bool kernels = type == CU_GRAPH_NODE_TYPE_KERNEL && from->params.type == CU_GRAPH_NODE_TYPE_KERNEL;
    bool programmatic = data->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && data->from_port > 0;
    return kernels && programmatic && data->from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER &&
           data->to_port == 0 && memcmp(data->reserved, plain.reserved, sizeof plain.reserved) == 0;
}

CUresult gf_node_depend(struct gf_node *node, struct gf_node *from, const CUgraphEdgeData *data) {
    if (data != NULL && !gf_is_edge(node->params.type, from, data)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (node->edge_count == node->edge_room) {
        unsigned room = node->edge_room == 0 ? 2 : 2 * node->edge_room;
        struct gf_edge *edges = realloc(node->edges, room * sizeof *edges);
        if (edges == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        node->edges = edges;
        node->edge_room = room;
    }
    node->edges[node->edge_count++] = (struct gf_edge){from, data == NULL ? (CUgraphEdgeData){0} : *data};
    return CUDA_SUCCESS;
}

bool gf_node_depends(const struct gf_node *node, const struct gf_node *from) {
    for (unsigned i = 0; i < node->edge_count; i++) {
        if (node->edges[i].from == from) {
            return true;
        }
    }
    return false;
}

struct gf_model *gf_model_copy(const struct gf_model *model) {
    struct gf_model *copy = gf_model_new();
    if (copy == NULL) {
        return NULL;
    }
    CUresult result = CUDA_SUCCESS;
    for (const struct gf_node *n = model->first; n != NULL && result == CUDA_SUCCESS; n = n->next) {
        struct gf_node *made = append(copy);
        result = made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : gf_params_copy(made, n);
        if (made != NULL) {
            made->id = n->id;
            made->origin = n->handle;
            ((struct gf_node *)n)->below = made;
        }
    }
    for (const struct gf_node *n = model->first; n != NULL && result == CUDA_SUCCESS; n = n->next) {
        for (unsigned i = 0; i < n->edge_count && result == CUDA_SUCCESS; i++) {
            result = gf_node_depend(n->below, n->edges[i].from->below, &n->edges[i].data);
        }
    }
    copy->next_id = model->next_id;
    copy->wire_graph = model->wire_graph;
    if (result == CUDA_SUCCESS) {
        result = gf_retained_copy(&copy->retained, model->retained);
    }
    if (result != CUDA_SUCCESS) {
        gf_model_free(copy);
        return NULL;
    }
    return copy;
}

bool gf_model_order(struct gf_model *model, struct gf_node **order) {
    unsigned placed = 0;
    for (struct gf_node *n = model->first; n != NULL; n = n->next) {
        n->mark = 0;
    }
    for (struct gf_node *n = model->first; n != NULL; n = n->next) {
        if (n->mark != 0) {
            continue;
        }
        /* What a node depends on comes first; `below` leads back. */
        struct gf_node *top = n;
        n->below = NULL;
        for (n->mark = 1, n->walked = 0; top != NULL;) {
            if (top->walked == top->edge_count) {
                top->mark = 2;
                order[placed++] = top;
                top = top->below;
                continue;
            }
            struct gf_node *from = top->edges[top->walked++].from;
            if (from->mark == 1) {
                return false;
            }
            if (from->mark == 0) {
                from->mark = 1;
                from->walked = 0;
                from->below = top;
                top = from;
            }
        }
    }
    return true;
}

bool gf_model_mark(struct gf_model *model, const struct gf_edge *ends, unsigned count) {
    struct gf_node **stack = malloc((model->count + 1) * sizeof *stack);
    unsigned depth = 0;
    if (stack == NULL) {
        return false;
    }
    for (struct gf_node *n = model->first; n != NULL; n = n->next) {
        n->mark = 0;
    }
    for (unsigned i = 0; i < count; i++) {
        ends[i].from->mark = 1;
        stack[depth++] = ends[i].from;
    }
    while (depth > 0) {
        struct gf_node *node = stack[--depth];
        for (unsigned i = 0; i < node->edge_count; i++) {
            if (node->edges[i].from->mark == 0) {
                node->edges[i].from->mark = 1;
                stack[depth++] = node->edges[i].from;
            }
        }
    }
    free(stack);
    return true;
}

struct gf_node *gf_model_find(struct gf_model *model, uint64_t origin) {
    for (struct gf_node *n = model->first; n != NULL; n = n->next) {
        if (n->origin == origin) {
            return n;
        }
        for (unsigned i = 0; i < n->body_count; i++) {
            struct gf_node *within = gf_model_find(n->bodies[i], origin);
            if (within != NULL) {
                return within;
            }
        }
    }
    return NULL;
}

bool gf_model_has(const struct gf_model *model, CUgraphNodeType type) {
    for (const struct gf_node *n = model->first; n != NULL; n = n->next) {
        bool has = n->params.type == type;
        for (unsigned i = 0; i < n->body_count && !has; i++) {
            has = gf_model_has(n->bodies[i], type);
        }
        if (has) {
            return true;
        }
    }
    return false;
}

bool gf_model_is_captured(const struct gf_model *model) {
    bool captured = model->captured;
    for (const struct gf_node *n = model->first; n != NULL && !captured; n = n->next) {
        captured = gf_node_is_captured(n);
    }
    return captured;
}

bool gf_node_is_captured(const struct gf_node *node) {
    bool captured = false;
    for (unsigned i = 0; i < node->body_count && !captured; i++) {
        captured = gf_model_is_captured(node->bodies[i]);
    }
    return captured;
}

bool gf_model_has_memory(const struct gf_model *model) {
    return gf_model_has(model, CU_GRAPH_NODE_TYPE_MEM_ALLOC) ||
           gf_model_has(model, CU_GRAPH_NODE_TYPE_MEM_FREE);
}

bool gf_model_is_single(const struct gf_model *model) {
    return gf_model_has_memory(model) || gf_model_has(model, CU_GRAPH_NODE_TYPE_CONDITIONAL);
}

/* Handles */

static CUresult publish_bodies(struct gf_node *node, struct gf_graph_node *object) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < node->body_count && result == CUDA_SUCCESS; i++) {
        struct gf_model *body = node->bodies[i];
        if (body->handle == 0) {
            result = gf_model_publish(body, object, &node->body_handles[i]);
        } else { /* a graph of the program's that moves here */
            node->body_handles[i] = (CUgraph)body->handle;
            gf_object_give(gf_graph_find(node->body_handles[i]), object);
        }
    }
    if (node->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
        node->params.graph =
            (CUDA_CHILD_GRAPH_NODE_PARAMS){node->body_handles[0], CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID};
    }
    return result;
}

CUresult gf_node_set_child(struct gf_node *node, enum gf_form form, const void *params) {
    struct gf_node given = {.model = node->model};
    if (gf_node_is_captured(node)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (gf_model_has_memory(node->bodies[0])) { /* which is there once, and stays */
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = gf_params_set(&given, form, params);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t before = node->bodies[0]->handle;
    gf_objects_release(gf_object_end(gf_graph_find((CUgraph)before), before));
    gf_model_free(node->bodies[0]);
    node->bodies[0] = given.bodies[0];
    node->bodies[0]->parent = node;
    free(given.bodies);
    free(given.body_handles);
    return publish_bodies(node, gf_graph_node_find((CUgraphNode)node->handle));
}

CUresult gf_node_publish(struct gf_node *node, CUgraphNode *handle) {
    uint64_t made;
    struct gf_graph_node *object = gf_graph_node_new(&made);
    struct gf_graph *graph = gf_graph_find((CUgraph)node->model->handle);
    if (object == NULL || graph == NULL) {
        if (object != NULL) {
            gf_object_discard(object);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    object->node = node;
    object->type = node->params.type;
    node->handle = made;
    gf_object_publish(object, made, graph);
    if (handle != NULL) {
        *handle = (CUgraphNode)made;
    }
    return publish_bodies(node, object);
}

CUresult gf_model_publish(struct gf_model *model, void *owner, CUgraph *handle) {
    uint64_t made;
    struct gf_graph *object = gf_graph_new(&made);
    if (object == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    object->model = model;
    model->handle = made;
    gf_object_publish(object, made, owner);
    *handle = (CUgraph)made;
    CUresult result = CUDA_SUCCESS;
    for (struct gf_node *n = model->first; n != NULL && result == CUDA_SUCCESS; n = n->next) {
        result = gf_node_publish(n, NULL);
    }
    return result;
}

void gf_graph_ended(struct gf_object *object) {
    struct gf_model *model = ((struct gf_graph *)object)->model;
    /* A child graph's, or a body's, goes with its node. */
    if (model->parent == NULL) {
        gf_model_free(model);
    } else {
        model->handle = 0;
    }
}

CUresult gf_nodes_of(const struct gf_model *model, const CUgraphNode *handles, size_t count,
                     struct gf_node **nodes) {
    for (size_t i = 0; i < count; i++) {
        struct gf_graph_node *object = gf_graph_node_find(handles[i]);
        if (object == NULL || object->node->model != model) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        nodes[i] = object->node;
    }
    return CUDA_SUCCESS;
}
