/* Keys and values of 8 bits (engine.kv_type = int8): how a head at a position becomes bytes, how
 * these lie in pages, and the halves that are seen of them.
 *
 * A key or value head at a position has a scale of its own: the least half that is not below its
 * largest magnitude / 127. A byte is 128 + v / scale, rounded to nearest; what everybody sees, also
 * in the step that it comes from, is the half nearest to (byte - 128) scale. So scores and sums are
 * those of halves (attention_tile.cuh), and a scale of 0 makes zeros of any bytes.
 *
 * A page of a KV head has a byte where a page of halves has a half: dim / 16 chunks of 256 bytes,
 * of which lane i reads 8 at 8 i. Behind them stand the 16 scales, in the order in which lanes want
 * them: keys g, g + 8 at 4 g; of values 2t, 2t + 1, 2t + 8, 2t + 9 at 8 t.
 */
#ifndef ZIGCUDA_ATTENTION_BYTES_CUH
#define ZIGCUDA_ATTENTION_BYTES_CUH

#include "kernels/cuda/attention_tile.cuh"

enum { BYTES_CHUNK = CHUNK_BYTES / 2 };

/* Of a head at a position. */
struct kv_scale {
    u32 half;
    float inverse; /* 0 where the scale is */
};

GPU struct kv_scale kv_scale_of(float largest)
{
    struct kv_scale s;
    const float most = fminf(largest, 65504); /* what halves can be, as for pages of these */
    u16 half = gpu_half(gpu_mul(most, 1 / 127.0f));
    half += gpu_mul(gpu_from_half(half), 127) < most;
    s.half = half;
    s.inverse = half ? gpu_reciprocal(gpu_from_half(half)) : 0;
    return s;
}

/* The bytes of four neighbouring dimensions, the first one lowest. */
GPU u32 kv_bytes(const float v[4], float inverse)
{
    u32 b[4];
#pragma unroll
    for (u32 e = 0; e < 4; e++) { /* 1.5 * 2^23 is a sum's last place */
        float x = fminf(fmaxf(gpu_mul(v[e], inverse), -127), 127);
        b[e] = gpu_bits(x + (12582912 + 128));
    }
    return gpu_permute_bytes(gpu_permute_bytes(b[0], b[1], 0x0040),
                             gpu_permute_bytes(b[2], b[3], 0x0040), 0x5410);
}

/* Where the scale of position `key` of a page stands among the page's, in halves. */
GPU u32 kv_scale_at(bool is_key, u32 key)
{
    return is_key ? key % 8 * 2 + key / 8 : key % 8 / 2 * 4 + key / 8 * 2 + key % 2;
}

/* Two halves of the bytes 0, 1 (or 2, 3) of a word, and their scales. */
GPU u32 kv_halves(u32 bytes, bool high, u32 scales)
{
    const u32 add_1024 = 0x64646464; /* a half of 1024 + n has n in its low byte */
    u32 q = gpu_permute_bytes(bytes, add_1024, high ? 0x4342 : 0x4140);
    return gpu_half2_mul(gpu_half2_sub(q, 0x64806480), scales);
}

/* What a lane has of a chunk of keys, as of a page of halves; both: the scales of g and g + 8. */
GPU uint4 kv_keys(uint2 bytes, u32 both)
{
    const u32 low = gpu_permute_bytes(both, 0, 0x1010), high = gpu_permute_bytes(both, 0, 0x3232);
    return (uint4){kv_halves(bytes.x, false, low), kv_halves(bytes.x, true, low),
                   kv_halves(bytes.y, false, high), kv_halves(bytes.y, true, high)};
}

/* Of a chunk of values; scales: of 2t, 2t + 1 and 2t + 8, 2t + 9. */
GPU uint4 kv_values(uint2 bytes, uint2 scales)
{
    return (uint4){kv_halves(bytes.x, false, scales.x), kv_halves(bytes.x, true, scales.y),
                   kv_halves(bytes.y, false, scales.x), kv_halves(bytes.y, true, scales.y)};
}

/* A lane's scales of the keys, or values, of a page, at their beginning. */
GPU const u8 *kv_scales(const u8 *page, u32 chunks, bool is_key)
{
    return page + chunks * BYTES_CHUNK + (is_key ? gpu_lane() / 4 * 4 : gpu_lane() % 4 * 8);
}

#endif
