/* What every entry point shares: state checks, counting, the calling thread. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

#include "log.h"
#include "session.h"
#include "wire/printed.h"

#define GF_CONTEXT_DEPTH 8

struct gf_thread {
    uint16_t function;   /* the entry point this thread is in */
    uint32_t depth;      /* of the context stack */
    uint32_t inside;     /* entry points that this thread is in, one called by another */
    uint32_t locked;     /* it waits with locks that any call may take */
    uint64_t held;       /* signals whose handlers are held back, a bit for each (signals.h) */
    uint64_t held_since; /* ns, gf_now() */
    bool sharing;        /* its calls are those of shared.c */
    uint64_t waits_for;  /* what the device had been given when its wait began (shared.c) */
    bool initialising;   /* it is in cuInit */
    bool host_function;  /* it runs functions of the program that stand in streams: they may not call CUDA */
    uint32_t context_id; /* wire id of the current context, or of the one that a call is about; 0: none */
    uint64_t context;    /* the current context; of a green one, the primary one */
    uint64_t green;      /* the green context that is current; 0: none */
    uint64_t *stack;     /* handles, top last; `first` unless it grew */
    uint32_t capacity;
    uint64_t first[GF_CONTEXT_DEPTH];
    struct gf_thread_stream *streams; /* this thread's per-thread default streams */
    struct gf_stream *named;          /* the stream that was looked up (freed.h) */
    bool names;                       /* one was, and nothing was sent since */
};

#ifdef __SANITIZE_THREAD__
extern _Thread_local struct gf_thread gf_thread;
#else
extern _Thread_local struct gf_thread gf_thread __attribute__((tls_model("initial-exec")));
#endif

enum gf_needs {
    GF_NEEDS_NONE,
    GF_NEEDS_DRIVER,
    GF_NEEDS_CONTEXT,
    GF_NEEDS_OWNER, /* the context of an object, which is looked at once that is found */
};

/* In the order of the generated table gf_functions. */
enum gf_class {
    GF_LOCAL,
    GF_ASYNC,
    GF_SYNC,
    GF_UNSUPPORTED,
};

struct gf_function {
    const char *name;
    enum gf_class klass;
    uint16_t id;     /* on the wire */
    bool quiet;      /* nobody is told when it answers CUDA_ERROR_NOT_SUPPORTED */
    const char *why; /* it is not carried; NULL: it is */
};

extern const struct gf_function gf_functions[];
extern const unsigned gf_function_count;
/* By gf_function_id; refusals: calls that were refused; untold: those of which the server does not know. */
extern _Atomic uint64_t gf_function_calls[], gf_function_round_trips[], gf_function_refusals[],
    gf_function_untold[];

CUresult gf_enter_slow(void);
/* Calls `initialise`; what other threads call meanwhile waits for it, as if cuInit had been called before. */
CUresult gf_initialising(CUresult (*initialise)(void));
void gf_trace_result(uint16_t function, CUresult result);
/* Who is told that a call has failed. */
void gf_failed(uint16_t function, CUresult result);
CUresult gf_unsupported(uint16_t function);
/* Of a call that was refused: stderr is told at the first one, the server of what is not carried. */
void gf_unsupported_tell(uint16_t function);
/* By gf_function_id: whether this server lays out otherwise, or lacks, what the function goes by. */
enum gf_lacks { GF_LACKS_NOTHING, GF_LACKS_UNTOLD, GF_LACKS_TOLD };
extern _Atomic uint8_t gf_function_lacks[];
CUresult gf_unsupported_here(uint16_t function);
/* Before the session closes: the server counts what was called and is not there. */
void gf_unsupported_tell_all(void);
/* The current context of this thread: fine, none, destroyed, or its sticky error. */
CUresult gf_context_check(void);

/* Lets handlers run that were held back. */
void gf_signals_release(void);

/* From here to the end, handlers of signals that interrupt this thread are held back. */
static inline void gf_within_begin(void) {
    gf_thread.inside++;
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void gf_within_end(void) {
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(--gf_thread.inside == 0 && gf_thread.held != 0, 0)) {
        gf_signals_release();
    }
}

/* Each entry point begins with it and ends with gf_leave. */
static inline void gf_enter(uint16_t function) {
    gf_within_begin();
    gf_thread.function = function;
    atomic_fetch_add_explicit(&gf_function_calls[function], 1, memory_order_relaxed);
}

/* Whether a call may be made in this state. */
static inline CUresult gf_may(uint16_t function, enum gf_needs needs) {
    if (needs == GF_NEEDS_NONE) {
        return CUDA_SUCCESS;
    }
    if (__builtin_expect(atomic_load_explicit(&gf_session.state, memory_order_relaxed) != GF_READY, 0)) {
        CUresult error = gf_enter_slow();
        if (error != CUDA_SUCCESS) {
            return error;
        }
    }
    if (__builtin_expect(gf_thread.host_function, 0)) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (__builtin_expect(atomic_load_explicit(&gf_function_lacks[function], memory_order_relaxed), 0)) {
        return gf_unsupported_here(function);
    }
    return needs == GF_NEEDS_CONTEXT ? gf_context_check() : CUDA_SUCCESS;
}

/* What kernels have printed is there when a call that waited for them returns. */
static inline CUresult gf_leave(uint16_t function, CUresult result) {
    gf_printed_settle();
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        gf_failed(function, result);
    }
    if (__builtin_expect(atomic_load_explicit(&gf_log_level, memory_order_relaxed) >= GF_LOG_TRACE, 0)) {
        gf_trace_result(function, result);
    }
    gf_within_end();
    return result;
}
