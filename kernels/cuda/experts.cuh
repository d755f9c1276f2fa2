/* Mixtures of experts: each token goes through a few of many small MLPs (experts_route.cuh), whose
 * linears are those of experts_few.cuh and, in `step`, experts_many.cuh, on Hopper of
 * experts_broad.cuh and experts_one.cuh, too. What stands before and behind these.
 */
#ifndef ZIGCUDA_EXPERTS_CUH
#define ZIGCUDA_EXPERTS_CUH

#include "kernels/cuda/experts_few.cuh"
#include "kernels/cuda/experts_route.cuh"

/* x += what a token's experts say, or that alone. A warp takes 256 features of a token; a lane
 * twice four of them, of four experts at once. */
GPU void experts_mix(const struct op_mix *op, const struct gpu_step *s, struct experts_places *at)
{
    enum { AT_ONCE = 4 };
    const u32 hidden = op->hidden, pieces = CEIL_DIV(hidden, 256u), n = s->n_tokens * pieces;
    const u32 used = op->routes.used;
    experts_place(&op->routes, at, 1);
    gpu_sync();
    for (u32 item = gpu_block() * GPU_WARPS + gpu_warp(); item < n;
         item += gpu_blocks() * GPU_WARPS) {
        const u32 token = item / pieces, from = item % pieces * 256 + gpu_lane() * 4;
        const struct route *routes = op->routes.route + (size_t)token * used;
        float *x = op->x + (size_t)token * op->x_stride;
        float sum[8] = {};
#pragma unroll 1
        for (u32 first = 0; first < used; first += AT_ONCE) {
            float4 y[AT_ONCE][2];
            float share[AT_ONCE];
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                const struct route r = routes[MIN(first + i, used - 1)];
                const float *of = op->y + (size_t)(at->pair[r.expert] + r.nth) * op->y_stride;
                share[i] = r.share;
                y[i][0] = gpu_load<float4>(of + MIN(from, hidden - 4));
                y[i][1] = gpu_load<float4>(of + MIN(from + 128, hidden - 4));
            }
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (u32 j = 0; j < 2 && first + i < used; j++) {
                    sum[j * 4] = fmaf(share[i], y[i][j].x, sum[j * 4]);
                    sum[j * 4 + 1] = fmaf(share[i], y[i][j].y, sum[j * 4 + 1]);
                    sum[j * 4 + 2] = fmaf(share[i], y[i][j].z, sum[j * 4 + 2]);
                    sum[j * 4 + 3] = fmaf(share[i], y[i][j].w, sum[j * 4 + 3]);
                }
        }
#pragma unroll
        for (u32 j = 0; j < 2; j++)
            if (from + j * 128 < hidden) {
                float4 *to = (float4 *)(x + from + j * 128);
                const float4 old = op->stores ? float4{} : *to;
                *to = {old.x + sum[j * 4], old.y + sum[j * 4 + 1], old.z + sum[j * 4 + 2],
                       old.w + sum[j * 4 + 3]};
            }
    }
}

/* An operation that is no linear. few: in `decode`. */
template <bool few> GPU void experts_beside(const struct op *op, const struct gpu_run *run)
{
    if (op->kind == OP_ROUTE)
        experts_route<few>(&op->route, run, gpu_shared());
    else if (op->kind == OP_CHOOSE)
        experts_choose(&op->route, run->step);
    else
        experts_mix(&op->mix, run->step, (struct experts_places *)gpu_shared());
}

#endif
