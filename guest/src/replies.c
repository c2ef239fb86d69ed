#define _GNU_SOURCE
#include "channel_state.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest.h"
#include "log.h"
#include "redirect.h"
#include "resume.h"
#include "session.h"
#include "signals.h"
#include "stats.h"
#include "wire/printed.h"
#include "wire/uncancelled.h"

#define ch             gf_channel
#define MOVED_MAX      (sizeof(struct gf_header) + sizeof(struct gf_moved) + GF_ADDRESS_MAX - 1)
#define DIRECT_RECEIVE 4096 /* below this, one receive for several rows beats one per row */

const char *(*_Atomic gf_channel_asked)(const struct gf_host_call *asked);

void gf_reply_register(struct gf_call *call) {
    pthread_mutex_lock(&ch.reply_lock);
    call->request = ch.next_request++;
    if (ch.next_request == 0) {
        ch.next_request = 1;
    }
    call->context_id = gf_context_wire_id();
    call->done = false;
    call->next = ch.calls[call->request % GF_CALL_SLOTS];
    ch.calls[call->request % GF_CALL_SLOTS] = call;
    pthread_mutex_unlock(&ch.reply_lock);
    if (call->completed != NULL) {
        atomic_fetch_add(&ch.unattended, 1);
    }
}

static struct gf_call *take_call(uint32_t request) {
    pthread_mutex_lock(&ch.reply_lock);
    struct gf_call **at = &ch.calls[request % GF_CALL_SLOTS];
    while (*at != NULL && (*at)->request != request) {
        at = &(*at)->next;
    }
    struct gf_call *call = *at;
    if (call != NULL) {
        *at = call->next;
    }
    pthread_mutex_unlock(&ch.reply_lock);
    return call;
}

bool gf_reply_withdraw(struct gf_call *call, CUresult result) {
    if (take_call(call->request) == NULL) {
        return false;
    }
    if (call->completed != NULL) {
        atomic_fetch_sub(&ch.unattended, 1);
    }
    call->status = result;
    call->done = true;
    return true;
}

bool gf_reader_try(void) {
    pthread_mutex_lock(&ch.reply_lock);
    bool taken = !ch.reading;
    ch.reading = true;
    pthread_mutex_unlock(&ch.reply_lock);
    return taken;
}

void gf_reader_leave(void) {
    bool more = gf_reader_has_input();
    pthread_mutex_lock(&ch.reply_lock);
    ch.reading = false;
    gf_news_tell(&ch.replied);
    pthread_mutex_unlock(&ch.reply_lock);
    if (more && atomic_load(&ch.unattended) > 0) {
        gf_channel_wake();
    }
}

/* -1: lost. 0: nothing yet, the connection is another now. */
static ssize_t receive(void *data, size_t size) {
    ssize_t got;
    do {
        got = gf_transport_receive(&ch.transport, data, size);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EFAULT) { /* the program has no such memory: it is told by its own fault */
        for (size_t at = 0; at < size; at += GF_SMALLEST_PAGE) {
            ((volatile char *)data)[at] = 0;
        }
        return receive(data, size);
    }
    if (got <= 0) {
        const char *why = got == 0 ? "it closed the connection" : gf_transport_cause(errno);
        if (gf_channel_resume()) {
            return 0;
        }
        gf_channel_lose(why);
        return -1;
    }
    gf_stat_add(GF_STAT_BYTES_RECEIVED, (uint64_t)got);
    if (ch.resumable) {
        ch.received += (uint64_t)got;
    }
    return got;
}

/* Tells the server how much was read. What was only received may be MOVED, which does not count. */
static void acknowledge(void) {
    uint64_t read = ch.received - (ch.input_end - ch.input_start);
    if (ch.resumable && read - ch.received_told >= GF_ACKNOWLEDGE_EVERY && gf_channel_acknowledge(read)) {
        ch.received_told = read;
    }
}

/* At least `size` bytes in the input buffer, in one piece. Between two frames, what is due after a new
 * connection may be for us to send: then it does not insist. */
static bool fill(size_t size, bool insist) {
    while (ch.input_end - ch.input_start < size) {
        if (ch.input_start == ch.input_end || ch.input_start + size > GF_INPUT_SIZE) {
            memmove(ch.input, ch.input + ch.input_start, ch.input_end - ch.input_start);
            ch.input_end -= ch.input_start;
            ch.input_start = 0;
        }
        ssize_t got = receive(ch.input + ch.input_end, GF_INPUT_SIZE - ch.input_end);
        if (got < 0 || (got == 0 && !insist && !gf_reader_has_input())) {
            return false;
        }
        ch.input_end += (size_t)got;
    }
    return true;
}

static bool copy_out(char *to, size_t size) {
    while (size > 0) {
        size_t ready = ch.input_end - ch.input_start;
        if (ready > 0) {
            size_t part = ready < size ? ready : size;
            if (to != NULL) {
                memcpy(to, ch.input + ch.input_start, part);
                to += part;
            }
            ch.input_start += part;
            size -= part;
        } else if (to != NULL && size >= DIRECT_RECEIVE) {
            ssize_t got = receive(to, size);
            if (got < 0) {
                return false;
            }
            to += got;
            size -= (size_t)got;
            acknowledge();
        } else if (!fill(1, true)) {
            return false;
        }
    }
    return true;
}

static bool malformed(const char *what, const struct gf_header *header) {
    char why[160];
    snprintf(why, sizeof why, "its reply to operation %u is malformed (%s, %u bytes)", header->op, what,
             header->size);
    gf_channel_lose(why);
    return false;
}

static bool read_refusal(const struct gf_header *header) {
    struct gf_refused refused;
    char text[1024];
    if (header->size < sizeof *header + sizeof refused || header->size > GF_HANDSHAKE_FRAME_MAX) {
        return malformed("refusal", header);
    }
    size_t size = header->size - sizeof *header - sizeof refused;
    size_t shown = size < sizeof text - 1 ? size : sizeof text - 1;
    if (!copy_out((char *)&refused, sizeof refused) || !copy_out(text, shown)) {
        return false;
    }
    text[shown] = '\0';
    gf_channel_lose(text);
    return false;
}

static bool read_payload(struct gf_call *call, const struct gf_header *header, size_t size) {
    if (call->rows.base != NULL && call->status == CUDA_SUCCESS) {
        if (size != call->rows.width * call->rows.rows) {
            return malformed("length of the data", header);
        }
        for (uint64_t row = 0; row < call->rows.rows; row++) {
            if (!copy_out(call->rows.base + row * call->rows.pitch, call->rows.width)) {
                return false;
            }
        }
        return true;
    }
    call->payload = size == 0 ? NULL : malloc(size);
    call->payload_size = call->payload == NULL ? 0 : size;
    return copy_out(call->payload, size);
}

static bool read_reply(struct gf_call *call, const struct gf_header *header) {
    struct gf_reply_prefix prefix;
    size_t body = header->size - sizeof *header - sizeof prefix;
    if (!copy_out((char *)&prefix, sizeof prefix)) {
        return false;
    }
    call->status = (CUresult)header->status;
    call->latched = (CUresult)prefix.latched;
    if (prefix.latched != 0) {
        gf_debug("operation %u failed with %d on the server", prefix.latched_op, prefix.latched);
    }
    size_t reply = call->reply_size;
    if (body < reply) {
        if (call->status == CUDA_SUCCESS) {
            return malformed("too short", header);
        }
        reply = 0;
    }
    return copy_out(call->reply, reply) && read_payload(call, header, body - reply);
}

/* In the middle of a fault the program may be writing to the same stream. */
static bool read_output(const struct gf_header *header) {
    size_t size = header->size - sizeof *header;
    if (size > GF_HANDSHAKE_FRAME_MAX) {
        return malformed("output", header);
    }
    char *text = malloc(size);
    bool fine = copy_out(text, size);
    if (fine && text != NULL) {
        gf_printed(header->status == STDERR_FILENO ? stderr : stdout, text, size, !gf_thread.sharing);
    }
    free(text);
    return fine;
}

static bool read_host_call(const struct gf_header *header) {
    struct gf_host_call asked;
    if (header->size != sizeof *header + sizeof asked) {
        return malformed("host call", header);
    }
    if (!copy_out((char *)&asked, sizeof asked)) {
        return false;
    }
    const char *(*ask)(const struct gf_host_call *) = atomic_load(&gf_channel_asked);
    const char *wrong = ask == NULL ? "a function that no stream has" : ask(&asked);
    return wrong == NULL || malformed(wrong, header);
}

static bool read_moved(const struct gf_header *header) {
    struct gf_moved moved;
    char address[GF_ADDRESS_MAX];
    size_t size = header->size - sizeof *header;
    copy_out((char *)&moved, sizeof moved);
    copy_out(address, size - sizeof moved);
    if (size != sizeof moved + moved.address_size || !gf_resume_moved(&moved, address)) {
        return malformed("moved: not by the server that granted the session", header);
    }
    if (ch.resumable) {
        ch.received -= header->size;
    }
    ch.within = false;
    gf_channel_moved();
    return !gf_channel_lost();
}

/* Whoever does not count bytes is told that this was all: a connection that ends without it broke. */
static bool read_farewell(const struct gf_header *header) {
    pthread_mutex_lock(&ch.send_lock);
    ch.told_all = ch.moving == GF_LEAVING && !ch.resumable;
    bool fine = ch.told_all;
    pthread_mutex_unlock(&ch.send_lock);
    return fine || malformed("nothing was to be ended", header);
}

static bool read_acknowledgement(const struct gf_header *header) {
    uint64_t received;
    if (header->size != sizeof *header + sizeof received) {
        return malformed("acknowledgement", header);
    }
    return copy_out((char *)&received, sizeof received) &&
           (gf_channel_acknowledged(received) || malformed("acknowledgement", header));
}

static bool read_shared(const struct gf_header *header) {
    (void)header;
    atomic_store(&gf_session.shared, true);
    return true;
}

typedef bool reader(const struct gf_header *header);

/* Who reads what nobody asked for. NULL: it is to be an answer. */
static reader *unasked(const struct gf_header *header) {
    bool bare = header->size == sizeof *header;
    switch (header->op) {
    case GF_OP_REFUSED:
        return read_refusal;
    case GF_OP_OUTPUT:
        return header->size >= sizeof *header ? read_output : NULL;
    case GF_OP_HOST_CALL:
        return read_host_call;
    case GF_OP_MOVED:
        return bare ? read_farewell : read_moved;
    case GF_OP_SHARED:
        return bare ? read_shared : NULL;
    case GF_OP_ACKNOWLEDGE:
        return read_acknowledgement;
    default:
        return NULL;
    }
}

static void deliver(struct gf_call *call) {
    if (call->completed != NULL) {
        if (call->latched != CUDA_SUCCESS) {
            gf_channel_latch(call->context_id, call->latched);
        }
        call->completed(call);
        atomic_fetch_sub(&ch.unattended, 1);
    } else {
        pthread_mutex_lock(&ch.reply_lock);
        call->done = true;
        gf_news_tell(&ch.replied);
        pthread_mutex_unlock(&ch.reply_lock);
    }
}

static bool read_answer(const struct gf_header *header) {
    if ((header->flags & GF_FLAG_REPLY) == 0 || header->size > GF_FRAME_MAX ||
        header->size < sizeof *header + sizeof(struct gf_reply_prefix)) {
        return malformed("header", header);
    }
    struct gf_call *call = take_call(header->request);
    if (call == NULL || call->op != header->op) {
        return malformed("nobody asked", header);
    }
    bool fine = read_reply(call, header);
    if (!fine) {
        call->status = gf_session_error();
    }
    deliver(call);
    return fine;
}

static bool moved_has_a_size(const struct gf_header *header) {
    return header->size == sizeof *header ||
           (header->size >= sizeof *header + sizeof(struct gf_moved) && header->size <= MOVED_MAX);
}

static bool read_frame(void) {
    struct gf_header header;
    acknowledge();
    if (gf_channel_lost() || !fill(sizeof header, false)) {
        return !gf_channel_lost();
    }
    memcpy(&header, ch.input + ch.input_start, sizeof header);
    if (header.op == GF_OP_MOVED) {
        /* Of this one all or nothing: it is no part of the stream that another connection would go on with.
         */
        if (!moved_has_a_size(&header)) {
            return malformed("moved", &header);
        }
        if (!fill(header.size, false)) {
            return !gf_channel_lost();
        }
    }
    copy_out((char *)&header, sizeof header);
    ch.within = true;
    gf_stat_add(GF_STAT_FRAMES_RECEIVED, 1);
    reader *read = unasked(&header);
    return read != NULL ? read(&header) : read_answer(&header);
}

bool gf_reader_frame(void) {
    bool fine = read_frame();
    ch.within = false;
    return fine;
}

void gf_channel_attend(int change) {
    atomic_fetch_add(&ch.unattended, (unsigned)change);
}

void gf_channel_latch(uint32_t context_id, CUresult error) {
    int none = CUDA_SUCCESS;
    if (!gf_session_sticky(context_id, error)) {
        atomic_compare_exchange_strong(&ch.deferred, &none, (int)error);
    }
}

/* With the reply lock, as the rest up to wait_until. */
static bool somebody_else_reads(void) {
    return ch.reading && !(ch.resting && pthread_equal(ch.reader, pthread_self()));
}

/* Waits for another reader's news. */
static void follow(void) {
    uint32_t seen = gf_news_seen(&ch.replied);
    pthread_mutex_unlock(&ch.reply_lock);
    gf_signals_run();
    gf_news_wait(&ch.replied, seen, gf_signals_patience());
    pthread_mutex_lock(&ch.reply_lock);
}

/* Until there is something to read, or a handler has taken the role. */
static void poll_input(uint64_t turn, const sigset_t *meanwhile) {
    struct pollfd input = {.fd = ch.transport.fd, .events = POLLIN};
    int ready;
    do {
        pthread_mutex_unlock(&ch.reply_lock);
        ready = ppoll(&input, 1, NULL, meanwhile);
        pthread_mutex_lock(&ch.reply_lock);
    } while (ready < 0 && errno == EINTR && ch.turn == turn);
}

/* Handlers run in ppoll alone, as outside of all calls. */
static void rest_open(uint64_t turn) {
    sigset_t all, before, meanwhile;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    struct gf_outside outside = gf_signals_outside();
    meanwhile = before;
    sigdelset(&meanwhile, SIGSEGV); /* faults in shared memory are ours, whatever mask the program was told */
    gf_signals_remove(&meanwhile, outside.held);
    poll_input(turn, &meanwhile);
    pthread_mutex_unlock(&ch.reply_lock);
    gf_signals_inside(outside);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_lock(&ch.reply_lock);
}

/* Handlers are held back. */
static void rest_closed(uint64_t turn) {
    struct pollfd input = {.fd = ch.transport.fd, .events = POLLIN};
    pthread_mutex_unlock(&ch.reply_lock);
    while (poll(&input, 1, gf_signals_patience()) <= 0 && ch.turn == turn) {
        gf_signals_overdue();
    }
    pthread_mutex_lock(&ch.reply_lock);
}

/* Sleeps until there is something to read. A handler of the program's may interrupt this thread and wait for
 * an answer itself: it takes the role over. False: one has taken it. */
static bool rest(void) {
    const uint64_t turn = ch.turn;
    ch.resting = true;
    if (gf_signals_may_run()) {
        rest_open(turn);
    } else {
        rest_closed(turn);
    }
    if (ch.turn != turn) {
        return false;
    }
    ch.resting = false;
    return true;
}

static void read_in_turn(void) {
    ch.reading = true;
    ch.resting = false;
    ch.reader = pthread_self();
    ch.turn++;
    if (!gf_reader_has_input() && !gf_transport_has_input(&ch.transport) && !rest()) {
        return;
    }
    pthread_mutex_unlock(&ch.reply_lock);
    gf_reader_frame();
    pthread_mutex_lock(&ch.reply_lock);
    ch.reading = false;
    gf_news_tell(&ch.replied);
}

/* Leader and followers: whoever finds no reader reads, until its own wish is fulfilled. */
static bool wait_until(bool (*fulfilled)(const void *), const void *wish) {
    GF_UNCANCELLED;
    pthread_mutex_lock(&ch.reply_lock);
    if (fulfilled(wish)) {
        pthread_mutex_unlock(&ch.reply_lock);
        return true;
    }
    uint64_t start = gf_now();
    gf_stat_round_trip();
    atomic_fetch_add(&ch.waiting, 1);
    while (!fulfilled(wish) && !gf_channel_lost()) {
        if (somebody_else_reads()) {
            follow();
        } else {
            read_in_turn();
        }
    }
    bool done = fulfilled(wish);
    pthread_mutex_unlock(&ch.reply_lock);
    if (atomic_fetch_sub(&ch.waiting, 1) == 1 && atomic_load(&ch.unattended) > 0) {
        gf_channel_wake(); /* the I/O thread reads what is still to come */
    }
    gf_stat_add(GF_STAT_WAITING_NS, gf_now() - start);
    return done;
}

static bool call_done(const void *call) {
    return ((const struct gf_call *)call)->done;
}

CUresult gf_call_wait(struct gf_call *call) {
    if (!wait_until(call_done, call)) {
        /* Take it out of the table; if a reader has it right now, it is about to finish with it. */
        if (take_call(call->request) == NULL) {
            pthread_mutex_lock(&ch.reply_lock);
            while (!call->done) {
                follow();
            }
            pthread_mutex_unlock(&ch.reply_lock);
        }
        return gf_session_error();
    }
    if (gf_channel_lost() && call->status == gf_session_error()) {
        return call->status;
    }
    CUresult latched = call->latched;
    if (latched == CUDA_SUCCESS) {
        latched = (CUresult)atomic_exchange(&ch.deferred, CUDA_SUCCESS);
    }
    if (call->status != CUDA_SUCCESS && call->status != CUDA_ERROR_NOT_READY) {
        gf_session_sticky(call->context_id, call->status);
        if (latched != CUDA_SUCCESS) { /* a call can tell of one failure: the next one tells of the other */
            gf_channel_latch(call->context_id, latched);
        }
        return call->status;
    }
    if (latched != CUDA_SUCCESS) {
        gf_session_sticky(call->context_id, latched);
        return latched;
    }
    return call->status;
}

static bool flag_set(const void *flag) {
    return atomic_load_explicit((const _Atomic bool *)flag, memory_order_acquire);
}

bool gf_channel_wait_flag(const _Atomic bool *flag) {
    return wait_until(flag_set, flag);
}

bool gf_channel_glance(void) {
    GF_UNCANCELLED;
    struct pollfd input = {.fd = ch.transport.fd, .events = POLLIN};
    if (gf_channel_lost() || !gf_reader_try()) {
        return false;
    }
    while ((gf_reader_has_input() || gf_transport_has_input(&ch.transport) || poll(&input, 1, 0) > 0) &&
           gf_reader_frame()) {
    }
    gf_reader_leave();
    return !gf_channel_lost();
}
