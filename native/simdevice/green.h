/* Green contexts: part of a device's multiprocessors, for work in the device's primary context. */
#pragma once
#include "context.h"
#include "driver_interop/device_resources.h"

/* Never freed, as contexts: streams and threads hold plain pointers to one. */
struct sim_green {
    struct sim_object object;
    struct sim_context *primary;
    struct sim_context *name; /* what cuCtxFromGreenCtx gives */
    struct sim_green *next;   /* of all there are */
    uint64_t id;
    struct gf_resources resources;
    unsigned multiprocessors;
    _Atomic bool gone;
    _Atomic(struct sim_stream *) gate; /* as that of a context */
};

/* Adds one to all there are. */
void sim_green_keep(struct sim_green *green);
/* False: it has ended before. */
bool sim_green_end(struct sim_green *green);
/* How many multiprocessors work of a stream may use, if the calling thread enqueues it. */
unsigned sim_green_multiprocessors(const struct sim_stream *stream);
/* The primary context has ended: its green ones with it. */
void sim_greens_forget_context(const struct sim_context *primary);
