/* Graphs as the guest holds them: nodes, edges and parameters, which cost no message (DESIGN.md, "Graphs").
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

struct gf_node;

struct gf_edge {
    struct gf_node *from;
    CUgraphEdgeData data;
};

/* The nodes of a graph, of a child graph, or of what an executable graph was made from. */
struct gf_model {
    struct gf_node *first, *last; /* in the order in which they were added */
    unsigned count, next_id;
    uint64_t handle;        /* 0: no program knows it */
    struct gf_node *parent; /* whose child graph or body it is */
    struct gf_retained *retained;
    struct gf_condition *conditions; /* values that were made for it (graph_condition.c) */
    struct gf_graph_home *home;      /* of one with such, or with a body that has such */
    uint32_t wire_graph;             /* of a conditional node's body: its number on the wire */
    bool captured;                   /* a stream is being captured into it */
    unsigned instances;              /* executable graphs made from it that there are */
};

struct gf_node {
    struct gf_model *model;
    struct gf_node *previous, *next;
    uint64_t handle; /* 0: no program knows it */
    uint64_t origin; /* handle of what it is a copy of */
    uint32_t id;
    CUgraphNodeParams params;
    uint64_t context;      /* in which it works; 0: wherever the graph is launched */
    uint32_t context_ends; /* how often that had ended then */
    void *memory;          /* what `params` points to */
    uint32_t memory_size;  /* with pointers into it */
    uint32_t value_bytes;  /* values at its beginning: a kernel's parameters, an array */
    CUlaunchAttribute *attributes;
    unsigned attribute_count;
    struct gf_edge *edges; /* what it depends on */
    unsigned edge_count, edge_room;
    struct gf_model **bodies; /* a child graph, or those of a conditional node */
    CUgraph *body_handles;
    unsigned body_count;
    uint32_t conditional;               /* of a conditional node: its number on the wire */
    struct gf_graph_memory *allocation; /* that it makes or frees */
    /* Of a walk over the model. */
    unsigned mark, walked;
    struct gf_node *below;
    /* Of an executable graph: where it stands on the wire, and memory of the device for what the host gives
     * or gets. */
    uint32_t wire_first, wire_last;
    uint64_t staging, staging_size;
    uint64_t call; /* what this process does at a launch (graph_host.c); 0: nothing */
    bool disabled;
};

/* How functions give and take a node's parameters: a part of CUgraphNodeParams. */
enum gf_form {
    GF_FORM_KERNEL_V1,
    GF_FORM_KERNEL,
    GF_FORM_MEMCPY,
    GF_FORM_MEMSET,
    GF_FORM_HOST,
    GF_FORM_CHILD,
    GF_FORM_EMPTY,
    GF_FORM_RECORD,
    GF_FORM_WAIT,
    GF_FORM_ALLOC,
    GF_FORM_FREE,
    GF_FORM_BATCH,
    GF_FORM_ANY, /* a whole CUgraphNodeParams, which says its type */
};

/* Models change under one lock. */
void gf_graphs_lock(void);
void gf_graphs_unlock(void);

struct gf_model *gf_model_new(void);
void gf_model_free(struct gf_model *model);
/* A copy without handles; NULL: no memory. `origin` of its nodes are the handles of those of `model`. */
struct gf_model *gf_model_copy(const struct gf_model *model);
/* Makes a graph's and its nodes' handles, below `owner`. */
CUresult gf_model_publish(struct gf_model *model, void *owner, CUgraph *handle);
/* All nodes, dependencies first, in `order`, which has room for `count`. False: there is a cycle. */
bool gf_model_order(struct gf_model *model, struct gf_node **order);
/* Sets `mark` of some nodes and of all that come before them, and of no others. False: no memory. */
bool gf_model_mark(struct gf_model *model, const struct gf_edge *ends, unsigned count);
struct gf_node *gf_model_find(struct gf_model *model, uint64_t origin);

/* A node without handle and edges at the end of a model. */
CUresult gf_node_add(struct gf_model *model, enum gf_form form, const void *params, struct gf_node **added);
CUresult gf_node_publish(struct gf_node *node, CUgraphNode *handle);
/* Puts another child graph in the place of a published node's, whose handles end. */
CUresult gf_node_set_child(struct gf_node *node, enum gf_form form, const void *params);
/* Whether such an edge may lead from a node to one of that type. */
bool gf_is_edge(CUgraphNodeType type, const struct gf_node *from, const CUgraphEdgeData *data);
CUresult gf_node_depend(struct gf_node *node, struct gf_node *from, const CUgraphEdgeData *data);
bool gf_node_depends(const struct gf_node *node, const struct gf_node *from);
void gf_node_free(struct gf_node *node);
/* The nodes of handles, each of `model`, into `nodes`. */
CUresult gf_nodes_of(const struct gf_model *model, const CUgraphNode *handles, size_t count,
                     struct gf_node **nodes);

/* Replaces a node's parameters; on failure it stays as it was. */
CUresult gf_params_set(struct gf_node *node, enum gf_form form, const void *params);
CUresult gf_params_copy(struct gf_node *node, const struct gf_node *from);
/* Makes what `params` points to the node's own, if a node of its kind may hold that (graph_take.c); of all
 * kinds but child graphs. */
CUresult gf_params_take(struct gf_node *node);
/* Whether a kernel's function is of the context that is named beside it, if one is. */
CUresult gf_params_check_context(const CUgraphNodeParams *params);
/* Whether the contexts that nodes work in, those of graphs within it too, are the ones that they were given,
 * and sound. Nodes that are switched off need none. */
CUresult gf_model_check_contexts(const struct gf_model *model);
/* Whether the functions and events that nodes name, those of graphs within it too, are there still. */
CUresult gf_model_check_named(const struct gf_model *model);
CUresult gf_node_check_named(const struct gf_node *node); /* of one alone */
/* The event that a node records or waits for; NULL: its work is another. */
CUevent gf_node_event(const struct gf_node *node);
void gf_params_free(struct gf_node *node);
CUresult gf_node_params(const struct gf_node *node, enum gf_form form, void *params);
/* The whole parameters of a copy, a fill or operations on words, in that context. */
CUgraphNodeParams gf_form_in(enum gf_form form, const void *params, CUcontext context);
/* What the node made, into parameters of the program. */
void gf_params_tell(const struct gf_node *node, enum gf_form form, void *params);
/* Whether a node stays what it is: what it owns cannot be replaced. */
bool gf_params_is_fixed(const struct gf_node *node);
/* Of a kernel: of a launch's attributes those that nodes have, of each kind the last one. */
CUresult gf_params_attributes(struct gf_node *node, const CUlaunchAttribute *attributes, unsigned count);
CUgraphNodeType gf_form_type(enum gf_form form, const void *params);
/* Whether an executable graph's node may become what another one is. */
CUgraphExecUpdateResult gf_params_may_replace(const struct gf_node *node, const struct gf_node *by);
bool gf_params_equal(const struct gf_node *one, const struct gf_node *other);
/* Whether a copy reads or writes the program's memory. */
bool gf_params_reads_host(const struct gf_node *node);
bool gf_params_writes_host(const struct gf_node *node);
/* Whether copies do so alike. */
bool gf_params_lie_alike(const struct gf_node *one, const struct gf_node *other);
/* Whether a graph, or one within it, has such a node. */
bool gf_model_has(const struct gf_model *model, CUgraphNodeType type);
/* Whether a stream is being captured into a graph, or into one within it; or into one of a node's. */
bool gf_model_is_captured(const struct gf_model *model);
bool gf_node_is_captured(const struct gf_node *node);
/* Whether its memory is there once only. */
bool gf_model_has_memory(const struct gf_model *model);
/* Whether there is but one of it: what it allocates or decides by cannot be copied. */
bool gf_model_is_single(const struct gf_model *model);

/* Graphs within a node, which takes them, also when it fails. */
CUresult gf_node_keep_bodies(struct gf_node *node, struct gf_model **bodies, unsigned count);

/* Conditional nodes (graph_condition.c). */
/* A value for nodes of the model, in that context. */
CUresult gf_condition_make(struct gf_model *model, uint64_t context, unsigned initial, unsigned flags,
                           CUgraphConditionalHandle *value);
/* Gives a node its value, and its place on the server, if the parameters are right; *first: the number of its
 * first body there. */
CUresult gf_condition_take(struct gf_node *node, uint32_t *first);
/* The node ends, and with it its place on the server. */
void gf_condition_clear(struct gf_node *node);
/* The model ends: the server is told as soon as nothing that was made of it runs any more. */
void gf_condition_forget(struct gf_model *model);
/* Whether a graph may become executable, as far as conditional nodes are concerned. */
CUresult gf_condition_check(const struct gf_model *model, CUgraphInstantiateResult *why);
/* Whether a node is part of a conditional node's body. */
bool gf_node_is_in_body(const struct gf_node *node);

/* Memory of nodes (graph_memory.c): it has its address from the node on, and is there for the program from a
 * launch until it is freed. */
CUresult gf_graph_memory_take(struct gf_node *node);
void gf_graph_memory_share(struct gf_node *node, const struct gf_node *from);
void gf_graph_memory_clear(struct gf_node *node);
/* What the launch of a graph allocates and frees; INVALID_VALUE: something of it was not freed since the last
 * one, and is not to be. */
CUresult gf_graph_memory_launch(const struct gf_model *model, bool free_first);
/* Frees what begins there from outside of a graph. False: nothing of a graph begins there. */
bool gf_graph_memory_free(uint64_t address, CUresult *result);
