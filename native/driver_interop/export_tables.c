/* cuGetExportTable: the private tables that NVIDIA's runtime asks its driver for. What is known of a slot is
 * implemented; every other slot holds a function that says so and returns CUDA_ERROR_NOT_SUPPORTED. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "driver_interop/context_storage.h"
#include "driver_interop/interop.h"
#include "driver_interop/selftest.h"

/* Note [Slots]
 * A slot is any function pointer; the caller knows its type. All tables but the context storage hold their
 * own size in slot 0. */
typedef void slot_function(void);
union slot {
    size_t size;
    slot_function *function;
};
#define SLOT(function_) {.function = (slot_function *)(function_)}

static void log_line(const char *format, const char *table, unsigned slot) {
    char text[128];
    snprintf(text, sizeof text, format, table, slot);
    gf_interop_driver.log(text);
}

static CUresult missing(atomic_bool *logged, const char *table, unsigned slot) {
    if (!atomic_exchange(logged, true))
        log_line("private driver table %s: slot %u was called, which is not known", table, slot);

    return CUDA_ERROR_NOT_SUPPORTED;
}

/* One callable stub per slot, so that the log names it. */
#define STUB(table, slot)                                                                                    \
    static CUresult stub_##table##_##slot(void) {                                                            \
        static atomic_bool logged;                                                                           \
        return missing(&logged, #table, slot);                                                               \
    }
#define STUB_SLOT(table, slot) SLOT(stub_##table##_##slot)

static CUresult nothing(void) {
    return CUDA_SUCCESS;
}

/* The runtime's own interface. */
static CUresult primary_context(CUcontext *context, CUdevice device) {
    return gf_interop_driver.primary_context(device, context);
}

static CUresult load_module(CUmodule *module, const void *image) {
    return gf_interop_driver.load_module(module, image);
}

static CUresult load_module_ex(CUmodule *module, const void *image, void *a, void *b, uint32_t c) {
    return gf_interop_driver.load_module(module, image);
}

static CUresult load_fatbin(const void *image, CUmodule *module, void *a, void *b, uint32_t c) {
    return gf_interop_driver.load_module(module, image);
}

STUB(cudart, 3)
STUB(cudart, 4)
STUB(cudart, 5)
STUB(cudart, 9)
STUB(cudart, 10)
STUB(cudart, 11)
static const union slot cudart_table[13] = {
    {.size = sizeof cudart_table},
    SLOT(load_module),
    SLOT(primary_context),
    STUB_SLOT(cudart, 3),
    STUB_SLOT(cudart, 4),
    STUB_SLOT(cudart, 5),
    SLOT(load_module_ex),
    SLOT(nothing),
    SLOT(load_fatbin),
    STUB_SLOT(cudart, 9),
    STUB_SLOT(cudart, 10),
    STUB_SLOT(cudart, 11),
    SLOT(nothing), /* loads the PTX compiler: ours is behind the wire or always there */
};

/* Callbacks for tools: one flag per runtime function, all off. */
#define CALLBACK_IDS 1024
#define DOMAINS      14
static uint64_t callback_flags[CALLBACK_IDS];
static uint64_t domain_flags[DOMAINS];

static void callbacks(void **flags, size_t *count) {
    *flags = callback_flags;
    *count = CALLBACK_IDS;
}

static void domains(void **flags, size_t *count) {
    *flags = domain_flags;
    *count = DOMAINS;
}

STUB(tools_hooks, 1)
STUB(tools_hooks, 3)
STUB(tools_hooks, 4)
STUB(tools_hooks, 5)
static const union slot hooks_table[7] = {
    {.size = sizeof hooks_table}, STUB_SLOT(tools_hooks, 1), SLOT(callbacks), STUB_SLOT(tools_hooks, 3),
    STUB_SLOT(tools_hooks, 4),    STUB_SLOT(tools_hooks, 5), SLOT(domains),
};

static const union slot tools_tls_table[4] = {
    {.size = sizeof tools_tls_table},
    SLOT(nothing),
    SLOT(nothing),
    SLOT(nothing),
};

static const union slot context_storage_table[4] = {
    SLOT(gf_context_storage_put),
    SLOT(gf_context_storage_delete),
    SLOT(gf_context_storage_get),
    {.function = NULL},
};

/* What the runtime destroys as an execution context must be a green one. */
static CUresult context_check(CUcontext context, uint32_t *is_green, const void **more) {
    if (is_green)
        *is_green = gf_interop_driver.is_green(context);
    return CUDA_SUCCESS;
}

STUB(context_checks, 1)
STUB(context_checks, 4)
STUB(context_checks, 5)
STUB(context_checks, 6)
STUB(context_checks, 7)
STUB(context_checks, 8)
STUB(context_checks, 9)
STUB(context_checks, 10)
STUB(context_checks, 11)
STUB(context_checks, 12)
STUB(context_checks, 13)
STUB(context_checks, 14)
STUB(context_checks, 15)
STUB(context_checks, 16)
static const union slot context_checks_table[17] = {
    {.size = sizeof context_checks_table},
    STUB_SLOT(context_checks, 1),
    SLOT(context_check),
    SLOT(nothing),
    STUB_SLOT(context_checks, 4),
    STUB_SLOT(context_checks, 5),
    STUB_SLOT(context_checks, 6),
    STUB_SLOT(context_checks, 7),
    STUB_SLOT(context_checks, 8),
    STUB_SLOT(context_checks, 9),
    STUB_SLOT(context_checks, 10),
    STUB_SLOT(context_checks, 11),
    STUB_SLOT(context_checks, 12),
    STUB_SLOT(context_checks, 13),
    STUB_SLOT(context_checks, 14),
    STUB_SLOT(context_checks, 15),
    STUB_SLOT(context_checks, 16),
};

static CUresult selftest(uint32_t version, uint64_t unix_seconds, uint64_t out[2]);
STUB(selftest, 2)
static const union slot selftest_table[3] = {
    {.size = sizeof selftest_table},
    SLOT(selftest),
    STUB_SLOT(selftest, 2),
};

static CUresult selftest(uint32_t version, uint64_t unix_seconds, uint64_t out[2]) {
    return gf_selftest(version, unix_seconds, cudart_table, selftest_table, (const void *)selftest, out);
}

/* The runtime's hook for errors that it finds itself. */
STUB(error_log, 2)
STUB(error_log, 3)
STUB(error_log, 4)
STUB(error_log, 5)
STUB(error_log, 6)
STUB(error_log, 7)
static const union slot error_log_table[8] = {
    {.size = sizeof error_log_table}, SLOT(nothing),           STUB_SLOT(error_log, 2),
    STUB_SLOT(error_log, 3),          STUB_SLOT(error_log, 4), STUB_SLOT(error_log, 5),
    STUB_SLOT(error_log, 6),          STUB_SLOT(error_log, 7),
};

/* Asked for since 13.4; slots 4, 39 and 51 are called by libraries. */
static CUresult late_4(const void *a, uint64_t *out) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = a != NULL;
    return CUDA_SUCCESS;
}

static CUresult late_39(uint64_t a, const void *b, uint64_t *out) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    return CUDA_SUCCESS;
}

static CUresult late_51(uint64_t a, uint64_t which, uint64_t *out) {
    static uint64_t zeroes[64];
    if (which == UINT64_MAX || !out)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = (uintptr_t)zeroes;
    return CUDA_SUCCESS;
}

/* How cuFFT gets at the only function of a module. True: it was possible. */
static int each_function(CUcontext context, CUmodule module, void (*each)(void *, CUfunction, CUmodule),
                         void *with) {
    unsigned count = 0;
    CUfunction *functions = NULL;
    bool done = cuModuleGetFunctionCount(&count, module) == CUDA_SUCCESS;
    if (done && count > 0) {
        functions = malloc(count * sizeof *functions);
        done = functions && cuModuleEnumerateFunctions(functions, count, module) == CUDA_SUCCESS;
    }
    for (unsigned i = 0; done && i < count; i++) {
        const char *name = NULL;
        /* By its name it is loaded, and not only listed. */
        done = cuFuncGetName(&name, functions[i]) == CUDA_SUCCESS &&
               cuModuleGetFunction(&functions[i], module, name) == CUDA_SUCCESS;
        if (done)
            each(with, functions[i], module);
    }
    free(functions);
    return done;
}

/* Where the pairs of multiprocessors lie: the group of each, and its place there, as two lists that the
 * caller gives back (slot 13). cuBLAS weighs by it how many clusters of blocks run at once, on devices that
 * have clusters; so it is enough that there are as many as the device has. Measured on an H200. */
enum { PROCESSOR_GROUPS = 8 };

static CUresult processor_places(uint8_t **groups, uint8_t **places) {
    CUdevice device;
    int count = 0;
    CUresult status = cuCtxGetDevice(&device);
    if (status == CUDA_SUCCESS)
        status = cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    if (status != CUDA_SUCCESS || !groups || !places)
        return status != CUDA_SUCCESS ? status : CUDA_ERROR_INVALID_VALUE;
    *groups = malloc((size_t)count);
    *places = malloc((size_t)count);
    if (!*groups || !*places) {
        free(*groups);
        free(*places);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (int i = 0; i < count; i++) {
        (*groups)[i] = i % PROCESSOR_GROUPS;
        (*places)[i] = (uint8_t)(i / PROCESSOR_GROUPS);
    }
    return CUDA_SUCCESS;
}

static CUresult forget_places(uint8_t *groups, uint8_t *places) {
    free(groups);
    free(places);
    return CUDA_SUCCESS;
}

/* What libraries of NVIDIA's ask for: some slots are known, and a stub stands for every other. */
/* clang-format off */
#define EACH_SLOT(X, table) \
    X(table, 1) X(table, 2) X(table, 3) X(table, 4) X(table, 5) X(table, 6) X(table, 7) X(table, 8) \
    X(table, 9) X(table, 10) X(table, 11) X(table, 12) X(table, 13) X(table, 14) X(table, 15) X(table, 16) \
    X(table, 17) X(table, 18) X(table, 19) X(table, 20) X(table, 21) X(table, 22) X(table, 23) X(table, 24) \
    X(table, 25) X(table, 26) X(table, 27) X(table, 28) X(table, 29) X(table, 30) X(table, 31) X(table, 32) \
    X(table, 33) X(table, 34) X(table, 35) X(table, 36) X(table, 37) X(table, 38) X(table, 39) X(table, 40) \
    X(table, 41) X(table, 42) X(table, 43) X(table, 44) X(table, 45) X(table, 46) X(table, 47) X(table, 48) \
    X(table, 49) X(table, 50) X(table, 51) X(table, 52) X(table, 53) X(table, 54) X(table, 55) X(table, 56) \
    X(table, 57) X(table, 58) X(table, 59) X(table, 60) X(table, 61) X(table, 62) X(table, 63)
/* clang-format on */
#define STUB_ENTRY(table, slot) [slot] = STUB_SLOT(table, slot),
EACH_SLOT(STUB, late)
EACH_SLOT(STUB, functions)
EACH_SLOT(STUB, clusters)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const union slot late_table[64] = {[0] = {.size = sizeof late_table},
                                          EACH_SLOT(STUB_ENTRY, late)[4] = SLOT(late_4),
                                          [39] = SLOT(late_39),
                                          [51] = SLOT(late_51)};

static const union slot functions_table[64] = {[0] = {.size = sizeof functions_table},
                                               EACH_SLOT(STUB_ENTRY, functions)[7] = SLOT(each_function)};

static const union slot clusters_table[64] = {[0] = {.size = sizeof clusters_table},
                                              EACH_SLOT(STUB_ENTRY, clusters)[4] = SLOT(processor_places),
                                              [13] = SLOT(forget_places)};
#pragma GCC diagnostic pop

/* Of profilers, with no slot. CUPTI finds that out by the size and gives up; refused, it asks again without
 * end. */
static const union slot profiler_table[1] = {{.size = sizeof profiler_table}};

struct table {
    unsigned char id[16];
    const union slot *slots; /* NULL: known, and refused on purpose */
};

static const struct table tables[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
     cudart_table},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
     hooks_table},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
     tools_tls_table},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
     context_storage_table},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
     context_checks_table},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
     selftest_table},
    {{0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9},
     error_log_table},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
     late_table},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e},
     functions_table},
    {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca},
     clusters_table},
    {{0x7c, 0xb6, 0x3f, 0x9b, 0x9c, 0xa4, 0x8e, 0x42, 0xa4, 0x84, 0xbe, 0xb6, 0x6e, 0x6a, 0xed, 0x7f},
     profiler_table},
    /* NVRTC's probe: it takes a refusal well. */
    {{0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28}, NULL},
};

static void log_unknown(const CUuuid *id) {
    char text[96];
    int used = snprintf(text, sizeof text, "unknown private driver table ");
    for (unsigned i = 0; i < sizeof id->bytes; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%02x", (unsigned char)id->bytes[i]);
    gf_interop_driver.log(text);
}

CUresult gf_get_export_table(const void **table, const CUuuid *id) {
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (memcmp(tables[i].id, id->bytes, sizeof tables[i].id))
            continue;
        *table = tables[i].slots;
        return *table ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    log_unknown(id);
    return CUDA_ERROR_INVALID_VALUE;
}
