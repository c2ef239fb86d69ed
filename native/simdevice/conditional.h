/* Conditional nodes. A conditional value is a word of device memory, and its handle the address: what a
 * kernel's cudaGraphSetConditional does is to store there. Called with the graphs' lock held unless they say
 * otherwise. */
#pragma once
#include "graph.h"

struct sim_exec;

/* Completes the node: makes its bodies. */
CUresult sim_conditional_keep(struct sim_node *node);
void sim_conditional_share(struct sim_node *to, const struct sim_node *from);
void sim_conditional_clear(struct sim_node *node);
/* The graph lets go of the values that were made for it. */
void sim_conditional_forget(struct sim_graph *graph);
/* What an executable copy of `graph`, `exec`, must be refused for; plans its bodies. */
CUresult sim_conditional_prepare(const struct sim_graph *graph, struct sim_exec *exec,
                                 CUgraphInstantiateResult *why);

/* The operation that runs the node's bodies, of an executable graph whose lock is held; the graphs' is not.
 */
CUresult sim_conditional_op(struct sim_exec *exec, struct sim_node *node, struct sim_op **op);
/* The operation that gives the graph's values their defaults; *op NULL: there are none. The same locks. */
CUresult sim_conditional_defaults_op(struct sim_exec *exec, struct sim_op **op);
