#include "tensor.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "addresses.h"
#include "driver_interop/cuda_driver.h"
#include "driver_interop/tensor_map.h"
#include "fp_helpers.h"

enum tensor_change { COPY, ADD, MIN, MAX, INC, DEC, AND, OR, XOR };
enum { HALF, BFLOAT }; /* formats of sim_fp_encode */

static const uint8_t type_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
static const uint8_t spans[] = {0, 32, 64, 128, 128};

struct walk {
    const struct gf_tensor_map *map;
    const int32_t *corner;
    uint32_t counts[GF_TENSOR_RANK_MOST];
    uint64_t rows, pitch; /* of shared memory */
    uint32_t element;
};

static bool can_walk(const struct gf_tensor_map *map) {
    return map->magic == GF_TENSOR_MAP_MAGIC && map->form == GF_TENSOR_TILED && map->rank >= 1 &&
           map->rank <= GF_TENSOR_RANK_MOST && map->type < sizeof type_bytes && map->interleave == 0 &&
           map->swizzle < sizeof spans;
}

static bool begin(struct walk *walk, const struct gf_tensor_map *map, const int32_t *corner) {
    if (!can_walk(map))
        return false;
    *walk = (struct walk){.map = map, .corner = corner, .rows = 1, .element = type_bytes[map->type]};
    for (unsigned i = 0; i < map->rank; i++) {
        if (map->steps[i] == 0)
            return false;
        walk->counts[i] = (map->box[i] + map->steps[i] - 1u) / map->steps[i];
        walk->rows *= i ? walk->counts[i] : 1;
    }
    uint64_t row = (uint64_t)walk->counts[0] * walk->element, span = spans[map->swizzle];
    if (span && row > span)
        return false;
    walk->pitch = row > span ? row : span;
    return true;
}

uint64_t sim_tensor_size(const void *map, uint32_t rank) {
    struct walk walk;
    if (!begin(&walk, map, NULL) || walk.map->rank != rank || walk.rows > UINT32_MAX ||
        walk.rows * walk.pitch > INT32_MAX)
        return 0;
    return walk.rows * walk.pitch << 32 | walk.rows * walk.counts[0] * walk.element;
}

/* Where a byte at that place of shared memory lies: chunks change places within their span, by the row of 128
 * bytes (of 256 for chunks of 32) that they are in. */
static uint32_t swizzled(unsigned swizzle, uint32_t place) {
    switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_32B:
        return place ^ (place >> 7 & 1) << 4;
    case CU_TENSOR_MAP_SWIZZLE_64B:
        return place ^ (place >> 7 & 3) << 4;
    case CU_TENSOR_MAP_SWIZZLE_128B:
        return place ^ (place >> 7 & 7) << 4;
    case CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B:
        return place ^ (place >> 7 & 3) << 5;
    default:
        return place;
    }
}

/* Where a row of the box begins in the tensor, of which the first dimension is missing. False: beyond it. */
static bool find_row(const struct walk *walk, uint64_t row, unsigned __int128 *address) {
    const struct gf_tensor_map *map = walk->map;
    *address = map->address;
    for (unsigned i = 1; i < map->rank; i++) {
        int64_t at = walk->corner[i] + (int64_t)(row % walk->counts[i]) * map->steps[i];
        row /= walk->counts[i];
        if (at < 0 || at >= map->dims[i])
            return false;
        *address += (unsigned __int128)map->strides[i - 1] * (uint64_t)at;
    }
    return true;
}

/* The element of a row; NULL: beyond the tensor. *bad: where nothing of the device is, or an element lies
 * crooked, which a map that a kernel has written may say: an atomic there would hold up the whole machine. */
static uint8_t *find(const struct walk *walk, unsigned __int128 row, uint32_t index, bool held,
                     uint64_t *bad) {
    int64_t at = walk->corner[0] + (int64_t)index * walk->map->steps[0];
    if (at < 0 || at >= walk->map->dims[0])
        return NULL;
    unsigned __int128 address = row + (uint64_t)at * walk->element;
    bool outside = held && (address < SIM_DEVICE_BEGIN || address > SIM_DEVICE_END - walk->element);
    if (outside || address % walk->element != 0) {
        *bad = (uint64_t)address | 1;
        return NULL;
    }
    return (uint8_t *)(uintptr_t)address;
}

static bool flushes(unsigned type) {
    return type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ || type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

static float flushed(float x) {
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* What is loaded in place of what is not there: NaN without a sign, of all ones, or zero. */
static uint64_t filling(const struct gf_tensor_map *map) {
    bool is_float = map->type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    return is_float && map->fill ? UINT64_MAX >> (65 - 8 * type_bytes[map->type]) : 0;
}

uint64_t sim_tensor_load(const void *map, const int32_t *corner, uint8_t *to, uint32_t place, uint32_t held) {
    struct walk walk;
    uint64_t bad = 0;
    begin(&walk, map, corner);
    const uint64_t fill = filling(walk.map);
    for (uint64_t row = 0; row < walk.rows && !bad; row++) {
        unsigned __int128 start;
        bool there = find_row(&walk, row, &start);
        for (uint32_t i = 0; i < walk.counts[0]; i++) {
            uint32_t at = place + (uint32_t)(row * walk.pitch) + i * walk.element;
            uint8_t *target = to + (int64_t)swizzled(walk.map->swizzle, at) - place;
            const uint8_t *source = there ? find(&walk, start, i, held, &bad) : NULL;
            memcpy(target, source ? (const void *)source : &fill, walk.element);
            if (source && flushes(walk.map->type)) {
                float value;
                memcpy(&value, target, sizeof value);
                value = flushed(value);
                memcpy(target, &value, sizeof value);
            }
        }
    }
    return bad;
}

/* ---- changes ---- */

static uint64_t changed_whole(enum tensor_change how, bool is_signed, uint32_t bytes, uint64_t was,
                              uint64_t by) {
    unsigned shift = 64 - 8 * bytes;
    bool less = is_signed ? (int64_t)(was << shift) < (int64_t)(by << shift) : was < by;
    switch (how) {
    case ADD:
        return was + by;
    case MIN:
        return less ? was : by;
    case MAX:
        return less ? by : was;
    case INC:
        return was >= by ? 0 : was + 1;
    case DEC:
        return was == 0 || was > by ? by : was - 1;
    case AND:
        return was & by;
    case OR:
        return was | by;
    case XOR:
        return was ^ by;
    default:
        return by;
    }
}

static double changed_float(enum tensor_change how, double was, double by) {
    if (how == ADD)
        return was + by;
    if (isnan(was) || isnan(by))
        return isnan(was) ? by : was;
    if (was == by) /* zeroes differ by their signs */
        return (how == MIN) == (signbit(was) != 0) ? was : by;
    return (how == MIN) == (was < by) ? was : by;
}

static uint64_t changed(const struct walk *walk, enum tensor_change how, uint64_t was, uint64_t by) {
    unsigned format = walk->map->type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? BFLOAT : HALF;
    union {
        uint64_t bits;
        float f32;
        double f64;
    } a = {was}, b = {by};
    if (how == COPY || how >= INC || walk->map->type < CU_TENSOR_MAP_DATA_TYPE_FLOAT16) {
        bool is_signed = walk->map->type == CU_TENSOR_MAP_DATA_TYPE_INT32 ||
                         walk->map->type == CU_TENSOR_MAP_DATA_TYPE_INT64;
        return changed_whole(how, is_signed, walk->element, was, by);
    }
    switch (walk->element) {
    case 2:
        return sim_fp_encode(
            changed_float(how, sim_fp_decode((uint32_t)was, format), sim_fp_decode((uint32_t)by, format)),
            format, 0, 0);
    case 4: /* sums of single precision are flushed in global memory, as those of atomics are */
        a.f32 =
            how == ADD ? flushed(flushed(a.f32) + flushed(b.f32)) : (float)changed_float(how, a.f32, b.f32);
        return a.bits & UINT32_MAX;
    default:
        a.f64 = changed_float(how, a.f64, b.f64);
        return a.bits;
    }
}

#define CHANGE(bits)                                                                                         \
    do {                                                                                                     \
        uint##bits##_t by, was = __atomic_load_n((uint##bits##_t *)target, __ATOMIC_RELAXED);                \
        memcpy(&by, source, sizeof by);                                                                      \
        while (!__atomic_compare_exchange_n((uint##bits##_t *)target, &was,                                  \
                                            (uint##bits##_t)changed(walk, how, was, by), true,               \
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED))                             \
            ;                                                                                                \
    } while (0)

static void change(const struct walk *walk, enum tensor_change how, uint8_t *target, const uint8_t *source) {
    switch (how == COPY ? 0 : walk->element) {
    case 1:
        CHANGE(8);
        break;
    case 2:
        CHANGE(16);
        break;
    case 4:
        CHANGE(32);
        break;
    case 8:
        CHANGE(64);
        break;
    default:
        memcpy(target, source, walk->element);
    }
}

uint64_t sim_tensor_store(const void *map, const int32_t *corner, const uint8_t *from, uint32_t place,
                          uint32_t how, uint32_t held) {
    struct walk walk;
    uint64_t bad = 0;
    begin(&walk, map, corner);
    for (uint64_t row = 0; row < walk.rows && !bad; row++) {
        unsigned __int128 start;
        if (!find_row(&walk, row, &start))
            continue;
        for (uint32_t i = 0; i < walk.counts[0]; i++) {
            uint32_t at = place + (uint32_t)(row * walk.pitch) + i * walk.element;
            uint8_t *target = find(&walk, start, i, held, &bad);
            if (target)
                change(&walk, how, target, from + (int64_t)swizzled(walk.map->swizzle, at) - place);
        }
    }
    return bad;
}
