/* The vector kernels of each instruction set: struct vector_ops tables for kernels.c. The scalar
 * one is the reference: plain loops and the C library's functions. The others are one source,
 * vector_simd.h, compiled once an instruction set.
 */
#ifndef ZIGCUDA_VECTOR_H
#define ZIGCUDA_VECTOR_H

#include "kernels/kernels.h"

extern const struct vector_ops vector_scalar;
#if defined(__x86_64__)
extern const struct vector_ops vector_avx2;   /* needs avx2, fma, f16c */
extern const struct vector_ops vector_avx512; /* needs avx512f, bw, dq, vl */
#elif defined(__aarch64__)
extern const struct vector_ops vector_neon;
#endif

#endif
