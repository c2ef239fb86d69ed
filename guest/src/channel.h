/* The one ordered channel to the API server: a send ring, an I/O thread that empties it, and replies read by
 * whoever waits (DESIGN.md). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "driver_interop/cuda_driver.h"

#include "gpuferry/frames.h"

/* Memory in rows, the source or the destination of a payload. rows = 1: contiguous. */
struct gf_rows {
    char *base;
    uint64_t pitch, width, rows;
};

/* One request that is answered. Owned by the caller until gf_call_wait returns or `completed` was called. */
struct gf_call {
    uint16_t op;
    uint32_t reply_size; /* the reply struct goes to `reply` */
    void *reply;
    struct gf_rows rows; /* the reply's payload goes here if base is set, else into `payload` (malloc) */
    void *payload;
    size_t payload_size;
    CUresult status, latched;
    uint32_t request;
    uint32_t context_id; /* in which it was made, as on the wire */
    bool done;
    struct gf_call *next;
    void (*completed)(
        struct gf_call *); /* set: nobody waits; called by the reading thread, with no lock held */
};

struct gf_transport;

/* Takes over a connection after the handshake and starts the I/O thread. */
bool gf_channel_open(const struct gf_transport *transport);
/* At exit: tells the server, flushes for a bounded time, ends the I/O thread. */
void gf_channel_close(void);
/* In a forked child: forgets the connection without a trace on the wire. */
void gf_channel_abandon(void);

/* Appends a request that is not answered. Parts are copied; together they are small (at most 256 KiB). */
CUresult gf_send(uint16_t op, const struct iovec *parts, int count);
#define gf_send_struct(op, request)                                                                          \
    gf_send((op), &(struct iovec){.iov_base = (request), .iov_len = sizeof *(request)}, 1)
/* The same with a payload of any size up to GF_CHUNK, which is captured when the call returns. */
CUresult gf_send_rows(uint16_t op, const void *request, size_t size, const struct gf_rows *rows);

/* Sends the request; gf_call_wait takes the answer, unless `completed` is set. */
CUresult gf_call_start(struct gf_call *call, const struct iovec *parts, int count);
/* Waits; the call's own failure, else an earlier one that was latched. */
CUresult gf_call_wait(struct gf_call *call);
/* Starts and waits; what came behind the reply struct is in `payload`, to be freed; nothing if memory is at
 * an end. */
CUresult gf_call_parts(struct gf_call *call, const struct iovec *parts, int count);
/* The same for a request and a reply of fixed size. */
CUresult gf_call_struct(uint16_t op, const void *request, size_t size, void *reply, size_t reply_size);
/* The same for what makes something on the server: it succeeds although an earlier call has failed, which is
 * told by one that waits. */
CUresult gf_call_making(uint16_t op, const void *request, size_t size, void *reply, size_t reply_size);

/* Reads whatever is needed until *flag is set by a `completed` callback. False: the server is lost. */
bool gf_channel_wait_flag(const _Atomic bool *flag);
/* Remembers the failure of a call that nobody waits for, made in a context named as on the wire (0: in none).
 * One that destroys the context is that context's; any other is returned by the next gf_call_wait. */
void gf_channel_latch(uint32_t context_id, CUresult error);

struct gf_host_call;
/* Set before the server is told of a function of the program: called by whoever reads when the server asks
 * for it. What is wrong with that, or NULL. */
extern const char *(*_Atomic gf_channel_asked)(const struct gf_host_call *asked);
/* As many more things may come that nobody waits for, or less: somebody always reads then. */
void gf_channel_attend(int change);
/* Reads what the server has said, if anything, and sees the end of the connection, without waiting. False:
 * somebody else reads, or the server is lost. */
bool gf_channel_glance(void);
/* How many requests were ever sent: as long as that stays the same nothing was enqueued. */
uint64_t gf_channel_frames(void);

/* Whether the server is gone for good. */
bool gf_channel_lost(void);
