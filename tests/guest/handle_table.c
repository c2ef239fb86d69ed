/* A table of events for test_handles.py. */
#include "handles.h"

struct thing {
    struct gf_object object;
    int value;
};

static struct gf_table table = GF_TABLE(GF_HANDLE_EVENT, struct thing);

uint64_t make(int value) {
    uint64_t handle;
    struct thing *thing = gf_table_take(&table, &handle);
    if (thing == NULL) {
        return 0;
    }
    thing->value = value;
    gf_table_publish(thing, handle);
    return handle;
}

int value_of(uint64_t handle) {
    struct thing *thing = gf_table_find(&table, handle);
    return thing == NULL ? -1 : thing->value;
}

int end(uint64_t handle) {
    struct thing *thing = gf_table_find(&table, handle);
    if (thing == NULL || !gf_table_end(thing)) {
        return 0;
    }
    gf_table_release(&table, thing);
    return 1;
}
