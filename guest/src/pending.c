#include "pending.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "gpuferry/messages.h"
#include "session.h"

#define IN_FLIGHT_MAX (32ull << 20) /* WIRE.md 8 */

struct pending {
    struct gf_call call;
    _Atomic bool arrived;
    unsigned waiters;
    struct pending *next, **link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pending *first, **last = &first; /* in the order of sending */
static uint64_t in_flight;
static _Atomic unsigned count; /* spares the copies of programs that have none the lock */

static uint64_t span(const struct gf_rows *rows) {
    return rows->pitch * (rows->rows - 1) + rows->width;
}

static void arrived(struct gf_call *call) {
    struct pending *pending = (struct pending *)call;
    if (call->status != CUDA_SUCCESS) {
        gf_channel_latch(call->context_id, call->status);
    }
    free(call->payload);
    pthread_mutex_lock(&lock);
    *pending->link = pending->next;
    if (pending->next != NULL) {
        pending->next->link = pending->link;
    } else {
        last = pending->link;
    }
    in_flight -= call->rows.width * call->rows.rows;
    atomic_fetch_sub(&count, 1);
    atomic_store_explicit(&pending->arrived, true, memory_order_release);
    if (pending->waiters == 0) {
        free(pending);
    }
    pthread_mutex_unlock(&lock);
}

/* With the lock held, which it drops while waiting. */
static bool wait_for(struct pending *pending) {
    pending->waiters++;
    pthread_mutex_unlock(&lock);
    bool here = gf_channel_wait_flag(&pending->arrived);
    pthread_mutex_lock(&lock);
    if (--pending->waiters == 0 && here) {
        free(pending);
    }
    return here;
}

CUresult gf_pending_start(uint16_t op, const void *request, size_t size, const struct gf_rows *rows) {
    struct pending *pending = calloc(1, sizeof *pending);
    if (pending == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pending->call = (struct gf_call){.op = op, .rows = *rows, .completed = arrived};
    pthread_mutex_lock(&lock);
    while (first != NULL && in_flight + rows->width * rows->rows > IN_FLIGHT_MAX && wait_for(first)) {
    }
    pending->link = last;
    *last = pending;
    last = &pending->next;
    in_flight += rows->width * rows->rows;
    atomic_fetch_add(&count, 1);
    pthread_mutex_unlock(&lock);
    return gf_call_start(&pending->call, &(struct iovec){(void *)request, size}, 1);
}

bool gf_pending_any(void) {
    return atomic_load(&count) > 0;
}

void gf_pending_wait(const void *base, uint64_t size) {
    if (!gf_pending_any()) {
        return;
    }
    pthread_mutex_lock(&lock);
    for (struct pending *p = first; p != NULL;) {
        uint64_t begin = (uint64_t)p->call.rows.base, end = begin + span(&p->call.rows);
        if ((uint64_t)base >= end || begin >= (uint64_t)base + size) {
            p = p->next;
        } else if (wait_for(p)) {
            p = first;
        } else {
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}
