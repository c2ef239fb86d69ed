#include "handles.h"

#include <stdlib.h>
#include <string.h>

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
    memset(object + 1, 0, table->object_size - sizeof *object);
    *handle = gf_handle_make(table->kind, object->generation, object->slot);
    return object;
}

void gf_table_publish(void *object, uint64_t handle) {
    atomic_store_explicit(&((struct gf_object *)object)->handle, handle, memory_order_release);
}

bool gf_table_end(void *object) {
    return atomic_exchange(&((struct gf_object *)object)->handle, 0) != 0;
}

void gf_table_release(struct gf_table *table, void *object_) {
    struct gf_object *object = object_;
    pthread_mutex_lock(&table->lock);
    object->generation++;
    object->next_free = table->first_free;
    table->first_free = object->slot + 1;
    pthread_mutex_unlock(&table->lock);
}

void gf_table_end_owned(struct gf_table *table, uint64_t owner) {
    for (uint32_t slot = 0;; slot++) {
        struct gf_object *object = slot < GF_HANDLE_SLOT_LIMIT ? slot_address(table, slot) : NULL;
        if (object == NULL) {
            return;
        }
        if (atomic_load(&object->handle) != 0 && object->owner == owner && gf_table_end(object)) {
            gf_table_release(table, object);
        }
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
