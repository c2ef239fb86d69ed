/* Conditional values. One is a word of device memory, and its handle the address: what a kernel's
 * cudaGraphSetConditional does is to store there. Called with the graphs' lock held. */
#pragma once
#include "graph.h"

struct sim_condition {
    struct sim_condition *next; /* of the graph */
    struct sim_context *context;
    uint32_t *word;
    uint32_t initial;
    bool has_default;
    bool used; /* by a node */
    unsigned references;
};

/* Gives a conditional node its value, if the parameters are right. */
CUresult sim_condition_claim(struct sim_node *node);
void sim_condition_share(struct sim_node *to, const struct sim_node *from);
void sim_condition_clear(struct sim_node *node);
/* The graph lets go of the values that were made for it. */
void sim_condition_forget(struct sim_graph *graph);
