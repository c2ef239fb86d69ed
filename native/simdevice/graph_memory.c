#include "graph_memory.h"
#include "memory.h"
#include <stdlib.h>

struct sim_graph_memory {
    struct sim_graph_memory *next;
    struct sim_device *device;
    uint64_t base, bytes;
    uint64_t graph;                    /* whose node makes it */
    unsigned nodes;                    /* that refer to it */
    bool freed_there, freed_elsewhere; /* by a node of that graph, or of others */
    bool live;
    bool reserved; /* has been live since the last trim */
};

/* What cuDeviceGetGraphMemAttribute tells, per device. What graphs have freed is used as long as it is
 * reserved, as NVIDIA's driver tells it, so only the marks differ. */
struct usage {
    uint64_t reserved, used_high, reserved_high;
};

static struct sim_graph_memory *all;
static struct usage usages[SIM_MAX_DEVICES];

static struct sim_graph_memory *find(uint64_t base) {
    for (struct sim_graph_memory *memory = all; memory; memory = memory->next)
        if (memory->base == base)
            return memory;
    return NULL;
}

static void raise_to(uint64_t *high, uint64_t now) {
    if (now > *high)
        *high = now;
}

static void give_back(struct sim_graph_memory *memory) {
    if (memory->reserved)
        usages[memory->device->ordinal].reserved -= memory->bytes;
    memory->reserved = false;
}

/* Ends it once nothing can use it any more. */
static void end_unused(struct sim_graph_memory *memory) {
    if (memory->live || memory->nodes)
        return;
    struct sim_graph_memory **place = &all;
    while (*place != memory)
        place = &(*place)->next;
    *place = memory->next;
    give_back(memory);
    sim_memory_delete(memory->base);
    free(memory);
}

static void set_live(struct sim_graph_memory *memory, bool live) {
    struct usage *usage = &usages[memory->device->ordinal];
    memory->live = live;
    if (live && !memory->reserved) {
        memory->reserved = true;
        usage->reserved += memory->bytes;
        raise_to(&usage->used_high, usage->reserved);
        raise_to(&usage->reserved_high, usage->reserved);
    }
}

/* Frees what begins there from outside of a graph. */
static CUresult free_it(uint64_t base) {
    sim_graphs_lock();
    struct sim_graph_memory *memory = find(base);
    bool live = memory && memory->live, last = live && !memory->nodes;
    struct sim_device *device = live ? memory->device : NULL;
    if (live && !last)
        set_live(memory, false);
    sim_graphs_unlock();
    SIM_REQUIRE(live);
    if (!last) /* it stays the graph's, for the next launch */
        return CUDA_SUCCESS;
    sim_device_drain(device);
    SIM_GRAPHS_LOCKED();
    memory = find(base);
    SIM_REQUIRE(memory && memory->live);
    set_live(memory, false);
    end_unused(memory);
    return CUDA_SUCCESS;
}

static CUresult check_access(const CUmemAccessDesc *access, size_t count) {
    SIM_REQUIRE(access || !count);
    for (size_t i = 0; i < count; i++) {
        SIM_REQUIRE(access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE);
        SIM_REQUIRE(sim_device_at(access[i].location.id));
        SIM_REQUIRE(access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                    access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    return CUDA_SUCCESS;
}

static CUresult allocate(struct sim_node *node) {
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 *p = &node->params.alloc;
    SIM_REQUIRE(p->bytesize && p->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    SIM_REQUIRE(p->poolProps.handleTypes == CU_MEM_HANDLE_TYPE_NONE);
    SIM_REQUIRE(p->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    struct sim_device *device = sim_device_at(p->poolProps.location.id);
    SIM_REQUIRE(device);
    SIM_TRY(check_access(p->accessDescs, p->accessDescCount));
    struct sim_graph_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_range *range = sim_memory_range(SIM_RANGE_GRAPH, device, NULL, p->bytesize, 0);
    if (range)
        range->free_it = free_it;
    CUresult result = range ? sim_memory_add(range) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    memory->base = range->base;
    memory->device = device;
    memory->graph = node->graph->object.handle;
    memory->bytes = sim_round_up(p->bytesize, SIM_PAGE);
    memory->nodes = 1;
    memory->next = all;
    all = memory;
    node->memory = memory;
    p->dptr = memory->base;
    return CUDA_SUCCESS;
}

/* Memory is freed once in a graph at most, and either in its own or in others. */
static CUresult refer(struct sim_node *node) {
    uint64_t base = node->params.free.dptr;
    struct sim_graph_memory *memory = base ? find(base) : NULL;
    SIM_REQUIRE(memory);
    for (size_t i = 0; i < node->graph->node_count; i++) {
        const CUgraphNodeParams *p = &node->graph->nodes[i]->params;
        SIM_REQUIRE(p->type != CU_GRAPH_NODE_TYPE_MEM_FREE || p->free.dptr != base);
    }
    bool there = memory->graph == node->graph->object.handle;
    SIM_REQUIRE(!(there ? memory->freed_elsewhere : memory->freed_there));
    *(there ? &memory->freed_there : &memory->freed_elsewhere) = true;
    node->memory = memory;
    memory->nodes++;
    return CUDA_SUCCESS;
}

CUresult sim_graph_memory_keep(struct sim_node *node) {
    const struct sim_node *within = node->graph->parent;
    if (within && within->params.type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return CUDA_ERROR_NOT_SUPPORTED; /* memory belongs to the graph that is launched */
    return node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? allocate(node) : refer(node);
}

void sim_graph_memory_share(struct sim_node *to, const struct sim_node *from) {
    to->memory = from->memory;
    if (to->memory)
        to->memory->nodes++;
}

void sim_graph_memory_clear(struct sim_node *node) {
    struct sim_graph_memory *memory = node->memory;
    node->memory = NULL;
    if (!memory)
        return;
    memory->nodes--;
    end_unused(memory);
}

/* Calls `visit` on the memory of the nodes of that type, also in child graphs, until one says no. */
static bool for_each(struct sim_graph *graph, CUgraphNodeType type,
                     bool (*visit)(struct sim_graph_memory *)) {
    for (size_t i = 0; i < graph->node_count; i++) {
        struct sim_node *node = graph->nodes[i];
        if (node->params.type == type && !visit(node->memory))
            return false;
        for (unsigned j = 0; j < node->body_count; j++)
            if (!for_each(node->bodies[j], type, visit))
                return false;
    }
    return true;
}

static bool is_free(struct sim_graph_memory *memory) {
    return !memory->live;
}

static bool make_live(struct sim_graph_memory *memory) {
    set_live(memory, true);
    return true;
}

static bool make_free(struct sim_graph_memory *memory) {
    set_live(memory, false);
    return true;
}

CUresult sim_graph_memory_launch(struct sim_graph *graph, bool free_first) {
    if (free_first)
        for_each(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, make_free);
    SIM_REQUIRE(for_each(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, is_free));
    for_each(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, make_live);
    for_each(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, make_free);
    return CUDA_SUCCESS;
}

static CUresult find_usage(CUdevice ordinal, struct usage **usage) {
    SIM_TRY(sim_enter());
    struct sim_device *device = sim_device_at(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    *usage = &usages[device->ordinal];
    return CUDA_SUCCESS;
}

/* What is not live is not there, as far as one can see, until a launch allocates it again. */
CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
    struct usage *usage;
    SIM_TRY(find_usage(ordinal, &usage));
    SIM_GRAPHS_LOCKED();
    for (struct sim_graph_memory *memory = all; memory; memory = memory->next)
        if (!memory->live && &usages[memory->device->ordinal] == usage)
            give_back(memory);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value) {
    struct usage *usage;
    SIM_TRY(find_usage(ordinal, &usage));
    SIM_REQUIRE(value && (unsigned)attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    SIM_GRAPHS_LOCKED();
    const cuuint64_t values[] = {usage->reserved, usage->used_high, usage->reserved, usage->reserved_high};
    *(cuuint64_t *)value = values[attribute];
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value) {
    struct usage *usage;
    SIM_TRY(find_usage(ordinal, &usage));
    SIM_REQUIRE(value && *(const cuuint64_t *)value == 0);
    SIM_GRAPHS_LOCKED();
    switch (attribute) { /* a mark begins again at what there is */
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        usage->used_high = usage->reserved;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        usage->reserved_high = usage->reserved;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
