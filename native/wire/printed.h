/* What kernels print goes where the program's own output goes, by threads of ours that must not wait for
 * whoever holds that stream (flockfile, or a write that faults): he may be waiting for them. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Behind what the program printed before; kept, where somebody else has the stream, or if it must not be
 * touched now. */
void gf_printed(FILE *to, const char *text, size_t size, bool may_write);
/* What was kept. Waits for who has the stream, so only for a thread on which nobody waits. */
void gf_printed_write_kept(void);

extern _Atomic bool gf_printed_kept;

/* The same, where mostly nothing was kept. */
static inline void gf_printed_settle(void) {
    if (__builtin_expect(atomic_load_explicit(&gf_printed_kept, memory_order_relaxed), 0)) {
        gf_printed_write_kept();
    }
}
