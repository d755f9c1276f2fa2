/* Where each expert's pairs are: pairs of a token and an expert lie expert after expert, and those
 * of an expert are computed in tiles.
 */
#ifndef ZIGCUDA_EXPERTS_PLACE_CUH
#define ZIGCUDA_EXPERTS_PLACE_CUH

#include "kernels/cuda/gpu.cuh"

struct experts_places {
    u32 pair[LIMIT_EXPERTS + 1], tile[LIMIT_EXPERTS + 1]; /* first ones; last: how many there are */
};
static_assert(sizeof(struct experts_places) == EXPERTS_PLACES_BYTES, "what the host counts on");

/* Tiles have so many pairs. By the first warp; the block has to meet behind it. */
GPU void experts_place(const struct routes *r, struct experts_places *to, u32 tile)
{
    u32 pairs = 0, tiles = 0;
    if (gpu_warp() != 0)
        return;
    for (u32 first = 0; first <= r->experts; first += 32) {
        const u32 e = first + gpu_lane(), n = e < r->experts ? gpu_load_volatile(&r->count[e]) : 0;
        u32 p = n, t = CEIL_DIV(n, tile), own_t = t;
#pragma unroll
        for (u32 d = 1; d < 32; d *= 2) { /* sums up to each lane */
            const u32 from = gpu_lane() - d, dp = gpu_shuffle(p, from % 32),
                      dt = gpu_shuffle(t, from % 32);
            p += gpu_lane() >= d ? dp : 0;
            t += gpu_lane() >= d ? dt : 0;
        }
        if (e <= r->experts) {
            to->pair[e] = pairs + p - n;
            to->tile[e] = tiles + t - own_t;
        }
        pairs += gpu_shuffle(p, 31);
        tiles += gpu_shuffle(t, 31);
    }
}

/* The expert that has a tile, or a pair, by the first ones of each. */
GPU u32 experts_that_has(const u32 *first, u32 experts, u32 number)
{
    u32 low = 0, high = experts; /* first[low] <= number < first[high] */
    while (high - low > 1) {
        const u32 mid = (low + high) / 2;
        if (first[mid] <= number)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* A tile of outputs and pairs. */
struct experts_item {
    u32 expert, first, n; /* pairs of the expert: from `first` on */
    u32 unit;             /* first of the block's outputs, of the expert's */
};

GPU u32 experts_across(const struct op_experts *op)
{
    return CEIL_DIV(op->units, (u32)GPU_WARPS);
}

/* Tiles have so many pairs. Tiles of outputs first, so that rows of pairs are read together. */
GPU struct experts_item experts_item_of(const struct op_experts *op,
                                        const struct experts_places *at, u32 item, u32 most)
{
    const u32 across = experts_across(op), tile = item / across;
    const u32 e = experts_that_has(at->tile, op->routes.experts, tile);
    const u32 first = (tile - at->tile[e]) * most;
    return {e, first, MIN(at->pair[e + 1] - at->pair[e] - first, most), item % across * GPU_WARPS};
}

#endif
