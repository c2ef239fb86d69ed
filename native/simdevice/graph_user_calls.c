#include "graph_user.h"
#include <stdlib.h>

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
    struct sim_user_object *object = sim_user_find(handle);
    SIM_REQUIRE(object && count && count <= INT32_MAX);
    object->references += count;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_user_object *object = sim_user_find(handle);
    SIM_REQUIRE(object && count && count <= object->references);
    sim_user_release(object, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                 unsigned int flags) {
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(graph_handle);
    struct sim_user_object *object = sim_user_find(handle);
    SIM_REQUIRE(graph && object && count && count <= INT32_MAX);
    SIM_REQUIRE((flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) == 0);
    struct sim_user_hold *hold = sim_user_hold(graph, object, true);
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
    struct sim_user_object *object = sim_user_find(handle);
    SIM_REQUIRE(graph && object && count);
    struct sim_user_hold *hold = sim_user_hold(graph, object, false);
    SIM_REQUIRE(hold && hold->count >= count);
    hold->count -= count;
    if (hold->count == 0)
        *hold = graph->holds[--graph->hold_count];
    sim_user_release(object, count);
    return CUDA_SUCCESS;
}
