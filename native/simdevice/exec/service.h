/* The compile service: a Python process that parses images and compiles kernels (compiler/__main__.py). */
#pragma once
#include "cache.h"
#include "cuda.h"

enum sim_service_op {
    SIM_SERVICE_OPEN = 1,
    SIM_SERVICE_COMPILE = 2,    /* quickly, where optimised code takes long */
    SIM_SERVICE_LINK_CHECK = 3, /* whether inputs go together so far; answers with nothing */
    SIM_SERVICE_LINK = 4,       /* makes the ELF file */
    SIM_SERVICE_OPTIMISE = 5,   /* optimised, by a process of its own, so that nobody else waits for it */
};

/* Sends a request and waits for the answer: on success `reply` is what was asked for, on CUDA errors `log`
 * has the reason. The payload consists of two parts so that callers need not join them. */
CUresult sim_service_call(enum sim_service_op op, int cc, const uint8_t key[32], const void *first,
                          size_t first_size, const void *second, size_t second_size, struct sim_blob *reply,
                          char *log, size_t log_size);

/* The status with which the service says that it does not know the module of what it is to compile. */
#define SIM_SERVICE_UNKNOWN_MODULE ((CUresult)0x7fffffff)

/* Names what the service makes of a content for a device: a hash of both and of what its answers depend on
 * beside the request: its sources, the machine's instructions. */
void sim_service_key(const uint8_t content[32], int cc, uint8_t key[32]);
