#include "arrivals.h"

#include <stdlib.h>

static void note(struct gf_arrivals *arrivals, CUresult result) {
    if (arrivals->result == CUDA_SUCCESS) {
        arrivals->result = result;
    }
}

static void wait_for_oldest(struct gf_arrivals *arrivals) {
    struct gf_call *call = &arrivals->calls[arrivals->finished++ % GF_ARRIVALS];
    note(arrivals, gf_call_wait(call));
    free(call->payload);
}

CUresult gf_arrival_start(struct gf_arrivals *arrivals, uint16_t op, const void *request, size_t size,
                          const struct gf_rows *rows) {
    if (arrivals->started - arrivals->finished == GF_ARRIVALS) {
        wait_for_oldest(arrivals);
    }
    if (arrivals->result == CUDA_SUCCESS) {
        struct gf_call *call = &arrivals->calls[arrivals->started++ % GF_ARRIVALS];
        *call = (struct gf_call){.op = op, .rows = *rows};
        note(arrivals, gf_call_start(call, &(struct iovec){(void *)request, size}, 1));
    }
    return arrivals->result;
}

CUresult gf_arrivals_wait(struct gf_arrivals *arrivals) {
    while (arrivals->finished < arrivals->started) {
        wait_for_oldest(arrivals);
    }
    return arrivals->result;
}
