/* What every part of the simulated driver shares. */
#pragma once
#include "simdevice_names.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_TRY(expression)                                                                                  \
    do {                                                                                                     \
        CUresult try_result_ = (expression);                                                                 \
        if (try_result_ != CUDA_SUCCESS)                                                                     \
            return try_result_;                                                                              \
    } while (0)

#define SIM_REQUIRE(condition)                                                                               \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return CUDA_ERROR_INVALID_VALUE;                                                                 \
    } while (0)

#define SIM_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline uint64_t sim_round_up(uint64_t value, uint64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/* CUDA_SUCCESS once cuInit has succeeded in this process (not in one forked from it). */
CUresult sim_enter(void);
/* Marks this thread as inside a host function of a stream, which may not call CUDA: it could wait for itself.
 */
void sim_host_function(bool entered);
