/* Both halves of the codecs with a guest and a server around them that know little: a handle travels as its
 * complement, what is BAD is refused, and device memory is all below LIMIT. */
#pragma once
#include <stdlib.h>
#include <string.h>

#include "codec_types.h"

#include "codec_guest.h"
#include "codec_server.h"

enum { BAD = 0xbad, LIMIT = 1 << 20, DEVICES = 4, PARAMS = 24 };

#define WIRE(kind, type)                                                                                     \
    CUresult gf_codec_##kind(type handle, uint64_t *wire) {                                                  \
        *wire = ~(uint64_t)(uintptr_t)handle;                                                                \
        return (uint64_t)(uintptr_t)handle == BAD ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;                \
    }
WIRE(stream, CUstream)
WIRE(array, CUarray)
WIRE(mipmapped_array, CUmipmappedArray)
WIRE(context, CUcontext)
WIRE(kernel, CUkernel)
WIRE(function_or_kernel, CUfunction)

CUresult gf_codec_device(CUdevice device, CUdevice *wire) {
    *wire = device;
    return device < 0 || device >= DEVICES ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

bool gf_device_range(uint64_t address, uint64_t size, bool write) {
    return address < LIMIT && size <= LIMIT - address;
}

/* Every kernel has three parameters of eight bytes. */
CUresult gf_append_params(struct gf_bytes *behind, CUfunction function, void **params, void **extra) {
    uint64_t size = PARAMS;
    if (function == NULL || params == NULL || extra != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_bytes_put(behind, &size, 1, sizeof size);
    for (int i = 0; i < 3; i++) {
        gf_bytes_put(behind, params[i], 1, 8);
    }
    return CUDA_SUCCESS;
}

static int server_handle(struct gf_decoder *d, unsigned kinds, uint64_t wire, void **driver) {
    *driver = (void *)(uintptr_t)~wire;
    d->param_bytes = PARAMS;
    return ~wire == BAD ? CUDA_ERROR_INVALID_HANDLE : 0;
}

static int server_name(struct gf_decoder *d, unsigned kinds, void *driver, uint64_t *wire) {
    *wire = ~(uint64_t)(uintptr_t)driver;
    return 0;
}

static int server_address(struct gf_decoder *d, uint64_t address, uint64_t size, unsigned access) {
    return gf_device_range(address, size, (access & GF_ACCESS_WRITE) != 0) ? 0 : CUDA_ERROR_INVALID_VALUE;
}

static int server_device(struct gf_decoder *d, int wire, int *driver) {
    *driver = wire;
    return wire < 0 || wire >= DEVICES ? CUDA_ERROR_INVALID_DEVICE : 0;
}

static void begin(struct gf_decoder *d, const void *data, size_t size) {
    gf_decoder_begin(d, data, size);
    d->handle = server_handle;
    d->name = server_name;
    d->address = server_address;
    d->device = server_device;
    d->ordinal = server_device;
}

typedef CUresult (*append)(struct gf_bytes *, const void *, uint64_t, bool);
typedef int (*take)(struct gf_decoder *, uint64_t, bool, void **);

static const struct type {
    const char *name;
    size_t size;
    append append;
    take take;
} types[] = {
#define TYPE(name) {#name, sizeof(name), (append)gf_append_##name, (take)gf_take_##name},
    TYPES(TYPE)
#undef TYPE
};

static const struct value {
    const char *name;
    int value;
} values[] = {
#define VALUE(name) {#name, name},
    VALUES(VALUE)
#undef VALUE
};
