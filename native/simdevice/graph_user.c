#include "graph_user.h"
#include <stdlib.h>
#include <string.h>

struct sim_user_object {
    struct sim_object object;
    void *pointer;
    CUhostFn destroy;
    uint64_t references; /* the program's and those of graphs */
    struct sim_user_object *next_ended;
};

static struct sim_user_object *ended;

static struct sim_user_object *find(CUuserObject handle) {
    void *object = sim_acquire(SIM_HANDLE(handle), SIM_USER_OBJECT);
    if (object)
        sim_release(object);
    return object;
}

static void release(struct sim_user_object *object, uint64_t count) {
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

/* The graph's hold on the object, made if there is none; NULL when memory is exhausted. */
static struct sim_user_hold *hold_of(struct sim_graph *graph, struct sim_user_object *object, bool make) {
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
        release(graph->holds[i].object, graph->holds[i].count);
    free(graph->holds);
    graph->holds = NULL;
    graph->hold_count = 0;
}

bool sim_user_copy_all(const struct sim_graph *from, struct sim_graph *to) {
    for (size_t i = 0; i < from->hold_count; i++) {
        struct sim_user_hold *hold = hold_of(to, from->holds[i].object, true);
        if (!hold)
            return false;
        hold->count += from->holds[i].count;
        hold->object->references += from->holds[i].count;
    }
    return true;
}

CUresult cuUserObjectCreate(CUuserObject *out, void *pointer, CUhostFn destroy, unsigned int references,
                            unsigned int flags) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && destroy && references && references <= INT32_MAX);
    SIM_REQUIRE(flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    struct sim_user_object *object = calloc(1, sizeof *object);
    if (!object)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->pointer = pointer;
    object->destroy = destroy;
    object->references = references;
    if (!sim_handle_open(object, SIM_USER_OBJECT, NULL, free)) {
        free(object);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = SIM_POINTER(CUuserObject, object);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_user_object *object = find(handle);
    SIM_REQUIRE(object && count && count <= INT32_MAX);
    object->references += count;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_user_object *object = find(handle);
    SIM_REQUIRE(object && count && count <= object->references);
    release(object, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                 unsigned int flags) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(graph_handle);
    struct sim_user_object *object = find(handle);
    SIM_REQUIRE(graph && object && count && count <= INT32_MAX);
    SIM_REQUIRE((flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) == 0);
    struct sim_user_hold *hold = hold_of(graph, object, true);
    if (!hold)
        return CUDA_ERROR_OUT_OF_MEMORY;
    hold->count += count;
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) /* else the program's references become the graph's */
        object->references += count;
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(graph_handle);
    struct sim_user_object *object = find(handle);
    SIM_REQUIRE(graph && object && count);
    struct sim_user_hold *hold = hold_of(graph, object, false);
    SIM_REQUIRE(hold && hold->count >= count);
    hold->count -= count;
    if (hold->count == 0)
        *hold = graph->holds[--graph->hold_count];
    release(object, count);
    return CUDA_SUCCESS;
}
