/* ThreadSanitizer in the program, whether or not this library was compiled for it. It makes 0 of an address
 * that it does not know, so that a mapping at exactly that place would lie at 0: places can only be
 * suggested. It also takes a clone that shares memory for a fork, and loses count of the threads. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

extern void __tsan_init(void) __attribute__((weak));

static inline bool sim_under_tsan(void) {
    return __tsan_init != NULL;
}
