/* How nvcc lays out images for several devices (cudart-interop.md 6). */
#ifndef GF_WIRE_FATBIN_H
#define GF_WIRE_FATBIN_H

#include <stdint.h>

#define GF_WRAPPER_MAGIC 0x466243B1u
#define GF_FATBIN_MAGIC  0xBA55ED50u

#define GF_FATBIN_PTX 1
#define GF_FATBIN_ELF 2

/* Among an entry's flags. */
#define GF_FATBIN_COMPRESSED 0xA000u   /* LZ4 or zstd */
#define GF_FATBIN_EXACT      0x100000u /* of sm_90a and the like */
#define GF_FATBIN_FAMILY     0x200000u /* of sm_100f and the like */

struct gf_fatbin {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size; /* of all entries */
};

struct gf_fatbin_entry {
    uint16_t kind, unknown;
    uint32_t header_size;
    uint64_t stored; /* bytes of the payload here */
    uint32_t compressed, options;
    uint16_t minor, major;
    uint32_t capability;
    uint64_t unknown_too, flags, unknown_as_well, expanded;
};

#endif
