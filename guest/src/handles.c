#include "handles.h"

#include <stdlib.h>
#include <string.h>

/* Who owns what. Taken alone, or before a table's lock. */
static pthread_mutex_t tree_lock = PTHREAD_MUTEX_INITIALIZER;

static struct gf_object *slot_address(struct gf_table *table, uint32_t slot) {
    char *chunk = atomic_load_explicit(&table->chunks[slot / GF_HANDLE_CHUNK], memory_order_acquire);
    return chunk == NULL ? NULL : (struct gf_object *)(chunk + slot % GF_HANDLE_CHUNK * table->object_size);
}

static struct gf_object *new_slot(struct gf_table *table) {
    uint32_t slot = table->slots;
    if (slot == GF_HANDLE_SLOT_LIMIT) {
        return NULL;
    }
    if (slot % GF_HANDLE_CHUNK == 0) {
        char *chunk = calloc(GF_HANDLE_CHUNK, table->object_size);
        if (chunk == NULL) {
            return NULL;
        }
        atomic_store_explicit(&table->chunks[slot / GF_HANDLE_CHUNK], chunk, memory_order_release);
    }
    table->slots++;
    struct gf_object *object = slot_address(table, slot);
    object->slot = slot;
    return object;
}

void *gf_table_take(struct gf_table *table, uint64_t *handle) {
    pthread_mutex_lock(&table->lock);
    struct gf_object *object;
    if (table->first_free != 0) {
        object = slot_address(table, table->first_free - 1);
        table->first_free = object->next_free;
    } else {
        object = new_slot(table);
    }
    pthread_mutex_unlock(&table->lock);
    if (object == NULL) {
        return NULL;
    }
    object->owner = 0;
    object->table = table;
    object->parent = object->first = object->next = object->previous = NULL;
    memset(object + 1, 0, table->object_size - sizeof *object);
    *handle = gf_handle_make(table->kind, object->generation, object->slot);
    return object;
}

static void free_slot(struct gf_object *object) {
    struct gf_table *table = object->table;
    pthread_mutex_lock(&table->lock);
    object->generation++;
    object->next_free = table->first_free;
    table->first_free = object->slot + 1;
    pthread_mutex_unlock(&table->lock);
}

void gf_object_discard(void *object) {
    free_slot(object);
}

/* Lock held. An owner that another thread ends at this moment takes nothing along any more. */
static void hang(struct gf_object *object, struct gf_object *owner) {
    object->owner = atomic_load(&owner->handle);
    if (object->owner != 0) {
        object->parent = owner;
        object->next = owner->first;
        if (object->next != NULL) {
            object->next->previous = object;
        }
        owner->first = object;
    }
}

void gf_object_publish(void *object_, uint64_t handle, void *owner) {
    struct gf_object *object = object_;
    pthread_mutex_lock(&tree_lock);
    if (owner != NULL) {
        hang(object, owner);
    }
    atomic_store_explicit(&object->handle, handle, memory_order_release);
    pthread_mutex_unlock(&tree_lock);
}

static void unlink_object(struct gf_object *object) {
    if (object->parent == NULL) {
        return;
    }
    if (object->previous != NULL) {
        object->previous->next = object->next;
    } else {
        object->parent->first = object->next;
    }
    if (object->next != NULL) {
        object->next->previous = object->previous;
    }
    object->parent = object->next = object->previous = NULL;
}

void gf_object_give(void *object, void *owner) {
    pthread_mutex_lock(&tree_lock);
    unlink_object(object);
    hang(object, owner);
    pthread_mutex_unlock(&tree_lock);
}

static void end_locked(struct gf_object *object, struct gf_object **ended);

static void end_owned_locked(struct gf_object *object, struct gf_object **ended) {
    while (object->first != NULL) {
        end_locked(object->first, ended);
    }
}

static void end_locked(struct gf_object *object, struct gf_object **ended) {
    unlink_object(object);
    atomic_store(&object->handle, 0);
    object->next = *ended;
    *ended = object;
    end_owned_locked(object, ended);
}

struct gf_object *gf_object_end(void *object_, uint64_t handle) {
    struct gf_object *object = object_, *ended = NULL;
    pthread_mutex_lock(&tree_lock);
    if (atomic_load(&object->handle) == handle) {
        end_locked(object, &ended);
    }
    pthread_mutex_unlock(&tree_lock);
    return ended;
}

struct gf_object *gf_object_end_owned(void *object) {
    struct gf_object *ended = NULL;
    pthread_mutex_lock(&tree_lock);
    end_owned_locked(object, &ended);
    pthread_mutex_unlock(&tree_lock);
    return ended;
}

void gf_objects_release(struct gf_object *ended) {
    while (ended != NULL) {
        struct gf_object *next = ended->next;
        ended->next = NULL;
        if (ended->table->ended != NULL) {
            ended->table->ended(ended);
        }
        free_slot(ended);
        ended = next;
    }
}

void *gf_table_find(struct gf_table *table, uint64_t handle) {
    uint32_t slot = gf_handle_slot(handle);
    if (slot >= GF_HANDLE_SLOT_LIMIT || gf_handle_tag(handle) != GF_HANDLE_TAG) {
        return NULL;
    }
    struct gf_object *object = slot_address(table, slot);
    if (object == NULL || atomic_load_explicit(&object->handle, memory_order_acquire) != handle) {
        return NULL;
    }
    return object;
}

void *gf_table_at(struct gf_table *table, uint32_t slot) {
    if (slot >= GF_HANDLE_SLOT_LIMIT) {
        return NULL;
    }
    struct gf_object *object = slot_address(table, slot);
    return object != NULL && atomic_load_explicit(&object->handle, memory_order_acquire) != 0 ? object : NULL;
}
