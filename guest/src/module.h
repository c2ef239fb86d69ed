/* Modules, libraries, and the kernels and functions in them. */
#pragma once
#include "driver_interop/loading.h"
#include "guest.h"
#include "handles.h"
#include "image.h"

struct gf_global {
    char *name;
    uint64_t context; /* a library's variable is another one in each context; 0: a module's */
    uint64_t address, size, id;
    uint64_t block; /* of a managed one: the memory that it is part of; 0: it is not managed */
    bool synchronous;
    struct gf_global *next;
};

extern _Atomic uint64_t gf_modules_ended; /* how often any module or library has */

/* A module or a library. */
struct gf_module {
    struct gf_object object; /* owner: its context; a library's is the session */
    uint64_t library;        /* that it was got from; 0: loaded by itself */
    CUresult refused;        /* a library is there though its PTX is none: who uses it is told */
    struct gf_kernel_table *table;
    _Atomic uint64_t *made; /* handles of the functions or kernels made so far, by index */
    struct gf_global *globals;
    _Atomic(struct gf_loading *) loading; /* the server has not answered yet (loading.c); NULL: it has */
    /* A library's modules, one in each context that asked; their table is the library's. */
    struct gf_module *origin, *instances, *next_instance;
};

/* A function or a kernel; it ends with its module or library. */
struct gf_callable {
    struct gf_object object;
    uint32_t index;
    const struct gf_kernel_info *info;
    uint64_t context;        /* in which a function may be launched; 0: a kernel, in any */
    _Atomic int *attributes; /* its settings, which a kernel and its functions on one device have in common */
    int stride;              /* from one device's to the next one's; 0: a function, which is on one */
    _Atomic(struct gf_legacy_launch *) legacy; /* what cuParamSet* left; NULL: nothing */
};

/* What it is set to on the current device. */
static inline int gf_callable_setting(const struct gf_callable *callable, int attribute) {
    return callable->attributes[gf_device_number() * callable->stride + attribute];
}

/* By its first use there, as CUDA does lazily. */
static inline void gf_callable_is_loaded(const struct gf_callable *callable) {
    atomic_store_explicit(&callable->attributes[gf_device_number() * callable->stride + GF_SETTING_LOADED], 1,
                          memory_order_relaxed);
}

struct gf_callable *gf_callable_find(uint64_t handle); /* function or kernel */

/* Loads what suits the device of an image; kind: module or library. */
CUresult gf_image_load(enum gf_handle_kind kind, const void *image, struct gf_jit_log *log, uint64_t *handle);
/* Waits for each load that nobody has waited for: before a context ends. */
void gf_loads_settle(void);
/* Whether one is on its way to its answer, which a lost server does not give; and until those that are have
 * it. */
bool gf_loads_under_way(void);
void gf_loads_await(void);

/* What holds an address in a module: a variable that was handed out, or else what the driver has there. */
struct gf_module_memory {
    uint64_t base, size, id;
    uint64_t context; /* whose it is; 0: all contexts share it */
    bool synchronous; /* operations on it do not return before they are done */
};

bool gf_global_find(uint64_t address, struct gf_module_memory *variable);
bool gf_global_is_synchronous(uint64_t address);
/* Makes operations on the variable that holds an address synchronous, or not; false: none does. */
bool gf_global_synchronous(uint64_t address, bool synchronous);
/* When a module or library has ended. */
void gf_globals_forget(struct gf_module *module);
