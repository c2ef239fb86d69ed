/* Functions of graphs and nodes: what they answer is in the model. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "context.h"
#include "objects.h"

enum { EDGES_MOST = 3 }; /* between the same two nodes: one from each port of a kernel */

CUresult gf_graph_create(CUgraph *graph) {
    struct gf_model *model = gf_model_new();
    return model == NULL ? CUDA_ERROR_OUT_OF_MEMORY : gf_model_publish(model, NULL, graph);
}

CUresult gf_graph_clone(struct gf_model *model, CUgraph *clone) {
    gf_graphs_lock();
    bool once = model->conditions != NULL || gf_model_is_single(model);
    CUresult result = model->captured ? CUDA_ERROR_INVALID_VALUE
                      : once          ? CUDA_ERROR_NOT_SUPPORTED
                                      : CUDA_SUCCESS;
    struct gf_model *copy = result == CUDA_SUCCESS ? gf_model_copy(model) : NULL;
    if (result == CUDA_SUCCESS) {
        result = copy == NULL ? CUDA_ERROR_OUT_OF_MEMORY : gf_model_publish(copy, NULL, clone);
    }
    gf_graphs_unlock();
    return result;
}

CUresult gf_graph_destroy(struct gf_graph *graph) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    gf_graphs_lock();
    if (graph->model->parent == NULL && !gf_model_is_captured(graph->model)) {
        struct gf_object *ended = gf_object_end(graph, graph->model->handle);
        gf_objects_release(ended);
        result = ended == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    gf_graphs_unlock();
    return result;
}

CUresult gf_graph_destroy_node(struct gf_graph_node *object) {
    gf_graphs_lock();
    struct gf_node *node = object->node;
    bool captured = node->model->captured || gf_node_is_captured(node);
    CUresult result = captured                           ? CUDA_ERROR_INVALID_VALUE
                      : gf_model_has_memory(node->model) ? CUDA_ERROR_NOT_SUPPORTED
                                                         : CUDA_SUCCESS;
    struct gf_object *ended = result == CUDA_SUCCESS ? gf_object_end(object, node->handle) : NULL;
    gf_objects_release(ended);
    if (ended != NULL) {
        gf_node_free(node);
    } else if (result == CUDA_SUCCESS) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    gf_graphs_unlock();
    return result;
}

/* Edges are told apart by their data, too. */
static bool has_twice(struct gf_node **nodes, const CUgraphEdgeData *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++) {
            if (nodes[i] == nodes[j] && (data == NULL || memcmp(&data[i], &data[j], sizeof *data) == 0)) {
                return true;
            }
        }
    }
    return false;
}

/* With the lock held. */
static CUresult add(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                    const CUgraphEdgeData *data, size_t count, enum gf_form form, const void *params) {
    if (count / (data == NULL ? 1 : EDGES_MOST) > model->count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct gf_node **from = malloc((count + 1) * sizeof *from), *node = NULL;
    CUresult result = from == NULL ? CUDA_ERROR_OUT_OF_MEMORY : gf_nodes_of(model, dependencies, count, from);
    /* Before the node is made, which may use up what there is but once. */
    bool right = result == CUDA_SUCCESS && !has_twice(from, data, count);
    for (size_t i = 0; data != NULL && i < count && right; i++) {
        right = gf_is_edge(gf_form_type(form, params), from[i], &data[i]);
    }
    result = result == CUDA_SUCCESS && !right ? CUDA_ERROR_INVALID_VALUE : result;
    result = result == CUDA_SUCCESS ? gf_node_add(model, form, params, &node) : result;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = gf_node_depend(node, from[i], data == NULL ? NULL : &data[i]);
    }
    result = result == CUDA_SUCCESS ? gf_node_publish(node, handle) : result;
    if (result != CUDA_SUCCESS && node != NULL) {
        gf_node_free(node);
    }
    free(from);
    return result;
}

CUresult gf_graph_add(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                      const CUgraphEdgeData *data, size_t count, enum gf_form form, const void *params) {
    gf_graphs_lock();
    CUresult result = add(handle, model, dependencies, data, count, form, params);
    gf_graphs_unlock();
    return result;
}

CUresult gf_graph_add_in(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                         size_t count, enum gf_form form, const void *params, CUcontext context) {
    const CUgraphNodeParams whole = gf_form_in(form, params, context);
    return gf_graph_add(handle, model, dependencies, NULL, count, GF_FORM_ANY, &whole);
}

CUresult gf_graph_add_telling(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                              const CUgraphEdgeData *data, size_t count, enum gf_form form, void *params) {
    gf_graphs_lock();
    CUresult result = add(handle, model, dependencies, data, count, form, params);
    if (result == CUDA_SUCCESS) {
        gf_params_tell(gf_graph_node_find(*handle)->node, form, params);
    }
    gf_graphs_unlock();
    return result;
}

CUresult gf_graph_add_matching(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                               const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params) {
    CUresult result = gf_params_check_context(params);
    return result != CUDA_SUCCESS
               ? result
               : gf_graph_add_telling(handle, model, dependencies, data, count, GF_FORM_ANY, params);
}

CUresult gf_graph_add_value(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                            size_t count, enum gf_form form, uint64_t value) {
    return gf_graph_add(handle, model, dependencies, NULL, count, form, &value);
}

CUresult gf_node_get(const struct gf_node *node, enum gf_form form, void *params) {
    gf_graphs_lock();
    CUresult result = gf_node_params(node, form, params);
    gf_graphs_unlock();
    return result;
}

CUresult gf_node_set(struct gf_node *node, enum gf_form form, const void *params) {
    gf_graphs_lock();
    bool same = gf_form_type(form, params) == node->params.type;
    bool is_child = node->params.type == CU_GRAPH_NODE_TYPE_GRAPH;
    CUresult result = !same                      ? CUDA_ERROR_INVALID_VALUE
                      : is_child                 ? gf_node_set_child(node, form, params)
                      : gf_params_is_fixed(node) ? CUDA_ERROR_NOT_SUPPORTED
                                                 : gf_params_set(node, form, params);
    gf_graphs_unlock();
    return result;
}

CUresult gf_node_set_matching(struct gf_node *node, const CUgraphNodeParams *params) {
    CUresult result = gf_params_check_context(params);
    return result == CUDA_SUCCESS ? gf_node_set(node, GF_FORM_ANY, params) : result;
}

CUresult gf_node_set_value(struct gf_node *node, enum gf_form form, uint64_t value) {
    return gf_node_set(node, form, &value);
}

CUresult gf_node_in_clone(struct gf_model *clone, uint64_t original, CUgraphNode *found) {
    gf_graphs_lock();
    struct gf_node *node = gf_model_find(clone, original);
    gf_graphs_unlock();
    if (node == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *found = (CUgraphNode)node->handle;
    return CUDA_SUCCESS;
}

CUresult gf_condition_create(struct gf_model *model, uint64_t context, unsigned initial, unsigned flags,
                             CUgraphConditionalHandle *value) {
    gf_graphs_lock();
    CUresult result =
        gf_condition_make(model, context == 0 ? gf_context_current_handle() : context, initial, flags, value);
    gf_graphs_unlock();
    return result;
}

/* Edges */

static struct gf_edge *edge_of(struct gf_node *from, struct gf_node *to, const CUgraphEdgeData *data) {
    for (unsigned i = 0; i < to->edge_count; i++) {
        if (to->edges[i].from == from && memcmp(&to->edges[i].data, data, sizeof *data) == 0) {
            return &to->edges[i];
        }
    }
    return NULL;
}

static CUresult connect(struct gf_node *from, struct gf_node *to, const CUgraphEdgeData *data) {
    return from == to || edge_of(from, to, data) != NULL ? CUDA_ERROR_INVALID_VALUE
                                                         : gf_node_depend(to, from, data);
}

static CUresult disconnect(struct gf_node *from, struct gf_node *to, const CUgraphEdgeData *data) {
    struct gf_edge *edge = edge_of(from, to, data);
    if (edge == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memmove(edge, edge + 1, (char *)&to->edges[--to->edge_count] - (char *)edge);
    return CUDA_SUCCESS;
}

struct changes {
    const CUgraphNode *from, *to;
    const CUgraphEdgeData *data;
    CUresult (*apply)(struct gf_node *from, struct gf_node *to, const CUgraphEdgeData *data);
    CUresult (*undo)(struct gf_node *from, struct gf_node *to, const CUgraphEdgeData *data);
};

static CUresult change(struct gf_model *model, const struct changes *c, size_t i, bool undo) {
    static const CUgraphEdgeData plain;
    struct gf_node *ends[2];
    CUresult result = gf_nodes_of(model, (const CUgraphNode[]){c->from[i], c->to[i]}, 2, ends);
    return result != CUDA_SUCCESS
               ? result
               : (undo ? c->undo : c->apply)(ends[0], ends[1], c->data == NULL ? &plain : &c->data[i]);
}

/* All of them or, if one cannot be, none. */
static CUresult change_all(struct gf_model *model, const struct changes *changes, size_t count) {
    CUresult result = CUDA_SUCCESS;
    size_t done = 0;
    while (done < count && (result = change(model, changes, done, false)) == CUDA_SUCCESS) {
        done++;
    }
    while (result != CUDA_SUCCESS && done > 0) {
        change(model, changes, --done, true);
    }
    return result;
}

CUresult gf_graph_connect(struct gf_model *model, const CUgraphNode *from, const CUgraphNode *to,
                          const CUgraphEdgeData *data, size_t count) {
    gf_graphs_lock();
    CUresult result = change_all(model, &(struct changes){from, to, data, connect, disconnect}, count);
    gf_graphs_unlock();
    return result;
}

CUresult gf_graph_disconnect(struct gf_model *model, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *data, size_t count) {
    gf_graphs_lock();
    CUresult result = model->captured ? CUDA_ERROR_INVALID_VALUE
                      : count > 0 && gf_model_has_memory(model)
                          ? CUDA_ERROR_NOT_SUPPORTED
                          : change_all(model, &(struct changes){from, to, data, disconnect, connect}, count);
    gf_graphs_unlock();
    return result;
}

/* Lists: asked without a place for them they say how many there are; a place for none is an error if there
 * are any; too much room is filled with NULL. */

struct list {
    CUgraphNode *one, *other;
    CUgraphEdgeData *data;
    size_t room, count;
    bool lossy; /* an edge has data that nobody asks for */
};

static void list_one(struct list *list, const struct gf_node *one, const struct gf_node *other,
                     const CUgraphEdgeData *data) {
    size_t at = list->count++;
    if (at >= list->room) {
        return;
    }
    if (list->one != NULL) {
        list->one[at] = (CUgraphNode)one->handle;
    }
    if (list->other != NULL && other != NULL) {
        list->other[at] = (CUgraphNode)other->handle;
    }
    if (list->data != NULL && data != NULL) {
        list->data[at] = *data;
    }
    static const CUgraphEdgeData plain;
    list->lossy |= data != NULL && list->data == NULL && memcmp(data, &plain, sizeof plain) != 0;
}

static CUresult finish(struct list *list, bool asked, size_t *count) {
    size_t room = *count;
    if (asked && room == 0 && list->count > 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = !asked || list->count < room ? list->count : room;
    for (size_t at = list->count; asked && at < room; at++) {
        if (list->one != NULL) {
            list->one[at] = NULL;
        }
        if (list->other != NULL) {
            list->other[at] = NULL;
        }
    }
    return asked && list->lossy ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

CUresult gf_graph_nodes(struct gf_model *model, CUgraphNode *nodes, size_t *count, bool roots) {
    struct list list = {.one = nodes, .room = nodes == NULL ? 0 : *count};
    gf_graphs_lock();
    for (struct gf_node *n = roots ? model->last : model->first; n != NULL;
         n = roots ? n->previous : n->next) {
        if (!roots || n->edge_count == 0) {
            list_one(&list, n, NULL, NULL);
        }
    }
    gf_graphs_unlock();
    return finish(&list, nodes != NULL, count);
}

CUresult gf_graph_edges(struct gf_model *model, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                        size_t *count) {
    struct list list = {.one = from, .other = to, .data = data, .room = from == NULL ? 0 : *count};
    if ((from == NULL) != (to == NULL) || (from == NULL && data != NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_graphs_lock();
    for (struct gf_node *n = model->first; n != NULL; n = n->next) {
        for (unsigned i = 0; i < n->edge_count; i++) {
            list_one(&list, n->edges[i].from, n, &n->edges[i].data);
        }
    }
    gf_graphs_unlock();
    return finish(&list, from != NULL, count);
}

CUresult gf_node_dependencies(const struct gf_node *node, CUgraphNode *nodes, CUgraphEdgeData *data,
                              size_t *count) {
    struct list list = {.one = nodes, .data = data, .room = nodes == NULL ? 0 : *count};
    if (nodes == NULL && data != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_graphs_lock();
    for (unsigned i = 0; i < node->edge_count; i++) {
        list_one(&list, node->edges[i].from, NULL, &node->edges[i].data);
    }
    gf_graphs_unlock();
    return finish(&list, nodes != NULL, count);
}

CUresult gf_node_dependents(const struct gf_node *node, CUgraphNode *nodes, CUgraphEdgeData *data,
                            size_t *count) {
    struct list list = {.one = nodes, .data = data, .room = nodes == NULL ? 0 : *count};
    if (nodes == NULL && data != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_graphs_lock();
    for (struct gf_node *n = node->model->first; n != NULL; n = n->next) {
        for (unsigned i = 0; i < n->edge_count; i++) {
            if (n->edges[i].from == node) {
                list_one(&list, n, NULL, &n->edges[i].data);
            }
        }
    }
    gf_graphs_unlock();
    return finish(&list, nodes != NULL, count);
}
