/* Handles are numbers, never addresses: slot, generation and kind. A destroyed or invented handle is
 * therefore found out without touching memory, and an object stays alive while a call or a queued operation
 * holds a reference. */
#pragma once
#include "sim.h"

enum sim_kind {
    SIM_CONTEXT = 1,
    SIM_STREAM,
    SIM_EVENT,
    SIM_MODULE,
    SIM_FUNCTION,
    SIM_LIBRARY,
    SIM_KERNEL,
    SIM_POOL,
    SIM_PHYSICAL,
    SIM_LINK,
    SIM_GRAPH,
    SIM_GRAPH_NODE,
    SIM_GRAPH_EXEC,
    SIM_USER_OBJECT,
    SIM_ARRAY = 20,
    SIM_MIPMAP,
    SIM_TEXREF,
    SIM_GREEN,
    SIM_KINDS
};

struct sim_context;
struct sim_object;

/* Objects of one kind that end with the same context, oldest first; under the lock of all lists. */
struct sim_list {
    struct sim_object *first, *last;
};

/* The first member of everything that has a handle. */
struct sim_object {
    uint64_t handle;
    struct sim_context *context; /* whose end is this object's end; NULL if none */
    void (*destroy)(void *object);
    struct sim_object *previous, *next; /* in its list, for as long as its handle is open */
    bool listed;
};

/* Gives `object` a handle and one reference, which belongs to the handle. False when memory is exhausted. */
bool sim_handle_open(void *object, enum sim_kind kind, struct sim_context *context,
                     void (*destroy)(void *object));
/* The object behind a handle, with a reference that the caller releases; NULL if there is no such object. */
void *sim_acquire(uint64_t handle, enum sim_kind kind);
void sim_retain(void *object);
void sim_release(void *object);
/* Makes the handle invalid; the handle's reference passes to the caller. NULL if it was invalid already. */
void *sim_handle_close(uint64_t handle, enum sim_kind kind);
/* Calls `visit` for every object of that kind that belongs to the context (NULL: to none), which it keeps
 * alive meanwhile. It takes as many steps as there are of these, whatever else there is. */
void sim_handle_for_each(enum sim_kind kind, struct sim_context *context,
                         void (*visit)(void *object, void *argument), void *argument);
/* Closes and releases every object of that kind that belongs to the context. */
void sim_handle_close_all(enum sim_kind kind, struct sim_context *context);

#define SIM_HANDLE(pointer)               ((uint64_t)(uintptr_t)(pointer))
#define SIM_POINTER(type, object_pointer) ((type)(uintptr_t)(object_pointer)->object.handle)
