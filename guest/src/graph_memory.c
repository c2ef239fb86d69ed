/* Memory of graphs. The server knows nothing of it: a node has memory of the window from the beginning, whose
 * backing it keeps; what launches and frees change is whether the program may use it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "graph.h"
#include "session.h"
#include "window.h"

#define PAGE 4096ull /* what the device counts in */

struct gf_graph_memory {
    uint64_t address, bytes;
    int device;
    uint64_t graph;                    /* whose node makes it */
    unsigned nodes;                    /* that name it */
    bool freed_there, freed_elsewhere; /* by a node of that graph, or of others */
    bool live;                         /* the program may use it */
    bool reserved;                     /* it has been live since the last trim */
    struct gf_graph_memory *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gf_graph_memory *all;
static _Atomic unsigned count; /* spares the lock where there is none */
static struct usage { /* what graphs have freed is used as long as it is reserved, so only the marks differ */
    uint64_t current, used_high, reserved_high;
} usages[GF_DEVICES_MAX];

static struct gf_graph_memory *find(uint64_t address) {
    struct gf_graph_memory *memory = all;
    while (memory != NULL && memory->address != address) {
        memory = memory->next;
    }
    return memory;
}

static void raise_to(uint64_t *high, uint64_t now) {
    *high = now > *high ? now : *high;
}

static void set_reserved(struct gf_graph_memory *memory, bool is) {
    struct usage *usage = &usages[memory->device];
    usage->current += memory->reserved == is ? 0 : is ? memory->bytes : -memory->bytes;
    raise_to(&usage->used_high, usage->current);
    raise_to(&usage->reserved_high, usage->current);
    memory->reserved = is;
}

static void set_live(struct gf_graph_memory *memory, bool is) {
    memory->live = is;
    if (is) {
        set_reserved(memory, true);
    }
}

/* It ends when neither a node nor the program has it any more. */
static void end_unused(struct gf_graph_memory *memory) {
    struct gf_graph_memory **place = &all;
    if (memory->live || memory->nodes > 0) {
        return;
    }
    while (*place != memory) {
        place = &(*place)->next;
    }
    *place = memory->next;
    set_reserved(memory, false);
    gf_window_free_late(memory->address);
    atomic_fetch_sub(&count, 1);
    free(memory);
}

static bool is_device(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE && gf_is_device(location->id);
}

static CUresult check(const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params) {
    bool fine = params->bytesize > 0 && params->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                params->poolProps.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
                is_device(&params->poolProps.location) &&
                (params->accessDescs != NULL || params->accessDescCount == 0);
    for (size_t i = 0; fine && i < params->accessDescCount; i++) {
        const CUmemAccessDesc *access = &params->accessDescs[i];
        fine = is_device(&access->location) && (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                                                access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    return fine ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult allocate(struct gf_node *node) {
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params = &node->params.alloc;
    CUresult result = params->bytesize > SIZE_MAX - PAGE ? CUDA_ERROR_OUT_OF_MEMORY : check(params);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct gf_graph_memory *memory = calloc(1, sizeof *memory);
    node->memory_size = (uint32_t)(params->accessDescCount * sizeof *params->accessDescs);
    node->memory = malloc(node->memory_size + 1);
    result =
        memory == NULL || node->memory == NULL
            ? CUDA_ERROR_OUT_OF_MEMORY
            : gf_window_alloc(params->poolProps.location.id, params->bytesize, 0, 0, 0, &memory->address);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    if (node->memory_size > 0) {
        memcpy(node->memory, params->accessDescs, node->memory_size);
    }
    params->accessDescs = node->memory;
    params->dptr = memory->address;
    memory->bytes = (params->bytesize + PAGE - 1) / PAGE * PAGE;
    memory->device = params->poolProps.location.id;
    memory->graph = node->model->handle;
    memory->next = all;
    all = memory;
    node->allocation = memory;
    atomic_fetch_add(&count, 1);
    return CUDA_SUCCESS;
}

/* Memory is freed once in a graph at most, and either in its own or in others. */
static CUresult refer(struct gf_node *node) {
    CUdeviceptr address = node->params.free.dptr;
    struct gf_graph_memory *memory = address == 0 ? NULL : find(address);
    for (const struct gf_node *n = node->model->first; n != NULL && memory != NULL; n = n->next) {
        if (n->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE && n->params.free.dptr == address) {
            memory = NULL;
        }
    }
    bool there = memory != NULL && memory->graph == node->model->handle;
    if (memory == NULL || (there ? memory->freed_elsewhere : memory->freed_there)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *(there ? &memory->freed_there : &memory->freed_elsewhere) = true;
    node->allocation = memory;
    return CUDA_SUCCESS;
}

CUresult gf_graph_memory_take(struct gf_node *node) {
    const struct gf_node *within = node->model->parent;
    if (within != NULL && within->params.type != CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        return CUDA_ERROR_NOT_SUPPORTED; /* memory belongs to the graph that is launched */
    }
    pthread_mutex_lock(&lock);
    CUresult result = node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? allocate(node) : refer(node);
    if (result == CUDA_SUCCESS) {
        node->allocation->nodes++;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void gf_graph_memory_share(struct gf_node *node, const struct gf_node *from) {
    pthread_mutex_lock(&lock);
    node->allocation = from->allocation;
    if (node->allocation != NULL) {
        node->allocation->nodes++;
    }
    pthread_mutex_unlock(&lock);
}

void gf_graph_memory_clear(struct gf_node *node) {
    if (node->allocation == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    node->allocation->nodes--;
    end_unused(node->allocation);
    node->allocation = NULL;
    pthread_mutex_unlock(&lock);
}

/* Sets what the nodes of a type name, also in child graphs. */
static void set_all(const struct gf_model *model, CUgraphNodeType type, bool live) {
    for (const struct gf_node *n = model->first; n != NULL; n = n->next) {
        if (n->params.type == type) {
            set_live(n->allocation, live);
        }
        for (unsigned i = 0; i < n->body_count; i++) {
            set_all(n->bodies[i], type, live);
        }
    }
}

static bool is_free(const struct gf_model *model) {
    for (const struct gf_node *n = model->first; n != NULL; n = n->next) {
        if (n->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && n->allocation->live) {
            return false;
        }
        for (unsigned i = 0; i < n->body_count; i++) {
            if (!is_free(n->bodies[i])) {
                return false;
            }
        }
    }
    return true;
}

CUresult gf_graph_memory_launch(const struct gf_model *model, bool free_first) {
    pthread_mutex_lock(&lock);
    if (free_first) {
        set_all(model, CU_GRAPH_NODE_TYPE_MEM_ALLOC, false);
    }
    bool may = is_free(model);
    if (may) {
        set_all(model, CU_GRAPH_NODE_TYPE_MEM_ALLOC, true);
        set_all(model, CU_GRAPH_NODE_TYPE_MEM_FREE, false);
    }
    pthread_mutex_unlock(&lock);
    return may ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool gf_graph_memory_free(uint64_t address, CUresult *result) {
    if (atomic_load(&count) == 0) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct gf_graph_memory *memory = find(address);
    if (memory != NULL) {
        *result = memory->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        set_live(memory, false);
        end_unused(memory);
    }
    pthread_mutex_unlock(&lock);
    return memory != NULL;
}

/* What is not live is not there, as far as one can see, until a launch allocates it again. */
CUresult gf_graph_memory_trim(CUdevice device) {
    pthread_mutex_lock(&lock);
    for (struct gf_graph_memory *memory = all; memory != NULL; memory = memory->next) {
        if (!memory->live && memory->device == device) {
            set_reserved(memory, false);
        }
    }
    pthread_mutex_unlock(&lock);
    gf_window_settle(false);
    return CUDA_SUCCESS;
}

CUresult gf_graph_memory_attribute(CUdevice device, CUgraphMem_attribute attribute, cuuint64_t *value) {
    pthread_mutex_lock(&lock);
    const struct usage *usage = &usages[device];
    const uint64_t values[] = {usage->current, usage->used_high, usage->current, usage->reserved_high};
    *value = values[attribute];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* A mark begins again at what there is. */
CUresult gf_graph_memory_restart(CUdevice device, CUgraphMem_attribute attribute, const cuuint64_t *zero) {
    if (*zero != 0 ||
        (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    struct usage *usage = &usages[device];
    *(attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ? &usage->used_high : &usage->reserved_high) =
        usage->current;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
