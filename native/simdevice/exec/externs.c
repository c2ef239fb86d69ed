/* The functions that a compiled kernel may call, by name. */
#define _GNU_SOURCE
#include "kernel_abi.h"
#include "loader.h"
#include "ptx/fp_helpers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SERVICES(X)                                                                                          \
    X(sim_rt_bar_sync)                                                                                       \
    X(sim_rt_bar_arrive)                                                                                     \
    X(sim_rt_bar_red)                                                                                        \
    X(sim_rt_cluster_arrive)                                                                                 \
    X(sim_rt_cluster_wait)                                                                                   \
    X(sim_rt_warp_sync)                                                                                      \
    X(sim_rt_activemask)                                                                                     \
    X(sim_rt_shfl)                                                                                           \
    X(sim_rt_vote)                                                                                           \
    X(sim_rt_match)                                                                                          \
    X(sim_rt_redux)                                                                                          \
    X(sim_rt_warp_gather)                                                                                    \
    X(sim_rt_nanosleep)                                                                                      \
    X(sim_rt_yield)                                                                                          \
    X(sim_rt_trap)                                                                                           \
    X(sim_rt_overflow)                                                                                       \
    X(sim_rt_reach)                                                                                          \
    X(sim_rt_tex)                                                                                            \
    X(sim_rt_tld4)                                                                                           \
    X(sim_rt_image_query)                                                                                    \
    X(sim_rt_suld)                                                                                           \
    X(sim_rt_sust)                                                                                           \
    X(sim_rt_sust_p)                                                                                         \
    X(sim_rt_sured)                                                                                          \
    X(sim_rt_sured_p)                                                                                        \
    X(sim_rt_misaligned)                                                                                     \
    X(sim_rt_illegal)                                                                                        \
    X(sim_rt_assertfail)                                                                                     \
    X(sim_rt_exit)                                                                                           \
    X(sim_rt_vprintf)                                                                                        \
    X(sim_rt_malloc)                                                                                         \
    X(sim_rt_aligned_malloc)                                                                                 \
    X(sim_rt_free)                                                                                           \
    X(sim_rt_launch_room)                                                                                    \
    X(sim_rt_launch)                                                                                         \
    X(sim_rt_launch_error)                                                                                   \
    X(sim_rt_asked)                                                                                          \
    X(sim_rt_clock64)                                                                                        \
    X(sim_rt_grid_workspace)                                                                                 \
    X(sim_rt_globaltimer)

#define LIBC(X)                                                                                              \
    X(memcpy)                                                                                                \
    X(memmove)                                                                                               \
    X(memset)                                                                                                \
    X(memcmp)                                                                                                \
    X(strlen)

/* What LLVM makes of its intrinsics where no instruction does it: the double form and the float form. */
#define BOTH(X, name) X(name) X(name##f)
#define LIBM(X)                                                                                              \
    BOTH(X, fma)                                                                                             \
    BOTH(X, sqrt)                                                                                            \
    BOTH(X, fmod)                                                                                            \
    BOTH(X, sin)                                                                                             \
    BOTH(X, cos)                                                                                             \
    BOTH(X, tan)                                                                                             \
    BOTH(X, tanh)                                                                                            \
    BOTH(X, exp)                                                                                             \
    BOTH(X, exp2)                                                                                            \
    BOTH(X, log)                                                                                             \
    BOTH(X, log2)                                                                                            \
    BOTH(X, pow)                                                                                             \
    BOTH(X, ldexp)                                                                                           \
    BOTH(X, floor)                                                                                           \
    BOTH(X, ceil)                                                                                            \
    BOTH(X, trunc)                                                                                           \
    BOTH(X, rint)                                                                                            \
    BOTH(X, nearbyint)                                                                                       \
    BOTH(X, round)                                                                                           \
    BOTH(X, roundeven)                                                                                       \
    BOTH(X, fabs)                                                                                            \
    BOTH(X, copysign)                                                                                        \
    BOTH(X, fmin)                                                                                            \
    BOTH(X, fmax)

/* 128-bit arithmetic, from the C compiler's own library. */
#define RUNTIME(X) X(__divti3) X(__udivti3) X(__modti3) X(__umodti3) X(__multi3)

__int128 __divti3(__int128, __int128);
__int128 __modti3(__int128, __int128);
__int128 __multi3(__int128, __int128);
unsigned __int128 __udivti3(unsigned __int128, unsigned __int128);
unsigned __int128 __umodti3(unsigned __int128, unsigned __int128);

struct named {
    const char *name;
    void (*function)(void);
};

/* The cast is through void (*)(void): only the compiled kernel knows the types. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-function-type"
#define ENTRY(name) {#name, (void (*)(void))name},
static const struct named functions[] = {SERVICES(ENTRY) LIBC(ENTRY) LIBM(ENTRY) RUNTIME(ENTRY)
                                             SIM_FP_HELPERS(ENTRY)};
#pragma GCC diagnostic pop

void *sim_extern_find(const char *name) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0) {
            void *address;
            memcpy(&address, &functions[i].function, sizeof address);
            return address;
        }
    return NULL;
}
