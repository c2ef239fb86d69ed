/* Executable graphs: made once, launched with one call that nobody waits for. */
#include "graph_exec.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "capture.h"
#include "channel.h"
#include "context.h"
#include "freed.h"
#include "gpuferry/messages.h"
#include "host_call.h"
#include "host_memory.h"
#include "module.h"
#include "objects.h"
#include "stream.h"
#include "window.h"

#define AUTO_FREE CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH

/* With the graphs' lock held. */
static void free_exec(struct gf_exec *exec) {
    struct gf_graph *source = gf_graph_find((CUgraph)exec->source);
    if (source != NULL) {
        source->model->instances--;
    }
    for (unsigned i = 0; i < exec->attended_count; i++) {
        gf_host_call_drop(exec->attended[i]->call);
        if (exec->attended[i]->staging != 0) {
            gf_window_free(exec->attended[i]->staging, 0);
        }
    }
    if (exec->home != NULL) {
        gf_graph_home_leave(exec->home);
    }
    gf_model_free(exec->model);
    free(exec->attended);
    free(exec);
}

/* What it refers to, and the graphs within it. */
static void release_all(const struct gf_exec *exec, struct gf_model *model) {
    gf_exec_release(exec, model->retained);
    model->retained = NULL;
    for (struct gf_node *n = model->first; n != NULL; n = n->next) {
        for (unsigned i = 0; i < n->body_count; i++) {
            release_all(exec, n->bodies[i]);
        }
    }
}

void gf_graph_exec_ended(struct gf_object *object) {
    struct gf_exec *exec = ((struct gf_graph_exec *)object)->exec;
    if (exec != NULL) { /* else a home, which knows who needs it */
        gf_graphs_lock();
        free_exec(exec);
        gf_graphs_unlock();
    }
}

CUresult gf_cuGraphExecDestroy(CUgraphExec handle) {
    struct gf_graph_exec *object;
    uint64_t wire;
    CUresult result = gf_graph_exec_look_up(handle, &object, &wire);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    bool has_home = object->exec->home != NULL;
    struct gf_object *ended = gf_object_end(object, wire);
    if (ended == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_graphs_lock();
    release_all(object->exec, object->exec->model);
    gf_graphs_unlock();
    struct gf_req_cuGraphExecDestroy request = {.hGraphExec = wire};
    result = has_home ? CUDA_SUCCESS : gf_send_struct(GF_OP_cuGraphExecDestroy, &request);
    gf_objects_release(ended);
    return result;
}

/* Appends what a launch must look at to the list, or what must end with the graph, child graphs included;
 * without a list it only counts. Bodies of conditional nodes have nothing of it. */
static unsigned attend(struct gf_model *model, struct gf_node **list) {
    unsigned count = 0;
    for (struct gf_node *n = model->first; n != NULL; n = n->next) {
        if (n->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
            count += attend(n->bodies[0], list == NULL ? NULL : list + count);
        } else if (gf_node_event(n) != NULL || n->params.type == CU_GRAPH_NODE_TYPE_HOST ||
                   gf_params_reads_host(n) || gf_params_writes_host(n) || n->staging != 0 || n->call != 0) {
            if (list != NULL) {
                list[count] = n;
            }
            count++;
        }
    }
    return count;
}

/* What its kernels name of page-locked memory is the device's before it is decided how copies are made. Those
 * of other contexts share it when they are sent. */
static CUresult share(const struct gf_model *model) {
    CUresult result = CUDA_SUCCESS;
    for (const struct gf_node *n = model->first; n != NULL && result == CUDA_SUCCESS; n = n->next) {
        if (n->params.type == CU_GRAPH_NODE_TYPE_KERNEL && n->context == gf_context_current_handle()) {
            result = gf_host_share_params(n->memory, n->value_bytes);
        }
        for (unsigned i = 0; i < n->body_count && result == CUDA_SUCCESS; i++) {
            result = share(n->bodies[i]);
        }
    }
    return result;
}

/* What a launch must look at of the graph as it is now. */
static bool attend_all(struct gf_exec *exec) {
    unsigned count = attend(exec->model, NULL);
    struct gf_node **list = malloc((count + 1) * sizeof *list);
    if (list == NULL) {
        return false;
    }
    attend(exec->model, list);
    free(exec->attended);
    exec->attended = list;
    exec->attended_count = count;
    return true;
}

static struct gf_exec *new_exec(struct gf_model *model, uint64_t flags) {
    struct gf_exec *exec = calloc(1, sizeof *exec);
    struct gf_model *copy = exec == NULL ? NULL : gf_model_copy(model);
    if (copy == NULL) {
        free(exec);
        return NULL;
    }
    exec->model = copy;
    exec->launching = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    exec->flags = flags;
    exec->context = gf_context_current_handle();
    if (!attend_all(exec)) {
        free_exec(exec);
        return NULL;
    }
    exec->calls = gf_exec_needs_calls(exec);
    exec->memory = gf_model_has_memory(copy);
    exec->source = model->handle;
    model->instances++;
    return exec;
}

static CUresult send_exec(struct gf_exec *exec) {
    struct gf_req_sessionGraphBegin begin = {.exec = exec->handle};
    struct gf_req_sessionGraphReady ready = {.exec = exec->handle, .flags = exec->flags};
    struct gf_req_cuGraphExecDestroy destroy = {.hGraphExec = exec->handle};
    CUresult result = exec->home == NULL ? gf_send_struct(GF_OP_sessionGraphBegin, &begin) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = gf_exec_send(exec);
    if (result == CUDA_SUCCESS) {
        result = gf_call_struct(GF_OP_sessionGraphReady, &ready, sizeof ready, NULL, 0);
    }
    if (result != CUDA_SUCCESS && exec->home == NULL) {
        gf_send_struct(GF_OP_cuGraphExecDestroy, &destroy);
    }
    return result;
}

/* What nodes of an executable graph keep when it is remade: whose they are, and whether they are switched
 * off. `below` leads from one to the node that takes its place, and from that to its copy. */
static CUresult keep_places(struct gf_exec *made, const struct gf_model *before) {
    CUresult result = CUDA_SUCCESS;
    for (const struct gf_node *n = before->first; n != NULL && result == CUDA_SUCCESS; n = n->next) {
        struct gf_node *now = n->below->below;
        now->origin = n->origin;
        now->disabled = n->disabled;
        result = n->disabled ? gf_exec_send_switch(made, now, false) : CUDA_SUCCESS;
        for (unsigned i = 0; i < n->body_count && result == CUDA_SUCCESS; i++) {
            result = keep_places(made, n->bodies[i]);
        }
    }
    return result;
}

static CUresult switch_off(struct gf_exec *exec, struct gf_model *model) {
    CUresult result = CUDA_SUCCESS;
    for (struct gf_node *n = model->first; n != NULL && result == CUDA_SUCCESS; n = n->next) {
        if (n->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
            result = switch_off(exec, n->bodies[0]);
        } else if (n->disabled) {
            result = gf_exec_send_switch(exec, n, false);
        }
    }
    return result;
}

/* Something else takes its handle there. What was launched before may still use the staging memory. */
static CUresult end_on_server(const struct gf_exec *exec) {
    struct gf_req_cuGraphExecDestroy destroy = {.hGraphExec = exec->handle};
    CUresult result = gf_send(GF_OP_sessionFence, NULL, 0);
    return result == CUDA_SUCCESS ? gf_send_struct(GF_OP_cuGraphExecDestroy, &destroy) : result;
}

/* As its nodes are now. */
static CUresult send_anew(struct gf_exec *exec) {
    uint32_t current = gf_thread.context_id;
    gf_thread.context_id = gf_handle_slot(exec->context) + 1; /* it is that context's */
    CUresult result = end_on_server(exec);
    result = result == CUDA_SUCCESS ? send_exec(exec) : result;
    result = result == CUDA_SUCCESS ? switch_off(exec, exec->model) : result;
    gf_thread.context_id = current;
    return result;
}

CUresult gf_exec_recheck(struct gf_exec *exec) {
    if (exec->calls || exec->home != NULL || !gf_exec_needs_calls(exec)) {
        return CUDA_SUCCESS;
    }
    exec->calls = true;
    return send_anew(exec);
}

CUresult gf_exec_renew(struct gf_exec *exec) {
    if (!attend_all(exec)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec->calls = exec->calls || gf_exec_needs_calls(exec);
    return send_anew(exec);
}

/* A graph that has no conditional nodes any more is made executable like others. */
static struct gf_graph_home *home_of(const struct gf_model *model) {
    return gf_model_has(model, CU_GRAPH_NODE_TYPE_CONDITIONAL) ? model->home : NULL;
}

CUresult gf_exec_remake(struct gf_exec *exec, struct gf_model *want) {
    struct gf_graph_home *home = home_of(want);
    struct gf_exec *made = new_exec(want, exec->flags);
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->context = exec->context;
    bool at_home = home != NULL && exec->home == home;
    CUresult result = CUDA_SUCCESS;
    if (home == NULL) {
        made->handle = exec->handle;
        result = end_on_server(exec);
    } else {
        if (at_home) { /* the server has one at a time */
            gf_graph_home_leave(exec->home);
            exec->home = NULL;
        }
        made->home = home;
        made->handle = gf_graph_home_enter(home);
    }
    result = result == CUDA_SUCCESS ? send_exec(made) : result;
    result = result == CUDA_SUCCESS ? keep_places(made, exec->model) : result;
    if (result == CUDA_SUCCESS) {
        struct gf_exec before = *exec;
        *exec = *made;
        *made = before;
        release_all(made, made->model);
    } else if (home == NULL && send_exec(exec) == CUDA_SUCCESS) { /* it stays what it was */
        switch_off(exec, exec->model);
    }
    free_exec(made);
    if (result != CUDA_SUCCESS && at_home) { /* what it was went with the node that decided: it is nothing */
        exec->home = home;
        gf_graph_home_enter(home);
    }
    return result;
}

static CUresult may_instantiate(const struct gf_model *model, CUgraphInstantiateResult *why) {
    return model->parent != NULL || model->captured            ? CUDA_ERROR_INVALID_VALUE
           : model->instances > 0 && gf_model_is_single(model) ? CUDA_ERROR_NOT_SUPPORTED
                                                               : gf_condition_check(model, why);
}

static CUresult instantiate(CUgraphExec *handle, struct gf_model *model, uint64_t flags,
                            CUgraphInstantiateResult *why) {
    const uint64_t known = AUTO_FREE | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    bool by_device = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
    if ((flags & ~(known | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)) != 0 ||
        (by_device && (flags & AUTO_FREE) != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (by_device) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    uint64_t made;
    gf_graphs_lock();
    CUresult result = may_instantiate(model, why);
    result = result == CUDA_SUCCESS ? gf_model_check_named(model) : result;
    result = result == CUDA_SUCCESS ? share(model) : result;
    struct gf_exec *exec = result == CUDA_SUCCESS ? new_exec(model, flags) : NULL;
    struct gf_graph_exec *object = exec == NULL ? NULL : gf_graph_exec_new(&made);
    if (result == CUDA_SUCCESS && object == NULL) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (result == CUDA_SUCCESS) {
        object->exec = exec;
        object->flags = flags;
        exec->home = home_of(model);
        exec->handle = exec->home == NULL ? made : gf_graph_home_enter(exec->home);
        result = send_exec(exec);
    }
    if (result == CUDA_SUCCESS) {
        gf_object_publish(object, made, gf_context_current());
        *handle = (CUgraphExec)made;
    } else if (exec != NULL) {
        free_exec(exec);
        if (object != NULL) {
            gf_object_discard(object);
        }
    }
    gf_graphs_unlock();
    return result;
}

CUresult gf_graph_instantiate(CUgraphExec *handle, struct gf_model *model, uint64_t flags) {
    CUgraphInstantiateResult why;
    return instantiate(handle, model, flags, &why);
}

/* Nothing is to be brought anywhere, but the stream must be one that work may go into. */
static CUresult may_upload(CUstream stream) {
    uint64_t wire;
    CUresult result = gf_wire_stream(stream, &wire);
    return result == CUDA_SUCCESS && gf_capture_any() ? gf_capture_launch(stream) : result;
}

CUresult gf_graph_instantiate_with(CUgraphExec *handle, struct gf_model *model,
                                   CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    /* With flags that are known, a cycle is all else that may be invalid. */
    CUgraphInstantiateResult why =
        params->flags < 16 ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE : CUDA_GRAPH_INSTANTIATE_ERROR;
    cuuint64_t flags = params->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    CUgraphExec made;
    CUresult result = instantiate(&made, model, flags, &why);
    if (result == CUDA_SUCCESS && flags != params->flags) {
        result = may_upload(params->hUploadStream);
        why = CUDA_GRAPH_INSTANTIATE_ERROR;
        if (result != CUDA_SUCCESS) {
            gf_cuGraphExecDestroy(made);
        }
    }
    if (result == CUDA_SUCCESS) {
        *handle = made;
    }
    params->hErrNode_out = NULL;
    params->result_out = result == CUDA_SUCCESS               ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                         : result == CUDA_ERROR_INVALID_VALUE ? why
                                                              : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

static void mark_recorded(const struct gf_exec *exec) {
    for (unsigned i = 0; i < exec->attended_count; i++) {
        const struct gf_node *node = exec->attended[i];
        struct gf_event *event = node->params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD
                                     ? gf_event_find(node->params.eventRecord.event)
                                     : NULL;
        if (event != NULL) {
            gf_event_ended(&event->object); /* what a capture has recorded */
            atomic_fetch_add(&event->records, 1);
            atomic_store(&event->recorded, true);
            gf_event_marked(event, exec->launch_stream);
        }
    }
}

static CUresult launch_with_copies(struct gf_exec *exec, struct gf_req_sessionGraphLaunch *request) {
    CUresult result = CUDA_SUCCESS;
    /* Staging memory is used again: by the same stream in its order, by another one behind a fence. */
    if (exec->last_stream != request->stream + 1) {
        result = exec->last_stream == 0 ? CUDA_SUCCESS : gf_send(GF_OP_sessionFence, NULL, 0);
        exec->last_stream = request->stream + 1;
    }
    result = result == CUDA_SUCCESS ? gf_exec_copy_in(exec, request->stream) : result;
    if (result == CUDA_SUCCESS) {
        gf_window_work_enqueued();
        result = gf_send_struct(GF_OP_sessionGraphLaunch, request);
    }
    return result == CUDA_SUCCESS ? gf_exec_copy_out(exec, request->stream) : result;
}

/* Launches of one executable graph do not overlap, so each has the staging memory to itself. */
static CUresult launch_with_calls(struct gf_req_sessionGraphLaunch *request) {
    struct gf_host_task *mark = gf_host_call_mark();
    if (mark == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    gf_window_work_enqueued();
    CUresult result = gf_send_struct(GF_OP_sessionGraphLaunch, request);
    if (result != CUDA_SUCCESS) {
        gf_host_call_unmark(mark);
    } else if ((result = gf_host_call_enqueue(mark, request->stream, false)) != CUDA_SUCCESS) {
        free(mark);
    }
    return result;
}

/* Nodes work in contexts, with kernels of modules, that may have ended since they were last looked at. */
static CUresult check_ended(struct gf_exec *exec) {
    uint64_t ended = atomic_load(&gf_contexts_ended) + atomic_load(&gf_modules_ended);
    if (exec->ended == ended) {
        return CUDA_SUCCESS;
    }
    gf_graphs_lock();
    CUresult result = gf_model_check_contexts(exec->model);
    result = result == CUDA_SUCCESS ? gf_model_check_named(exec->model) : result;
    exec->ended = result == CUDA_SUCCESS ? ended : exec->ended;
    gf_graphs_unlock();
    return result;
}

/* A graph runs as a whole or not at all. */
static CUresult check_events(const struct gf_exec *exec) {
    CUresult result = CUDA_SUCCESS;
    gf_graphs_lock();
    for (unsigned i = 0; i < exec->attended_count && result == CUDA_SUCCESS; i++) {
        result = gf_node_check_named(exec->attended[i]);
    }
    gf_graphs_unlock();
    return result;
}

CUresult gf_graph_launch(struct gf_exec *exec, CUstream cuda_stream) {
    struct gf_req_sessionGraphLaunch request = {.exec = exec->handle};
    CUresult result = gf_wire_stream(cuda_stream, &request.stream);
    if (result != CUDA_SUCCESS || (result = check_ended(exec)) != CUDA_SUCCESS ||
        (gf_capture_any() && (result = gf_capture_launch(cuda_stream)) != CUDA_SUCCESS) ||
        (exec->attended_count > 0 && (result = check_events(exec)) != CUDA_SUCCESS)) {
        return result;
    }
    if (exec->memory &&
        (result = gf_graph_memory_launch(exec->model, (exec->flags & AUTO_FREE) != 0)) != CUDA_SUCCESS) {
        return result;
    }
    const struct gf_stream *stream = gf_stream_find((CUstream)request.stream);
    exec->launch_stream = request.stream;
    exec->launch_context = stream != NULL ? stream->object.owner : gf_context_current_handle();
    if (exec->attended_count == 0) {
        gf_window_work_enqueued();
        return gf_send_struct(GF_OP_sessionGraphLaunch, &request);
    }
    pthread_mutex_lock(&exec->launching);
    result = exec->calls ? launch_with_calls(&request) : launch_with_copies(exec, &request);
    pthread_mutex_unlock(&exec->launching);
    gf_graphs_lock();
    mark_recorded(exec);
    gf_graphs_unlock();
    return result;
}
