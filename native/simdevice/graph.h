/* Graphs. A node's parameters are kept as CUDA's own CUgraphNodeParams, with what they point to; operations
 * are made from them when the graph runs. One lock guards the shape of all graphs and all captures: functions
 * below are called with it held unless they say otherwise. */
#pragma once
#include "context.h"
#include "module.h"

struct sim_graph;
struct sim_node;
struct sim_graph_memory;
struct sim_condition;
struct sim_plan;

/* What a node does, on its way into one. Nothing here is owned. */
struct sim_node_work {
    CUgraphNodeParams params;
    struct sim_function *function; /* of a kernel */
    const uint8_t *packed_params;  /* of a kernel, as it takes them; NULL: as kernelParams and extra say */
    const CUlaunchAttribute *attributes;
    unsigned attribute_count;
    bool programmatic; /* a captured launch that need not wait for the end of what comes before it */
    struct sim_context *context; /* where it runs if `params` does not say */
};

struct sim_link {
    struct sim_node *from;
    CUgraphEdgeData data;
};

struct sim_links {
    struct sim_link *items;
    size_t count, capacity;
};

struct sim_node {
    struct sim_object object;
    struct sim_graph *graph;
    uint32_t id;
    CUgraphNodeParams params; /* its pointers are into `storage` */
    void *storage;
    size_t storage_bytes;
    CUlaunchAttribute *attributes;
    unsigned attribute_count;
    CUfunction function;         /* of a kernel: the function itself, even if a CUkernel was given */
    struct sim_context *context; /* NULL: wherever the graph is launched */
    unsigned context_ends;       /* how often it had ended then */
    struct sim_graph **bodies;   /* child graph, or those of a conditional node */
    CUgraph *body_handles;
    unsigned body_count;
    struct sim_graph_memory *memory; /* that it allocates or frees */
    struct sim_condition *condition; /* of a conditional node */
    struct sim_plan *body_plans;     /* of one that is instantiated: in which order each body runs */
    struct sim_links dependencies;
    uint64_t original; /* of a clone: the handle of the node that it was made from */
    bool disabled;
    size_t place;             /* in its graph: set by sim_graph_number */
    struct sim_node *partner; /* in another graph: whose place it takes, or who takes its */
};

struct sim_user_hold {
    struct sim_user_object *object;
    unsigned count;
};

struct sim_graph {
    struct sim_object object;
    uint32_t id;
    struct sim_node **nodes; /* in the order of creation */
    size_t node_count, node_capacity;
    uint32_t next_node_id;
    struct sim_node *parent;     /* whose child or body it is; NULL: the program's own */
    struct sim_capture *capture; /* that adds to it */
    struct sim_user_hold *holds;
    size_t hold_count;
    struct sim_condition *conditions; /* made for it */
    unsigned instances;               /* executable graphs made from it that there are */
};

/* ---- graph_find.c; the lock may not be held for the first two ---- */
void sim_graphs_lock(void);
/* Also calls the destructors of user objects that ended meanwhile. */
void sim_graphs_unlock(void);
static inline void sim_graphs_leave(const int *unused) {
    (void)unused;
    sim_graphs_unlock();
}
/* Holds the lock until the end of the block. */
#define SIM_GRAPHS_LOCKED()                                                                                  \
    sim_graphs_lock();                                                                                       \
    __attribute__((cleanup(sim_graphs_leave), unused)) const int graphs_locked_ = 0

/* What a handle stands for as long as the lock is held; NULL: nothing. */
struct sim_graph *sim_graph_find(CUgraph handle);
struct sim_node *sim_node_find(CUgraphNode handle);

/* Sets every node's `place`. */
void sim_graph_number(struct sim_graph *graph);
/* The node of a clone, or of what it contains, that was made from that one; NULL: none. */
struct sim_node *sim_graph_clone_of(struct sim_graph *clone, uint64_t original);
bool sim_graph_contains(const struct sim_graph *graph, CUgraphNodeType type);
/* Whether it allocates or frees. */
bool sim_graph_has_memory(const struct sim_graph *graph);
/* Whether a stream is being captured into the graph, or into one within it; or into one of the node's. */
bool sim_graph_is_captured(const struct sim_graph *graph);
bool sim_node_is_captured(const struct sim_node *node);

/* ---- graph.c ---- */
struct sim_graph *sim_graph_new(struct sim_node *parent);
void sim_graph_free(struct sim_graph *graph);
CUresult sim_graph_clone(const struct sim_graph *graph, struct sim_node *parent, struct sim_graph **clone);
/* Adds a node that does `work`, behind what `links` names (each from this graph, none twice). */
CUresult sim_graph_add(struct sim_graph *graph, const struct sim_node_work *work,
                       const struct sim_links *links, struct sim_node **node);
void sim_node_remove(struct sim_node *node);
/* Makes the node do `work`, if that can be done at all. */
CUresult sim_node_assign(struct sim_node *node, const struct sim_node_work *work);
/* The same, in the context and with the attributes that it has. */
CUresult sim_node_assign_kept(struct sim_node *node, const struct sim_node_work *work);
/* Makes the node do what another one does. */
CUresult sim_node_copy(struct sim_node *to, const struct sim_node *from);

/* ---- graph_edges.c ---- */
bool sim_links_add(struct sim_links *links, struct sim_node *from, const CUgraphEdgeData *data);
/* The same, if there is no such link. */
bool sim_links_include(struct sim_links *links, struct sim_node *from, const CUgraphEdgeData *data);
/* Links to nodes of a graph as an API call lists them; the caller frees the items, also after an error. */
CUresult sim_links_read(struct sim_graph *graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                        size_t count, struct sim_links *links);
bool sim_edge_is_plain(const CUgraphEdgeData *data);
/* Whether such an edge may leave the node. */
CUresult sim_edge_check(const struct sim_node *from, const CUgraphEdgeData *data);

/* ---- node.c: what a node does, but for graphs, memory and conditions of its own ---- */
/* Looks for what the parameters name, before the lock is taken (a library may have to load the kernel first),
 * and lets go of it. */
CUresult sim_node_work_begin(struct sim_node_work *work);
void sim_node_work_end(struct sim_node_work *work);
/* Fills a node from `work`; what it holds after an error is for the caller to clear. */
CUresult sim_node_keep(struct sim_node *node, const struct sim_node_work *work);
CUresult sim_node_copy_work(struct sim_node *to, const struct sim_node *from);
/* Whether contexts that nodes of the graph work in, and of graphs within it, are those that they were given,
 * and sound. Nodes that are switched off need none. */
CUresult sim_graph_check_contexts(const struct sim_graph *graph);
/* A kernel's parameters for the same kernel go where those are that they replace: the program was given
 * pointers there, by which it may set them again. */
void sim_node_keep_place(struct sim_node *fresh, struct sim_node *old);
/* The operation that does a node's work; *op is NULL where the work is none (an empty node) or is done by the
 * launch itself. Needs no lock. */
CUresult sim_node_op(const struct sim_node *node, struct sim_op **op);

/* ---- the operations of nodes, made and checked where the calls of a stream are; need no lock ---- */
CUresult sim_copy_op(const CUDA_MEMCPY3D *params, struct sim_op **op);
CUresult sim_memset_op(const CUDA_MEMSET_NODE_PARAMS_v2 *params, struct sim_op **op);
CUresult sim_host_op(const CUDA_HOST_NODE_PARAMS_v2 *params, struct sim_op **op);
#define SIM_BATCH_MOST 256 /* words, before any of them is read */
CUresult sim_batch_op(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *params, struct sim_op **op);
CUresult sim_launch_op(struct sim_context *context, struct sim_function *function,
                       const CUlaunchConfig *config, void **params, void **extra, unsigned multiprocessors,
                       struct sim_op **op);
/* Answers what a kernel asks (exec/execute.h). */
int64_t sim_asked_by_kernel(struct sim_context *context, const struct sim_kernel_info *info, uint32_t what,
                            uint64_t of, uint64_t more, uint64_t most);
/* A kernel's parameters as it takes them. */
CUresult sim_launch_params(uint8_t *to, const struct sim_kernel_info *info, void **params, void **extra);
