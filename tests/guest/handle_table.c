/* A table of events for test_handles.py. */
#include "handles.h"

struct thing {
    struct gf_object object;
    int value;
};

static _Atomic int freed;

static void ended(struct gf_object *object) {
    atomic_fetch_add(&freed, ((struct thing *)object)->value);
}

static struct gf_table table = GF_TABLE(GF_HANDLE_EVENT, struct thing, ended);

uint64_t make_owned(int value, uint64_t owner) {
    uint64_t handle;
    struct thing *thing = gf_table_take(&table, &handle);
    if (thing == NULL) {
        return 0;
    }
    thing->value = value;
    gf_object_publish(thing, handle, owner == 0 ? NULL : gf_table_find(&table, owner));
    return handle;
}

uint64_t make(int value) {
    return make_owned(value, 0);
}

int value_of(uint64_t handle) {
    struct thing *thing = gf_table_find(&table, handle);
    return thing == NULL ? -1 : thing->value;
}

/* How many ended. */
int end(uint64_t handle) {
    struct thing *thing = gf_table_find(&table, handle);
    struct gf_object *all = thing == NULL ? NULL : gf_object_end(thing, handle);
    int count = 0;
    for (struct gf_object *object = all; object != NULL; object = object->next) {
        count++;
    }
    gf_objects_release(all);
    return count;
}

int end_owned(uint64_t handle) {
    int before = atomic_load(&freed);
    gf_objects_release(gf_object_end_owned(gf_table_find(&table, handle)));
    return atomic_load(&freed) - before;
}
