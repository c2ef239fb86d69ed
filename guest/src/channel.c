#define _GNU_SOURCE /* POLLRDHUP */
#include "channel_state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
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
#include "resume.h"
#include "session.h"
#include "stats.h"

#define IO_STACK_SIZE    (256u << 10)
#define LINGER_ROUNDS    20 /* how often the I/O thread looks again before it sleeps */
#define LINGER_NS        50000
#define OUTAGE_NS        5000000 /* between looks while the connection is being replaced */
#define DIRECT_THRESHOLD (64u << 10)
#define EXIT_FLUSH_MS    5000
#define IOV_BATCH        256

struct gf_channel gf_channel = {
    .transport.fd = -1,
    .wake_fd = -1,
    .send_lock = PTHREAD_MUTEX_INITIALIZER,
    .reply_lock = PTHREAD_MUTEX_INITIALIZER,
    .replied = PTHREAD_COND_INITIALIZER,
    .next_request = 1,
};

#define ch gf_channel

bool gf_channel_lost(void) {
    return atomic_load_explicit(&ch.lost, memory_order_acquire);
}

void gf_channel_lose(const char *why) {
    if (atomic_exchange(&ch.lost, true)) {
        return;
    }
    gf_session_lost();
    if (why != NULL && !atomic_load(&ch.leaving)) {
        gf_error("lost the GPU server: %s. Every CUDA call fails from here on; restart the program, and see "
                 "`gpuferry status` if it happens again.",
                 why);
    }
    shutdown(ch.transport.fd, SHUT_RDWR);
    gf_channel_wake();
    pthread_mutex_lock(&ch.send_lock);
    pthread_cond_broadcast(&ch.sent);
    pthread_mutex_unlock(&ch.send_lock);
    pthread_mutex_lock(&ch.reply_lock);
    pthread_cond_broadcast(&ch.replied);
    pthread_mutex_unlock(&ch.reply_lock);
}

void gf_channel_wake(void) {
    uint64_t one = 1;
    if (write(ch.wake_fd, &one, sizeof one) < 0) {
        /* the counter is full: it will wake */
    }
}

/* Until the socket takes more. Reads meanwhile, or two blocked writers would face each other. */
static bool wait_writable(void) {
    for (;;) {
        bool reader = gf_reader_try();
        struct pollfd wait = {.fd = ch.transport.fd, .events = POLLOUT | (reader ? POLLIN : 0)};
        int ready = poll(&wait, 1, reader ? -1 : 10);
        bool fine = true;
        if (reader) {
            if (ready > 0 && (wait.revents & POLLIN) != 0) {
                fine = gf_reader_frame();
            }
            gf_reader_leave();
        }
        if (!fine || gf_channel_lost()) {
            return false;
        }
        if (ready > 0 && (wait.revents & (POLLOUT | POLLERR | POLLHUP)) != 0) {
            return true;
        }
    }
}

/* The program gave memory that it does not have: it is told so as any program is, by its own fault. */
static void touch(const struct iovec *parts, int count) {
    for (int i = 0; i < count; i++) {
        for (size_t at = 0; at < parts[i].iov_len; at += GF_SMALLEST_PAGE) {
            (void)*((const volatile char *)parts[i].iov_base + at);
        }
    }
}

/* Writes all of it; the caller has the writer's role and no lock. False: lost, or the connection was replaced
 * or has to be, which changes what is to be written. */
static bool write_all(struct iovec *parts, int count) {
    uint64_t start = gf_now();
    unsigned connection = atomic_load(&ch.connection);
    while (count > 0 || gf_transport_has_output(&ch.transport)) {
        ssize_t sent = gf_transport_send(&ch.transport, parts, count);
        if (sent < 0) {
            if (errno == EINTR || ((errno == EAGAIN || errno == EWOULDBLOCK) && wait_writable())) {
                if (atomic_load(&ch.connection) != connection) {
                    return false;
                }
                continue;
            }
            if (errno == EFAULT) {
                touch(parts, count);
                continue;
            }
            if (ch.resumable && !gf_channel_lost()) {
                /* Whoever reads sees the end, behind all that the server said before. */
                shutdown(ch.transport.fd, SHUT_RDWR);
                gf_channel_wake();
                return false;
            }
            if (!gf_channel_lost() && gf_reader_try()) {
                /* What the server said last, a refusal for instance, explains more than our errno. */
                while (gf_reader_frame()) {
                }
                gf_reader_leave();
            }
            gf_channel_lose(gf_transport_cause(errno));
            return false;
        }
        gf_stat_add(GF_STAT_WRITES, 1);
        gf_stat_add(GF_STAT_BYTES_SENT, (uint64_t)sent);
        while (count > 0 && (size_t)sent >= parts->iov_len) {
            sent -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + sent;
            parts->iov_len -= (size_t)sent;
        }
    }
    gf_stat_add(GF_STAT_WRITING_NS, gf_now() - start);
    return true;
}

static int ring_parts(uint64_t from, uint64_t to, struct iovec parts[2]) {
    size_t offset = from & (ch.ring_size - 1), size = to - from;
    size_t first = ch.ring_size - offset < size ? ch.ring_size - offset : size;
    parts[0] = (struct iovec){ch.ring + offset, first};
    parts[1] = (struct iovec){ch.ring, size - first};
    return size == 0 ? 0 : first < size ? 2 : 1;
}

/* Our last frame on this connection. With the lock held, which it drops while writing. */
static void leave_locked(void) {
    struct gf_header moved = {.size = sizeof moved, .op = GF_OP_MOVED};
    struct iovec part = {&moved, sizeof moved};
    ch.moving = GF_LEAVING;
    ch.resuming = true;
    ch.writing = true;
    ch.writer = pthread_self();
    pthread_mutex_unlock(&ch.send_lock);
    write_all(&part, 1); /* if it fails, whoever reads sees the end */
    pthread_mutex_lock(&ch.send_lock);
    ch.writing = false;
    pthread_cond_broadcast(&ch.sent);
}

/* Empties the ring unless another thread does so already. With the lock held, which it drops while writing.
 */
static void flush_locked(void) {
    while (!ch.writing && ch.direct == 0 && ch.head != ch.tail && !ch.resuming && !gf_channel_lost()) {
        struct iovec parts[2];
        uint64_t end = ch.head;
        unsigned connection = atomic_load(&ch.connection);
        int count = ring_parts(ch.tail, end, parts);
        ch.writing = true;
        ch.writer = pthread_self();
        pthread_mutex_unlock(&ch.send_lock);
        bool fine = write_all(parts, count);
        pthread_mutex_lock(&ch.send_lock);
        ch.writing = false;
        if (fine) {
            ch.tail = end;
        } else if (atomic_load(&ch.connection) == connection) {
            ch.resuming = ch.resumable;
        }
        if (fine && ch.moving == GF_TOLD) {
            leave_locked();
        }
        pthread_cond_broadcast(&ch.sent);
    }
}

static size_t ring_room(void) {
    return ch.ring_size - (ch.head - (ch.resumable ? ch.acknowledged : ch.tail));
}

static void ring_copy(uint64_t at, const void *data, size_t size) {
    if (size == 0) { /* data may be NULL then, which memcpy does not allow */
        return;
    }
    size_t offset = at & (ch.ring_size - 1);
    size_t first = ch.ring_size - offset < size ? ch.ring_size - offset : size;
    memcpy(ch.ring + offset, data, first);
    memcpy(ch.ring, (const char *)data + first, size - first);
}

/* Nothing can be written: the ring is full of what the server did not acknowledge yet, or it says its last on
 * a connection that we leave. Reads. With the lock held, which it drops meanwhile. */
static void read_meanwhile(size_t size) {
    pthread_mutex_unlock(&ch.send_lock);
    if (gf_reader_try()) {
        /* It may have come before we had the role, and then nothing more would. */
        pthread_mutex_lock(&ch.send_lock);
        bool still = ch.moving == GF_LEAVING || ring_room() < size;
        pthread_mutex_unlock(&ch.send_lock);
        if (still) {
            gf_reader_frame();
        }
        gf_reader_leave();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = LINGER_NS}, NULL);
    }
    pthread_mutex_lock(&ch.send_lock);
}

static CUresult append(uint16_t op, uint32_t request, const struct iovec *parts, int count,
                       const struct gf_rows *rows, bool flush) {
    struct gf_header header = {.op = op, .request = request, .context = gf_context_wire_id()};
    size_t size = sizeof header;
    for (int i = 0; i < count; i++) {
        size += parts[i].iov_len;
    }
    size_t payload = rows == NULL ? 0 : rows->width * rows->rows;
    header.size = (uint32_t)(size + payload);
    bool wake = false;
    pthread_mutex_lock(&ch.send_lock);
    while (ring_room() < header.size && !gf_channel_lost()) {
        if (ch.moving == GF_LEAVING && !ch.writing) {
            read_meanwhile(header.size);
        } else if (ch.writing || ch.direct > 0 || ch.resuming) {
            pthread_cond_wait(&ch.sent, &ch.send_lock);
        } else if (ch.head != ch.tail) {
            flush_locked();
        } else {
            read_meanwhile(header.size);
        }
    }
    if (gf_channel_lost()) {
        pthread_mutex_unlock(&ch.send_lock);
        return gf_session_error();
    }
    uint64_t at = ch.head;
    ring_copy(at, &header, sizeof header);
    at += sizeof header;
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > 0) {
            ring_copy(at, parts[i].iov_base, parts[i].iov_len);
            at += parts[i].iov_len;
        }
    }
    for (uint64_t row = 0; payload > 0 && row < rows->rows; row++, at += rows->width) {
        ring_copy(at, rows->base + row * rows->pitch, rows->width);
    }
    ch.head = at;
    atomic_fetch_add(&ch.frames, 1);
    gf_stat_add(GF_STAT_FRAMES_SENT, 1);
    if (flush) {
        flush_locked();
    } else if (ch.asleep) {
        ch.asleep = false;
        wake = true;
    }
    pthread_mutex_unlock(&ch.send_lock);
    if (wake) {
        gf_channel_wake();
    }
    return CUDA_SUCCESS;
}

/* A large payload goes from the caller's memory straight to the socket, behind all that is in the ring. */
static CUresult write_direct(uint16_t op, const void *request, size_t size, const struct gf_rows *rows) {
    struct gf_header header = {.size = (uint32_t)(sizeof header + size + rows->width * rows->rows),
                               .op = op,
                               .context = gf_context_wire_id()};
    pthread_mutex_lock(&ch.send_lock);
    ch.direct++;
    while ((ch.writing || ch.resuming) && !gf_channel_lost()) {
        if (ch.moving == GF_LEAVING && !ch.writing) {
            read_meanwhile(0);
        } else {
            pthread_cond_wait(&ch.sent, &ch.send_lock);
        }
    }
    ch.direct--;
    if (gf_channel_lost()) {
        pthread_mutex_unlock(&ch.send_lock);
        return gf_session_error();
    }
    ch.writing = true;
    uint64_t end = ch.head;
    struct iovec parts[IOV_BATCH];
    int count = ring_parts(ch.tail, end, parts);
    atomic_fetch_add(&ch.frames, 1);
    gf_stat_add(GF_STAT_FRAMES_SENT, 1);
    pthread_mutex_unlock(&ch.send_lock);

    parts[count++] = (struct iovec){&header, sizeof header};
    parts[count++] = (struct iovec){(void *)request, size};
    bool fine = true, sharing = gf_thread.sharing;
    gf_thread.sharing = true; /* nothing can be fetched by who has the writer's role */
    for (uint64_t row = 0; row < rows->rows && fine; row++) {
        parts[count++] = (struct iovec){rows->base + row * rows->pitch, rows->width};
        if (count == IOV_BATCH || row + 1 == rows->rows) {
            fine = write_all(parts, count);
            count = 0;
        }
    }
    gf_thread.sharing = sharing;

    pthread_mutex_lock(&ch.send_lock);
    ch.writing = false;
    if (fine) {
        ch.tail = end;
        if (ch.moving == GF_TOLD) {
            leave_locked();
        }
    }
    pthread_cond_broadcast(&ch.sent);
    flush_locked();
    pthread_mutex_unlock(&ch.send_lock);
    return fine ? CUDA_SUCCESS : gf_session_error();
}

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
        return append(op, request, parts, count, NULL, flush);
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
    CUresult result = append(op, request, &copy, 1, NULL, flush);
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
        return write_direct(op, request, size, rows);
    }
    struct iovec part = {(void *)request, size};
    return append(op, 0, &part, 1, rows, false);
}

CUresult gf_call_start(struct gf_call *call, const struct iovec *parts, int count) {
    gf_hook_before(call->op);
    gf_reply_register(call);
    return append_parts(call->op, call->request, parts, count, true);
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

/* Sleeps until there is something to send, the server hangs up, or a reply comes that nobody else will read.
 */
static void io_sleep(void) {
    bool attend = atomic_load(&ch.unattended) > 0 && atomic_load(&ch.waiting) == 0;
    if (attend && gf_reader_try()) {
        /* What came together with somebody's reply makes the socket readable no more. */
        while ((gf_reader_has_input() || gf_transport_has_input(&ch.transport)) && gf_reader_frame()) {
        }
        gf_reader_leave();
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
    if (wait[1].revents != 0 && gf_reader_try()) {
        bool hung_up = (wait[1].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
        unsigned connection = atomic_load(&ch.connection);
        while (gf_reader_frame() && connection == atomic_load(&ch.connection) &&
               (hung_up || gf_reader_has_input() || gf_transport_has_input(&ch.transport))) {
        }
        gf_reader_leave();
    } else if (wait[1].revents != 0) {
        nanosleep(&(struct timespec){.tv_nsec = ch.resuming ? OUTAGE_NS : LINGER_NS}, NULL);
    }
}

static void *io_main(void *unused) {
    int quiet = 0;
    pthread_mutex_lock(&ch.send_lock);
    while (!ch.closing && !gf_channel_lost()) {
        if (ch.head != ch.tail && !ch.resuming) {
            quiet = 0;
            flush_locked();
        }
        if (ch.moving == GF_TOLD && !ch.writing && !ch.resuming) {
            leave_locked();
        }
        if (quiet++ < LINGER_ROUNDS) {
            pthread_mutex_unlock(&ch.send_lock);
            nanosleep(&(struct timespec){.tv_nsec = LINGER_NS}, NULL);
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
    ch.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ch.resumable = gf_session.resume_ms > 0;
    ch.ring_size = ch.resumable ? GF_RESUMABLE_RING_SIZE : GF_RING_SIZE;
    ch.ring = malloc(ch.ring_size);
    ch.input = malloc(GF_INPUT_SIZE);
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, IO_STACK_SIZE);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool fine = ch.wake_fd >= 0 && ch.ring != NULL && ch.input != NULL &&
                pthread_create(&ch.io_thread, &attributes, io_main, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    atomic_store(&ch.open, fine);
    return fine;
}

void gf_channel_close(void) {
    if (!atomic_load(&ch.open)) {
        return;
    }
    atomic_store(&ch.leaving, true);
    gf_send(GF_OP_sessionClose, NULL, 0);
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += EXIT_FLUSH_MS / 1000;
    pthread_mutex_lock(&ch.send_lock);
    /* The I/O thread writes, so that a server which does not read cannot hold up the exit. */
    gf_channel_wake();
    while (ch.head != ch.tail && !gf_channel_lost()) {
        if (pthread_cond_timedwait(&ch.sent, &ch.send_lock, &deadline) != 0) {
            break;
        }
    }
    ch.closing = true;
    pthread_mutex_unlock(&ch.send_lock);
    shutdown(ch.transport.fd, SHUT_RDWR);
    gf_channel_wake();
    pthread_join(ch.io_thread, NULL);
}

bool gf_channel_acknowledged(uint64_t received) {
    pthread_mutex_lock(&ch.send_lock);
    bool fine = ch.resumable && received <= ch.head;
    if (fine && received > ch.acknowledged) {
        ch.acknowledged = received;
        pthread_cond_broadcast(&ch.sent);
    }
    pthread_mutex_unlock(&ch.send_lock);
    return fine;
}

bool gf_channel_acknowledge(uint64_t received) {
    struct {
        struct gf_header header;
        struct gf_acknowledge body;
    } __attribute__((packed)) frame = {{.size = sizeof frame, .op = GF_OP_ACKNOWLEDGE}, {received}};
    pthread_mutex_lock(&ch.send_lock);
    bool fine = ring_room() >= sizeof frame, wake = fine && ch.asleep;
    if (fine) {
        ring_copy(ch.head, &frame, sizeof frame);
        ch.head += sizeof frame;
        ch.asleep = false;
    }
    pthread_mutex_unlock(&ch.send_lock);
    if (wake) {
        gf_channel_wake();
    }
    return fine;
}

/* Nobody else waits for another connection any more. */
static bool given_up(void) {
    pthread_mutex_lock(&ch.send_lock);
    bool closing = ch.closing;
    pthread_mutex_unlock(&ch.send_lock);
    return closing || gf_channel_lost();
}

void gf_channel_moved(void) {
    pthread_mutex_lock(&ch.send_lock);
    if (ch.moving == GF_HERE) {
        ch.moving = GF_TOLD;
        /* Who calls has the reader's role: where the socket is full it would wait and not read, and the
         * server may be waiting for just that. Then the I/O thread answers. */
        struct pollfd socket = {.fd = ch.transport.fd, .events = POLLOUT};
        if (ch.writing || poll(&socket, 1, 0) <= 0) {
            gf_channel_wake();
        } else {
            leave_locked();
        }
    }
    pthread_mutex_unlock(&ch.send_lock);
}

/* The connection ended. Without counts of bytes there is only one way to go on: both sides had said
 * that they had said everything there, and the session is elsewhere. */
static bool may_go_on(void) {
    pthread_mutex_lock(&ch.send_lock);
    bool followed = ch.told_all && !ch.within && !gf_reader_has_input();
    pthread_mutex_unlock(&ch.send_lock);
    return (ch.resumable || followed) && !gf_channel_lost();
}

bool gf_channel_resume(void) {
    if (!may_go_on()) {
        return false;
    }
    pthread_mutex_lock(&ch.send_lock);
    if (atomic_load(&ch.leaving) && ch.head == ch.tail) {
        pthread_mutex_unlock(&ch.send_lock);
        return false;
    }
    ch.resuming = true;
    shutdown(ch.transport.fd, SHUT_RDWR); /* a writer gets an error, and leaves */
    while (ch.writing && !pthread_equal(ch.writer, pthread_self())) {
        pthread_cond_wait(&ch.sent, &ch.send_lock);
    }
    pthread_mutex_unlock(&ch.send_lock);

    if (!ch.within) {
        /* The beginning of a header comes again: it may have been that of MOVED, which does not count. */
        ch.received -= ch.resumable ? ch.input_end - ch.input_start : 0;
        ch.input_start = ch.input_end = 0;
    }
    char why[512];
    uint64_t theirs;
    struct gf_transport next;
    if (!gf_resume_connect(&next, ch.received, &theirs, given_up, why, sizeof why)) {
        gf_channel_lose(why);
        return false;
    }
    pthread_mutex_lock(&ch.send_lock);
    bool fine = ch.resumable ? theirs >= ch.acknowledged && theirs <= ch.head : theirs == 0;
    fine = fine && gf_transport_replace(&ch.transport, &next);
    if (fine) {
        if (ch.resumable) {
            ch.tail = ch.acknowledged = theirs;
        }
        ch.resuming = false;
        ch.moving = GF_HERE;
        ch.told_all = false;
        atomic_fetch_add(&ch.connection, 1);
        pthread_cond_broadcast(&ch.sent);
    }
    pthread_mutex_unlock(&ch.send_lock);
    gf_transport_close(&next);
    if (!fine) {
        gf_channel_lose("it did not get what it says it got, or no descriptor is left");
    }
    gf_channel_wake();
    return fine;
}

void gf_channel_abandon(void) {
    if (ch.transport.fd >= 0) {
        close(ch.transport.fd);
        close(ch.wake_fd);
    }
}
