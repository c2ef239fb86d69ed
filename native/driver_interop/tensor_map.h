/* What the 128 bytes of a CUtensorMap say on the simulated device: for whoever executes
 * `cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor` and `tensormap.replace` there. A GPU has an encoding
 * of its own, so the guest sends this to the server, whose driver encodes it (sessionTensorMap, WIRE.md 18).
 *
 * Element (i0, i1, …) of the tensor lies at `address` + i0 * (size of an element) + sum of ij * strides[j -
 * 1]. A box begins at the coordinates of the instruction and has box[j] elements of dimension j, every
 * steps[j]th of which is copied; what lies outside of 0 … dims[j] - 1 is filled as `fill` says. Of a map by
 * im2col the coordinates of the inner dimensions move over the box between `lower` and dims[j] - 1 + `upper`
 * (PTX ISA, "Tensor modes"). */
#pragma once
#include <stdint.h>

#define GF_TENSOR_MAP_MAGIC   UINT32_C(0x70616d54) /* "Tmap" */
#define GF_TENSOR_RANK_MOST   5
#define GF_TENSOR_CORNER_MOST 3

enum gf_tensor_form { GF_TENSOR_TILED = 1, GF_TENSOR_IM2COL, GF_TENSOR_IM2COL_WIDE };

struct gf_tensor_map {
    uint64_t address;
    uint8_t form; /* enum gf_tensor_form */
    uint8_t type; /* CUtensorMapDataType, and so on */
    uint8_t rank;
    uint8_t interleave;
    uint8_t swizzle;
    uint8_t promotion;
    uint8_t fill;
    uint8_t mode;                              /* CUtensorMapIm2ColWideMode */
    uint64_t strides[GF_TENSOR_RANK_MOST - 1]; /* in bytes, from dimension 1 on */
    uint32_t dims[GF_TENSOR_RANK_MOST];        /* in elements, the innermost first */
    uint16_t box[GF_TENSOR_RANK_MOST];         /* by im2col: channels of a pixel, pixels of a column */
    uint8_t steps[GF_TENSOR_RANK_MOST];        /* element strides */
    uint8_t zero;
    int16_t lower[GF_TENSOR_CORNER_MOST]; /* corners: of W, H, D, as many as there are */
    int16_t upper[GF_TENSOR_CORNER_MOST];
    uint8_t zeros[28];
    uint32_t magic;
};
