/* What an image is and how long, told from its first bytes. */
#pragma once
#include "cuda.h"
#include <stddef.h>
#include <stdint.h>

/* SIM_IMAGE_OBJECT: a host object or a library of such, which is an input of a link only. */
enum sim_image_kind { SIM_IMAGE_PTX, SIM_IMAGE_FATBIN, SIM_IMAGE_CUBIN, SIM_IMAGE_OBJECT };

/* The bytes to hand to the compile service: one image or, for a wrapper, what nvcc has linked and then what
 * it was linked of. */
struct sim_image_parts {
    enum sim_image_kind kind;
    struct sim_image_part {
        const void *data;
        size_t size;
    } *items;
    uint32_t count;
};

/* `size` 0: not known. CUDA_ERROR_INVALID_IMAGE, or _NO_BINARY_FOR_GPU for an ELF file with machine code,
 * unless code is skipped. */
CUresult sim_image_sniff(const void *image, size_t size, struct sim_image_parts *parts, char *log,
                         size_t log_size);
CUresult sim_image_parts_add(struct sim_image_parts *parts, const void *data, size_t size);
/* Also after an error. */
void sim_image_parts_free(struct sim_image_parts *parts);

/* What a link was given: this header, then each input. It is what the ELF file of cuLinkComplete holds. */
#define SIM_LINKED_MAGIC 0x4b4e4c4d49534647ull /* "GFSIMLNK" */
struct sim_linked_header {
    uint64_t magic;
    uint64_t size; /* of all of it */
    uint32_t count;
    uint32_t target;         /* 80 for sm_80 */
    uint32_t most_registers; /* per thread, as CU_JIT_MAX_REGISTERS says; 0: no limit */
    uint32_t reserved;
};

/* Name and bytes follow, each padded to 8. */
struct sim_linked_input {
    uint64_t size;
    uint32_t name_size, reserved;
};
