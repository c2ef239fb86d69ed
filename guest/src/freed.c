#include "freed.h"

#include <stdatomic.h>

#include "context.h"
#include "objects.h"

static _Atomic uint64_t counts[GF_DEVICES_MAX]; /* how often memory of the device was freed */
/* That count, when a stream of the device was last given work. */
static _Atomic uint64_t latest[GF_DEVICES_MAX];

static CUdevice device_of(const struct gf_stream *stream) {
    return stream == NULL ? gf_device_number() : gf_context_device(stream->object.owner);
}

static uint64_t count_of(CUdevice device) {
    return atomic_load_explicit(&counts[device], memory_order_relaxed);
}

/* All streams share the count, so what is the same already is not written. */
static void note(_Atomic uint64_t *at, uint64_t count) {
    if (atomic_load_explicit(at, memory_order_relaxed) != count) {
        atomic_store_explicit(at, count, memory_order_relaxed);
    }
}

void gf_stream_marked(void) {
    struct gf_stream *stream = gf_thread.named;
    CUdevice device = device_of(stream);
    uint64_t count = count_of(device);
    gf_thread.names = false;
    note(&latest[device], count);
    if (stream != NULL) {
        note(&stream->used, count);
    }
}

void gf_event_marked(struct gf_event *event) {
    atomic_store(&event->used, count_of(gf_context_device(event->object.owner)));
}

void gf_freed(CUdevice device) {
    atomic_fetch_add(&counts[device], 1);
    gf_thread.names = false;
}

bool gf_freed_covers(const struct gf_stream *stream) {
    CUdevice device = device_of(stream);
    return atomic_load(stream == NULL ? &latest[device] : &stream->used) < count_of(device);
}

bool gf_freed_covers_event(const struct gf_event *event) {
    return event->recorded && (event->flags & CU_EVENT_INTERPROCESS) == 0 &&
           atomic_load(&event->used) < count_of(gf_context_device(event->object.owner));
}
