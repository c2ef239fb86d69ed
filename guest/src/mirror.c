#include "mirror.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "context.h"
#include "driver_interop/registration.h"
#include "gpuferry/messages.h"
#include "host_memory.h"
#include "window.h"

#define BLOCK 4096ull
#define PIECE (64 * BLOCK) /* fetched at once */
#define WORD  4ull

enum { LOOKS_MOST = 4, SIGNS_MOST = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list itself */
static struct gf_mirror *mirrors;
static _Atomic unsigned count;
static char news[PIECE];

bool gf_mirror_find(uint64_t address, bool by_host, struct gf_mirror *found) {
    if (atomic_load_explicit(&count, memory_order_relaxed) == 0) {
        return false;
    }
    pthread_mutex_lock(&lock);
    struct gf_mirror *m = mirrors;
    while (m != NULL && address - (by_host ? m->host : m->device) >= m->size) {
        m = m->next;
    }
    if (m != NULL) {
        *found = *m;
    }
    pthread_mutex_unlock(&lock);
    return m != NULL;
}

bool gf_is_page_locked(uint64_t address) {
    struct gf_host_range range;
    struct gf_mirror mirror;
    return gf_host_find(address, &range) || gf_mirror_find(address, false, &mirror);
}

CUresult gf_mirror_new(uint64_t host, uint64_t size, uint64_t *device) {
    struct gf_mirror *m = calloc(1, sizeof *m);
    char *agreed = m == NULL ? NULL : malloc(size);
    uint64_t owner = gf_context_current_handle();
    CUresult result = agreed == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                                     : gf_window_alloc(gf_device_number(), size, owner, 0, 0, device);
    if (result != CUDA_SUCCESS) {
        free(agreed);
        free(m);
        return result;
    }
    *m = (struct gf_mirror){
        .host = host, .device = *device, .size = size, .owner = owner, .agreed = agreed, .next = mirrors};
    pthread_mutex_lock(&lock);
    mirrors = m;
    atomic_fetch_add(&count, 1);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static uint64_t least(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

/* Programs free memory before they register it no more, which goes well where the driver holds its pages. */
static bool is_gone(struct gf_mirror *m) {
    m->gone = m->gone || !gf_memory_is_there((void *)m->host, m->size);
    return m->gone;
}

/* Our own calls are made in the context of the memory. */
static uint32_t enter(const struct gf_mirror *m) {
    uint32_t current = gf_thread.context_id;
    gf_thread.context_id = gf_handle_slot(m->owner) + 1;
    return current;
}

static bool differs(const struct gf_mirror *m, uint64_t at, uint64_t size) {
    return !m->begun || memcmp((char *)m->host + at, m->agreed + at, least(size, m->size - at)) != 0;
}

static void send(const struct gf_mirror *m, uint64_t stream, uint64_t at, uint64_t size) {
    struct gf_req_sessionCopyIn request = {stream, m->device + at, size, size, 1};
    struct gf_rows rows = {m->agreed + at, size, size, 1};
    gf_send_rows(GF_OP_sessionCopyIn, &request, sizeof request, &rows);
}

/* Words that differ by themselves. They are taken before all else is looked at: the device may take one for a
 * sign that what was written before it is there. */
static unsigned take_signs(const struct gf_mirror *m, uint64_t signs[SIGNS_MOST]) {
    unsigned found = 0;
    bool before = false;
    for (uint64_t at = 0; at + WORD <= m->size && found < SIGNS_MOST; at += WORD) {
        if (at % BLOCK == 0 && !differs(m, at, BLOCK)) {
            at += BLOCK - WORD;
            before = false;
            continue;
        }
        bool here = differs(m, at, WORD);
        if (here && !before && (at + WORD >= m->size || !differs(m, at + WORD, WORD))) {
            memcpy(m->agreed + at, (char *)m->host + at, WORD);
            signs[found++] = at;
        }
        before = here;
    }
    return found;
}

/* While the device works it may write beside what the program has changed: then nothing but that is sent. */
static bool flush(struct gf_mirror *m, uint64_t stream, bool working) {
    const uint64_t unit = working && m->begun ? WORD : BLOCK;
    uint64_t signs[SIGNS_MOST];
    unsigned apart = unit == WORD ? take_signs(m, signs) : 0;
    bool sent = apart > 0;
    for (uint64_t at = 0; at < m->size;) {
        uint64_t end = at;
        if (at % BLOCK == 0 && !differs(m, at, BLOCK)) {
            at += BLOCK;
            continue;
        }
        while (end < m->size && end - at < PIECE && differs(m, end, unit)) {
            end += unit;
        }
        uint64_t size = least(end, m->size) - at;
        if (size == 0) {
            at += unit;
            continue;
        }
        memcpy(m->agreed + at, (char *)m->host + at, size);
        send(m, stream, at, size);
        sent = true;
        at = end;
    }
    for (unsigned i = 0; i < apart; i++) {
        send(m, stream, signs[i], WORD);
    }
    m->begun = true;
    return sent;
}

uint32_t gf_mirrors_flush(const uint64_t *streams, bool working, uint64_t most) {
    uint32_t sent = 0;
    for (struct gf_mirror *m = mirrors; m != NULL; m = m->next) {
        if (m->size > most || is_gone(m)) {
            continue;
        }
        uint32_t current = enter(m);
        CUdevice device = gf_context_device(m->owner);
        sent |= (uint32_t)flush(m, streams[device], working) << device;
        gf_thread.context_id = current;
    }
    return sent;
}

static void merge_bytes(char *host, char *agreed, const char *from, uint64_t size) {
    for (uint64_t i = 0; i < size; i++) {
        if (from[i] != agreed[i]) {
            host[i] = agreed[i] = from[i];
        }
    }
}

/* A word is written at once, for the program may be looking; but not over what it has written itself. */
static void merge_word(char *host, char *agreed, const char *from) {
    uint32_t word;
    if (memcmp(from, agreed, WORD) == 0) {
        return;
    }
    if (memcmp(host, agreed, WORD) != 0) {
        merge_bytes(host, agreed, from, WORD);
        return;
    }
    memcpy(&word, from, WORD);
    *(volatile uint32_t *)host = word;
    memcpy(agreed, from, WORD);
}

/* What the program has written beside it meanwhile stays. */
static void merge(struct gf_mirror *m, uint64_t at, uint64_t size, const char *news) {
    if (memcmp(news, m->agreed + at, size) == 0) {
        return;
    }
    char *host = (char *)m->host + at, *agreed = m->agreed + at;
    uint64_t first = least((0 - (uint64_t)host) % WORD, size), i = first;
    merge_bytes(host, agreed, news, first);
    for (; size - i >= WORD; i += WORD) {
        merge_word(host + i, agreed + i, news + i);
    }
    merge_bytes(host + i, agreed + i, news + i, size - i);
}

/* False: it failed, as the program is told by its own call. */
static bool fetch_piece(const struct gf_mirror *m, uint64_t stream, uint64_t at, uint64_t size, char *to) {
    struct gf_req_sessionCopyOut request = {stream, m->device + at, size, size, 1};
    struct gf_call call = {.op = GF_OP_sessionCopyOut, .rows = {to, size, size, 1}};
    CUresult result = gf_call_parts(&call, &(struct iovec){&request, sizeof request}, 1);
    free(call.payload);
    return result == CUDA_SUCCESS;
}

static void fetch(struct gf_mirror *m, uint64_t stream) {
    for (uint64_t at = 0; at < m->size; at += PIECE) {
        uint64_t size = least(PIECE, m->size - at);
        if (!fetch_piece(m, stream, at, size, news)) {
            return;
        }
        merge(m, at, size, news);
    }
}

static bool fetch_all(const struct gf_mirror *m, uint64_t stream, char *to) {
    bool fine = true;
    for (uint64_t at = 0; at < m->size && fine; at += PIECE) {
        fine = fetch_piece(m, stream, at, least(PIECE, m->size - at), to + at);
    }
    return fine;
}

/* While the device works, pieces are of different moments: a word that says that the rest is there may be in
 * a later one than the rest. So they are fetched until nothing has changed meanwhile, which is when the
 * device waits for the program; a few times at most, for it may not wait. */
static void fetch_working(struct gf_mirror *m, uint64_t stream) {
    if (m->looks == NULL && (m->looks = malloc(2 * m->size)) == NULL) {
        return;
    }
    char *last = m->looks, *before = m->looks + m->size;
    bool fine = fetch_all(m, stream, last);
    for (int look = 1; look < LOOKS_MOST && fine; look++) {
        char *now = before;
        before = last;
        last = now;
        fine = fetch_all(m, stream, last);
        if (memcmp(last, before, m->size) == 0) {
            break;
        }
    }
    if (fine) {
        merge(m, 0, m->size, last);
    }
}

void gf_mirrors_fetch(const uint64_t *streams, bool working, uint64_t most) {
    for (struct gf_mirror *m = mirrors; m != NULL; m = m->next) {
        if (m->begun && m->size <= most && !is_gone(m)) {
            uint32_t current = enter(m);
            (working && m->size > PIECE ? fetch_working : fetch)(m, streams[gf_context_device(m->owner)]);
            gf_thread.context_id = current;
        }
    }
}

bool gf_mirrors_any(uint64_t most) {
    const struct gf_mirror *m = mirrors;
    while (m != NULL && m->size > most) {
        m = m->next;
    }
    return m != NULL;
}

static struct gf_call question; /* one at a time: the context that it is about, and what work it covers */
static uint64_t asked_of, asked_at;
static _Atomic bool asked;

static void answered(struct gf_call *call) {
    if (call->status != CUDA_SUCCESS) {
        gf_channel_latch(call->context_id, call->status);
    }
    atomic_store(&asked, false);
}

static void ask(const struct gf_mirror *m, uint64_t work) {
    uint32_t current = enter(m);
    asked_of = m->owner;
    asked_at = work;
    atomic_store(&asked, true);
    question = (struct gf_call){.op = GF_OP_cuCtxSynchronize, .completed = answered};
    gf_call_start(&question, &(struct iovec){0}, 1);
    gf_thread.context_id = current;
}

bool gf_mirrors_idle(uint64_t work, uint64_t most) {
    const struct gf_mirror *busy = NULL;
    if (atomic_load(&asked)) {
        return false;
    }
    for (struct gf_mirror *m = mirrors; m != NULL; m = m->next) {
        m->idle = m->owner == asked_of ? asked_at : m->idle;
        busy = m->size <= most && m->idle != work ? m : busy;
    }
    if (busy != NULL) {
        ask(busy, work);
    }
    return busy == NULL;
}

void gf_mirrors_end(uint64_t host, uint64_t owner) {
    pthread_mutex_lock(&lock);
    for (struct gf_mirror **at = &mirrors; *at != NULL;) {
        struct gf_mirror *m = *at;
        if (host != 0 ? m->host != host : m->owner != owner) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        atomic_fetch_sub(&count, 1);
        gf_window_free(m->device, 0);
        free(m->agreed);
        free(m->looks);
        free(m);
    }
    pthread_mutex_unlock(&lock);
}
