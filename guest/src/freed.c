#include "freed.h"

#include <stdatomic.h>

#include "context.h"
#include "objects.h"

static _Atomic uint64_t counts[GF_DEVICES_MAX];
static _Atomic uint64_t
    latest[GF_DEVICES_MAX]; /* the count when a stream of the device was last given work */

static CUdevice device_of(const struct gf_stream *stream) {
    return stream == NULL ? gf_device_number() : gf_context_device(stream->object.owner);
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
    uint64_t count = gf_freed_count(device);
    gf_thread.names = false;
    note(&latest[device], count);
    if (stream != NULL) {
        note(&stream->used, count);
    }
}

void gf_freed(CUdevice device) {
    atomic_fetch_add(&counts[device], 1);
    gf_thread.names = false;
}

uint64_t gf_freed_count(CUdevice device) {
    return atomic_load_explicit(&counts[device], memory_order_relaxed);
}

bool gf_freed_covers(const struct gf_stream *stream) {
    CUdevice device = device_of(stream);
    return atomic_load(stream == NULL ? &latest[device] : &stream->used) < gf_freed_count(device);
}
