#include "freed.h"

#include <stdatomic.h>

#include "context.h"
#include "objects.h"

static _Atomic uint64_t waits;                 /* that CUDA has made and nobody here, counted */
static _Atomic uint64_t freed[GF_DEVICES_MAX]; /* the latest of them for all of a device */
/* That count, when a stream of the device was last given work. */
static _Atomic uint64_t latest[GF_DEVICES_MAX];

static CUdevice device_of(const struct gf_stream *stream) {
    return stream == NULL ? gf_device_number() : gf_context_device(stream->object.owner);
}

/* Whether the context's legacy stream waits for it. */
static bool is_blocking(const struct gf_stream *stream) {
    return stream == NULL || (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

/* All streams share the count, so what is the same already is not written. */
static void note(_Atomic uint64_t *at, uint64_t count) {
    if (atomic_load_explicit(at, memory_order_relaxed) != count) {
        atomic_store_explicit(at, count, memory_order_relaxed);
    }
}

void gf_stream_marked(void) {
    struct gf_stream *stream = gf_thread.named;
    uint64_t count = atomic_load_explicit(&waits, memory_order_relaxed);
    gf_thread.names = false;
    note(&latest[device_of(stream)], count);
    if (stream != NULL) {
        note(&stream->used, count);
    }
}

void gf_event_marked(struct gf_event *event, uint64_t wire) {
    const struct gf_stream *stream = gf_stream_find((CUstream)wire);
    atomic_store(&event->blocking, wire == 0 || (stream != NULL && is_blocking(stream)));
    atomic_store(&event->used, atomic_load(&waits));
}

/* What the program asks about from now on it asks after one more wait, also of the stream just looked up. */
static void count_wait(_Atomic uint64_t *latest_of) {
    atomic_store(latest_of, atomic_fetch_add(&waits, 1) + 1);
    gf_thread.names = false;
}

void gf_freed(CUdevice device) {
    count_wait(&freed[device]);
}

void gf_copied_in(void) {
    struct gf_context *context = gf_context_current();
    if (context != NULL) {
        count_wait(&context->copied);
    }
}

static bool covers(uint64_t used, uint64_t owner, bool blocking) {
    const struct gf_context *context = blocking ? gf_context_find((CUcontext)owner) : NULL;
    return used < atomic_load(&freed[gf_context_device(owner)]) ||
           (context != NULL && used < atomic_load(&context->copied));
}

bool gf_freed_covers(const struct gf_stream *stream) {
    return covers(atomic_load(stream == NULL ? &latest[device_of(NULL)] : &stream->used),
                  stream == NULL ? gf_context_current_handle() : stream->object.owner, is_blocking(stream));
}

bool gf_freed_covers_event(const struct gf_event *event) {
    return event->recorded && (event->flags & CU_EVENT_INTERPROCESS) == 0 &&
           covers(atomic_load(&event->used), event->object.owner, atomic_load(&event->blocking));
}
