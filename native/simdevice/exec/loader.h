/* Loads a compiled kernel (a relocatable ELF object, see kernel_abi.h) into memory. */
#pragma once
#include "kernel_abi.h"
#include <stdbool.h>
#include <stddef.h>

struct sim_object {
    void *base;
    size_t size;
    enum sim_kernel_form form;
    enum sim_kernel_rows rows;
    bool quick;
    bool unbounded; /* its functions may take more than `stack` */
    uint32_t stack, local;
    /* the one of the form, and that of warps if `rows` */
    sim_run_block_fn *run_block;
    sim_run_thread_fn *run_thread;
    sim_run_warp_fn *run_warp;
};

bool sim_object_load(const void *bytes, size_t size, struct sim_object *object, char *log, size_t log_size);
void sim_object_unload(struct sim_object *object);

/* externs.c: the address of a function that kernels may call, or NULL. */
void *sim_extern_find(const char *name);
