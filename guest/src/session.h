/* One process's use of its devices: from cold over connected to lost or closed. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

#include "gpuferry/frames.h"

enum gf_state {
    GF_COLD, /* cuInit was not called */
    GF_READY,
    GF_LOST,   /* the server is gone */
    GF_FORKED, /* child of a process that had a session */
    GF_CLOSED, /* the process exits */
};

#define GF_STATE_PAGE 4096

struct gf_session {
    /* Alone on a page that is empty in a child, whoever made it (session.c). */
    _Alignas(GF_STATE_PAGE) _Atomic enum gf_state state;
    _Atomic bool here; /* the session is this process's */
    _Alignas(GF_STATE_PAGE) uint64_t id;
    uint64_t window_base, window_size, quota;
    uint32_t granularity, driver_version, image_kinds;
    uint32_t resume_ms;                       /* how long a lost connection may be resumed; 0: it may not */
    int device_count;                         /* as the program sees it, after CUDA_VISIBLE_DEVICES */
    struct gf_device devices[GF_DEVICES_MAX]; /* by the program's numbers */
    struct gf_device_link links[GF_DEVICES_MAX][GF_DEVICES_MAX]; /* from, to; if there are several */
    uint8_t (*image_hashes)[GF_HASH_SIZE];
    uint32_t image_hash_count;
    bool launch_blocking;             /* as CUDA's own variables ask (native/driver_interop/asked.h) */
    CUmoduleLoadingMode loading_mode; /* and this */
    _Atomic bool shared;  /* other processes have the lease too: memory is claimed before it is allocated */
    _Atomic bool watched; /* others look at what the device does: they share memory or an event with us */
    _Atomic uint64_t default_pools[GF_DEVICES_MAX], current_pools[GF_DEVICES_MAX]; /* handles */
};

extern struct gf_session gf_session;

/* Whether the program has a device of this number. */
static inline bool gf_is_device(int number) {
    return number >= 0 && number < gf_session.device_count;
}

/* The session stands; `when_in_child` is called in a child, once it is known as one. */
void gf_session_begun(void (*when_in_child)(void));
/* The state, as it is in a child too. */
enum gf_state gf_session_state(void);
/* Connects if that was not tried yet. */
CUresult gf_session_connect(void);
/* What a call gets in a state in which nothing works. */
CUresult gf_session_error(void);
/* The server is gone: from here on every call says so. */
void gf_session_lost(void);
/* A failure that destroys the context, named as on the wire, stays with it. False: it does not, or there is
 * none. */
bool gf_session_sticky(uint32_t context_id, CUresult error);
/* The device of the current context; the first one if none is current. */
int gf_device_number(void);
/* What is known of it. */
const struct gf_device *gf_device_here(void);
/* The context field of frames sent by this thread. */
uint32_t gf_context_wire_id(void);
