/* Registered memory that kernels reach: it lies wherever the program has it, so the device has a copy of it
 * at an address of the window, and both are compared with what they last agreed upon. With the lock of
 * shared.c held but for gf_mirror_find. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

struct gf_mirror {
    uint64_t host, device, size;
    uint64_t owner; /* context */
    char *agreed;   /* what both sides had when they were last compared */
    char *looks;    /* room for two looks at it while the device works; NULL: there was none yet */
    bool begun;     /* the device has had all of it */
    bool gone;      /* the program has unmapped it, and has yet to register it no more */
    uint64_t idle;  /* of gf_mirrors_idle: its context has nothing to do */
    struct gf_mirror *next;
};

/* The mirror of memory that holds an address of the program (`by_host`), or one of the device. */
bool gf_mirror_find(uint64_t address, bool by_host, struct gf_mirror *found);

/* Whether an address is one of page-locked memory, the program's or the device's. */
bool gf_is_page_locked(uint64_t address);

CUresult gf_mirror_new(uint64_t host, uint64_t size, uint64_t *device);
/* Sends what the program has changed of those that have at most so many bytes; working: the device may be
 * writing to them. On the stream of each device; a bit for each to which something was sent. */
uint32_t gf_mirrors_flush(const uint64_t *streams, bool working, uint64_t most);
/* Brings what the device has changed of those that have at most so many bytes; working: it may be changing
 * more, and what it wrote before a word is to be there with the word. */
void gf_mirrors_fetch(const uint64_t *streams, bool working, uint64_t most);
/* Whether there are any of at most so many bytes. */
bool gf_mirrors_any(uint64_t most);
/* Whether there is none such whose context may still be doing what was given to it until now, which has this
 * number. Nobody waits: it is asked of the server, and known another time. */
bool gf_mirrors_idle(uint64_t work, uint64_t most);
/* Of what begins at an address, or (0) of a context. */
void gf_mirrors_end(uint64_t host, uint64_t owner);
