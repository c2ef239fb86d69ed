/* Modules, libraries, and the kernels and functions in them. */
#pragma once
#include "driver_interop/loading.h"
#include "guest.h"
#include "handles.h"
#include "image.h"

struct gf_global {
    char *name;
    uint64_t context; /* a library's variable is another one in each context; 0: a module's */
    uint64_t address, size;
    struct gf_global *next;
};

/* A module or a library. */
struct gf_module {
    struct gf_object object; /* owner: its context; a library has none */
    uint64_t library;        /* that it was got from; 0: loaded by itself */
    struct gf_kernel_table *table;
    bool borrowed;          /* the table is the library's */
    _Atomic uint64_t *made; /* handles of the functions or kernels made so far, by index */
    struct gf_global *globals;
};

/* A function or a kernel. */
struct gf_callable {
    struct gf_object object; /* owner: its module or library */
    uint32_t index;
    const struct gf_kernel_info *info;
    _Atomic int attributes[GF_FUNCTION_ATTRIBUTE_COUNT];
};

struct gf_callable *gf_callable_find(uint64_t handle); /* function or kernel */
struct gf_callable *gf_kernel_find(CUkernel kernel);
struct gf_module *gf_module_find(CUmodule module);
struct gf_module *gf_library_find(CUlibrary library);

CUresult gf_module_load_into(struct gf_table *table, const void *image, struct gf_jit_log *log,
                             uint64_t *handle);
extern struct gf_table gf_modules, gf_libraries;

/* The handle of entry `index` of a module (function) or library (kernel), made at first use. */
CUresult gf_module_callable(struct gf_module *owner, uint64_t owner_handle, uint32_t index, uint64_t *handle);
CUresult gf_module_global(struct gf_module *owner, uint64_t owner_handle, const char *name,
                          CUdeviceptr *address, size_t *size);
/* Ends a module or library and what was made from it; the caller has told the server or will. */
void gf_module_end(struct gf_table *table, struct gf_module *module, uint64_t handle);
/* The module of a library in the current context. */
CUresult gf_library_module(CUlibrary library, uint64_t *handle);
void gf_module_end_context(uint64_t context);

/* A module variable that was handed out and holds the address. */
bool gf_global_find(uint64_t address, uint64_t *base, uint64_t *size);

CUresult gf_wire_kernel(CUkernel kernel, uint64_t *wire);
CUresult gf_wire_function_or_kernel(CUfunction function, uint64_t *wire);
