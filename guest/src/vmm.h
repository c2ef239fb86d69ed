/* The program's own virtual memory: what it mapped where, and what may be done there. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

#include "gpuferry/frames.h"

struct gf_mapping {
    uint64_t address, size;
    uint64_t allocation;            /* handle of the physical memory */
    uint8_t access[GF_DEVICES_MAX]; /* CUmemAccess_flags, by device */
    uint8_t host_access;            /* of the program itself, to memory of the host */
    bool on_host;                   /* memory of the host, which the program and the device share */
    bool locked;                    /* behind page-locked memory: no call of the program's is about it */
};

/* Whether it names the host's memory, which is one NUMA node as far as a program is told. */
bool gf_location_is_host(const CUmemLocation *location);
/* The mapping that holds an address; false: none does. */
bool gf_mapping_find(uint64_t address, struct gf_mapping *mapping);
/* Whose memory is at an address of the window: what the program has mapped lies where its home does. */
int gf_mapping_device(uint64_t address);
/* Whether every byte of a range is mapped, and may be read or written. */
bool gf_mapping_allows(uint64_t address, uint64_t size, bool write);
/* What cuMemMap, cuMemUnmap and cuMemSetAccess do, for the program or for its page-locked memory. */
CUresult gf_mapping_make(uint64_t address, uint64_t size, uint64_t offset,
                         CUmemGenericAllocationHandle handle, bool locked);
CUresult gf_mapping_end(uint64_t address, uint64_t size, bool locked);
CUresult gf_mapping_set_access(uint64_t address, uint64_t size, const CUmemAccessDesc *desc, size_t count,
                               bool locked);
