/* What a stream has this process do: the server asks for it by a number when the stream has come there, and
 * the stream goes on when it is done. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

struct gf_host_task {
    /* On a thread of ours, once the stream is there. `status` is how the stream fares. */
    void (*run)(struct gf_host_task *call, uint64_t ticket, CUresult status);
    bool copies;      /* no function of the program: those run one at a time, and may take theirs */
    bool kept;        /* asked for any number of times; else freed (it is malloc's) when it has run */
    unsigned asked;   /* for how many times it is to run */
    uint64_t dropped; /* of a kept call: what has a lower number may still ask for it */
    uint64_t id, context;
    uint64_t sent; /* how many requests were before it was in its stream; 0: nobody waits for it to be done */
    struct gf_host_task *next;
};

/* Gives the call its number and waits for the server to ask for it. Failure: the call is still the caller's.
 */
CUresult gf_host_call_add(struct gf_host_task *call);
/* Puts a call that was added into a stream, by the stream's wire id; `always`: even if the stream has failed.
 * On failure it is added no more, and is still the caller's. */
CUresult gf_host_call_enqueue(struct gf_host_task *call, uint64_t stream, bool always);
/* A call that a graph may ask for any number of times, until it is dropped and what was enqueued before is
 * done; then it is freed. 0: no memory, and it is still the caller's. */
uint64_t gf_host_call_keep(struct gf_host_task *call);
uint64_t gf_host_call_keep_function(CUhostFn function, void *data);
void gf_host_call_drop(uint64_t id);
/* Counts as pending from here on, for a launch that may ask for kept calls; to be enqueued behind it. NULL:
 * no memory. */
struct gf_host_task *gf_host_call_mark(void);
/* The launch did not come about. */
void gf_host_call_unmark(struct gf_host_task *mark);
/* Functions of the program in a stream, by the stream's wire id. */
CUresult gf_host_call_function(uint64_t stream, CUhostFn function, void *data);
CUresult gf_host_call_callback(uint64_t stream, CUstream handle, CUstreamCallback callback, void *data);

extern _Atomic unsigned gf_host_calls;
/* Whether a stream may be waiting for this process, so that nothing may wait for the stream within the
 * server's dispatcher. */
static inline bool gf_host_calls_pending(void) {
    return __builtin_expect(atomic_load_explicit(&gf_host_calls, memory_order_acquire) != 0, 0);
}
/* Before the server waits for all that the program freed, whose memory any stream may be using: until none
 * waits for this process, but not for ever, for a program may let a stream go on by what it does next. */
void gf_host_calls_await(void);
/* Before something of a context ends for which the server's dispatcher waits for the device: waits for it
 * here. */
void gf_host_calls_settle(uint64_t context);
