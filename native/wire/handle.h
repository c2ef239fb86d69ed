/* Layout of the handles that the guest makes (specs/WIRE.md 5). */
#pragma once
#include <stdint.h>

#include "gpuferry/kinds.h"

#define GF_HANDLE_TAG        0x6766u
#define GF_HANDLE_SLOT_LIMIT (1u << 20)

static inline uint64_t gf_handle_make(uint32_t kind, uint16_t generation, uint32_t slot) {
    return (uint64_t)GF_HANDLE_TAG << 48 | (uint64_t)kind << 40 | (uint64_t)generation << 24 | slot;
}

static inline uint32_t gf_handle_tag(uint64_t handle) {
    return (uint32_t)(handle >> 48);
}

static inline uint32_t gf_handle_kind(uint64_t handle) {
    return (uint32_t)(handle >> 40) & 0xff;
}

static inline uint16_t gf_handle_generation(uint64_t handle) {
    return (uint16_t)(handle >> 24);
}

static inline uint32_t gf_handle_slot(uint64_t handle) {
    return (uint32_t)handle & 0xffffff;
}
