/* Tables of the objects that the guest makes handles for. Objects are type-stable: a slot's memory is reused
 * but never freed, so that a handle which another thread destroys at this moment is harmless. Objects own
 * each other: what ends takes along all that it owns, and nothing else is looked at. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/handle.h"

struct gf_table;

/* First member of every object. */
struct gf_object {
    _Atomic uint64_t handle; /* 0: the slot is free */
    uint32_t slot;
    uint16_t generation;
    uint32_t next_free;
    struct gf_table *table;
    uint64_t owner; /* handle of what it ends with; 0: the session */
    /* Of the tree of owners, under its lock; `next` of what has ended: what ended with it. */
    struct gf_object *parent, *first, *next, *previous;
};

#define GF_HANDLE_CHUNK 256

struct gf_table {
    enum gf_handle_kind kind;
    size_t object_size;
    void (*ended)(struct gf_object *object); /* frees what the object holds; may be NULL */
    pthread_mutex_t lock;
    _Atomic uint32_t slots;
    uint32_t first_free; /* slot + 1; 0: none */
    _Atomic(char *) chunks[GF_HANDLE_SLOT_LIMIT / GF_HANDLE_CHUNK];
};

#define GF_TABLE(kind_, type, ended_)                                                                        \
    {.kind = (kind_), .object_size = sizeof(type), .ended = (ended_), .lock = PTHREAD_MUTEX_INITIALIZER}

/* A zeroed object with a new handle; NULL if the table is full or memory is out. `handle` is set last by
 * gf_object_publish, so that no other thread finds a half-made object. */
void *gf_table_take(struct gf_table *table, uint64_t *handle);
/* Gives back an object that was taken and never published. */
void gf_object_discard(void *object);
/* owner: NULL is the session. */
void gf_object_publish(void *object, uint64_t handle, void *owner);
/* From here on it ends with another owner. */
void gf_object_give(void *object, void *owner);
/* Ends an object and all that it owns; NULL if the handle is its no more: another thread did so first. The
 * slots may be taken again only after gf_objects_release: between the two the caller tells the server, so
 * that its order is destroy, then create. */
struct gf_object *gf_object_end(void *object, uint64_t handle);
/* The same for what it owns, itself excepted. */
struct gf_object *gf_object_end_owned(void *object);
void gf_objects_release(struct gf_object *ended);
/* The object of a handle, NULL for anything else whatever its bits. */
void *gf_table_find(struct gf_table *table, uint64_t handle);
/* The live object in a slot, for walks over a table; NULL if the slot is free or does not exist. */
void *gf_table_at(struct gf_table *table, uint32_t slot);
