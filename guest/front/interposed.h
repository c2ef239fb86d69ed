/* Functions of libc that this library stands before, for programs that share memory with the device: the one
 * behind it is found by its name. */
#pragma once
#include <dlfcn.h>
#include <stdatomic.h>

/* The function of that name behind ours, as a pointer of the type of `name`. */
#define GF_NEXT(name)                                                                                        \
    ({                                                                                                       \
        static _Atomic(void *) next;                                                                         \
        void *found = atomic_load_explicit(&next, memory_order_relaxed);                                     \
        if (__builtin_expect(found == NULL, 0)) {                                                            \
            found = dlsym(RTLD_NEXT, #name);                                                                 \
            atomic_store_explicit(&next, found, memory_order_relaxed);                                       \
        }                                                                                                    \
        (__typeof__(&(name)))found;                                                                          \
    })
