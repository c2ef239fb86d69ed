/* To free memory waits in CUDA for all that the device was given. Here memory is kept until what used it is
 * done, so nobody waits; but what the program asks about afterwards it asks as if that wait had been. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"
#include "guest.h"

struct gf_event;
struct gf_stream;

/* The next frame that this thread sends may be work for a stream; NULL: the legacy one. */
static inline void gf_stream_named(struct gf_stream *stream) {
    gf_thread.names = true;
    gf_thread.named = stream;
}

void gf_stream_marked(void);

/* The event is recorded. */
void gf_event_marked(struct gf_event *event);

/* A frame goes out. */
static inline void gf_stream_used(void) {
    if (gf_thread.names) {
        gf_stream_marked();
    }
}

/* Memory of a device is freed: what it was given before counts as waited for. */
void gf_freed(CUdevice device);
/* Whether the stream was given nothing since memory of its device was last freed. */
bool gf_freed_covers(const struct gf_stream *stream);
/* Whether memory was freed since the event's last record. Of what other processes record nothing is known. */
bool gf_freed_covers_event(const struct gf_event *event);
