/* User objects: what a program wants to end with the graphs that use it. All but the last function are called
 * with the graphs' lock held. */
#pragma once
#include "graph.h"

struct sim_user_object {
    struct sim_object object;
    void *pointer;
    CUhostFn destroy;
    uint64_t references; /* the program's and those of graphs */
    struct sim_user_object *next_ended;
};

struct sim_user_object *sim_user_find(CUuserObject handle);
void sim_user_release(struct sim_user_object *object, uint64_t count);
/* The graph's hold on the object; NULL: it has none, or with `make` memory is exhausted. */
struct sim_user_hold *sim_user_hold(struct sim_graph *graph, struct sim_user_object *object, bool make);
void sim_user_release_all(struct sim_graph *graph);
bool sim_user_copy_all(const struct sim_graph *from, struct sim_graph *to);
/* Those whose last reference went; the caller has them destroyed once it holds no lock. */
struct sim_user_object *sim_user_take_ended(void);
void sim_user_destroy(struct sim_user_object *ended);
