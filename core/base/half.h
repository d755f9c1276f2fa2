/* 16-bit floats to f32 and back, one value at a time. bf16 is the upper half of an f32; f16 is
 * IEEE 754 binary16. Reading needs no alignment.
 */
#ifndef ZIGCUDA_HALF_H
#define ZIGCUDA_HALF_H

#include "core/base/base.h"
#include "core/base/weight.h"

static inline float half_from_bits(u32 bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline u32 half_to_bits(float f)
{
    u32 bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static inline float half_from_bf16(u16 h)
{
    return half_from_bits((u32)h << 16);
}

/* Exact. The exponent is rebased by a multiplication, which also normalises subnormals. */
static inline float half_from_f16(u16 h)
{
    u32 sign = (u32)(h & 0x8000) << 16, rest = (u32)(h & 0x7fff) << 13;
    if ((h & 0x7c00) == 0x7c00) /* infinity, NaN */
        return half_from_bits(sign | 0x7f800000 | rest);
    return half_from_bits(sign | half_to_bits(half_from_bits(rest) * 0x1p112f));
}

/* Element i of a tensor of type f32, f16, bf16 or E8M0, wherever it lies. */
static inline float half_load(const void *p, enum dtype type, size_t i)
{
    float f;
    u16 h;
    if (type == DTYPE_F32) {
        memcpy(&f, (const u8 *)p + i * 4, 4);
        return f;
    }
    if (type == DTYPE_E8M0)
        return half_from_bits((u32)((const u8 *)p)[i] << 23);
    memcpy(&h, (const u8 *)p + i * 2, 2);
    return type == DTYPE_F16 ? half_from_f16(h) : half_from_bf16(h);
}

#endif
