/* The binary form of a parsed module that the compile service makes (compiler/index.py) and image.c reads:
 *   header, kernels, variables, relocations, params, data, strings, source; each array starts at a multiple
 * of 8. `source` is what the service needs to compile a kernel of it later. Little-endian. */
#pragma once
#include <stdint.h>

#define SIM_INDEX_MAGIC 0x3649444e49465347ull /* "GSFINDI6" */
#define SIM_INDEX_NONE  UINT64_MAX

struct sim_index_header {
    uint64_t magic;
    uint32_t isa, target; /* 85 for PTX 8.5; 80 for sm_80 */
    uint32_t binary;      /* machine code, for sm_80; 0: it is made for the device when it is needed */
    uint32_t reserved;
    uint32_t kernel_count, variable_count, relocation_count, param_count;
    uint64_t data_bytes, string_bytes, source_bytes;
};

struct sim_index_kernel {
    uint32_t name; /* offset among the strings */
    uint32_t first_param, param_count, param_bytes;
    uint32_t shared_static, local_bytes, const_bytes, registers, max_threads;
    uint32_t required[3], cluster[3], most_cluster, explicit_cluster; /* 0: not said */
    uint32_t reserved;
    uint64_t handle; /* its address in device code; 0: none */
};

struct sim_index_variable {
    uint64_t size, align;
    uint64_t initial; /* offset in data, or SIM_INDEX_NONE */
    uint32_t name, first_relocation, relocation_count;
    uint32_t flags; /* 1 const, 2 managed, 4 .texref, 8 .surfref */
};
