/* A linker's state: what it was given is on the server; what it made is here until it ends. */
#pragma once
#include "driver_interop/loading.h"
#include "handles.h"

struct gf_link {
    struct gf_object object; /* owner: its context */
    struct gf_jit_log log;   /* the program's buffers */
    _Atomic(void *) image;   /* what cuLinkComplete handed out; set after its size */
    size_t image_size;
    _Atomic CUresult over; /* it was completed, well or not: what every further try is told */
};
