/* The vector kernels of each instruction set: struct vector_ops tables for kernels.c. The scalar
 * one is the reference: plain loops and the C library's functions. The others are one source,
 * vector_simd.h, compiled once an instruction set.
 */
#ifndef ZIGCUDA_VECTOR_H
#define ZIGCUDA_VECTOR_H

#include "kernels/kernels.h"

/* Where the keys (base kv->k) or values (kv->v) of a KV head lie in a page. */
static inline void *kv_head_at(const struct kv_layer *kv, void *base, u32 page, u32 kv_head)
{
    size_t at = (size_t)page * kv->kv_heads + kv_head;
    return (u8 *)base + at * kv_head_bytes(kv->type, kv->head_dim);
}

/* Of int8: [LIMIT_PAGE_TOKENS], behind the bytes of a head. */
static inline float *kv_scales(void *head, u32 dim)
{
    return (float *)(void *)((u8 *)head + (size_t)LIMIT_PAGE_TOKENS * dim);
}

extern const struct vector_ops vector_scalar;
#if defined(__x86_64__)
extern const struct vector_ops vector_avx2;   /* needs avx2, fma, f16c */
extern const struct vector_ops vector_avx512; /* needs avx512f, bw, dq, vl */
#elif defined(__aarch64__)
extern const struct vector_ops vector_neon;
#endif

#endif
