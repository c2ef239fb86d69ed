/* A place in a monitor's queue, which is lost with the monitor, or at its door, where one that has too many
 * drops the oldest of a machine: a program then comes again. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct gf_queue {
    uint64_t began, allowed; /* nanoseconds; allowed: as GPUFERRY_MAX_WAIT says, 0 if it does not */
    uint64_t broken_at;
    bool joined; /* a monitor let this program wait */
    bool broken; /* and is gone, or dropped it */
    unsigned dropped;
};

/* A program begins to look for a session. */
void gf_queue_begin(struct gf_queue *queue);
/* A monitor says what place is ours. */
void gf_queue_joined(struct gf_queue *queue, uint32_t position, uint32_t length);
/* The connection ended, or there is none to be had: whether a monitor may come back. */
bool gf_queue_broke(struct gf_queue *queue);
/* The same after a greeting: what greeted may come to have room, though no monitor let this program wait. */
bool gf_queue_dropped(struct gf_queue *queue);
/* Waits a moment; false: it took too long. */
bool gf_queue_again(struct gf_queue *queue);
/* Seconds of the allowed ones that were spent in queues. */
double gf_queue_spent(const struct gf_queue *queue);
