/* To free memory waits in CUDA for all that the device was given, and a blocking copy from the program's
 * memory for what its stream was. Here memory is kept until what used it is done, and what is copied is sent
 * on, so nobody waits; but what the program asks about afterwards it asks as if that wait had been. */
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

/* The event is recorded, in this stream as it travels (0: the legacy one). */
void gf_event_marked(struct gf_event *event, uint64_t wire);

/* A frame goes out. */
static inline void gf_stream_used(void) {
    if (gf_thread.names) {
        gf_stream_marked();
    }
}

/* Memory of a device is freed: what it was given before counts as waited for. */
void gf_freed(CUdevice device);
/* A blocking copy in the legacy stream of the current context begins: the same of that one's blocking
 * streams. */
void gf_copied_in(void);
/* Whether the stream was given nothing since there was such a wait for it. */
bool gf_freed_covers(const struct gf_stream *stream);
/* Whether there was one since the event's last record. Of what other processes record nothing is known. */
bool gf_freed_covers_event(const struct gf_event *event);
