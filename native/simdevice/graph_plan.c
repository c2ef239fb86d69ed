/* The order in which a graph's nodes run. Child graphs are laid out within it. */
#include "graph_exec.h"
#include <stdlib.h>

#define LANES_MOST 16

static bool grow(void **array, uint32_t *capacity, uint32_t count, size_t size) {
    if (count < *capacity)
        return true;
    uint32_t more = *capacity ? *capacity * 2 : 16;
    void *grown = realloc(*array, more * size);
    if (!grown)
        return false;
    *array = grown;
    *capacity = more;
    return true;
}

static bool depend(struct sim_plan *plan, uint32_t step) {
    if (!grow((void **)&plan->dependencies, &plan->dependency_capacity, plan->dependency_count,
              sizeof *plan->dependencies))
        return false;
    plan->dependencies[plan->dependency_count++] = step;
    plan->steps[step].ends_lane = false;
    return true;
}

/* A lane whose last step is waited for anyway, else a new one, else the one that was used longest ago. */
static uint32_t choose_lane(struct sim_plan *plan, const struct sim_step *step, struct sim_context *context) {
    for (uint32_t i = 0; i < step->dependency_count; i++) {
        uint32_t before = plan->dependencies[step->first_dependency + i];
        uint32_t lane = plan->steps[before].lane;
        if (plan->lanes[lane].last == before && plan->lanes[lane].context == context)
            return lane;
    }
    uint32_t same = 0, oldest = SIM_NO_STEP;
    for (uint32_t i = 0; i < plan->lane_count; i++) {
        if (plan->lanes[i].context != context)
            continue;
        same++;
        if (oldest == SIM_NO_STEP || plan->lanes[i].last < plan->lanes[oldest].last)
            oldest = i;
    }
    if (same >= LANES_MOST)
        return oldest;
    struct sim_lane *lanes = realloc(plan->lanes, (plan->lane_count + 1) * sizeof *lanes);
    if (!lanes)
        return oldest;
    plan->lanes = lanes;
    lanes[plan->lane_count] = (struct sim_lane){.context = context, .last = SIM_NO_STEP};
    return plan->lane_count++;
}

/* Ends a step whose dependencies are those added since `first`. */
static uint32_t place(struct sim_plan *plan, struct sim_node *node, uint32_t first,
                      struct sim_context *context) {
    struct sim_step step = {.node = node,
                            .first_dependency = first,
                            .dependency_count = plan->dependency_count - first,
                            .ends_lane = true};
    if (!grow((void **)&plan->steps, &plan->step_capacity, plan->step_count, sizeof *plan->steps))
        return SIM_NO_STEP;
    step.lane = choose_lane(plan, &step, context);
    if (step.lane == SIM_NO_STEP)
        return SIM_NO_STEP;
    plan->steps[plan->step_count] = step;
    plan->lanes[step.lane].last = plan->step_count;
    return plan->step_count++;
}

static CUresult lay_out(struct sim_plan *plan, const struct sim_graph *graph, struct sim_context *context,
                        uint32_t entry);

/* The step that ends the node: behind `entry` and what it depends on, whose steps are in `placed`. */
static CUresult lay_out_node(struct sim_plan *plan, struct sim_node *node, struct sim_context *context,
                             uint32_t entry, uint32_t *placed) {
    const struct sim_links *links = &node->dependencies;
    struct sim_context *own = node->context ? node->context : context;
    uint32_t first = plan->dependency_count;
    bool added = links->count || entry == SIM_NO_STEP || depend(plan, entry);
    for (size_t i = 0; added && i < links->count; i++)
        added = depend(plan, placed[links->items[i].from->place]);
    bool is_child = node->params.type == CU_GRAPH_NODE_TYPE_GRAPH;
    uint32_t step = added ? place(plan, is_child ? NULL : node, first, own) : SIM_NO_STEP;
    if (step == SIM_NO_STEP)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (is_child) {
        SIM_TRY(lay_out(plan, node->bodies[0], context, step));
        first = plan->dependency_count;
        uint32_t last = plan->step_count;
        for (uint32_t i = step; i < last; i++)
            if (plan->steps[i].ends_lane && !depend(plan, i))
                return CUDA_ERROR_OUT_OF_MEMORY;
        step = place(plan, NULL, first, own);
        if (step == SIM_NO_STEP)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    placed[node->place] = step;
    return CUDA_SUCCESS;
}

static bool can_be_placed(const struct sim_node *node, const uint32_t *placed) {
    for (size_t i = 0; i < node->dependencies.count; i++)
        if (placed[node->dependencies.items[i].from->place] == SIM_NO_STEP)
            return false;
    return true;
}

/* Nodes are mostly created behind what they depend on, so one pass over them is mostly enough. */
static CUresult lay_out(struct sim_plan *plan, const struct sim_graph *graph, struct sim_context *context,
                        uint32_t entry) {
    uint32_t *placed = malloc((graph->node_count + 1) * sizeof *placed);
    if (!placed)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    size_t left = graph->node_count, before;
    sim_graph_number((struct sim_graph *)graph);
    for (size_t i = 0; i < graph->node_count; i++)
        placed[i] = SIM_NO_STEP;
    do {
        before = left;
        for (size_t i = 0; result == CUDA_SUCCESS && i < graph->node_count; i++) {
            if (placed[i] != SIM_NO_STEP || !can_be_placed(graph->nodes[i], placed))
                continue;
            result = lay_out_node(plan, graph->nodes[i], context, entry, placed);
            left--;
        }
    } while (result == CUDA_SUCCESS && left && left < before);
    free(placed);
    if (result == CUDA_SUCCESS && left)
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

CUresult sim_plan_make(struct sim_plan *plan, const struct sim_graph *graph, struct sim_context *context) {
    *plan = (struct sim_plan){0};
    CUresult result = lay_out(plan, graph, context, SIM_NO_STEP);
    if (result != CUDA_SUCCESS)
        sim_plan_free(plan);
    return result;
}

void sim_plan_free(struct sim_plan *plan) {
    for (uint32_t i = 0; i < plan->lane_count; i++) {
        struct sim_stream *stream = plan->lanes[i].stream;
        if (!stream)
            continue;
        if (sim_handle_close(stream->object.handle, SIM_STREAM))
            sim_release(stream);
        sim_release(stream);
    }
    free(plan->lanes);
    free(plan->steps);
    free(plan->dependencies);
    *plan = (struct sim_plan){0};
}
