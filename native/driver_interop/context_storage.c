#include "driver_interop/context_storage.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "driver_interop/interop.h"

/* Note [Storage without locks]
 * Nodes are in hash chains that only grow; a node whose entry is gone is given to the next entry of its
 * chain, so memory is bounded by the most entries that ever lived at once. Writers hold the mutex. A reader
 * may meet a node that is being rewritten: `sequence` is odd meanwhile and different afterwards, and then the
 * reader looks again. Members are read with acquire and written with release so that no reader sees a member
 * newer than the sequence it checks. */
struct node {
    struct node *next; /* never changes once the node is in a chain */
    atomic_uint sequence;
    atomic_bool alive;
    _Atomic(CUcontext) context;
    _Atomic(void *) key;
    _Atomic(void *) value;
    gf_storage_destructor *destructor; /* writers only */
};

#define CHAINS 256u

static _Atomic(struct node *) chains[CHAINS];
static pthread_mutex_t writers = PTHREAD_MUTEX_INITIALIZER;

static void hold_writers(void) {
    pthread_mutex_lock(&writers);
}

static void release_writers(void) {
    pthread_mutex_unlock(&writers);
}

/* A child must not find a node half written by a thread that it does not have. */
__attribute__((constructor)) static void quiesce_at_fork(void) {
    pthread_atfork(hold_writers, release_writers, release_writers);
}

static _Atomic(struct node *) *chain_of(CUcontext context, void *key) {
    uint64_t bits = ((uint64_t)(uintptr_t)context * 31 + (uint64_t)(uintptr_t)key) * 0x9e3779b97f4a7c15u;
    return &chains[bits >> 56];
}

static CUresult resolve(CUcontext *context) {
    if (*context)
        return CUDA_SUCCESS;
    CUresult result = gf_interop_driver.current_context(context);
    if (result != CUDA_SUCCESS)
        return result;
    return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* Writers only. */
static struct node *find(_Atomic(struct node *) *chain, CUcontext context, void *key) {
    for (struct node *node = atomic_load(chain); node; node = node->next)
        if (atomic_load(&node->alive) && atomic_load(&node->context) == context &&
            atomic_load(&node->key) == key)
            return node;
    return NULL;
}

static void write_node(struct node *node, bool alive, CUcontext context, void *key, void *value,
                       gf_storage_destructor *destructor) {
    unsigned sequence = atomic_load_explicit(&node->sequence, memory_order_relaxed);
    atomic_store_explicit(&node->sequence, sequence + 1, memory_order_relaxed);
    atomic_store_explicit(&node->alive, alive, memory_order_release);
    atomic_store_explicit(&node->context, context, memory_order_release);
    atomic_store_explicit(&node->key, key, memory_order_release);
    atomic_store_explicit(&node->value, value, memory_order_release);
    node->destructor = destructor;
    atomic_store_explicit(&node->sequence, sequence + 2, memory_order_release);
}

CUresult gf_context_storage_put(CUcontext context, void *key, void *value,
                                gf_storage_destructor *destructor) {
    CUresult result = resolve(&context);
    if (result != CUDA_SUCCESS)
        return result;
    _Atomic(struct node *) *chain = chain_of(context, key);
    pthread_mutex_lock(&writers);
    struct node *node = find(chain, context, key);
    for (struct node *free_node = atomic_load(chain); !node && free_node; free_node = free_node->next)
        if (!atomic_load(&free_node->alive))
            node = free_node;
    if (node) {
        write_node(node, true, context, key, value, destructor);
    } else if ((node = calloc(1, sizeof *node))) {
        write_node(node, true, context, key, value, destructor);
        node->next = atomic_load(chain);
        atomic_store_explicit(chain, node, memory_order_release);
    } else {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&writers);
    return result;
}

/* The caller disposes of the value itself: no destructor runs. */
CUresult gf_context_storage_delete(CUcontext context, void *key) {
    CUresult result = resolve(&context);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&writers);
    struct node *node = find(chain_of(context, key), context, key);
    if (node)
        write_node(node, false, NULL, NULL, NULL, NULL);
    pthread_mutex_unlock(&writers);
    return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult gf_context_storage_get(void **value, CUcontext context, void *key) {
    CUresult result = resolve(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct node *node = atomic_load_explicit(chain_of(context, key), memory_order_acquire);
    while (node) {
        unsigned before = atomic_load_explicit(&node->sequence, memory_order_acquire);
        bool alive = atomic_load_explicit(&node->alive, memory_order_acquire);
        CUcontext node_context = atomic_load_explicit(&node->context, memory_order_acquire);
        void *node_key = atomic_load_explicit(&node->key, memory_order_acquire);
        void *found = atomic_load_explicit(&node->value, memory_order_acquire);
        unsigned after = atomic_load_explicit(&node->sequence, memory_order_relaxed);
        if (before != after || before % 2)
            continue;
        if (alive && node_context == context && node_key == key) {
            *value = found;
            return CUDA_SUCCESS;
        }
        node = node->next;
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

/* Takes one entry of the context out; false if there is none left. */
static bool take(CUcontext context, void **key, void **value, gf_storage_destructor **destructor) {
    bool taken = false;
    pthread_mutex_lock(&writers);
    for (unsigned i = 0; i < CHAINS && !taken; i++) {
        for (struct node *node = atomic_load(&chains[i]); node && !taken; node = node->next) {
            if (!atomic_load(&node->alive) || atomic_load(&node->context) != context)
                continue;
            *key = atomic_load(&node->key);
            *value = atomic_load(&node->value);
            *destructor = node->destructor;
            write_node(node, false, NULL, NULL, NULL, NULL);
            taken = true;
        }
    }
    pthread_mutex_unlock(&writers);
    return taken;
}

/* Destructors run without the lock: they may use the storage. */
void gf_context_storage_drop(CUcontext context) {
    void *key;
    void *value;
    gf_storage_destructor *destructor;
    while (take(context, &key, &value, &destructor))
        if (destructor)
            destructor(context, key, value);
}
