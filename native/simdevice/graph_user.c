#include "graph_user.h"
#include <stdlib.h>
#include <string.h>

static struct sim_user_object *ended;

struct sim_user_object *sim_user_find(CUuserObject handle) {
    void *object = sim_acquire(SIM_HANDLE(handle), SIM_USER_OBJECT);
    if (object)
        sim_release(object);
    return object;
}

void sim_user_release(struct sim_user_object *object, uint64_t count) {
    object->references -= count;
    if (object->references == 0 && sim_handle_close(object->object.handle, SIM_USER_OBJECT)) {
        object->next_ended = ended;
        ended = object;
    }
}

struct sim_user_object *sim_user_take_ended(void) {
    struct sim_user_object *first = ended;
    ended = NULL;
    return first;
}

void sim_user_destroy(struct sim_user_object *object) {
    while (object) {
        struct sim_user_object *next = object->next_ended;
        sim_host_function(true);
        object->destroy(object->pointer);
        sim_host_function(false);
        sim_release(object);
        object = next;
    }
}

struct sim_user_hold *sim_user_hold(struct sim_graph *graph, struct sim_user_object *object, bool make) {
    for (size_t i = 0; i < graph->hold_count; i++)
        if (graph->holds[i].object == object)
            return &graph->holds[i];
    struct sim_user_hold *holds =
        make ? realloc(graph->holds, (graph->hold_count + 1) * sizeof *holds) : NULL;
    if (!holds)
        return NULL;
    graph->holds = holds;
    holds[graph->hold_count] = (struct sim_user_hold){object, 0};
    return &holds[graph->hold_count++];
}

void sim_user_release_all(struct sim_graph *graph) {
    for (size_t i = 0; i < graph->hold_count; i++)
        sim_user_release(graph->holds[i].object, graph->holds[i].count);
    free(graph->holds);
    graph->holds = NULL;
    graph->hold_count = 0;
}

bool sim_user_copy_all(const struct sim_graph *from, struct sim_graph *to) {
    for (size_t i = 0; i < from->hold_count; i++) {
        struct sim_user_hold *hold = sim_user_hold(to, from->holds[i].object, true);
        if (!hold)
            return false;
        hold->count += from->holds[i].count;
        hold->object->references += from->holds[i].count;
    }
    return true;
}
