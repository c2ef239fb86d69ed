/* Contexts: the primary one, which exists from WELCOME on, and which is current on the calling thread. */
#pragma once
#include "guest.h"
#include "objects.h"

/* Makes the object of each device's primary context, inactive until it is retained. False: no memory. */
bool gf_context_open(void);
extern struct gf_context *gf_primaries[];
extern _Atomic unsigned gf_own_contexts;   /* beside these */
extern _Atomic uint64_t gf_contexts_ended; /* how often any has */
/* Whether all work that there is was given to one context, so that to wait for it is to wait for all. */
bool gf_context_is_only_one(void);
/* The handle of one. */
uint64_t gf_context_primary(CUdevice device);
/* Called with the handle of each context that ends, a primary one that is reset among them. */
void gf_context_at_end(void (*callback)(uint64_t handle));
/* The device of a context that there is; else the first. */
CUdevice gf_context_device(uint64_t handle);
/* The context that is current and fine, after gf_context_check. */
struct gf_context *gf_context_current(void);
/* Its handle, whether or not it may be used; 0: none is current. Of a green context: the primary one's. */
uint64_t gf_context_current_handle(void);
/* What is done until `gf_context_return` is done as if this were the current context. */
struct gf_lent {
    uint64_t context;
    uint32_t context_id;
};
struct gf_lent gf_context_lend(uint64_t handle);
void gf_context_return(struct gf_lent before);
/* Until one has done what it was given, whatever is captured meanwhile. */
CUresult gf_context_synchronize(CUcontext handle);
/* Whether blocking copies and fills in the current one are done when they return (CU_CTX_SYNC_MEMOPS). */
bool gf_context_is_synchronous(void);
/* What the program has made current. */
uint64_t gf_context_shown(void);
/* What has failed on a device of this program's; and, when a context has ended, whether it was the last one
 * of a device that had failed, which is as good as new by that. */
CUresult gf_device_failure(CUdevice device);
bool gf_device_recovers(CUdevice device);
/* As `gf_context_look_up`, of a primary context that is not active too. */
CUresult gf_context_look_up_inactive(CUcontext handle, struct gf_context **context, uint64_t *wire);
/* CUDA_SUCCESS if the context is active and has not failed; else what every call in it returns. */
CUresult gf_context_usable(const struct gf_context *context);
/* The same of the context that is an object's owner, whichever is current. */
CUresult gf_owner_usable(uint64_t owner);
