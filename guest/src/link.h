/* A linker's state: what it was given is on the server; what it made is here until it ends. */
#pragma once
#include "driver_interop/loading.h"
#include "handles.h"

struct gf_link {
    struct gf_object object; /* owner: its context */
    struct gf_jit_log log;   /* the program's buffers */
    void *image;             /* what cuLinkComplete handed out */
};
