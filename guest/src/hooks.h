/* What has to be done around calls of others, by those few who need it. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum gf_moment {
    GF_BEFORE_UNLOAD, /* of an image, for which the server's dispatcher waits for the device */
    GF_BEFORE_WORK,   /* that may touch any memory is given to the device */
    GF_BEFORE_WAIT,   /* for the device, or a question how far it is */
    GF_AFTER_WAIT,
    GF_MOMENTS,
};

/* From now on, at each such moment. */
void gf_hook_set(enum gf_moment moment, void (*callback)(void));

extern _Atomic bool gf_hooked;
void gf_hook_run(enum gf_moment moment);
void gf_hook_run_before(uint16_t op);
void gf_hook_run_after(uint16_t op);

static inline void gf_hook(enum gf_moment moment) {
    if (__builtin_expect(atomic_load_explicit(&gf_hooked, memory_order_acquire), 0)) {
        gf_hook_run(moment);
    }
}

static inline void gf_hook_before(uint16_t op) {
    if (__builtin_expect(atomic_load_explicit(&gf_hooked, memory_order_acquire), 0)) {
        gf_hook_run_before(op);
    }
}

static inline void gf_hook_after(uint16_t op) {
    if (__builtin_expect(atomic_load_explicit(&gf_hooked, memory_order_acquire), 0)) {
        gf_hook_run_after(op);
    }
}
