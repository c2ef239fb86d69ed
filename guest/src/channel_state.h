/* What channel.c, writer.c (sending), replies.c (receiving) and reconnect.c share. Neither lock is ever held
 * while the other is taken. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "channel.h"
#include "news.h"
#include "transport.h"

#define GF_RING_SIZE (1u << 20)
/* If a lost connection can be resumed the ring keeps what the server has not acknowledged, and must hold the
 * largest frame besides. */
#define GF_RESUMABLE_RING_SIZE (16u << 20)
#define GF_INPUT_SIZE          (64u << 10)
#define GF_CALL_SLOTS          64
#define GF_SMALLEST_PAGE       4096
#define GF_LINGER_NS           50000 /* between looks of who has nothing to wait by */

/* A session that is elsewhere now (WIRE.md 10). */
enum gf_moving {
    GF_HERE,
    GF_TOLD,    /* the server said so: whoever writes ends with our MOVED */
    GF_LEAVING, /* nothing more is written here; when the server has said everything, we follow */
};

struct gf_channel {
    struct gf_transport transport;
    int wake_fd; /* eventfd that ends the I/O thread's sleep */
    pthread_t io_thread;
    _Atomic bool open, lost;

    pthread_mutex_t send_lock;
    pthread_cond_t sent; /* the ring has room, or the writer's role is free */
    char *ring;
    size_t ring_size;
    uint64_t head, tail;     /* bytes ever appended, bytes ever written */
    _Atomic uint64_t frames; /* ever appended or written past the ring */
    uint64_t acknowledged;   /* bytes that the server said it has; counts only if `resumable` */
    bool writing;            /* somebody has the writer's role */
    pthread_t writer;
    unsigned direct; /* threads that wait to write a payload past the ring */
    bool asleep;     /* the I/O thread must be woken */
    bool closing;
    _Atomic bool leaving; /* sessionClose is on its way: the server's hanging up is no news */
    uint64_t closes_at;   /* where its frame ends, once it is in the ring */
    bool resumable;
    enum gf_moving moving;
    bool told_all;               /* before we follow: nothing more comes on this connection */
    _Atomic bool resuming;       /* the connection broke: nobody writes until there is another */
    _Atomic unsigned connection; /* counts them */

    pthread_mutex_t reply_lock;
    struct gf_news replied; /* a call is done, or the reader's role is free */
    struct gf_call *calls[GF_CALL_SLOTS];
    uint32_t next_request;
    bool reading;                /* somebody has the reader's role */
    bool resting;                /* `reader` has it, and sleeps until there is something to read */
    pthread_t reader;            /* the last that waited for an answer of its own and read */
    uint64_t turn;               /* counts them */
    _Atomic unsigned unattended; /* outstanding calls that nobody waits for */
    _Atomic unsigned waiting;    /* threads that wait for a reply */
    _Atomic int deferred;        /* failure to be reported by the next wait */

    char *input; /* owned by the reader's role, and so are the rest */
    size_t input_start, input_end;
    bool within;            /* a frame's header was read, and its rest was not */
    uint64_t received;      /* bytes after WELCOME */
    uint64_t received_told; /* as many as the server knows of */
};

extern struct gf_channel gf_channel;

/* Marks the server as lost; says why once. `why` may be NULL if it was said. */
void gf_channel_lose(const char *why);
void gf_channel_wake(void);
/* Replaces a broken connection if that is allowed and possible, and sends again what was lost on the way. The
 * caller has the reader's role and no lock. False: there is none, and the channel is lost or about to be. */
bool gf_channel_resume(void);
/* The server said that the session is elsewhere: answers, or where it would have to wait lets others do so.
 */
void gf_channel_moved(void);
/* Notes what the server has, so that the ring can be filled again; false if it cannot be true. */
bool gf_channel_acknowledged(uint64_t received);
/* Whether the server has our last frame, or, if nobody counts bytes, whether it is written. With the send
 * lock. */
bool gf_channel_is_closed(void);
/* Tells the server what we have, without waiting; false: try again later. */
bool gf_channel_acknowledge(uint64_t received);

void gf_reply_register(struct gf_call *call);
/* A call that could not be sent is over, with this result. False: its answer is being read. */
bool gf_reply_withdraw(struct gf_call *call, CUresult result);
/* The reader's role: one thread at a time receives. */
bool gf_reader_try(void);
void gf_reader_leave(void);
/* Receives one frame and completes its call; none if the connection was replaced while there was none. False:
 * lost. */
bool gf_reader_frame(void);
static inline bool gf_reader_has_input(void) {
    return gf_channel.input_end > gf_channel.input_start;
}
