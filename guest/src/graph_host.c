/* What this process does when a launched graph comes to a node: functions of the program, and in a graph with
 * such, copies from and to the program's memory, for a function may look at what was copied before it and
 * write what is copied after it. So may the program before it writes a word that the graph waits for. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "context.h"
#include "copy.h"
#include "graph_exec.h"
#include "guest.h"
#include "hooks.h"
#include "host_call.h"
#include "objects.h"
#include "shared.h"
#include "stream.h"
#include "thread.h"
#include "user_object.h"

struct graph_copy {
    struct gf_host_task base;
    CUDA_MEMCPY3D copy;
    uint64_t staging;
};

struct progress {
    uint64_t ticket, staging;
};

/* The program's memory is touched as by a function of the program: after what the device wrote to it, and
 * before the stream goes on. */
static void copy_rows(const struct gf_row_copy *c) {
    gf_hook(GF_AFTER_WAIT);
    gf_hook(GF_DONE);
    for (uint64_t row = 0; row < c->rows; row++) {
        memmove((char *)c->to + row * c->to_pitch, (char *)c->from + row * c->from_pitch, c->width);
    }
    gf_hook(GF_BEFORE_WAIT);
}

/* From and to what a program names as its memory: one of the two may be managed, which is the device's. */
static CUresult copy_within(const struct gf_row_copy *slice, uint64_t ticket) {
    if (slice->to_device || slice->from_device) {
        return gf_copy_in_call(slice, ticket);
    }
    copy_rows(slice);
    return CUDA_SUCCESS;
}

/* Who receives into memory that the device has come to share would wait for an answer that he has to read
 * himself. */
static CUresult copy_shared(const struct gf_row_copy *staged, uint64_t ticket) {
    char *memory = malloc(staged->width * staged->rows);
    struct gf_row_copy device = *staged, own = *staged;
    if (memory == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (staged->to_device) {
        own.to = device.from = (uint64_t)memory;
        own.to_pitch = device.from_pitch = staged->width;
        copy_rows(&own);
    } else {
        own.from = device.to = (uint64_t)memory;
        own.from_pitch = device.to_pitch = staged->width;
    }
    CUresult result = gf_copy_in_call(&device, ticket);
    if (result == CUDA_SUCCESS && !staged->to_device) {
        copy_rows(&own);
    }
    free(memory);
    return result;
}

static CUresult copy_slice(void *data, const struct gf_row_copy *slice) {
    struct progress *p = data;
    struct gf_row_copy staged = *slice;
    if (p->staging == 0) {
        return copy_within(slice, p->ticket);
    }
    *(slice->to_device ? &staged.to : &staged.from) = p->staging;
    *(slice->to_device ? &staged.to_pitch : &staged.from_pitch) = slice->width;
    p->staging += slice->width * slice->rows;
    struct gf_shared found;
    bool shared = gf_shared_find(slice->to_device ? slice->from : slice->to, &found);
    return shared ? copy_shared(&staged, p->ticket) : gf_copy_in_call(&staged, p->ticket);
}

static void run_copy(struct gf_host_task *call, uint64_t ticket, CUresult status) {
    const struct graph_copy *copy = (struct graph_copy *)call;
    (void)status;
    CUresult result = gf_copy_each(&copy->copy, copy_slice, &(struct progress){ticket, copy->staging});
    if (result != CUDA_SUCCESS) {
        gf_channel_latch(gf_handle_slot(call->context) + 1, result);
    }
}

static uint64_t keep_copy(const struct gf_node *node) {
    struct graph_copy *copy = malloc(sizeof *copy);
    if (copy == NULL) {
        return 0;
    }
    *copy = (struct graph_copy){.base = {.run = run_copy, .copies = true},
                                .copy = node->params.memcpy.copyParams,
                                .staging = node->staging};
    uint64_t call = gf_host_call_keep(&copy->base);
    if (call == 0) {
        free(copy);
    }
    return call;
}

CUresult gf_exec_renew_call(struct gf_node *node) {
    const CUDA_HOST_NODE_PARAMS_v2 *host = &node->params.host;
    uint64_t call = node->params.type == CU_GRAPH_NODE_TYPE_HOST
                        ? gf_host_call_keep_function(host->fn, host->userData)
                        : keep_copy(node);
    if (call == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    gf_host_call_drop(node->call);
    node->call = call;
    return CUDA_SUCCESS;
}

/* Whether a copy reads what another one has written before. */

struct extent {
    uint64_t begin, end;
};

static CUresult widen(void *data, const struct gf_row_copy *slice) {
    struct extent *extent = data;
    uint64_t begin = slice->to_device ? slice->from : slice->to;
    uint64_t pitch = slice->to_device ? slice->from_pitch : slice->to_pitch;
    uint64_t end = begin + pitch * (slice->rows - 1) + slice->width;
    extent->begin = begin < extent->begin ? begin : extent->begin;
    extent->end = end > extent->end ? end : extent->end;
    return CUDA_SUCCESS;
}

static bool overlap(const struct gf_node *one, const struct gf_node *other) {
    struct extent a = {~0ull, 0}, b = a;
    gf_copy_each(&one->params.memcpy.copyParams, widen, &a);
    gf_copy_each(&other->params.memcpy.copyParams, widen, &b);
    return a.begin < b.end && b.begin < a.end;
}

/* Whether the device has by now what a copy reads or writes of the program's memory: others of the graph may
 * work on it in between. */
static bool is_shared(const struct gf_node *copy) {
    struct extent own = {~0ull, 0};
    struct gf_shared found;
    gf_copy_each(&copy->params.memcpy.copyParams, widen, &own);
    return gf_shared_find(own.begin, &found);
}

static bool comes_behind(struct gf_node *node, const struct gf_node *before) {
    if (node->model != before->model) {
        return true; /* one is in a child graph: perhaps */
    }
    return !gf_model_mark(node->model, &(struct gf_edge){.from = node}, 1) || before->mark != 0;
}

bool gf_exec_needs_calls(const struct gf_exec *exec) {
    if (gf_model_has(exec->model, CU_GRAPH_NODE_TYPE_HOST) ||
        gf_model_has(exec->model, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)) {
        return true;
    }
    for (unsigned i = 0; i < exec->attended_count; i++) {
        bool reads = gf_params_reads_host(exec->attended[i]);
        bool writes = gf_params_writes_host(exec->attended[i]);
        if ((reads && writes) || ((reads || writes) && is_shared(exec->attended[i]))) {
            return true;
        }
        for (unsigned j = 0; j < exec->attended_count; j++) {
            struct gf_node *in = exec->attended[i], *out = exec->attended[j];
            if (gf_params_reads_host(in) && gf_params_writes_host(out) && overlap(in, out) &&
                comes_behind(in, out)) {
                return true;
            }
        }
    }
    return false;
}

/* The program's objects that a graph refers to */

struct parting {
    struct gf_host_task base;
    struct gf_retained *list;
};

static void part(struct gf_host_task *call, uint64_t ticket, CUresult status) {
    (void)ticket;
    (void)status;
    gf_retained_free(((struct parting *)call)->list);
}

static bool part_behind(struct gf_retained *list, uint64_t stream) {
    struct parting *parting = malloc(sizeof *parting);
    if (parting == NULL) {
        return false;
    }
    *parting = (struct parting){.base = {.run = part, .copies = true}, .list = list};
    if (gf_host_call_add(&parting->base) != CUDA_SUCCESS ||
        gf_host_call_enqueue(&parting->base, stream, true) != CUDA_SUCCESS) {
        free(parting);
        return false;
    }
    return true;
}

struct waiting {
    uint64_t context;
    struct gf_retained *list;
};

static void *part_when_idle(void *argument) {
    struct waiting *waiting = argument;
    gf_thread.context_id = gf_handle_slot(waiting->context) + 1;
    gf_wait_for_context(waiting->context);
    gf_retained_free(waiting->list);
    free(waiting);
    return NULL;
}

/* The stream of the launch has ended since, so it is over when the context has nothing to do any more. The
 * launch may wait for the program, which is not to wait for it here. */
static bool part_aside(struct gf_retained *list, uint64_t context) {
    struct waiting *waiting = malloc(sizeof *waiting);
    if (waiting == NULL) {
        return false;
    }
    *waiting = (struct waiting){context, list};
    if (!gf_thread_begin(part_when_idle, waiting, 0)) {
        free(waiting);
        return false;
    }
    return true;
}

static bool await_launch(const struct gf_exec *exec, struct gf_retained *list) {
    bool there = exec->launch_stream == 0 || gf_stream_find((CUstream)exec->launch_stream) != NULL;
    uint32_t current = gf_thread.context_id;
    gf_thread.context_id = gf_handle_slot(exec->launch_context) + 1;
    bool parts = there ? part_behind(list, exec->launch_stream) : part_aside(list, exec->launch_context);
    gf_thread.context_id = current;
    return parts;
}

void gf_exec_release(const struct gf_exec *exec, struct gf_retained *list) {
    const struct gf_context *context = gf_context_find((CUcontext)exec->launch_context);
    bool runs = list != NULL && context != NULL && atomic_load(&context->active);
    if (!runs || !await_launch(exec, list)) {
        gf_retained_free(list);
    }
}
