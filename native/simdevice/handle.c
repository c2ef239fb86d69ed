#include "handle.h"
#include "context.h"
#include <pthread.h>
#include <stdlib.h>

/* handle = generation (20 bits) | kind (6) | slot + 1 (24) | zero (4): never one of CUDA's small special
 * handles. state = generation (20) | kind (6) | open (1) | references (31), so one compare-and-swap checks
 * and references. */
#define CHUNK_SLOTS 4096u
#define CHUNKS      4096u
#define OPEN        (UINT64_C(1) << 31)
#define REFERENCES  (OPEN - 1)
#define TAG_SHIFT   32
#define KIND_BITS   6
#define KIND_MASK   ((1u << KIND_BITS) - 1)
#define GENERATIONS (UINT64_C(1) << 20)

struct slot {
    _Atomic uint64_t state;
    struct sim_object *object;
    uint32_t next_free;
};

static _Atomic(struct slot *) chunks[CHUNKS];
static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t free_head, free_tail, slot_count; /* slot + 1; 0: none */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_list of_no_context[SIM_KINDS];

static struct slot *slot_at(uint32_t index) {
    struct slot *chunk = atomic_load_explicit(&chunks[index / CHUNK_SLOTS], memory_order_acquire);
    return chunk ? &chunk[index % CHUNK_SLOTS] : NULL;
}

static struct slot *slot_of(uint64_t handle) {
    uint32_t number = (uint32_t)(handle >> 4) & 0xffffff;
    return number ? slot_at(number - 1) : NULL;
}

static uint32_t take_slot(void) {
    uint32_t number = 0;
    pthread_mutex_lock(&free_lock);
    if (free_head) {
        number = free_head;
        free_head = slot_at(number - 1)->next_free;
        if (!free_head)
            free_tail = 0;
    } else if (slot_count < CHUNKS * CHUNK_SLOTS - 1) {
        _Atomic(struct slot *) *chunk = &chunks[slot_count / CHUNK_SLOTS];
        if (!atomic_load_explicit(chunk, memory_order_relaxed))
            atomic_store_explicit(chunk, calloc(CHUNK_SLOTS, sizeof(struct slot)), memory_order_release);
        if (atomic_load_explicit(chunk, memory_order_relaxed))
            number = ++slot_count;
    }
    pthread_mutex_unlock(&free_lock);
    return number;
}

/* First in, first out: a generation repeats as late as possible. */
static void give_slot(uint32_t number) {
    pthread_mutex_lock(&free_lock);
    slot_at(number - 1)->next_free = 0;
    if (free_tail)
        slot_at(free_tail - 1)->next_free = number;
    else
        free_head = number;
    free_tail = number;
    pthread_mutex_unlock(&free_lock);
}

static enum sim_kind kind_of(const struct sim_object *object) {
    return (enum sim_kind)(object->handle >> 28 & KIND_MASK);
}

static struct sim_list *list_of(struct sim_context *context, enum sim_kind kind) {
    return context ? &context->held[kind] : &of_no_context[kind];
}

/* Lock of all lists held, as for `leave`. `before` NULL: the list's first. */
static void enter(struct sim_list *list, struct sim_object *object, struct sim_object *before) {
    object->previous = before;
    object->next = before ? before->next : list->first;
    *(before ? &before->next : &list->first) = object;
    *(object->next ? &object->next->previous : &list->last) = object;
    object->listed = true;
}

static void leave(struct sim_list *list, struct sim_object *object) {
    if (!object->listed)
        return;
    *(object->previous ? &object->previous->next : &list->first) = object->next;
    *(object->next ? &object->next->previous : &list->last) = object->previous;
    object->listed = false;
}

static void leave_its_list(struct sim_object *object) {
    pthread_mutex_lock(&list_lock);
    leave(list_of(object->context, kind_of(object)), object);
    pthread_mutex_unlock(&list_lock);
}

bool sim_handle_open(void *pointer, enum sim_kind kind, struct sim_context *context,
                     void (*destroy)(void *)) {
    struct sim_object *object = pointer;
    uint32_t number = take_slot();
    if (!number)
        return false;
    struct slot *slot = slot_at(number - 1);
    uint64_t generation =
        (atomic_load_explicit(&slot->state, memory_order_relaxed) >> (TAG_SHIFT + KIND_BITS)) + 1;
    uint64_t tag = (generation % GENERATIONS) << KIND_BITS | kind;
    object->handle = tag << 28 | (uint64_t)number << 4;
    object->context = context;
    object->destroy = destroy;
    slot->object = object;
    atomic_store_explicit(&slot->state, tag << TAG_SHIFT | OPEN | 1, memory_order_release);
    pthread_mutex_lock(&list_lock);
    struct sim_list *list = list_of(context, kind);
    enter(list, object, list->last);
    pthread_mutex_unlock(&list_lock);
    return true;
}

void *sim_acquire(uint64_t handle, enum sim_kind kind) {
    struct slot *slot = slot_of(handle);
    uint64_t tag = handle >> 28;
    if (!slot || (tag & KIND_MASK) != kind || (handle & 15))
        return NULL;
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    do {
        if (state >> TAG_SHIFT != tag || !(state & OPEN) || !(state & REFERENCES))
            return NULL;
    } while (!atomic_compare_exchange_weak(&slot->state, &state, state + 1));
    return slot->object;
}

void sim_retain(void *object) {
    atomic_fetch_add(&slot_of(((struct sim_object *)object)->handle)->state, 1);
}

void sim_release(void *pointer) {
    struct sim_object *object = pointer;
    struct slot *slot = slot_of(object->handle);
    if ((atomic_fetch_sub(&slot->state, 1) & REFERENCES) != 1)
        return;
    uint32_t number = (uint32_t)(object->handle >> 4) & 0xffffff;
    leave_its_list(object); /* if it was never closed */
    object->destroy(object);
    give_slot(number);
}

void *sim_handle_close(uint64_t handle, enum sim_kind kind) {
    void *object = sim_acquire(handle, kind);
    if (!object)
        return NULL;
    bool closed = atomic_fetch_and(&slot_of(handle)->state, ~OPEN) & OPEN;
    if (closed)
        leave_its_list(object);
    sim_release(object); /* the handle's own reference remains if we are the one who closed it */
    return closed ? object : NULL;
}

/* The next object behind the mark that is there still, with a reference; the mark moves behind it. NULL, and
 * no mark any more: there is none. */
static struct sim_object *step(struct sim_list *list, struct sim_object *mark, enum sim_kind kind) {
    pthread_mutex_lock(&list_lock);
    struct sim_object *object = mark->next;
    while (object && !sim_acquire(object->handle, kind)) /* it is just going, or another's mark */
        object = object->next;
    leave(list, mark);
    if (object)
        enter(list, mark, object);
    pthread_mutex_unlock(&list_lock);
    return object;
}

void sim_handle_for_each(enum sim_kind kind, struct sim_context *context, void (*visit)(void *, void *),
                         void *argument) {
    struct sim_list *list = list_of(context, kind);
    struct sim_object mark = {.handle = 0}, *object;
    pthread_mutex_lock(&list_lock);
    enter(list, &mark, NULL);
    pthread_mutex_unlock(&list_lock);
    while ((object = step(list, &mark, kind))) {
        visit(object, argument);
        sim_release(object);
    }
}

static void close_and_release(void *pointer, void *kind) {
    if (sim_handle_close(((struct sim_object *)pointer)->handle, *(enum sim_kind *)kind))
        sim_release(pointer);
}

void sim_handle_close_all(enum sim_kind kind, struct sim_context *context) {
    sim_handle_for_each(kind, context, close_and_release, &kind);
}
