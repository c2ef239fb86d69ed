/* Executable graphs: what was sent to the server once, and what each launch needs of the program's memory. */
#pragma once
#include <pthread.h>

#include "graph.h"
#include "handles.h"

struct gf_exec {
    struct gf_model
        *model; /* a copy of what it was made from, with later updates; `origin` names the originals */
    uint64_t handle, flags;
    struct gf_graph_home *home; /* of one with conditional nodes: what it is on the server */
    uint64_t source;            /* handle of the graph that it was made from */
    bool calls;                 /* this process does something while it runs: see gf_exec_needs_calls */
    bool memory;                /* it allocates or frees */
    uint64_t last_stream;       /* of the last launch, if host memory is involved */
    uint64_t launch_stream;     /* of the last launch */
    uint64_t launch_context;    /* in which that is; 0: there was none */
    uint32_t nodes;             /* on the wire */
    uint64_t context;
    uint64_t ended;            /* contexts and modules, when they were looked at */
    struct gf_node **attended; /* nodes that a launch must look at: host memory, events */
    unsigned attended_count;
    pthread_mutex_t launching; /* one launch uses the staging memory at a time, and may wait for its stream */
};

/* What was made executable uses the home, and lets go of it (graph_condition.c): its handle on the wire. */
uint64_t gf_graph_home_enter(struct gf_graph_home *home);
void gf_graph_home_leave(struct gf_graph_home *home);

/* Makes it executable anew as another graph of the same shape, whose nodes its own know by `below`; the
 * program's handle stays. With the graphs' lock held. */
CUresult gf_exec_remake(struct gf_exec *exec, struct gf_model *want);
/* After an update: makes it executable anew if copies must be made when the graph comes to them from now on.
 */
CUresult gf_exec_recheck(struct gf_exec *exec);
/* After a copy came to lie elsewhere, in the program's memory or the device's: makes it executable anew. Not
 * of a graph with a home. */
CUresult gf_exec_renew(struct gf_exec *exec);

/* Sends nodes and edges of a graph, or one node's new parameters (graph_wire.c). */
CUresult gf_exec_send(struct gf_exec *exec);
CUresult gf_exec_send_node(struct gf_exec *exec, struct gf_node *node);
CUresult gf_exec_send_switch(struct gf_exec *exec, struct gf_node *node, bool enabled);
/* Staging memory for what the host gives or gets once a node does what another one says; what is there stays
 * if it is enough. There may be none, so this comes before the node changes. */
CUresult gf_exec_stage(struct gf_exec *exec, struct gf_node *node, const struct gf_node *as);
/* Before and after a launch: the program's memory goes into staging memory of the device, or comes from it.
 */
CUresult gf_exec_copy_in(struct gf_exec *exec, uint64_t stream);
CUresult gf_exec_copy_out(struct gf_exec *exec, uint64_t stream);
/* Whether copies from and to the program's memory must be made when the graph comes to them, not before and
 * after a launch (graph_host.c). */
bool gf_exec_needs_calls(const struct gf_exec *exec);
/* Lets go of what a graph referred to, when the last launch is over (graph_host.c). */
void gf_exec_release(const struct gf_exec *exec, struct gf_retained *list);
/* The number by which the server asks this process for a node's work, as it is now. */
CUresult gf_exec_renew_call(struct gf_node *node);
