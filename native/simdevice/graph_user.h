/* User objects: what a program wants to end with the graphs that use it. All but the last function are called
 * with the graphs' lock held. */
#pragma once
#include "graph.h"

void sim_user_release_all(struct sim_graph *graph);
bool sim_user_copy_all(const struct sim_graph *from, struct sim_graph *to);
/* Those whose last reference went; the caller has them destroyed once it holds no lock. */
struct sim_user_object *sim_user_take_ended(void);
void sim_user_destroy(struct sim_user_object *ended);
