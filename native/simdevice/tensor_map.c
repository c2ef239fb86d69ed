/* Tensor maps, which say on this device what they were given (driver_interop/tensor_map.h). */
#include "sim.h"

#define DRIVER(name) name
#define ENTER        SIM_TRY(sim_enter())

#include "driver_interop/tensor_map.h"
#include <string.h>

static CUresult encode(CUtensorMap *to, const struct gf_tensor_map *map) {
    memcpy(to, map, sizeof *map);
    return CUDA_SUCCESS;
}

static CUresult move(CUtensorMap *to, uint64_t address);

#include "driver_interop/tensor_map.c.h"

static CUresult move(CUtensorMap *to, uint64_t address) {
    struct gf_tensor_map map;
    memcpy(&map, to, sizeof map);
    SIM_REQUIRE(map.magic == GF_TENSOR_MAP_MAGIC && address % address_alignment(&map) == 0);
    map.address = address;
    memcpy(to, &map, sizeof map);
    return CUDA_SUCCESS;
}
