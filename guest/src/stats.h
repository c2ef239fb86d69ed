/* Counts of calls, round trips, bytes and times of this process, for GPUFERRY_STATS. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum gf_stat {
    GF_STAT_ROUND_TRIPS,
    GF_STAT_FRAMES_SENT,
    GF_STAT_FRAMES_RECEIVED,
    GF_STAT_WRITES,
    GF_STAT_BYTES_SENT,
    GF_STAT_BYTES_RECEIVED,
    GF_STAT_CONNECT_NS,
    GF_STAT_WAITING_NS,
    GF_STAT_WRITING_NS,
    GF_STAT_COUNT,
};

extern _Atomic uint64_t gf_stat_values[GF_STAT_COUNT];

static inline void gf_stat_add(enum gf_stat stat, uint64_t value) {
    atomic_fetch_add_explicit(&gf_stat_values[stat], value, memory_order_relaxed);
}

/* Nanoseconds of the monotonic clock. */
static inline uint64_t gf_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A thread waits for an answer, on behalf of the function that it is in. */
void gf_stat_round_trip(void);
/* Remembers where the program's memory stood before the first call. */
void gf_stats_begin(void);
/* Writes GPUFERRY_STATS, if it is set and the process made a CUDA call. */
void gf_stats_write(void);
