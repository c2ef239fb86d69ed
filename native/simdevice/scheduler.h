/* Streams as queues of operations, and the threads that run them. Threads start when there is work and end
 * when there has been none for a while. One lock guards all queues; operations run outside it. */
#pragma once
#include "handle.h"

struct sim_context;
struct sim_device;
struct sim_stream;
struct sim_op;
struct sim_node_work;
struct sim_captured;
struct sim_green;

struct sim_op_class {
    CUresult (*run)(struct sim_op *op); /* NULL: nothing to do, only its place in the order matters */
    void (*drop)(struct sim_op *op);    /* lets go of what the operation holds, run or not; may be NULL */
    /* Says what it is as a node of a graph; NULL: a stream that is being captured does not take it. */
    void (*describe)(const struct sim_op *op, struct sim_node_work *work);
    bool even_after_error; /* runs in a context that a sticky error has ended */
    /* Runs code that may wait for other streams: counts neither as a busy thread nor as at work. */
    bool may_block;
    /* A kernel, which may wait for the program: a busy thread, but nobody waits until it is not at work. */
    bool may_spin;
};

/* Marks a `run` that works on device memory, in the files of SIM_WORKING_SOURCES only: all others are in both
 * libraries. The one that skips all work proves that a test notices it missing. */
#if defined SIM_SKIP_WORK
#define SIM_WORK(run) (0 ? (run) : NULL)
#elif defined SIM_DO_WORK
#define SIM_WORK(run) (run)
#endif

/* The first member of every kind of operation. */
struct sim_op {
    const struct sim_op_class *class;
    struct sim_stream *stream;
    struct sim_op *next;         /* in its stream */
    struct sim_edge *dependents; /* operations that wait for this one */
    uint64_t finished_ns;
    uint64_t reaches; /* bit per device whose memory it copies or fills */
    _Atomic uint32_t references;
    uint32_t blockers; /* unfinished operations that it waits for, its predecessor in the stream aside */
    _Atomic bool done;
    bool waited; /* a host thread sleeps until it is done */
};

enum sim_stream_type { SIM_STREAM_LEGACY, SIM_STREAM_PER_THREAD, SIM_STREAM_CREATED };

struct sim_stream {
    struct sim_object object;
    struct sim_context *context;
    enum sim_stream_type type;
    unsigned flags;
    int priority;
    uint64_t id;
    struct gf_stream_settings *settings;     /* its attributes; NULL: none was set */
    bool blocking;                           /* ordered with the legacy stream */
    _Atomic(struct sim_captured *) captured; /* its part in a capture; NULL: it runs what it is given */
    struct sim_green *green;                 /* the green context in which it was made; NULL: none */
    /* under the scheduler's lock */
    struct sim_op *head, *tail;
    unsigned queued; /* from head to tail */
    bool claimed;    /* a thread runs its head, or it is in the ready list */
    struct sim_stream *next_ready;
    struct sim_stream *next_active, *previous_active; /* the context's streams that have operations */
};

/* An operation of `size` bytes, zeroed, with one reference; NULL when memory is exhausted. */
void *sim_op_new(size_t size, const struct sim_op_class *class);
void sim_op_retain(struct sim_op *op);
void sim_op_release(struct sim_op *op);
bool sim_op_done(const struct sim_op *op);
void sim_op_wait(struct sim_op *op);

/* Appends the operation; the caller keeps its reference. It runs after what CUDA orders before it, and after
 * `dependency` if that is not NULL. */
void sim_submit(struct sim_stream *stream, struct sim_op *op, struct sim_op *dependency);
/* Waits until the device has room for more work of the stream. Called without a lock that work may need. */
void sim_scheduler_await_room(struct sim_stream *stream);
/* Drops the caller's reference to an operation that is not submitted, and what it holds. */
void sim_op_discard(struct sim_op *op);
/* Submits, drops the caller's reference. Where the stream is being captured the operation becomes a node
 * instead: this and the next function are where every call finds that out. */
CUresult sim_submit_and_forget(struct sim_stream *stream, struct sim_op *op);
/* Submits and waits, in this thread if nothing is before it; drops the caller's reference. The context's
 * error, if any. */
CUresult sim_submit_and_wait(struct sim_stream *stream, struct sim_op *op);

/* The last operation, with a reference, or NULL if all are done. */
struct sim_op *sim_stream_last(struct sim_stream *stream);
/* Whether a synchronisation with this stream would have to wait: for the legacy stream, with all that it
 * orders. */
bool sim_stream_busy(struct sim_stream *stream);
/* Waits for what has been submitted to any of the context's streams; of a green context, to any of its. */
void sim_context_drain(struct sim_context *context, const struct sim_green *green);
/* What `join` is given next comes behind all that. */
void sim_context_join(struct sim_context *context, const struct sim_green *green, struct sim_stream *join);
/* Around work on device memory that is part of an operation that may block, which is not at work itself. */
void sim_work_begin(void);
void sim_work_end(void);
/* Calls `action` while no operation but kernels is at work on device memory; those that wait for the program
 * are. */
void sim_scheduler_alone(void (*action)(void *argument), void *argument);
/* Waits for everything that any context of the device has been given. */
void sim_device_drain(const struct sim_device *device);
uint64_t sim_now_ns(void);
