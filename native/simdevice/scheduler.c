#include "scheduler.h"
#include "capture.h"
#include "context.h"
#include "green.h"
#include "log.h"
#include "monotonic.h"
#include "spawn.h"
#include "variance.h"
#include "wire/printed.h"
#include "wire/uncancelled.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define MAX_BUSY_THREADS                                                                                     \
    128 /* as many grids are at work on a device at a time: they may wait for each other */
#define IDLE_SECONDS 1
/* Operations of a process that have been submitted and are not done. A device has room for about a thousand
 * of each stream; so many take tens of megabytes, and whoever submits one more waits, as with a device.
 * Streams that have few have as much room again: what they are given may be what lets the others go on. */
#define QUEUED_MOST (1 << 14)
#define FEW         (1 << 10)

struct sim_edge {
    struct sim_edge *next;
    struct sim_op *op;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_ready, op_done = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sim_stream *ready; /* claimed streams whose head can run, by priority */
static unsigned ready_count;
static unsigned idle_threads, busy_threads;
/* Threads that were begun or woken and have not looked at `ready` yet. On a machine with too much to do that
 * takes a while, in which others may do the work: for each stream that becomes ready one is called, but no
 * more than there are streams. */
static unsigned coming_threads, waking_threads;
static unsigned running; /* operations that may be at work on device memory, but for kernels */
static unsigned wanting_alone;
static _Atomic unsigned queued; /* changed with the lock held */
static unsigned wanting_room;

uint64_t sim_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void set_up(void) {
    sim_cond_init_monotonic(&work_ready);
}

void *sim_op_new(size_t size, const struct sim_op_class *class) {
    struct sim_op *op = calloc(1, size);
    if (op) {
        op->class = class;
        atomic_init(&op->references, 1);
    }
    return op;
}

void sim_op_retain(struct sim_op *op) {
    atomic_fetch_add(&op->references, 1);
}

void sim_op_release(struct sim_op *op) {
    if (atomic_fetch_sub(&op->references, 1) == 1)
        free(op);
}

bool sim_op_done(const struct sim_op *op) {
    return atomic_load_explicit(&op->done, memory_order_acquire);
}

/* ---- everything from here to `execute` is called with the lock held ---- */

static void *worker(void *unused);

static void start_worker(void) {
    int error = sim_spawn(worker);
    if (error == 0) {
        busy_threads++;
        coming_threads++;
    } else if (busy_threads + idle_threads == 0) {
        sim_message(SIM_LOG_ERROR, "cannot start a thread (error %d): queued work waits", error);
    }
}

/* Sees that there is a thread for each stream that is ready. */
static void call_worker(void) {
    if (ready_count <= coming_threads)
        return;
    if (idle_threads > waking_threads) {
        waking_threads++;
        coming_threads++;
        pthread_cond_signal(&work_ready);
    } else if (busy_threads < MAX_BUSY_THREADS) {
        start_worker();
    }
}

static void make_ready(struct sim_stream *stream) {
    struct sim_stream **place = &ready;
    stream->claimed = true;
    while (*place && (*place)->priority <= stream->priority) /* a lower number is a higher priority */
        place = &(*place)->next_ready;
    if (sim_draw(SIM_OPEN_STREAM, 2)) /* which CUDA does not promise to heed */
        place = &ready;
    stream->next_ready = *place;
    *place = stream;
    ready_count++;
    call_worker();
}

static bool can_run(const struct sim_stream *stream) {
    return stream->head && stream->head->blockers == 0;
}

static void wait_for(struct sim_op *op, struct sim_op *dependency) {
    if (sim_op_done(dependency))
        return;
    struct sim_edge *edge = malloc(sizeof *edge);
    if (!edge) {
        sim_message(SIM_LOG_ERROR, "out of host memory");
        abort();
    }
    edge->op = op;
    edge->next = dependency->dependents;
    dependency->dependents = edge;
    op->blockers++;
}

/* CUDA's implicit order: the legacy stream against every blocking stream of its context. */
static void order_with_legacy(struct sim_stream *stream, struct sim_op *op) {
    struct sim_context *context = stream->context;
    if (stream->type == SIM_STREAM_LEGACY) {
        for (struct sim_stream *other = context->busy; other; other = other->next_active)
            if (other->blocking && other != stream)
                wait_for(op, other->tail);
    } else if (stream->blocking && context->legacy->tail) {
        wait_for(op, context->legacy->tail);
    }
}

/* What the context as a whole was told to wait for, and the green one. */
static void order_with_gate(struct sim_stream *stream, struct sim_op *op) {
    struct sim_stream *gate = atomic_load(&stream->context->gate);
    if (gate && gate != stream && gate->tail)
        wait_for(op, gate->tail);
    gate = stream->green ? atomic_load(&stream->green->gate) : NULL;
    if (gate && gate != stream && gate->tail)
        wait_for(op, gate->tail);
}

static void append(struct sim_stream *stream, struct sim_op *op, struct sim_op *dependency) {
    op->stream = stream;
    atomic_fetch_or(&stream->context->reached, op->reaches);
    queued++;
    stream->queued++;
    sim_retain(stream);
    sim_op_retain(op);
    if (dependency)
        wait_for(op, dependency);
    order_with_legacy(stream, op);
    order_with_gate(stream, op);
    if (stream->tail) {
        stream->tail->next = op;
    } else {
        struct sim_context *context = stream->context;
        stream->head = op;
        stream->previous_active = NULL;
        stream->next_active = context->busy;
        if (context->busy)
            context->busy->previous_active = stream;
        context->busy = stream;
    }
    stream->tail = op;
}

static void remove_head(struct sim_stream *stream) {
    stream->head = stream->head->next;
    if (stream->head)
        return;
    stream->tail = NULL;
    if (stream->previous_active)
        stream->previous_active->next_active = stream->next_active;
    else
        stream->context->busy = stream->next_active;
    if (stream->next_active)
        stream->next_active->previous_active = stream->previous_active;
}

static void finish(struct sim_op *op) {
    remove_head(op->stream);
    op->stream->queued--;
    queued--;
    op->finished_ns = sim_now_ns();
    atomic_store_explicit(&op->done, true, memory_order_release);
    while (op->dependents) {
        struct sim_edge *edge = op->dependents;
        struct sim_stream *stream = edge->op->stream;
        op->dependents = edge->next;
        edge->op->blockers--;
        if (!stream->claimed && can_run(stream))
            make_ready(stream);
        free(edge);
    }
    if (op->waited || wanting_room)
        pthread_cond_broadcast(&op_done);
}

/* Work may begin at once or a while later. */
static void delay(void) {
    uint64_t steps = sim_draw(SIM_OPEN_DELAY, 16);
    if (steps >= 12)
        nanosleep(&(struct timespec){.tv_nsec = (long)(steps - 11) * 100000}, NULL);
}

/* Runs the head of a stream that this thread has claimed. Takes the lock and returns with it, but not while
 * it runs. */
static void execute(struct sim_stream *stream, bool in_worker) {
    struct sim_op *op = stream->head;
    struct sim_context *context = stream->context;
    const struct sim_op_class *class = op->class;
    bool steps_aside = in_worker && class->may_block, counts = !class->may_block && !class->may_spin;
    while (wanting_alone)
        pthread_cond_wait(&op_done, &lock);
    running += counts;
    if (steps_aside) {
        busy_threads--;
        call_worker();
    }
    pthread_mutex_unlock(&lock);
    delay();
    if (class->run && (class->even_after_error || sim_context_error(context) == CUDA_SUCCESS)) {
        CUresult result = class->run(op);
        if (result != CUDA_SUCCESS)
            sim_context_fail(context, result);
    }
    if (class->drop)
        class->drop(op);
    pthread_mutex_lock(&lock);
    if (steps_aside)
        busy_threads++;
    running -= counts;
    if (wanting_alone)
        pthread_cond_broadcast(&op_done);
    finish(op);
}

/* Drops what `execute` kept alive: outside the lock, because the stream may end here. */
static void let_go(struct sim_stream *stream, struct sim_op *op) {
    sim_op_release(op);
    sim_release(stream);
}

static void *worker(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    coming_threads--;
    for (;;) {
        struct timespec deadline;
        int error = 0;
        clock_gettime(CLOCK_MONOTONIC, &deadline);
        deadline.tv_sec += IDLE_SECONDS;
        while (!ready && error == 0) {
            busy_threads--;
            idle_threads++;
            error = pthread_cond_timedwait(&work_ready, &lock, &deadline);
            idle_threads--;
            busy_threads++;
            if (waking_threads) { /* whichever of those that wait it was */
                waking_threads--;
                coming_threads--;
            }
        }
        if (!ready)
            break;
        struct sim_stream *stream = ready;
        ready = stream->next_ready;
        ready_count--;
        for (bool more = true; more;) {
            struct sim_op *op = stream->head;
            execute(stream, true);
            more = can_run(stream);
            if (!more)
                stream->claimed = false;
            pthread_mutex_unlock(&lock);
            let_go(stream, op);
            pthread_mutex_lock(&lock);
        }
    }
    busy_threads--;
    pthread_mutex_unlock(&lock);
    return NULL;
}

void sim_op_wait(struct sim_op *op) {
    GF_UNCANCELLED;
    if (sim_op_done(op))
        return;
    pthread_mutex_lock(&lock);
    while (!sim_op_done(op)) {
        op->waited = true;
        pthread_cond_wait(&op_done, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void sim_submit(struct sim_stream *stream, struct sim_op *op, struct sim_op *dependency) {
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    append(stream, op, dependency);
    bool instant = !op->class->run && !op->class->drop && stream->head == op && op->blockers == 0 &&
                   !stream->claimed && !sim_draw(SIM_OPEN_INLINE, 2);
    if (instant)
        finish(op);
    else if (!stream->claimed && can_run(stream))
        make_ready(stream);
    pthread_mutex_unlock(&lock);
    if (instant)
        let_go(stream, op);
}

/* With the lock held. */
static bool has_room(const struct sim_stream *stream) {
    return queued < QUEUED_MOST || (stream->queued < FEW && queued < 2 * QUEUED_MOST);
}

void sim_scheduler_await_room(struct sim_stream *stream) {
    if (atomic_load_explicit(&queued, memory_order_relaxed) < QUEUED_MOST)
        return;
    GF_UNCANCELLED;
    pthread_mutex_lock(&lock);
    while (!has_room(stream)) {
        wanting_room++;
        pthread_cond_wait(&op_done, &lock);
        wanting_room--;
    }
    pthread_mutex_unlock(&lock);
}

void sim_op_discard(struct sim_op *op) {
    if (op->class->drop)
        op->class->drop(op);
    sim_op_release(op);
}

CUresult sim_submit_and_forget(struct sim_stream *stream, struct sim_op *op) {
    CUresult result = CUDA_SUCCESS;
    if (sim_capture_takes(stream, op, &result)) {
        sim_op_discard(op);
        return result;
    }
    sim_scheduler_await_room(stream);
    sim_submit(stream, op, NULL);
    sim_op_release(op);
    return CUDA_SUCCESS;
}

CUresult sim_submit_and_wait(struct sim_stream *stream, struct sim_op *op) {
    GF_UNCANCELLED;
    struct sim_context *context = stream->context;
    CUresult refused = sim_capture_check_stream(stream);
    if (refused != CUDA_SUCCESS) {
        sim_op_discard(op);
        return refused;
    }
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    append(stream, op, NULL);
    if (stream->head == op && op->blockers == 0 && !stream->claimed && !sim_draw(SIM_OPEN_INLINE, 2)) {
        stream->claimed = true;
        execute(stream, false);
        if (can_run(stream))
            make_ready(stream);
        else
            stream->claimed = false;
        pthread_mutex_unlock(&lock);
        let_go(stream, op);
    } else {
        if (!stream->claimed && can_run(stream))
            make_ready(stream);
        pthread_mutex_unlock(&lock);
        sim_op_wait(op);
    }
    sim_op_release(op);
    gf_printed_settle();
    return sim_context_error(context);
}

void sim_work_begin(void) {
    pthread_mutex_lock(&lock);
    while (wanting_alone)
        pthread_cond_wait(&op_done, &lock);
    running++;
    pthread_mutex_unlock(&lock);
}

void sim_work_end(void) {
    pthread_mutex_lock(&lock);
    running--;
    if (wanting_alone)
        pthread_cond_broadcast(&op_done);
    pthread_mutex_unlock(&lock);
}

void sim_scheduler_alone(void (*action)(void *argument), void *argument) {
    GF_UNCANCELLED;
    pthread_mutex_lock(&lock);
    wanting_alone++;
    while (running)
        pthread_cond_wait(&op_done, &lock);
    action(argument);
    wanting_alone--;
    pthread_cond_broadcast(&op_done);
    pthread_mutex_unlock(&lock);
}

struct sim_op *sim_stream_last(struct sim_stream *stream) {
    pthread_mutex_lock(&lock);
    struct sim_op *op = stream->tail;
    if (op)
        sim_op_retain(op);
    pthread_mutex_unlock(&lock);
    return op;
}

bool sim_stream_busy(struct sim_stream *stream) {
    bool busy = false;
    pthread_mutex_lock(&lock);
    if (stream->type == SIM_STREAM_LEGACY)
        for (struct sim_stream *other = stream->context->busy; other && !busy; other = other->next_active)
            busy = other->blocking;
    else
        busy = stream->head != NULL;
    pthread_mutex_unlock(&lock);
    return busy;
}

static bool counts(const struct sim_stream *stream, const struct sim_green *green) {
    return !green || stream->green == green || stream->type == SIM_STREAM_LEGACY;
}

void sim_context_drain(struct sim_context *context, const struct sim_green *green) {
    GF_UNCANCELLED;
    pthread_mutex_lock(&lock);
    size_t count = 0;
    for (struct sim_stream *stream = context->busy; stream; stream = stream->next_active)
        count += counts(stream, green);
    struct sim_op **last = count ? calloc(count, sizeof *last) : NULL;
    if (count && !last) {
        sim_message(SIM_LOG_ERROR, "out of host memory");
        abort();
    }
    size_t i = 0;
    for (struct sim_stream *stream = context->busy; stream; stream = stream->next_active) {
        if (counts(stream, green)) {
            last[i++] = stream->tail;
            sim_op_retain(stream->tail);
        }
    }
    pthread_mutex_unlock(&lock);
    for (i = 0; i < count; i++) {
        sim_op_wait(last[i]);
        sim_op_release(last[i]);
    }
    free(last);
}

static const struct sim_op_class meeting = {.run = NULL};

void sim_context_join(struct sim_context *context, const struct sim_green *green, struct sim_stream *join) {
    struct sim_op *op = sim_op_new(sizeof *op, &meeting);
    if (!op) {
        sim_message(SIM_LOG_ERROR, "out of host memory");
        abort();
    }
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    for (struct sim_stream *stream = context->busy; stream; stream = stream->next_active)
        if (stream != join && counts(stream, green))
            wait_for(op, stream->tail);
    append(join, op, NULL);
    if (!join->claimed && can_run(join))
        make_ready(join);
    pthread_mutex_unlock(&lock);
    sim_op_release(op);
}

void sim_device_drain(const struct sim_device *device) {
    for (struct sim_context *context = sim_contexts(); context; context = context->next) {
        bool concerned =
            context->device == device || (atomic_load(&context->reached) & sim_device_bit(device));
        if (concerned && atomic_load(&context->active))
            sim_context_drain(context, NULL);
    }
}
