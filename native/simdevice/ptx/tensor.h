/* Copies between a box of a tensor and shared memory, as a tensor map says (driver_interop/tensor_map.h).
 * The map is the caller's own copy: kernels may write where it came from. */
#pragma once
#include <stdint.h>

/* Bytes that the box takes in shared memory (upper half) and bytes that are counted when it has arrived; 0:
 * what the map says cannot be carried out. */
uint64_t sim_tensor_size(const void *map, uint32_t rank);
/* The box at those coordinates into shared memory, or out of it; `place`: that memory's address there, which
 * swizzling goes by. What lies beyond the tensor is filled, or is left as it is. `held`: the tensor must lie
 * in device memory. Yields an address that may not be touched; 0: done. */
uint64_t sim_tensor_load(const void *map, const int32_t *corner, uint8_t *to, uint32_t place, uint32_t held);
/* `how`: 0 to copy, else what each number of the tensor becomes, as an atomic does it (enum tensor_change).
 */
uint64_t sim_tensor_store(const void *map, const int32_t *corner, const uint8_t *from, uint32_t place,
                          uint32_t how, uint32_t held);
