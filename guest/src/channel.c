#define _GNU_SOURCE /* POLLRDHUP */
#include "aside.h"
#include "channel_state.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "gpuferry/messages.h"
#include "guest.h"
#include "hooks.h"
#include "log.h"
#include "session.h"
#include "thread.h"
#include "writer.h"

#define IO_STACK_SIZE    (256u << 10)
#define LINGER_ROUNDS    20      /* how often the I/O thread looks again before it sleeps */
#define OUTAGE_NS        5000000 /* between looks while the connection is being replaced */
#define DIRECT_THRESHOLD (64u << 10)

#define EXIT_FLUSH_SECONDS 5
/* Once all is written: a server that does not read now (no turn, no memory) reads it when we are gone. */
#define EXIT_ANSWER_SECONDS 1

#define ch gf_channel

uint64_t gf_channel_frames(void) {
    return atomic_load(&ch.frames);
}

static bool any_shared(const struct iovec *parts, int count) {
    bool shared = false;
    for (int i = 0; i < count && !shared; i++) {
        shared = gf_shares(parts[i].iov_base);
    }
    return shared;
}

/* Memory that the program shares with the device may have to be fetched when it is read, by a call of its
 * own: so it is read before the ring is locked. */
static CUresult append_parts(uint16_t op, uint32_t request, const struct iovec *parts, int count,
                             bool flush) {
    if (!any_shared(parts, count)) {
        return gf_writer_append(op, request, parts, count, NULL, flush);
    }
    size_t size = 0;
    for (int i = 0; i < count; i++) {
        size += parts[i].iov_len;
    }
    struct iovec copy = {malloc(size), 0};
    if (copy.iov_base == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (int i = 0; i < count; i++) {
        memcpy((char *)copy.iov_base + copy.iov_len, parts[i].iov_base, parts[i].iov_len);
        copy.iov_len += parts[i].iov_len;
    }
    CUresult result = gf_writer_append(op, request, &copy, 1, NULL, flush);
    free(copy.iov_base);
    return result;
}

CUresult gf_send(uint16_t op, const struct iovec *parts, int count) {
    gf_hook_before(op);
    return append_parts(op, 0, parts, count, false);
}

CUresult gf_send_rows(uint16_t op, const void *request, size_t size, const struct gf_rows *rows) {
    gf_reach(rows->base, rows->pitch * (rows->rows - 1) + rows->width, false);
    if (rows->width * rows->rows >= DIRECT_THRESHOLD && !ch.resumable) {
        return gf_writer_direct(op, request, size, rows);
    }
    struct iovec part = {(void *)request, size};
    return gf_writer_append(op, 0, &part, 1, rows, false);
}

CUresult gf_call_start(struct gf_call *call, const struct iovec *parts, int count) {
    gf_hook_before(call->op);
    gf_reply_register(call);
    CUresult result = append_parts(call->op, call->request, parts, count, true);
    return result == CUDA_SUCCESS || !gf_reply_withdraw(call, result) ? CUDA_SUCCESS : result;
}

CUresult gf_call_parts(struct gf_call *call, const struct iovec *parts, int count) {
    CUresult result = gf_call_start(call, parts, count);
    CUresult waited = gf_call_wait(call);
    gf_hook_after(call->op, result == CUDA_SUCCESS && waited == CUDA_SUCCESS);
    return result != CUDA_SUCCESS ? result : waited;
}

CUresult gf_call_struct(uint16_t op, const void *request, size_t size, void *reply, size_t reply_size) {
    struct gf_call call = {.op = op, .reply = reply, .reply_size = (uint32_t)reply_size};
    return gf_call_parts(&call, &(struct iovec){(void *)request, size}, 1);
}

CUresult gf_call_making(uint16_t op, const void *request, size_t size, void *reply, size_t reply_size) {
    struct gf_call call = {.op = op, .reply = reply, .reply_size = (uint32_t)reply_size};
    CUresult result = gf_call_parts(&call, &(struct iovec){(void *)request, size}, 1);
    if (result != CUDA_SUCCESS && call.done && call.status == CUDA_SUCCESS) {
        gf_channel_latch(call.context_id, result);
        result = CUDA_SUCCESS;
    }
    return result;
}

/* Sleeps until there is something to send, the server hangs up, or a reply comes that nobody else will read.
 * What poll tells of, somebody else may have read meanwhile, or gone on with another connection: it is looked
 * at again, since who waited for more here would send nothing. */
static void io_sleep(void) {
    bool attend = atomic_load(&ch.unattended) > 0 && atomic_load(&ch.waiting) == 0;
    if (attend) {
        gf_channel_glance(); /* what came together with somebody's reply makes the socket readable no more */
    }
    struct pollfd wait[2] = {{.fd = ch.wake_fd, .events = POLLIN},
                             {.fd = ch.transport.fd, .events = (short)(POLLRDHUP | (attend ? POLLIN : 0))}};
    if (poll(wait, 2, -1) <= 0) {
        return;
    }
    uint64_t count;
    if ((wait[0].revents & POLLIN) != 0 && read(ch.wake_fd, &count, sizeof count) < 0) {
        /* another wake-up took it */
    }
    if (wait[1].revents != 0 && !gf_channel_glance()) {
        nanosleep(&(struct timespec){.tv_nsec = ch.resuming ? OUTAGE_NS : GF_LINGER_NS}, NULL);
    }
}

static void *io_main(void *unused) {
    int quiet = 0;
    pthread_mutex_lock(&ch.send_lock);
    while (!ch.closing && !gf_channel_lost()) {
        if (ch.head != ch.tail && !ch.resuming) {
            quiet = 0;
            gf_writer_flush();
        }
        if (ch.moving == GF_TOLD && !ch.writing && !ch.resuming) {
            gf_writer_leave();
        }
        if (quiet++ < LINGER_ROUNDS && !atomic_load(&ch.leaving)) {
            pthread_mutex_unlock(&ch.send_lock);
            nanosleep(&(struct timespec){.tv_nsec = GF_LINGER_NS}, NULL);
        } else {
            ch.asleep = true;
            pthread_mutex_unlock(&ch.send_lock);
            io_sleep();
            quiet = 0;
        }
        pthread_mutex_lock(&ch.send_lock);
        ch.asleep = false;
    }
    pthread_mutex_unlock(&ch.send_lock);
    return unused;
}

/* Waits for room are measured by the monotonic clock: setting the time of day makes no exit hang. */
static void open_sent(void) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&ch.sent, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool gf_channel_open(const struct gf_transport *transport) {
    ch.transport = *transport;
    open_sent();
    ch.wake_fd = gf_put_aside(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    ch.resumable = gf_session.resume_ms > 0;
    ch.ring_size = ch.resumable ? GF_RESUMABLE_RING_SIZE : GF_RING_SIZE;
    ch.ring = malloc(ch.ring_size);
    ch.input = malloc(GF_INPUT_SIZE);
    bool fine = ch.wake_fd >= 0 && ch.ring != NULL && ch.input != NULL &&
                gf_thread_begin_joined(&ch.io_thread, io_main, NULL, IO_STACK_SIZE);
    atomic_store(&ch.open, fine);
    return fine;
}

static struct timespec after(time_t seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    return until;
}

/* Until the server has our last frame, for a bounded time. With the send lock. */
static void wait_closed(void) {
    struct timespec deadline = after(EXIT_FLUSH_SECONDS), answer = deadline;
    bool was_written = false;
    for (bool waits = true; waits && !gf_channel_is_closed() && !gf_channel_lost();) {
        bool written = ch.head == ch.tail && !ch.resuming;
        if (written && !was_written) {
            answer = after(EXIT_ANSWER_SECONDS);
        }
        was_written = written;
        waits = pthread_cond_timedwait(&ch.sent, &ch.send_lock, written ? &answer : &deadline) == 0;
    }
}

void gf_channel_close(void) {
    if (!atomic_load(&ch.open)) {
        return;
    }
    atomic_store(&ch.leaving, true);
    if (gf_send(GF_OP_sessionClose, NULL, 0) == CUDA_SUCCESS && ch.resumable) {
        /* The server's word that it has it: where the connection breaks nothing else tells. */
        gf_channel_attend(1);
    }
    pthread_mutex_lock(&ch.send_lock);
    /* The I/O thread writes, so that a server which does not read cannot hold up the exit. */
    gf_channel_wake();
    wait_closed();
    ch.closing = true;
    pthread_mutex_unlock(&ch.send_lock);
    shutdown(ch.transport.fd, SHUT_RDWR);
    gf_channel_wake();
    pthread_join(ch.io_thread, NULL);
}

void gf_channel_abandon(void) {
    if (ch.transport.fd >= 0) {
        close(ch.transport.fd);
        close(ch.wake_fd);
        ch.transport.fd = ch.wake_fd = -1; /* a child's child may have others under these numbers */
    }
}
