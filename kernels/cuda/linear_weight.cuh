/* Packed weights to a-fragments, exactly: a quantised value becomes the half q - zero by the magic
 * number 1024 (0x6400), whose lowest mantissa bit is worth 1 (Kim et al. 2022, "Who Says Elephants
 * Can't Run", arXiv 2211.10017). A value of FP4 is a half as it is, 2^14 times too small: its sign,
 * two lowest bits of exponent and highest of mantissa. And outputs, whatever way they were summed.
 */
#ifndef ZIGCUDA_LINEAR_WEIGHT_CUH
#define ZIGCUDA_LINEAR_WEIGHT_CUH

#include "kernels/cuda/linear_input.cuh"

enum {
    WEIGHT_CHUNK_BYTES = 512,
    WEIGHT_MAGIC = 0x64006400,
    LOP3_AND_OR = 0xea, /* a & b | c */
};

/* What the two rows of a lane (g and g + 8) subtract. INT4: row g as 1024 + zero; row g + 8, whose
 * nibbles are read 16 times too large, as -(64 + zero). INT8: both as 1024 + zero. */
struct weight_zero {
    u32 low, high;
};

/* zeros: row g's in the low byte, row g + 8's in the next, nothing above. */
template <u32 kind> GPU struct weight_zero weight_zero_of(u32 zeros)
{
    const u32 magic = WEIGHT_MAGIC >> 24; /* its high byte */
    struct weight_zero z;
    z.low = gpu_permute_bytes(zeros, magic, 0x4040);
    z.high = kind == MATRIX_INT4 ? gpu_permute_bytes(zeros, 0, 0x4141) * 16 + 0xd400d400
                                 : gpu_permute_bytes(zeros, magic, 0x4141);
    return z;
}

/* The a-fragments of tile i of those of which this lane has `word`. */
template <u32 kind>
GPU void weight_fragment(u32 a[4], const u32 word[4], u32 i, const struct weight_zero *z)
{
    if (kind == MATRIX_INT4) {
        u32 w = word[i], v = w >> 8;
        a[0] = gpu_half2_sub(gpu_lop3<LOP3_AND_OR>(w, 0x000f000f, WEIGHT_MAGIC), z->low);
        a[1] = gpu_half2_fma(gpu_lop3<LOP3_AND_OR>(w, 0x00f000f0, WEIGHT_MAGIC), 0x2c002c00,
                             z->high); /* / 16 */
        a[2] = gpu_half2_sub(gpu_lop3<LOP3_AND_OR>(v, 0x000f000f, WEIGHT_MAGIC), z->low);
        a[3] =
            gpu_half2_fma(gpu_lop3<LOP3_AND_OR>(v, 0x00f000f0, WEIGHT_MAGIC), 0x2c002c00, z->high);
    } else if (kind == MATRIX_FP4) { /* the high bytes of the halves, of which a pair each */
        const u32 w = word[i];
        const u32 low = gpu_lop3<LOP3_AND_OR>(w << 4, 0x80808080, w << 1 & 0x0e0e0e0e),
                  high = gpu_lop3<LOP3_AND_OR>(w, 0x80808080, w >> 3 & 0x0e0e0e0e);
        a[0] = gpu_permute_bytes(low, 0, 0x1404);
        a[1] = gpu_permute_bytes(low, 0, 0x3424);
        a[2] = gpu_permute_bytes(high, 0, 0x1404);
        a[3] = gpu_permute_bytes(high, 0, 0x3424);
    } else if (kind == MATRIX_INT8) {
        u32 w = word[2 * i], v = word[2 * i + 1];
        a[0] = gpu_half2_sub(gpu_permute_bytes(w, WEIGHT_MAGIC, 0x5150), z->low);
        a[1] = gpu_half2_sub(gpu_permute_bytes(w, WEIGHT_MAGIC, 0x5352), z->high);
        a[2] = gpu_half2_sub(gpu_permute_bytes(v, WEIGHT_MAGIC, 0x5150), z->low);
        a[3] = gpu_half2_sub(gpu_permute_bytes(v, WEIGHT_MAGIC, 0x5352), z->high);
    } else {
        for (u32 j = 0; j < 4; j++)
            a[j] = word[j];
    }
}

GPU u32 weight_scale_bytes(const struct matrix *m)
{
    return m->scale_type == DTYPE_F32 ? 4 : 2;
}

/* Scales of rows g and g + 8. They lie side by side in memory: in one word, or in two of f32. */
struct weight_scales {
    float low, high;
};

GPU struct weight_scales weight_scales_of(u32 word, u32 second, u32 type)
{
    struct weight_scales s;
    float low = gpu_from_half((u16)word), high = gpu_from_half((u16)(word >> 16));
    bool f32 = type == DTYPE_F32;
    s.low = type == DTYPE_F16 ? low : gpu_from_bits(f32 ? word : word << 16);
    s.high = type == DTYPE_F16 ? high : gpu_from_bits(f32 ? second : word & 0xffff0000u);
    return s;
}

/* Zeros of the rows where the file has none: side by side, as in memory. */
template <u32 kind> GPU u32 weight_no_zeros(void)
{
    return kind == MATRIX_INT4 ? 0x0808 : 0x8080;
}

/* p += a piece's sum, scaled. */
GPU void weight_add(float p[4], const float sum[4], const struct weight_scales *s)
{
    p[0] = fmaf(s->low, sum[0], p[0]);
    p[1] = fmaf(s->low, sum[1], p[1]);
    p[2] = fmaf(s->high, sum[2], p[2]);
    p[3] = fmaf(s->high, sum[3], p[3]);
}

/* --- outputs ------------------------------------------------------------------------------- */

GPU float linear_activate(float x, u32 activation)
{
    if (activation == ACT_SILU)
        return x * gpu_reciprocal(1 + gpu_exp2(x * -1.442695041f));
    if (activation == ACT_GELU_TANH)
        return 0.5f * x * (1 + tanhf(0.7978845608f * fmaf(0.044715f * x * x, x, x)));
    return 0.5f * x * (1 + erff(x * 0.7071067812f));
}

/* What becomes of a gate and its up. Experts alone have ACT_GPT_OSS: kernels of dense models stay
 * as they are. What is no number stays so. */
template <bool experts = false> GPU float linear_gate(float gate, float up, u32 activation)
{
    if (experts && activation == ACT_GPT_OSS) {
        const float g = gate > 7 ? 7 : gate, u = up > 7 ? 7 : up < -7 ? -7 : up;
        return g * gpu_reciprocal(1 + gpu_exp2(g * (-1.702f * 1.442695041f))) * (u + 1);
    }
    return linear_activate(gate, activation) * up;
}

/* The value of output n of a part: from the sum of its slices and the scale of the token. */
GPU float linear_value_of(const struct matrix *m, u32 n, float sum, float scale)
{
    if (m->kind == MATRIX_HALF)
        sum *= ((const float *)m->scales)[n];
    return m->bias ? fmaf(sum, scale, m->bias[n]) : sum * scale;
}

/* Puts output n of part p for a token. `old`: what y had, for OUTPUT_ADD. */
GPU void linear_store(const struct op_linear *op, u32 p, u32 token, u32 n, float v, float old)
{
    if (op->output == OUTPUT_ADD)
        v += old;
    if (op->softcap > 0)
        v = op->softcap * tanhf(v / op->softcap);
    op->y[(size_t)token * op->y_stride + op->at[p] + n] = v;
}

#endif
