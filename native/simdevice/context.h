/* Contexts: a device's primary one, which lives as long as the process and is active while retained, and
 * created ones. */
#pragma once
#include "device.h"
#include "handle.h"
#include "scheduler.h"

#define SIM_LEAST_PRIORITY    0
#define SIM_GREATEST_PRIORITY (-5)

struct sim_green;

struct sim_context {
    struct sim_object object;
    struct sim_device *device;
    /* Of those that are there, by context.c; the next one stays known behind one that is gone. */
    _Atomic(struct sim_context *) next;
    struct sim_context *previous;
    struct sim_list held[SIM_KINDS]; /* what ends with it, and has a handle */
    struct sim_range *ranges;        /* memory that ends with it; under the lock of sim_memory */
    struct sim_record *records;      /* textures and surfaces; under texture.c's lock */
    bool is_primary;
    _Atomic bool
        active; /* by sim_context_set_active. false: destroyed, or a primary context that nobody retains */
    _Atomic unsigned flags;
    unsigned api_version;
    uint64_t id;
    _Atomic unsigned ends; /* how often a primary one has ended */
    unsigned retained;
    pthread_mutex_t lock; /* retained, limits and the two configurations; start and end of the context */
    size_t limits[CU_LIMIT_MAX];
    _Atomic uint32_t used; /* what its kernels have used, whose limits are settled by that (exec/execute.h) */
    CUfunc_cache cache_config;
    struct sim_stream *legacy;
    struct sim_stream *busy;  /* those with operations; under the scheduler's lock */
    _Atomic uint64_t reached; /* bit per device whose memory they ever copied or filled */
    struct sim_peer *peers;   /* whose memory cuCtxEnablePeerAccess opened; under peer.c's lock */
    struct sim_green *green;  /* it is but a name of this green context of the primary one */
    /* Streams of the driver's own, made when first used: later work of the context waits for the one, the
     * other ends behind all that the context was given. */
    _Atomic(struct sim_stream *) gate, join;
};

/* A struct sim_context is never freed, so a plain pointer to one stays good; whether it is usable is `active`
 * and `error`. */
CUresult sim_context_create_primary(struct sim_device *device);
/* Waits for its work, then ends everything that belongs to it. */
void sim_context_tear_down(struct sim_context *context);

/* Adds a context to those that sim_contexts begins with, linked by `next`, and takes it out when it is gone
 * for good. */
void sim_context_keep(struct sim_context *context);
void sim_context_drop(struct sim_context *context);
struct sim_context *sim_contexts(void);
void sim_context_set_active(struct sim_context *context, bool active);
bool sim_context_any_active(void);

/* The calling thread's current context, if it can be used: else NOT_INITIALIZED, INVALID_CONTEXT,
 * CONTEXT_IS_DESTROYED or its sticky error. */
CUresult sim_context_current(struct sim_context **context);
/* The context of a handle, in use or not; NULL if there is none. Of a green context: the primary one. */
struct sim_context *sim_context_of(CUcontext handle);
/* What the handle itself names. */
struct sim_context *sim_context_named(CUcontext handle);
/* Success, or why the context cannot be used. */
CUresult sim_context_check(const struct sim_context *context);
CUresult sim_context_error(const struct sim_context *context);
/* Makes the error sticky, in all contexts of its device. */
void sim_context_fail(struct sim_context *context, CUresult error);
/* A context of the device has ended; with the last one its error goes. */
void sim_contexts_recover(struct sim_device *device);
/* A context ends that reached others. */
void sim_peers_forget(struct sim_context *context);
bool sim_context_flags_valid(unsigned flags);
