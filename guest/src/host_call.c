#include "host_call.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "channel.h"
#include "context.h"
#include "gpuferry/messages.h"
#include "hooks.h"
#include "module.h"
#include "objects.h"
#include "stats.h"
#include "stream.h"
#include "thread.h"
#include "unmaps.h"
#include "window.h"

#define TABLE_SIZE 256
#define PATIENCE   UINT64_C(10000000000) /* nanoseconds */
/* Requests behind a call that a stream waits for. A device has room for about a thousand operations; where
 * there is none the server's dispatcher waits, and would not hear that the call is done. */
#define BEHIND_MOST 512

/* A call that was asked for. */
struct turn {
    uint64_t id, ticket;
    CUresult status;
    struct turn *next;
};

/* A thread that does them one after another. Functions of the program have one, so that no two run at once,
 * as with NVIDIA's driver; copies have another, for a function may take its time. */
struct worker {
    bool started;
    pthread_cond_t work;
    struct turn *first, **last;
};

struct function_call {
    struct gf_host_task base;
    CUhostFn function;
    CUstreamCallback callback; /* or this one */
    CUstream stream;
    void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gf_host_task *table[TABLE_SIZE];
static uint64_t next_id = 1;
static unsigned dropped_count; /* kept calls that were dropped and are still here */
static struct worker functions = {.work = PTHREAD_COND_INITIALIZER, .last = &functions.first};
static struct worker copies = {.work = PTHREAD_COND_INITIALIZER, .last = &copies.first};

_Atomic unsigned gf_host_calls;
static _Atomic uint64_t oldest_sent; /* of those that streams wait for; 0: there is none */

static struct gf_host_task **place(uint64_t id) {
    struct gf_host_task **at = &table[id % TABLE_SIZE];
    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next;
    }
    return at;
}

/* With the lock held: frees kept calls that were dropped and that nothing under way may ask for. */
static void sweep(void) {
    uint64_t oldest = next_id;
    for (int i = 0; i < TABLE_SIZE; i++) {
        for (const struct gf_host_task *call = table[i]; call != NULL; call = call->next) {
            oldest = !call->kept && call->id < oldest ? call->id : oldest;
        }
    }
    for (int i = 0; i < TABLE_SIZE; i++) {
        for (struct gf_host_task **at = &table[i]; *at != NULL;) {
            struct gf_host_task *call = *at;
            if (call->dropped == 0 || call->asked > 0 || call->dropped > oldest) {
                at = &call->next;
            } else {
                *at = call->next;
                free(call);
                dropped_count--;
            }
        }
    }
}

/* With the lock held. */
static struct gf_host_task *oldest_in_a_stream(void) {
    struct gf_host_task *oldest = NULL;
    for (int i = 0; i < TABLE_SIZE && gf_host_calls > 0; i++) {
        for (struct gf_host_task *call = table[i]; call != NULL; call = call->next) {
            bool waited = !call->kept && call->sent > 0;
            oldest = waited && (oldest == NULL || call->sent < oldest->sent) ? call : oldest;
        }
    }
    return oldest;
}

/* With the lock held: the call is in a stream since so many requests, or (0) in none any more. */
static void note_sent(struct gf_host_task *call, uint64_t sent) {
    bool changes = call->sent == oldest_sent || oldest_sent == 0;
    call->sent = sent;
    if (changes) {
        const struct gf_host_task *oldest = oldest_in_a_stream();
        atomic_store(&oldest_sent, oldest == NULL ? 0 : oldest->sent);
    }
}

/* With the lock held. */
static void forget(struct gf_host_task **at) {
    note_sent(*at, 0);
    *at = (*at)->next;
    gf_channel_attend(-1);
    atomic_fetch_sub(&gf_host_calls, 1);
}

static void withdraw(struct gf_host_task *call) {
    pthread_mutex_lock(&lock);
    forget(place(call->id));
    pthread_mutex_unlock(&lock);
}

static struct gf_host_task *find(uint64_t id) {
    pthread_mutex_lock(&lock);
    struct gf_host_task *call = *place(id);
    pthread_mutex_unlock(&lock);
    return call;
}

static void ran(struct gf_host_task *call) {
    pthread_mutex_lock(&lock);
    call->asked--;
    if (!call->kept) {
        forget(place(call->id));
        free(call);
    }
    if (dropped_count > 0) {
        sweep();
    }
    pthread_mutex_unlock(&lock);
}

/* What was asked for is here until it ran, and pending until that was sent: what others send then comes
 * behind it. */
static void run(const struct turn *turn) {
    struct gf_host_task *call = find(turn->id);
    if (call != NULL) {
        call->run(call, turn->ticket, turn->status);
    }
    struct gf_req_sessionHostDone request = {.ticket = turn->ticket};
    gf_send_struct(GF_OP_sessionHostDone, &request);
    if (call != NULL) {
        ran(call);
    }
}

static void *work(void *worker_) {
    struct worker *worker = worker_;
    gf_thread.host_function = worker == &functions;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (worker->first == NULL) {
            pthread_cond_wait(&worker->work, &lock);
        }
        struct turn *turn = worker->first;
        worker->first = turn->next;
        if (worker->first == NULL) {
            worker->last = &worker->first;
        }
        pthread_mutex_unlock(&lock);
        run(turn);
        free(turn);
    }
    return NULL;
}

/* With the lock held. */
static bool start(struct worker *worker) {
    worker->started = worker->started || gf_thread_begin(work, worker, 0);
    return worker->started;
}

static const char *asked_for(const struct gf_host_call *asked) {
    struct turn *turn = malloc(sizeof *turn);
    if (turn == NULL) {
        return "no memory for a function in a stream";
    }
    *turn = (struct turn){.id = asked->call, .ticket = asked->ticket, .status = (CUresult)asked->status};
    pthread_mutex_lock(&lock);
    struct gf_host_task *call = *place(turn->id);
    if (call != NULL) {
        call->asked++;
    }
    struct worker *worker = call != NULL && call->copies ? &copies : &functions;
    *worker->last = turn;
    worker->last = &turn->next;
    pthread_cond_signal(&worker->work);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* A context that failed asks for nothing more. What it asked for before came before the answer. */
static void forget_failed(uint64_t context) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < TABLE_SIZE; i++) {
        for (struct gf_host_task **at = &table[i]; *at != NULL;) {
            struct gf_host_task *call = *at;
            if (call->kept || call->asked > 0 || call->context != context) {
                at = &call->next;
            } else {
                forget(at);
                free(call);
            }
        }
    }
    pthread_mutex_unlock(&lock);
}

void gf_host_calls_settle(uint64_t context) {
    if (gf_host_calls_pending() && gf_wait_for_context(context) != CUDA_SUCCESS) {
        forget_failed(context);
    }
}

static uint64_t current_context(void) {
    return gf_thread.depth > 0 ? gf_context_current_handle() : gf_context_primary(0);
}

static void settle_current(void) {
    gf_host_calls_settle(current_context());
}

/* Of a context; 0: of any. */
static bool pending_in(uint64_t context) {
    bool pending = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < TABLE_SIZE && gf_host_calls > 0; i++) {
        for (const struct gf_host_task *call = table[i]; call != NULL; call = call->next) {
            pending = pending || (!call->kept && (call->context == context || context == 0));
        }
    }
    pthread_mutex_unlock(&lock);
    return pending;
}

static void await(uint64_t context) {
    uint64_t began = gf_now();
    while (pending_in(context) && gf_now() - began < PATIENCE) {
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

static bool are_behind(uint64_t requests) {
    uint64_t sent = atomic_load(&oldest_sent);
    return sent != 0 && gf_channel_frames() - sent > requests && !gf_channel_lost();
}

/* But a program may let a stream go on by what it does next. */
static void await_oldest(void) {
    if (!are_behind(BEHIND_MOST)) {
        return;
    }
    uint64_t began = gf_now();
    while (are_behind(BEHIND_MOST / 2) && gf_now() - began < PATIENCE) {
        gf_channel_glance(); /* the I/O thread looks less often as long as it writes */
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    if (are_behind(BEHIND_MOST)) {
        pthread_mutex_lock(&lock);
        struct gf_host_task *oldest = oldest_in_a_stream();
        if (oldest != NULL) {
            note_sent(oldest, 0);
        }
        pthread_mutex_unlock(&lock);
    }
}

/* See Note [Loads and host calls] in loading.c. But a program may load an image before it lets a stream go
 * on, where the driver allows it. */
static void await_current(void) {
    await(current_context());
}

void gf_host_calls_await(void) {
    await(0);
}

/* With the lock then: the next load finds what is added before it is let go. */
static void lock_between_loads(void) {
    pthread_mutex_lock(&lock);
    while (gf_loads_under_way()) {
        pthread_mutex_unlock(&lock);
        gf_loads_await();
        pthread_mutex_lock(&lock);
    }
}

CUresult gf_host_call_add(struct gf_host_task *call) {
    if (!call->kept) {
        gf_unmaps_await(!gf_host_calls_pending());
    }
    lock_between_loads();
    bool fine = start(&functions) && start(&copies);
    if (fine) {
        atomic_store(&gf_channel_asked, asked_for);
        gf_hook_set(GF_BEFORE_END, settle_current);
        gf_hook_set(GF_BEFORE_LOAD, await_current);
        gf_hook_set(GF_BEFORE_UNMAP, gf_host_calls_await);
        gf_hook_set(GF_BEFORE_QUEUED, await_oldest);
        call->id = next_id++;
        call->context = gf_context_current_handle();
        call->next = table[call->id % TABLE_SIZE];
        table[call->id % TABLE_SIZE] = call;
        if (!call->kept) { /* of a kept one, the marks behind the launches that ask for it count */
            gf_channel_attend(1);
            atomic_fetch_add(&gf_host_calls, 1);
        }
    }
    pthread_mutex_unlock(&lock);
    return fine ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult gf_host_call_enqueue(struct gf_host_task *call, uint64_t stream, bool always) {
    const struct gf_stream *object = gf_stream_find((CUstream)stream);
    call->context =
        object == NULL ? call->context : object->object.owner; /* if that fails it is not asked for */
    gf_window_stream_may_wait();
    struct gf_req_sessionHostCall request = {.stream = stream, .call = call->id, .always = always};
    uint64_t id = call->id;
    uint32_t before = gf_stream_enter(stream);
    CUresult result = gf_send_struct(GF_OP_sessionHostCall, &request);
    gf_thread.context_id = before;
    if (result != CUDA_SUCCESS) {
        withdraw(call);
        return result;
    }
    pthread_mutex_lock(&lock);
    if ((call = *place(id)) != NULL) { /* else it has run by now, and is gone */
        note_sent(call, gf_channel_frames());
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* To the program it is the end of a wait for what comes before in the stream; and what it writes to memory
 * that the device shares is there before the stream goes on. */
static void run_function(struct gf_host_task *call, uint64_t ticket, CUresult status) {
    const struct function_call *f = (struct function_call *)call;
    (void)ticket;
    if (f->callback == NULL && f->function == NULL) {
        return; /* a mark */
    }
    gf_hook(GF_AFTER_WAIT);
    gf_hook(GF_DONE);
    if (f->callback != NULL) {
        f->callback(f->stream, status, f->data);
    } else {
        f->function(f->data);
    }
    gf_hook(GF_BEFORE_WAIT);
}

static struct function_call *add_function(struct function_call like) {
    struct function_call *call = malloc(sizeof *call);
    if (call == NULL) {
        return NULL;
    }
    *call = like;
    call->base.run = run_function;
    if (gf_host_call_add(&call->base) != CUDA_SUCCESS) {
        free(call);
        return NULL;
    }
    return call;
}

uint64_t gf_host_call_keep(struct gf_host_task *call) {
    call->kept = true;
    return gf_host_call_add(call) == CUDA_SUCCESS ? call->id : 0;
}

uint64_t gf_host_call_keep_function(CUhostFn function, void *data) {
    struct function_call *call =
        add_function((struct function_call){.base.kept = true, .function = function, .data = data});
    return call == NULL ? 0 : call->base.id;
}

void gf_host_call_drop(uint64_t id) {
    pthread_mutex_lock(&lock);
    struct gf_host_task *call = *place(id);
    if (call != NULL) {
        call->dropped = next_id;
        dropped_count++;
        sweep();
    }
    pthread_mutex_unlock(&lock);
}

struct gf_host_task *gf_host_call_mark(void) {
    struct function_call *call = add_function((struct function_call){.base.copies = true});
    return call == NULL ? NULL : &call->base;
}

void gf_host_call_unmark(struct gf_host_task *mark) {
    withdraw(mark);
    free(mark);
}

static CUresult enqueue(uint64_t stream, struct function_call like) {
    struct function_call *call = add_function(like);
    if (call == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = gf_host_call_enqueue(&call->base, stream, like.callback != NULL);
    if (result != CUDA_SUCCESS) {
        free(call);
    }
    return result;
}

CUresult gf_host_call_function(uint64_t stream, CUhostFn function, void *data) {
    return enqueue(stream, (struct function_call){.function = function, .data = data});
}

CUresult gf_host_call_callback(uint64_t stream, CUstream handle, CUstreamCallback callback, void *data) {
    return enqueue(stream, (struct function_call){.callback = callback, .stream = handle, .data = data});
}
