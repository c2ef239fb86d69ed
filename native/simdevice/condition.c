/* The values of conditional nodes. */
#include "condition.h"
#include "addresses.h"
#include "memory.h"
#include "pages.h"
#include "sanitizer.h"
#include "variance.h"
#include <stdlib.h>

/* Each value has a page of its own: the lowest one that is free, so the same calls give the same handles in
 * every process; or the one behind the last, as if none came again. */
enum { PLACES = (SIM_CONDITIONS_END - SIM_CONDITIONS_BEGIN) / SIM_PAGE };

static bool taken[PLACES];
static unsigned lowest; /* below it all are taken */

/* ThreadSanitizer lets a program have memory in a low region alone; this is behind that of pages.c. */
static uint64_t begin(void) {
    return sim_under_tsan() ? UINT64_C(0x7000000000) : SIM_CONDITIONS_BEGIN;
}

static uint64_t place_of(unsigned number) {
    return begin() + (uint64_t)number * SIM_PAGE;
}

static bool take_place(uint64_t *address) {
    if (lowest == PLACES && sim_choice(SIM_OPEN_CONDITIONS, 2))
        lowest = 0; /* all came once */
    while (lowest < PLACES && (taken[lowest] || !sim_pages_new_at(place_of(lowest), SIM_PAGE)))
        taken[lowest++] = true;
    if (lowest == PLACES)
        return false;
    *address = place_of(lowest);
    taken[lowest++] = true;
    return true;
}

static void give_place(uint64_t address) {
    unsigned number = (unsigned)((address - begin()) / SIM_PAGE);
    sim_pages_free(address, SIM_PAGE);
    taken[number] = false;
    if (number < lowest && !sim_choice(SIM_OPEN_CONDITIONS, 2))
        lowest = number;
}

static CUresult make_word(struct sim_device *device, uint64_t *address) {
    if (!take_place(address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_memory_place(SIM_RANGE_GLOBAL, device, NULL, sizeof(uint32_t), *address);
    if (result != CUDA_SUCCESS)
        give_place(*address);
    return result;
}

static void release(struct sim_condition *condition) {
    if (--condition->references)
        return;
    sim_memory_delete((uint64_t)condition->word);
    give_place((uint64_t)condition->word);
    free(condition);
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *out, CUgraph handle,
                                        CUcontext context_handle, unsigned int initial, unsigned int flags) {
    struct sim_context *context;
    SIM_TRY(sim_enter());
    SIM_GRAPHS_LOCKED();
    struct sim_graph *graph = sim_graph_find(handle);
    SIM_REQUIRE(out && graph);
    if (context_handle)
        context = sim_context_of(context_handle);
    else
        SIM_TRY(sim_context_current(&context));
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    SIM_TRY(sim_context_check(context));
    SIM_REQUIRE((flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT) == 0);
    uint64_t word;
    struct sim_condition *condition = calloc(1, sizeof *condition);
    if (!condition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = make_word(context->device, &word);
    if (result != CUDA_SUCCESS) {
        free(condition);
        return result;
    }
    *condition = (struct sim_condition){.next = graph->conditions,
                                        .context = context,
                                        .word = (uint32_t *)word,
                                        .initial = initial,
                                        .has_default = flags & CU_GRAPH_COND_ASSIGN_DEFAULT,
                                        .references = 1};
    *condition->word = condition->has_default ? initial : 0;
    graph->conditions = condition;
    *out = word;
    return CUDA_SUCCESS;
}

/* The value of that handle, of the graph or of one that it is part of. */
static struct sim_condition *find(const struct sim_graph *graph, CUgraphConditionalHandle handle) {
    for (; graph; graph = graph->parent ? graph->parent->graph : NULL)
        for (struct sim_condition *each = graph->conditions; each; each = each->next)
            if ((uint64_t)each->word == handle)
                return each;
    return NULL;
}

static CUresult check_size(const CUDA_CONDITIONAL_NODE_PARAMS *p) {
    switch ((int)p->type) {
    case CU_GRAPH_COND_TYPE_IF:
        SIM_REQUIRE(p->size == 1 || p->size == 2);
        return CUDA_SUCCESS;
    case CU_GRAPH_COND_TYPE_WHILE:
        SIM_REQUIRE(p->size == 1);
        return CUDA_SUCCESS;
    case CU_GRAPH_COND_TYPE_SWITCH:
        SIM_REQUIRE(p->size && p->size <= 4096);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_condition_claim(struct sim_node *node) {
    const CUDA_CONDITIONAL_NODE_PARAMS *p = &node->params.conditional;
    SIM_TRY(check_size(p));
    if (!p->ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_condition *condition = find(node->graph, p->handle);
    SIM_REQUIRE(condition && !condition->used && sim_context_of(p->ctx) == condition->context);
    node->context = condition->context;
    node->condition = condition;
    condition->used = true;
    condition->references++;
    return CUDA_SUCCESS;
}

void sim_condition_share(struct sim_node *to, const struct sim_node *from) {
    to->condition = from->condition;
    if (to->condition)
        to->condition->references++;
}

void sim_condition_clear(struct sim_node *node) {
    if (node->condition)
        release(node->condition);
    node->condition = NULL;
}

void sim_condition_forget(struct sim_graph *graph) {
    while (graph->conditions) {
        struct sim_condition *condition = graph->conditions;
        graph->conditions = condition->next;
        release(condition);
    }
}
