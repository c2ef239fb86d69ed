#include "writer.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "channel_state.h"
#include "freed.h"
#include "gpuferry/messages.h"
#include "guest.h"
#include "log.h"
#include "session.h"
#include "signals.h"
#include "stats.h"
#include "wire/uncancelled.h"

#define IOV_BATCH 128 /* 2 KiB of a stack */

#define ch gf_channel

/* Until the socket takes more. Reads meanwhile, or two blocked writers would face each other. */
static bool wait_writable(void) {
    for (;;) {
        bool reader = gf_reader_try();
        struct pollfd wait = {.fd = ch.transport.fd, .events = POLLOUT | (reader ? POLLIN : 0)};
        int ready = poll(&wait, 1, reader ? gf_signals_patience() : 10);
        gf_signals_overdue();
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

void gf_writer_leave(void) {
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

void gf_writer_flush(void) {
    GF_UNCANCELLED;
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
            gf_writer_leave();
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
        nanosleep(&(struct timespec){.tv_nsec = GF_LINGER_NS}, NULL);
    }
    pthread_mutex_lock(&ch.send_lock);
}

/* With the send lock. */
static void wait_sent(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&ch.sent, &ch.send_lock, &until);
    if (gf_thread.held != 0) {
        pthread_mutex_unlock(&ch.send_lock);
        gf_signals_overdue();
        pthread_mutex_lock(&ch.send_lock);
    }
}

CUresult gf_writer_append(uint16_t op, uint32_t request, const struct iovec *parts, int count,
                          const struct gf_rows *rows, bool flush) {
    if (op != GF_OP_cuStreamQuery && op != GF_OP_cuStreamSynchronize) {
        gf_stream_used();
    }
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
        GF_UNCANCELLED;
        if (ch.moving == GF_LEAVING && !ch.writing) {
            read_meanwhile(header.size);
        } else if (ch.writing || ch.direct > 0 || ch.resuming) {
            wait_sent();
        } else if (ch.head != ch.tail) {
            gf_writer_flush();
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
    if (op == GF_OP_sessionClose) { /* at once: the answer may come before its sender goes on */
        ch.closes_at = at;
    }
    atomic_fetch_add(&ch.frames, 1);
    gf_stat_add(GF_STAT_FRAMES_SENT, 1);
    if (flush) {
        gf_writer_flush();
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

CUresult gf_writer_direct(uint16_t op, const void *request, size_t size, const struct gf_rows *rows) {
    GF_UNCANCELLED;
    gf_stream_used();
    struct gf_header header = {.size = (uint32_t)(sizeof header + size + rows->width * rows->rows),
                               .op = op,
                               .context = gf_context_wire_id()};
    pthread_mutex_lock(&ch.send_lock);
    ch.direct++;
    while ((ch.writing || ch.resuming) && !gf_channel_lost()) {
        if (ch.moving == GF_LEAVING && !ch.writing) {
            read_meanwhile(0);
        } else {
            wait_sent();
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
            gf_writer_leave();
        }
    }
    pthread_cond_broadcast(&ch.sent);
    gf_writer_flush();
    pthread_mutex_unlock(&ch.send_lock);
    return fine ? CUDA_SUCCESS : gf_session_error();
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
            gf_writer_leave();
        }
    }
    pthread_mutex_unlock(&ch.send_lock);
}
