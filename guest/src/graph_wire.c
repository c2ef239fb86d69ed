/* What the server is told of a graph: a frame for each node, then the edges (WIRE.md 13). Child graphs are
 * sent as their nodes between two empty ones. A copy from or to the program's memory is sent as one within
 * the device, from or to staging memory; the data itself travels with each launch. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "context.h"
#include "copy.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "graph_exec.h"
#include "host_memory.h"
#include "launch.h"
#include "window.h"

#define EDGES_IN_FRAME 4096

struct wire_edge {
    uint32_t from, to;
    CUgraphEdgeData data;
};

struct build {
    struct gf_exec *exec;
    int64_t set; /* this node on the wire is given new parameters; -1: nodes are added */
    uint32_t next;
    uint32_t graph; /* that nodes are added to */
    struct wire_edge *edges;
    unsigned edge_count;
    CUresult result;
};

static void fail(struct build *b, CUresult result) {
    if (b->result == CUDA_SUCCESS) {
        b->result = result;
    }
}

/* Counts the node that is about to be sent, and says which one it is. */
static uint32_t place(struct build *b) {
    return b->set >= 0 ? (uint32_t)b->set++ : b->next++;
}

static void flush_edges(struct build *b) {
    struct gf_req_sessionGraphEdges request = {.exec = b->exec->handle, .count = b->edge_count};
    struct iovec parts[] = {{&request, sizeof request}, {b->edges, b->edge_count * sizeof *b->edges}};
    if (b->edge_count > 0 && b->result == CUDA_SUCCESS) {
        fail(b, gf_send(GF_OP_sessionGraphEdges, parts, 2));
    }
    b->edge_count = 0;
}

static void send_edge(struct build *b, uint32_t from, uint32_t to, const CUgraphEdgeData *data) {
    if (b->edge_count == EDGES_IN_FRAME) {
        flush_edges(b);
    }
    b->edges[b->edge_count++] = (struct wire_edge){from, to, data == NULL ? (CUgraphEdgeData){0} : *data};
}

static uint32_t send_plain(struct build *b, uint32_t kind, uint64_t subject) {
    uint32_t at = place(b);
    struct gf_req_sessionGraphNode add = {.exec = b->exec->handle, .kind = kind, .subject = subject};
    struct gf_req_sessionGraphSetNode set = {
        .exec = b->exec->handle, .node = at, .kind = kind, .subject = subject};
    if (b->result == CUDA_SUCCESS) {
        fail(b, b->set >= 0 ? gf_send_struct(GF_OP_sessionGraphSetNode, &set)
                            : gf_send_struct(GF_OP_sessionGraphNode, &add));
    }
    return at;
}

static void send_kernel(struct build *b, const struct gf_node *node) {
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &node->params.kernel;
    struct gf_launch_attribute attributes[GF_LAUNCH_ATTRIBUTES_MAX];
    CUlaunchConfig config = {.attrs = node->attributes, .numAttrs = node->attribute_count};
    uint32_t count;
    fail(b, gf_launch_attributes(&config, attributes, &count));
    fail(b, gf_host_share_params(node->memory, node->value_bytes));
    struct gf_req_sessionGraphSetKernel set = {
        .exec = b->exec->handle,
        .node = place(b),
        .function = k->func != NULL ? (uint64_t)k->func : (uint64_t)k->kern,
        .grid = {k->gridDimX, k->gridDimY, k->gridDimZ},
        .block = {k->blockDimX, k->blockDimY, k->blockDimZ},
        .shared = k->sharedMemBytes,
        .attributes = count,
        .params = node->value_bytes,
    };
    struct gf_req_sessionGraphKernel add = {.exec = set.exec,
                                            .function = set.function,
                                            .shared = set.shared,
                                            .attributes = set.attributes,
                                            .params = set.params};
    memcpy(add.grid, set.grid, sizeof add.grid);
    memcpy(add.block, set.block, sizeof add.block);
    struct iovec parts[] = {
        {&add, sizeof add}, {node->memory, node->value_bytes}, {attributes, count * sizeof *attributes}};
    if (b->set >= 0) {
        parts[0] = (struct iovec){&set, sizeof set};
    }
    if (b->result == CUDA_SUCCESS) {
        fail(b, gf_send(b->set >= 0 ? GF_OP_sessionGraphSetKernel : GF_OP_sessionGraphKernel, parts, 3));
    }
}

static uint32_t send_rows(struct build *b, struct gf_req_sessionGraphRows *add) {
    uint32_t at = place(b);
    struct gf_req_sessionGraphSetRows set = {
        b->exec->handle,   at,         add->target, add->target_pitch, add->source,
        add->source_pitch, add->width, add->rows,   add->value,        add->element};
    add->exec = b->exec->handle;
    if (b->result == CUDA_SUCCESS) {
        fail(b, b->set >= 0 ? gf_send_struct(GF_OP_sessionGraphSetRows, &set)
                            : gf_send_struct(GF_OP_sessionGraphRows, add));
    }
    return at;
}

static void send_fill(struct build *b, const CUDA_MEMSET_NODE_PARAMS_v2 *fill) {
    send_rows(b, &(struct gf_req_sessionGraphRows){.target = fill->dst,
                                                   .target_pitch = fill->pitch,
                                                   .width = fill->width,
                                                   .rows = fill->height,
                                                   .value = fill->value,
                                                   .element = fill->elementSize});
}

/* A copy, within the device; what is not `direct` goes from or to staging memory in place of the program's.
 */
static uint32_t send_box(struct build *b, struct gf_node *node, const CUDA_MEMCPY3D *copy, bool direct) {
    struct gf_box_end to = {0}, from = {0};
    const struct gf_box_end staged = {
        .place.at = node->staging, .pitch = copy->WidthInBytes, .height = copy->Height};
    fail(b, gf_copy_ends(copy, &to, &from));
    to = direct || to.device ? to : staged;
    from = direct || from.device ? from : staged;
    uint32_t at = place(b);
    struct gf_req_sessionGraphSetBox set = {
        b->exec->handle, at,          to.place.array,     to.place.at,   to.place.y,   to.place.z,
        to.pitch,        to.height,   from.place.array,   from.place.at, from.place.y, from.place.z,
        from.pitch,      from.height, copy->WidthInBytes, copy->Height,  copy->Depth};
    struct gf_req_sessionGraphBox add = {b->exec->handle, to.place.array,     to.place.at,  to.place.y,
                                         to.place.z,      to.pitch,           to.height,    from.place.array,
                                         from.place.at,   from.place.y,       from.place.z, from.pitch,
                                         from.height,     copy->WidthInBytes, copy->Height, copy->Depth};
    if (b->result == CUDA_SUCCESS) {
        fail(b, b->set >= 0 ? gf_send_struct(GF_OP_sessionGraphSetBox, &set)
                            : gf_send_struct(GF_OP_sessionGraphBox, &add));
    }
    return at;
}

static uint64_t size_of(const CUDA_MEMCPY3D *copy) {
    return copy->WidthInBytes * copy->Height * copy->Depth;
}

CUresult gf_exec_stage(struct gf_exec *exec, struct gf_node *node, const struct gf_node *as) {
    bool reads = gf_params_reads_host(as), writes = gf_params_writes_host(as);
    uint64_t size = size_of(&as->params.memcpy.copyParams);
    if ((!reads && !writes) || gf_node_is_in_body(node)) {
        return CUDA_SUCCESS;
    }
    if (reads && writes) { /* this process copies, but not from one place of the device to another */
        struct gf_box_end to = {0}, from = {0};
        CUresult ends = gf_copy_ends(&as->params.memcpy.copyParams, &to, &from);
        return ends == CUDA_SUCCESS && to.device && from.device ? CUDA_ERROR_NOT_SUPPORTED : ends;
    }
    if (size <= node->staging_size) {
        return CUDA_SUCCESS;
    }
    uint64_t address;
    CUresult result = gf_window_alloc_hidden(gf_context_device(exec->context), size, exec->context, &address);
    if (result == CUDA_SUCCESS) {
        if (node->staging != 0) {
            gf_window_free(node->staging, 0);
        }
        node->staging = address;
        node->staging_size = size;
    }
    return result;
}

/* What this process does there. */
static uint32_t send_call(struct build *b, struct gf_node *node) {
    fail(b, gf_exec_renew_call(node));
    return send_plain(b, GF_GRAPH_NODE_HOST, node->call);
}

/* Page-locked memory, which the device reaches from now on. */
static CUresult share(CUmemorytype *type, CUdeviceptr *device, const void *host) {
    uint64_t address = *type == CU_MEMORYTYPE_UNIFIED ? *device : (uint64_t)host;
    CUresult result = gf_cuMemHostGetDevicePointer_v2(device, (void *)address, 0);
    *type = CU_MEMORYTYPE_DEVICE;
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_NOT_SUPPORTED : result;
}

/* A body runs as often as the device decides, so its copies are made within the memory of the device. */
static void send_copy_in_body(struct build *b, struct gf_node *node) {
    CUDA_MEMCPY3D copy = node->params.memcpy.copyParams;
    if (gf_params_reads_host(node)) {
        fail(b, share(&copy.srcMemoryType, &copy.srcDevice, copy.srcHost));
    }
    if (gf_params_writes_host(node)) {
        fail(b, share(&copy.dstMemoryType, &copy.dstDevice, copy.dstHost));
    }
    send_box(b, node, &copy, true);
}

static void send_copy(struct build *b, struct gf_node *node) {
    if (gf_node_is_in_body(node)) {
        send_copy_in_body(b, node);
        return;
    }
    bool calls = b->exec->calls, reads = gf_params_reads_host(node);
    fail(b, gf_exec_stage(b->exec, node, node));
    if (calls && reads) {
        send_call(b, node);
    }
    if (reads && gf_params_writes_host(node)) {
        return;
    }
    uint32_t box = send_box(b, node, &node->params.memcpy.copyParams, false);
    if (calls && reads && b->set < 0) {
        send_edge(b, box - 1, box, NULL);
    }
    if (calls && gf_params_writes_host(node)) {
        uint32_t at = send_call(b, node);
        if (b->set < 0) {
            send_edge(b, at - 1, at, NULL);
        }
    }
}

static void send_batch(struct build *b, const struct gf_node *node) {
    const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *batch = &node->params.memOp;
    struct gf_memory_operation *operations = malloc(batch->count * sizeof *operations);
    struct gf_req_sessionGraphBatch add = {.exec = b->exec->handle, .count = batch->count};
    struct gf_req_sessionGraphSetBatch set = {add.exec, place(b), batch->count};
    struct iovec parts[] = {{&add, sizeof add}, {operations, batch->count * sizeof *operations}};
    if (b->set >= 0) {
        parts[0] = (struct iovec){&set, sizeof set};
    }
    if (operations == NULL) {
        fail(b, CUDA_ERROR_OUT_OF_MEMORY);
        return;
    }
    for (unsigned i = 0; i < batch->count; i++) {
        const CUstreamBatchMemOpParams *one = &batch->paramArray[i];
        operations[i] = (struct gf_memory_operation){.address = one->waitValue.address,
                                                     .value = one->waitValue.value64,
                                                     .operation = one->operation,
                                                     .flags = one->waitValue.flags};
    }
    if (b->result == CUDA_SUCCESS) {
        fail(b, gf_send(b->set >= 0 ? GF_OP_sessionGraphSetBatch : GF_OP_sessionGraphBatch, parts, 2));
    }
    free(operations);
}

static void send_model(struct build *b, struct gf_model *model, uint32_t *first, uint32_t *last);

static void send_nodes(struct build *b, struct gf_model *model);

/* What follows is part of that graph. */
static void enter(struct build *b, uint32_t graph) {
    struct gf_req_sessionGraphEnter request = {b->exec->handle, graph};
    b->graph = graph;
    if (b->result == CUDA_SUCCESS) {
        fail(b, gf_send_struct(GF_OP_sessionGraphEnter, &request));
    }
}

/* The node is there since the program has added it. */
static void send_conditional(struct build *b, struct gf_node *node) {
    struct gf_req_sessionGraphPlace request = {b->exec->handle, node->conditional - 1};
    uint32_t outer = b->graph;
    place(b);
    if (b->result == CUDA_SUCCESS) {
        fail(b, gf_send_struct(GF_OP_sessionGraphPlace, &request));
    }
    for (unsigned i = 0; i < node->body_count; i++) {
        enter(b, node->bodies[i]->wire_graph);
        send_nodes(b, node->bodies[i]);
    }
    enter(b, outer);
}

static void send_as_kind(struct build *b, struct gf_node *node) {
    node->wire_first = b->set >= 0 ? (uint32_t)b->set : b->next;
    switch ((int)node->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        send_kernel(b, node);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        send_copy(b, node);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        send_fill(b, &node->params.memset);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        send_model(b, node->bodies[0], &node->wire_first, &node->wire_last);
        return;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        send_conditional(b, node);
        node->wire_last = node->wire_first;
        return;
    case CU_GRAPH_NODE_TYPE_HOST:
        send_call(b, node);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        send_batch(b, node);
        break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        send_plain(b, GF_GRAPH_NODE_RECORD, (uint64_t)node->params.eventRecord.event);
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        send_plain(b, GF_GRAPH_NODE_WAIT, (uint64_t)node->params.eventWait.event);
        break;
    default: /* memory is there anyway (graph_memory.c) */
        send_plain(b, GF_GRAPH_NODE_EMPTY, 0);
    }
    node->wire_last = (b->set >= 0 ? (uint32_t)b->set : b->next) - 1;
}

/* In the context that it works in, if that is there. */
static void send_node(struct build *b, struct gf_node *node) {
    const struct gf_context *context = gf_context_find((CUcontext)node->context);
    uint32_t current = gf_thread.context_id;
    if (context != NULL && atomic_load(&context->active)) {
        gf_thread.context_id = gf_handle_slot(node->context) + 1;
    }
    send_as_kind(b, node);
    gf_thread.context_id = current;
}

static void send_nodes(struct build *b, struct gf_model *model) {
    struct gf_node **order = malloc((model->count + 1) * sizeof *order);
    if (order == NULL || !gf_model_order(model, order)) {
        fail(b, order == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE);
    }
    for (unsigned i = 0; i < model->count && b->result == CUDA_SUCCESS; i++) {
        struct gf_node *node = order[i];
        send_node(b, node);
        for (unsigned e = 0; e < node->edge_count && b->set < 0; e++) {
            send_edge(b, node->edges[e].from->wire_last, node->wire_first, &node->edges[e].data);
        }
    }
    free(order);
}

static bool has_dependents(const struct gf_model *model, const struct gf_node *node) {
    for (const struct gf_node *n = model->first; n != NULL; n = n->next) {
        if (gf_node_depends(n, node)) {
            return true;
        }
    }
    return false;
}

static void send_model(struct build *b, struct gf_model *model, uint32_t *first, uint32_t *last) {
    *first = send_plain(b, GF_GRAPH_NODE_EMPTY, 0);
    send_nodes(b, model);
    *last = send_plain(b, GF_GRAPH_NODE_EMPTY, 0);
    if (b->set >= 0 || b->result != CUDA_SUCCESS) {
        return;
    }
    send_edge(b, *first, *last, NULL);
    for (struct gf_node *n = model->first; n != NULL; n = n->next) {
        if (n->edge_count == 0) {
            send_edge(b, *first, n->wire_first, NULL);
        }
        if (!has_dependents(model, n)) {
            send_edge(b, n->wire_last, *last, NULL);
        }
    }
}

CUresult gf_exec_send(struct gf_exec *exec) {
    struct build b = {.exec = exec, .set = -1, .edges = malloc(EDGES_IN_FRAME * sizeof *b.edges)};
    if (b.edges == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    send_nodes(&b, exec->model);
    flush_edges(&b);
    free(b.edges);
    exec->nodes = b.next;
    return b.result;
}

CUresult gf_exec_send_node(struct gf_exec *exec, struct gf_node *node) {
    struct build b = {.exec = exec, .set = node->wire_first};
    send_node(&b, node);
    /* Its call has a new number, which would be asked for. */
    return b.result == CUDA_SUCCESS && node->disabled ? gf_exec_send_switch(exec, node, false) : b.result;
}

CUresult gf_exec_send_switch(struct gf_exec *exec, struct gf_node *node, bool enabled) {
    CUresult result = CUDA_SUCCESS;
    for (uint32_t at = node->wire_first; at <= node->wire_last && result == CUDA_SUCCESS; at++) {
        struct gf_req_sessionGraphSetNode request = {
            .exec = exec->handle, .node = at, .kind = enabled ? GF_GRAPH_NODE_ENABLE : GF_GRAPH_NODE_DISABLE};
        bool is_call =
            node->call != 0 && at == (gf_params_reads_host(node) ? node->wire_first : node->wire_last);
        if (is_call) { /* cannot be switched; of the number 0 nobody knows what to do */
            request.kind = GF_GRAPH_NODE_HOST;
            request.subject = enabled ? node->call : 0;
        }
        result = gf_send_struct(GF_OP_sessionGraphSetNode, &request);
    }
    return result;
}

/* The program's memory, at a launch */

struct transfer {
    struct gf_node *node;
    uint64_t stream, staged;
};

static CUresult transfer_slice(void *data, const struct gf_row_copy *c) {
    struct transfer *t = data;
    struct gf_row_copy staged = *c;
    uint64_t staging = t->node->staging + t->staged;
    t->staged += c->width * c->rows;
    if (c->to_device) {
        staged.to = staging;
        staged.to_pitch = c->width;
    } else {
        staged.from = staging;
        staged.from_pitch = c->width;
    }
    staged.to_device = c->to_device;
    staged.from_device = c->from_device;
    return gf_copy_staged(&staged, t->stream);
}

static CUresult transfer(struct gf_exec *exec, uint64_t stream, bool in) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < exec->attended_count && result == CUDA_SUCCESS; i++) {
        struct gf_node *node = exec->attended[i];
        if (!node->disabled && !exec->calls &&
            (in ? gf_params_reads_host(node) : gf_params_writes_host(node))) {
            struct transfer t = {node, stream, 0};
            result = gf_copy_each(&node->params.memcpy.copyParams, transfer_slice, &t);
        }
    }
    return result;
}

CUresult gf_exec_copy_in(struct gf_exec *exec, uint64_t stream) {
    return transfer(exec, stream, true);
}

CUresult gf_exec_copy_out(struct gf_exec *exec, uint64_t stream) {
    return transfer(exec, stream, false);
}
