/* The lock of all graphs, and what is looked up under it. */
#include "graph.h"
#include "graph_user.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sim_graphs_lock(void) {
    pthread_mutex_lock(&lock);
}

void sim_graphs_unlock(void) {
    struct sim_user_object *ended = sim_user_take_ended();
    pthread_mutex_unlock(&lock);
    sim_user_destroy(ended);
}

/* Objects end only under the lock, so the reference need not be kept. */
static void *find(uint64_t handle, enum sim_kind kind) {
    void *object = sim_acquire(handle, kind);
    if (object)
        sim_release(object);
    return object;
}

struct sim_graph *sim_graph_find(CUgraph handle) {
    return find(SIM_HANDLE(handle), SIM_GRAPH);
}

struct sim_node *sim_node_find(CUgraphNode handle) {
    return find(SIM_HANDLE(handle), SIM_GRAPH_NODE);
}

void sim_graph_number(struct sim_graph *graph) {
    for (size_t i = 0; i < graph->node_count; i++)
        graph->nodes[i]->place = i;
}

struct sim_node *sim_graph_clone_of(struct sim_graph *clone, uint64_t original) {
    for (size_t i = 0; i < clone->node_count; i++) {
        struct sim_node *node = clone->nodes[i];
        if (node->original == original)
            return node;
        for (unsigned j = 0; j < node->body_count; j++) {
            struct sim_node *inner = sim_graph_clone_of(node->bodies[j], original);
            if (inner)
                return inner;
        }
    }
    return NULL;
}

bool sim_graph_contains(const struct sim_graph *graph, CUgraphNodeType type) {
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct sim_node *node = graph->nodes[i];
        if (node->params.type == type)
            return true;
        for (unsigned j = 0; j < node->body_count; j++)
            if (sim_graph_contains(node->bodies[j], type))
                return true;
    }
    return false;
}

bool sim_graph_is_captured(const struct sim_graph *graph) {
    bool captured = graph->capture != NULL;
    for (size_t i = 0; i < graph->node_count && !captured; i++)
        captured = sim_node_is_captured(graph->nodes[i]);
    return captured;
}

bool sim_node_is_captured(const struct sim_node *node) {
    bool captured = false;
    for (unsigned i = 0; i < node->body_count && !captured; i++)
        captured = sim_graph_is_captured(node->bodies[i]);
    return captured;
}

bool sim_graph_has_memory(const struct sim_graph *graph) {
    return sim_graph_contains(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC) ||
           sim_graph_contains(graph, CU_GRAPH_NODE_TYPE_MEM_FREE);
}
