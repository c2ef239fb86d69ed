/* What an image is and how long, told from its first bytes. */
#pragma once
#include "cuda.h"
#include <stddef.h>
#include <stdint.h>

/* The bytes to hand to the compile service: one image or, for a wrapper, its containers in order of
 * preference. */
struct sim_image_parts {
    struct {
        const void *data;
        size_t size;
    } items[16];
    uint32_t count;
};

/* `size` 0: not known. CUDA_ERROR_INVALID_IMAGE, or _NO_BINARY_FOR_GPU for an ELF file. */
CUresult sim_image_sniff(const void *image, size_t size, struct sim_image_parts *parts, char *log,
                         size_t log_size);

/* What cuLinkComplete makes: this header, then for each input its u64 size and its bytes, padded to 8. */
#define SIM_LINKED_MAGIC 0x4b4e4c4d49534647ull /* "GFSIMLNK" */
struct sim_linked_header {
    uint64_t magic;
    uint64_t size; /* of the whole blob */
    uint32_t count, reserved;
};
