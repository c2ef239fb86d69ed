/* Arithmetic that compiled kernels call because the host's instructions cannot express it. `mode` is MXCSR's:
 * 0 to nearest, 1 down, 2 up, 3 to zero; sim_fp_encode also knows 4, to nearest with ties away from zero.
 * Halves and bfloats are passed as their bits. */
#pragma once
#include <stdint.h>

#include "tensor.h"

float sim_fp_add_f32(float a, float b, uint32_t mode);
float sim_fp_sub_f32(float a, float b, uint32_t mode);
float sim_fp_mul_f32(float a, float b, uint32_t mode);
float sim_fp_div_f32(float a, float b, uint32_t mode);
float sim_fp_fma_f32(float a, float b, float c, uint32_t mode);
float sim_fp_sqrt_f32(float a, uint32_t mode);
double sim_fp_add_f64(double a, double b, uint32_t mode);
double sim_fp_sub_f64(double a, double b, uint32_t mode);
double sim_fp_mul_f64(double a, double b, uint32_t mode);
double sim_fp_div_f64(double a, double b, uint32_t mode);
double sim_fp_fma_f64(double a, double b, double c, uint32_t mode);
double sim_fp_sqrt_f64(double a, uint32_t mode);
float sim_fp_narrow_f32(double a, uint32_t mode);
float sim_fp_from_s64_f32(int64_t a, uint32_t mode);
float sim_fp_from_u64_f32(uint64_t a, uint32_t mode);
double sim_fp_from_s64_f64(int64_t a, uint32_t mode);
double sim_fp_from_u64_f64(uint64_t a, uint32_t mode);
float sim_fp_ex2(float a);
float sim_fp_lg2(float a);
uint16_t sim_fp_fma_f16(uint16_t a, uint16_t b, uint16_t c);
uint16_t sim_fp_fma_bf16(uint16_t a, uint16_t b, uint16_t c);
uint32_t sim_fp_encode(double value, uint32_t format, uint32_t mode, uint32_t finite);
float sim_fp_decode(uint32_t bits, uint32_t format);
uint32_t sim_int_fns(uint32_t mask, uint32_t base, uint32_t offset);
/* Half of the product without carries of a and b. */
uint64_t sim_int_clmul(uint64_t a, uint64_t b, uint32_t high);
void sim_mma(uint32_t shape, uint32_t types, uint32_t flags, uint32_t lane, uint32_t words, uint32_t b_word,
             const uint32_t *fragments, const uint32_t *c, uint32_t *d);
/* The same for a whole warp: word w of lane l of a fragment is [w * 32 + l]. */
void sim_mma_warp(uint32_t shape, uint32_t types, uint32_t flags, const uint32_t *a, const uint32_t *b,
                  const uint32_t *c, uint32_t *d);
/* Of mma.sp: half of A, and where it belongs. */
void sim_mma_sparse(uint32_t shape, uint32_t types, uint32_t flags, uint32_t lane, uint32_t words,
                    uint32_t b_word, const uint32_t *fragments, const uint32_t *c, uint32_t *d);
void sim_mma_sparse_warp(uint32_t shape, uint32_t types, uint32_t flags, const uint32_t *a, const uint32_t *b,
                         const uint32_t *c, const uint32_t *metadata, uint32_t *d);
/* Of mma.m8n8k4 of halves: the words of A, of B and of C are together. */
void sim_mma_quads(uint32_t how, uint32_t lane, uint32_t words, const uint32_t *fragments, uint32_t *d);
void sim_mma_quads_warp(uint32_t how, const uint32_t *fragments, uint32_t *d);
/* Copies the bytes of each 16 whose bit of the mask is set. */
void sim_copy_masked(uint8_t *to, const uint8_t *from, uint64_t size, uint32_t mask);

/* X(name) of every helper, for the table of names that a kernel may refer to. */
#define SIM_FP_HELPERS(X)                                                                                    \
    X(sim_fp_add_f32)                                                                                        \
    X(sim_fp_sub_f32)                                                                                        \
    X(sim_fp_mul_f32)                                                                                        \
    X(sim_fp_div_f32)                                                                                        \
    X(sim_fp_fma_f32)                                                                                        \
    X(sim_fp_sqrt_f32)                                                                                       \
    X(sim_fp_add_f64)                                                                                        \
    X(sim_fp_sub_f64)                                                                                        \
    X(sim_fp_mul_f64)                                                                                        \
    X(sim_fp_div_f64)                                                                                        \
    X(sim_fp_fma_f64)                                                                                        \
    X(sim_fp_sqrt_f64)                                                                                       \
    X(sim_fp_narrow_f32)                                                                                     \
    X(sim_fp_from_s64_f32)                                                                                   \
    X(sim_fp_from_u64_f32)                                                                                   \
    X(sim_fp_from_s64_f64)                                                                                   \
    X(sim_fp_from_u64_f64)                                                                                   \
    X(sim_fp_ex2)                                                                                            \
    X(sim_fp_lg2)                                                                                            \
    X(sim_fp_fma_f16)                                                                                        \
    X(sim_fp_fma_bf16)                                                                                       \
    X(sim_fp_encode)                                                                                         \
    X(sim_fp_decode)                                                                                         \
    X(sim_int_fns)                                                                                           \
    X(sim_int_clmul)                                                                                         \
    X(sim_mma)                                                                                               \
    X(sim_mma_warp)                                                                                          \
    X(sim_mma_sparse)                                                                                        \
    X(sim_mma_sparse_warp)                                                                                   \
    X(sim_mma_quads)                                                                                         \
    X(sim_mma_quads_warp)                                                                                    \
    X(sim_copy_masked)                                                                                       \
    X(sim_tensor_size)                                                                                       \
    X(sim_tensor_load)                                                                                       \
    X(sim_tensor_store)
