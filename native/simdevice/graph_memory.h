/* Memory that graphs allocate. Its address is its own from the moment the node is added; between a launch
 * that allocates and whatever frees it, it is live. Called with the
 * graphs' lock held. */
#pragma once
#include "graph.h"
#include "range.h"

/* Completes the node of an allocation or of a free. */
CUresult sim_graph_memory_keep(struct sim_node *node);
void sim_graph_memory_share(struct sim_node *to, const struct sim_node *from);
void sim_graph_memory_clear(struct sim_node *node);
/* What a launch of the graph does to its memory, or INVALID_VALUE if something is live that it allocates. */
CUresult sim_graph_memory_launch(struct sim_graph *graph, bool free_first);
