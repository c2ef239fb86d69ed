/* malloc and free of device code. The memory lies among the device's, and what says which of it is taken lies
 * elsewhere: a kernel that writes beyond its own reaches other kernels' data, and nothing that we rely on. */
#define _GNU_SOURCE
#include "addresses.h"
#include "device_limits.h"
#include "sanitizer.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Memory is dealt out in spans. A span holds objects of one size, or is part of a run that holds one. */
enum { SPAN = 64 << 10, LARGEST_SMALL = SPAN / 2, OBJECTS = SPAN / 16, SIZES = 24 };
enum { FREE = 0, HEAD = SIZES + 1, REST };

struct span {
    uint8_t use; /* FREE, 1 + the size's number, or of a run HEAD and REST */
    uint16_t taken;
    uint32_t run; /* spans, at its HEAD */
    uint64_t *objects;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *base; /* NULL: nothing was ever taken */
static struct span *spans;
static size_t span_count, used_bytes;
static uint32_t open_span[SIZES], next_free;

/* 16, 24, 32, 48, 64, 96 … rounded up to 16. */
static size_t size_of(unsigned number) {
    size_t power = (size_t)16 << number / 2;
    return number % 2 == 0 ? power : (power + power / 2 + 15) / 16 * 16;
}

static unsigned number_of(size_t size) {
    unsigned number = 0;
    while (size_of(number) < size)
        number++;
    return number;
}

static size_t objects_in(unsigned number) {
    return SPAN / size_of(number);
}

/* Room for `limit` bytes; a limit may be raised later. */
static bool reserve(size_t limit) {
    size_t wanted = (limit + SPAN - 1) / SPAN;
    if (wanted <= span_count)
        return true;
    struct span *grown = realloc(spans, wanted * sizeof *spans);
    if (grown == NULL)
        return false;
    spans = grown;
    uint8_t *place = base != NULL ? base + span_count * SPAN : (uint8_t *)SIM_HEAP_BEGIN;
    size_t bytes = (wanted - span_count) * SPAN;
    int exactly = sim_under_tsan() ? 0 : MAP_FIXED_NOREPLACE;
    void *got = mmap(place, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | exactly, -1, 0);
    if (got == MAP_FAILED)
        return false;
    if (got != (void *)place && (exactly != 0 || base != NULL)) {
        munmap(got, bytes);
        return false;
    }
    memset(spans + span_count, 0, (wanted - span_count) * sizeof *spans);
    if (base == NULL)
        base = got;
    span_count = wanted;
    return true;
}

/* The first of `count` free spans in a row; `span_count` if there are none. */
static size_t find_free(size_t count) {
    for (int turn = 0; turn < 2; turn++) {
        size_t run = 0;
        for (size_t at = turn == 0 ? next_free : 0; at < span_count; at++) {
            run = spans[at].use == FREE ? run + 1 : 0;
            if (run == count) {
                next_free = (uint32_t)(at + 1);
                return at + 1 - count;
            }
        }
    }
    return span_count;
}

static void *take_run(size_t size) {
    size_t count = (size + SPAN - 1) / SPAN, first = find_free(count);
    if (first == span_count)
        return NULL;
    for (size_t i = 0; i < count; i++)
        spans[first + i].use = i == 0 ? HEAD : REST;
    spans[first].run = (uint32_t)count;
    used_bytes += count * SPAN;
    return base + first * SPAN;
}

static bool has_room(size_t at, unsigned number) {
    return at < span_count && spans[at].use == number + 1 && spans[at].taken < objects_in(number);
}

/* A span of that size with a free object. */
static size_t find_open(unsigned number) {
    if (has_room(open_span[number], number))
        return open_span[number];
    for (size_t at = 0; at < span_count; at++)
        if (has_room(at, number))
            return at;
    size_t fresh = find_free(1);
    if (fresh == span_count)
        return span_count;
    uint64_t *objects = calloc(OBJECTS / 64, sizeof *objects);
    if (objects == NULL)
        return span_count;
    spans[fresh] = (struct span){.use = (uint8_t)(number + 1), .objects = objects};
    return fresh;
}

static void *take_object(unsigned number) {
    size_t at = find_open(number);
    if (at == span_count)
        return NULL;
    struct span *span = &spans[at];
    open_span[number] = (uint32_t)at;
    size_t word = 0;
    while (span->objects[word] == UINT64_MAX)
        word++;
    unsigned bit = (unsigned)__builtin_ctzll(~span->objects[word]);
    span->objects[word] |= UINT64_C(1) << bit;
    span->taken++;
    used_bytes += size_of(number);
    return base + at * SPAN + (word * 64 + bit) * size_of(number);
}

/* What lies as it must: objects do at multiples of 16, those of 2^n bytes of that, runs of a span. */
static size_t size_aligned(size_t size, size_t alignment) {
    size_t power = alignment;
    while (power < size && power <= LARGEST_SMALL)
        power *= 2;
    return alignment <= 16 || power < size ? size : power;
}

void *sim_heap_take(size_t size, size_t alignment, size_t limit) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > SPAN || size == 0)
        return NULL;
    size = size_aligned(size, alignment);
    if (size > limit)
        return NULL;
    bool small = size <= LARGEST_SMALL;
    unsigned number = small ? number_of(size) : 0;
    size_t charge = small ? size_of(number) : (size + SPAN - 1) / SPAN * SPAN;
    pthread_mutex_lock(&lock);
    void *taken = NULL;
    if (reserve(limit) && charge <= limit && used_bytes <= limit - charge)
        taken = small ? take_object(number) : take_run(size);
    pthread_mutex_unlock(&lock);
    return taken;
}

static bool give_run(struct span *head, size_t offset) {
    if (offset != 0)
        return false;
    for (uint32_t i = 0, count = head->run; i < count; i++)
        head[i].use = FREE;
    used_bytes -= (size_t)head->run * SPAN;
    return true;
}

static bool give_object(struct span *span, size_t offset) {
    size_t size = size_of(span->use - 1u), object = offset / size;
    uint64_t bit = UINT64_C(1) << object % 64;
    if (offset % size != 0 || object >= objects_in(span->use - 1u) || !(span->objects[object / 64] & bit))
        return false;
    span->objects[object / 64] &= ~bit;
    used_bytes -= size;
    if (--span->taken == 0) {
        free(span->objects);
        *span = (struct span){0};
    }
    return true;
}

int sim_heap_give(void *pointer) {
    pthread_mutex_lock(&lock);
    size_t offset = (size_t)((uint8_t *)pointer - base), at = offset / SPAN;
    bool given = false;
    if (base != NULL && at < span_count && spans[at].use != FREE && spans[at].use != REST)
        given = spans[at].use == HEAD ? give_run(&spans[at], offset % SPAN)
                                      : give_object(&spans[at], offset % SPAN);
    pthread_mutex_unlock(&lock);
    return given;
}

void sim_heap_reset(void) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < span_count; i++)
        free(spans[i].objects);
    free(spans);
    if (base != NULL)
        munmap(base, span_count * SPAN);
    base = NULL;
    spans = NULL;
    span_count = used_bytes = 0;
    next_free = 0;
    memset(open_span, 0, sizeof open_span);
    pthread_mutex_unlock(&lock);
}

void sim_heap_forget(void) {
    pthread_mutex_init(&lock, NULL);
}
