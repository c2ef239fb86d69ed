/* Executable graphs: a copy of the graph of their own, and the order in which it is run. */
#pragma once
#include "graph.h"

#define SIM_NO_STEP UINT32_MAX

/* One node's turn, or (no node) a point where a child graph begins or ends. */
struct sim_step {
    struct sim_node *node;
    uint32_t first_dependency, dependency_count; /* in the plan's list of steps */
    uint32_t lane;
    bool ends_lane; /* nobody in the graph waits for it */
};

/* Steps one after the other; those that do not wait for each other are in different lanes. */
struct sim_plan {
    struct sim_step *steps;
    uint32_t step_count, step_capacity;
    uint32_t *dependencies;
    uint32_t dependency_count, dependency_capacity;
    struct sim_lane {
        struct sim_context *context;
        struct sim_stream *stream; /* made when first needed; holds a reference */
        uint32_t last;             /* its last step so far */
    } *lanes;
    uint32_t lane_count;
};

/* What launches that are under way may still run, of an executable graph that has become another one. */
struct sim_retired {
    struct sim_retired *next;
    uint64_t launches; /* that there had been by then */
    struct sim_graph *graph;
    struct sim_plan plan;
};

struct sim_exec {
    struct sim_object object;
    uint32_t id;
    cuuint64_t flags;
    pthread_mutex_t lock; /* its graph's nodes, the plan's streams, `last`: taken before the graphs' lock */
    struct sim_graph *graph;
    struct sim_plan plan;
    struct sim_op *last; /* the end of the last launch, or NULL */
    uint64_t launches;
    struct sim_retired *retired; /* the last one first */
    uint64_t source; /* the handle of the graph that it was made from, or by which it was last remade */
    bool has_memory, has_conditions;
};

/* The executable graph of a handle, with a reference for the caller. */
CUresult sim_exec_acquire(CUgraphExec handle, struct sim_exec **exec);
/* Whether the event that a node names, or all functions and events that a graph and those within it name, are
 * there still. */
CUresult sim_exec_check_event(const CUgraphNodeParams *params);
CUresult sim_exec_check_named(const struct sim_graph *graph);
/* INVALID_VALUE if the graph has a cycle. */
CUresult sim_plan_make(struct sim_plan *plan, const struct sim_graph *graph, struct sim_context *context);
void sim_plan_free(struct sim_plan *plan);
/* Makes it what the graph is, whose nodes know by `partner` whose place they take; launches that are under
 * way go on as they began. Both locks are held. */
CUresult sim_exec_remake(struct sim_exec *exec, struct sim_graph *graph);
/* Lets go of what launches up to that one may have run: they are over. */
void sim_exec_free_retired(struct sim_exec *exec, uint64_t launches);
/* What `from` refers to takes the place of what `to`, a part of it, referred to; that is let go of when no
 * launch is under way. Both locks are held. */
CUresult sim_exec_take_holds(struct sim_exec *exec, struct sim_graph *to, const struct sim_graph *from);
/* The context in which they were made has ended: so do they. */
void sim_execs_forget_context(struct sim_context *context);
CUresult sim_exec_launch(struct sim_exec *exec, struct sim_stream *stream);
