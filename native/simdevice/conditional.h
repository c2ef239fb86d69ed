/* Conditional nodes and their values. Called with the graphs' lock held. */
#pragma once
#include "graph.h"

CUresult sim_conditional_keep(struct sim_node *node);
