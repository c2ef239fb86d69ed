/* Memory that a graph allocates. Called with the graphs' lock held. */
#pragma once
#include "graph.h"

/* Completes an allocation's or a free's node. */
CUresult sim_graph_memory_keep(struct sim_node *node, const struct sim_node_work *work);
CUresult sim_graph_memory_copy(struct sim_node *to, const struct sim_node *from);
void sim_graph_memory_clear(struct sim_node *node);
