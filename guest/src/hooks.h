/* What has to be done around calls of others, by those few who need it. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gf_moment {
    /* before an image or an array ends, or what else the server's dispatcher waits for the device for */
    GF_BEFORE_END,
    /* before an array ends, as the program sees it: that waits for the device */
    GF_BEFORE_ARRAY_END,
    GF_BEFORE_LOAD,
    /* before memory is unmapped: the server maps what comes there once the device is done with the old */
    GF_BEFORE_UNMAP,
    /* before the device is given work that may touch any memory */
    GF_BEFORE_WORK,
    /* before something is put into a stream, by those calls of which there may be thousands */
    GF_BEFORE_QUEUED,
    /* before a wait for the device, or a question how far it is */
    GF_BEFORE_WAIT,
    GF_AFTER_WAIT,
    /* what was waited for is done */
    GF_DONE,
    GF_NOT_DONE,
    /* all that the context had to do is done */
    GF_IDLE,
    GF_MOMENTS,
};

/* From now on, at each such moment. */
void gf_hook_set(enum gf_moment moment, void (*callback)(void));

extern _Atomic bool gf_hooked;
void gf_hook_run(enum gf_moment moment);
void gf_hook_run_before(uint16_t op);
void gf_hook_run_after(uint16_t op, bool done);

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

static inline void gf_hook_after(uint16_t op, bool done) {
    if (__builtin_expect(atomic_load_explicit(&gf_hooked, memory_order_acquire), 0)) {
        gf_hook_run_after(op, done);
    }
}

/* Memory that the program shares with the device, for those who must not raise a fault when they touch it. */
struct gf_sharing {
    bool (*holds)(uint64_t address);
    bool (*reach)(uint64_t address, uint64_t size, bool write);
};
/* NULL: there never was any. */
extern const struct gf_sharing *_Atomic gf_sharing;

static inline bool gf_shares(const void *address) {
    const struct gf_sharing *sharing = atomic_load_explicit(&gf_sharing, memory_order_acquire);
    return __builtin_expect(sharing != NULL, 0) && sharing->holds((uint64_t)address);
}

/* Shared memory in a range may be touched now, as far as it lies in one allocation. False: nothing had to be
 * done for it. */
static inline bool gf_reach(const void *address, uint64_t size, bool write) {
    const struct gf_sharing *sharing = atomic_load_explicit(&gf_sharing, memory_order_acquire);
    return __builtin_expect(sharing != NULL, 0) && sharing->reach((uint64_t)address, size, write);
}
