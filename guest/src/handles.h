/* Tables of the objects that the guest makes handles for. Objects are type-stable: a slot's memory is reused
 * but never freed, so that a handle which another thread destroys at this moment is harmless. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/handle.h"

/* First member of every object. */
struct gf_object {
    _Atomic uint64_t handle; /* 0: the slot is free */
    uint32_t slot;
    uint16_t generation;
    uint32_t next_free;
    uint64_t owner; /* handle of what it ends with: a stream's context, a function's module */
};

#define GF_HANDLE_CHUNK 256

struct gf_table {
    enum gf_handle_kind kind;
    size_t object_size;
    pthread_mutex_t lock;
    _Atomic uint32_t slots;
    uint32_t first_free; /* slot + 1; 0: none */
    _Atomic(char *) chunks[GF_HANDLE_SLOT_LIMIT / GF_HANDLE_CHUNK];
};

#define GF_TABLE(kind_, type)                                                                                \
    {.kind = (kind_), .object_size = sizeof(type), .lock = PTHREAD_MUTEX_INITIALIZER}

/* A zeroed object with a new handle; NULL if the table is full or memory is out. `handle` is set last by
 * gf_publish, so that no other thread finds a half-made object. */
void *gf_table_take(struct gf_table *table, uint64_t *handle);
void gf_table_publish(void *object, uint64_t handle);
/* Ends a handle; false if another thread did so first. The slot may be taken again only after
 * gf_table_release: between the two the caller tells the server, so that its order is destroy, then create.
 */
bool gf_table_end(void *object);
void gf_table_release(struct gf_table *table, void *object);
/* Ends and releases whatever has this owner. */
void gf_table_end_owned(struct gf_table *table, uint64_t owner);
/* The object of a handle, NULL for anything else whatever its bits. */
void *gf_table_find(struct gf_table *table, uint64_t handle);
/* The live object in a slot, for walks over a table; NULL if the slot is free or does not exist. */
void *gf_table_at(struct gf_table *table, uint32_t slot);
