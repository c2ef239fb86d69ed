#pragma once
#include "guest.h"
#include "handles.h"

struct gf_context {
    struct gf_object object;
    bool primary;
    _Atomic bool active; /* a primary context exists always, but is active only while retained */
    _Atomic int sticky;  /* a failure that destroyed it */
    _Atomic uint32_t references;
    uint32_t flags;
    uint64_t id;
    CUfunc_cache cache;
    _Atomic int64_t limits[GF_LIMIT_COUNT];
};

/* Makes the primary context's handle (inactive). */
bool gf_context_open(void);
uint64_t gf_context_primary(void);
/* The context that is current and fine, after gf_context_check. */
struct gf_context *gf_context_current(void);
uint64_t gf_context_current_handle(void);
/* NULL stands for the current context; sets *error if there is none or it is no context. */
struct gf_context *gf_context_of(CUcontext context, CUresult *error);
