/* What `void gpuferry_stats(struct gf_stats *)`, exported by the guest library, fills in: counters since the
 * program started. */
#pragma once
#include <stdint.h>

struct gf_stats {
    uint64_t calls_local;
    uint64_t calls_async;
    uint64_t calls_sync;
    uint64_t calls_unsupported;
    uint64_t round_trips; /* times a thread waited for an answer */
    uint64_t frames_sent;
    uint64_t frames_received;
    uint64_t writes; /* system calls that sent bytes */
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t connect_ns;
    uint64_t waiting_ns;
    uint64_t writing_ns;
};
