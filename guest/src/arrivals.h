/* Rows that come into the program's memory while it waits, several answers under way at a time. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "channel.h"
#include "driver_interop/cuda_driver.h"

#define GF_ARRIVALS 8 /* GF_CHUNK each at most: 32 MiB */

/* Empty at first. Whoever started one calls gf_arrivals_wait before it ends. */
struct gf_arrivals {
    struct gf_call calls[GF_ARRIVALS];
    unsigned started, finished;
    CUresult result; /* the first failure, after which nothing is asked for */
};

/* Asks for rows, behind what was asked for before. */
CUresult gf_arrival_start(struct gf_arrivals *arrivals, uint16_t op, const void *request, size_t size,
                          const struct gf_rows *rows);
/* Waits until all are there. */
CUresult gf_arrivals_wait(struct gf_arrivals *arrivals);
