/* Conditional nodes of executable graphs. */
#pragma once
#include "graph.h"

struct sim_exec;

/* What an executable copy of `graph`, `exec`, must be refused for; plans its bodies. The graphs' lock is
 * held. */
CUresult sim_conditional_prepare(const struct sim_graph *graph, struct sim_exec *exec,
                                 CUgraphInstantiateResult *why);

/* The operation of a node of an executable graph whose lock is held; the graphs' is not. That of a
 * conditional one runs its bodies, all of whose operations are made with it. */
CUresult sim_exec_op(const struct sim_node *node, struct sim_op **op);
/* The operation that gives the graph's values their defaults; *op NULL: there are none. The same locks. */
CUresult sim_conditional_defaults_op(struct sim_exec *exec, struct sim_op **op);
