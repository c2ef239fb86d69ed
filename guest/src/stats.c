#include "stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest.h"
#include "wire/stats.h"

_Atomic uint64_t gf_stat_values[GF_STAT_COUNT];
static uint64_t start_ns, start_rss;

static uint64_t stat_value(enum gf_stat stat) {
    return atomic_load_explicit(&gf_stat_values[stat], memory_order_relaxed);
}

static uint64_t resident_bytes(void) {
    unsigned long long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%llu %llu", &total, &resident) != 2) {
            resident = 0;
        }
        fclose(file);
    }
    return resident * 4096;
}

void gf_stats_begin(void) {
    start_ns = gf_now();
    start_rss = getenv("GPUFERRY_STATS") == NULL ? 0 : resident_bytes();
}

void gf_stat_round_trip(void) {
    gf_stat_add(GF_STAT_ROUND_TRIPS, 1);
    atomic_fetch_add_explicit(&gf_function_round_trips[gf_thread.function], 1, memory_order_relaxed);
}

static void count_classes(uint64_t by_class[GF_UNSUPPORTED + 1]) {
    for (unsigned i = 0; i < gf_function_count; i++) {
        by_class[gf_functions[i].klass] += atomic_load_explicit(&gf_function_calls[i], memory_order_relaxed);
    }
}

__attribute__((visibility("default"))) void gpuferry_stats(struct gf_stats *out);

void gpuferry_stats(struct gf_stats *out) {
    uint64_t calls[GF_UNSUPPORTED + 1] = {0};
    count_classes(calls);
    *out = (struct gf_stats){
        .calls_local = calls[GF_LOCAL],
        .calls_async = calls[GF_ASYNC],
        .calls_sync = calls[GF_SYNC],
        .calls_unsupported = calls[GF_UNSUPPORTED],
        .round_trips = stat_value(GF_STAT_ROUND_TRIPS),
        .frames_sent = stat_value(GF_STAT_FRAMES_SENT),
        .frames_received = stat_value(GF_STAT_FRAMES_RECEIVED),
        .writes = stat_value(GF_STAT_WRITES),
        .bytes_sent = stat_value(GF_STAT_BYTES_SENT),
        .bytes_received = stat_value(GF_STAT_BYTES_RECEIVED),
        .connect_ns = stat_value(GF_STAT_CONNECT_NS),
        .waiting_ns = stat_value(GF_STAT_WAITING_NS),
        .writing_ns = stat_value(GF_STAT_WRITING_NS),
    };
}

/* A floating point number would be written with the comma of the program's locale, which is no JSON. */
static void write_seconds(FILE *file, const char *name, uint64_t ns, const char *then) {
    fprintf(file, "\"%s\": %llu.%06llu%s", name, (unsigned long long)(ns / 1000000000),
            (unsigned long long)(ns / 1000 % 1000000), then);
}

static void write_counts(FILE *file, const char *key, const _Atomic uint64_t *counts) {
    fprintf(file, "  \"%s\": {", key);
    const char *separator = "";
    for (unsigned i = 0; i < gf_function_count; i++) {
        uint64_t count = atomic_load_explicit(&counts[i], memory_order_relaxed);
        if (count > 0) {
            fprintf(file, "%s\"%s\": %llu", separator, gf_functions[i].name, (unsigned long long)count);
            separator = ", ";
        }
    }
    fprintf(file, "},\n");
}

void gf_stats_write(void) {
    const char *path = getenv("GPUFERRY_STATS");
    if (path == NULL || path[0] == '\0' || start_ns == 0) {
        return;
    }
    uint64_t end = gf_now(), rss = resident_bytes();
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        gf_error("cannot write GPUFERRY_STATS=%s: %s", path, strerror(errno));
        return;
    }
    struct gf_stats s;
    gpuferry_stats(&s);
    fprintf(file,
            "{\n  \"calls\": {\"local\": %llu, \"async\": %llu, \"sync\": %llu, \"unsupported\": %llu},\n",
            (unsigned long long)s.calls_local, (unsigned long long)s.calls_async,
            (unsigned long long)s.calls_sync, (unsigned long long)s.calls_unsupported);
    write_counts(file, "functions", gf_function_calls);
    fprintf(file, "  \"round_trips\": %llu,\n", (unsigned long long)s.round_trips);
    write_counts(file, "round_trips_by_function", gf_function_round_trips);
    fprintf(file, "  \"frames\": {\"sent\": %llu, \"received\": %llu},\n  \"writes\": %llu,\n",
            (unsigned long long)s.frames_sent, (unsigned long long)s.frames_received,
            (unsigned long long)s.writes);
    fprintf(file, "  \"bytes\": {\"sent\": %llu, \"received\": %llu},\n", (unsigned long long)s.bytes_sent,
            (unsigned long long)s.bytes_received);
    fputs("  \"seconds\": {", file);
    write_seconds(file, "connect", s.connect_ns, ", ");
    write_seconds(file, "waiting", s.waiting_ns, ", ");
    write_seconds(file, "writing", s.writing_ns, ", ");
    write_seconds(file, "total", end - start_ns, "},\n");
    fprintf(file, "  \"rss\": {\"before\": %llu, \"after\": %llu}\n}\n", (unsigned long long)start_rss,
            (unsigned long long)rss);
    if (fflush(file) != 0 || ferror(file)) { /* a full disk shows now */
        gf_error("cannot write all of GPUFERRY_STATS=%s: %s", path, strerror(errno));
    }
    fclose(file);
}
