/* Who takes whom: each token goes through a few of many small MLPs (struct routes). Which those are
 * is found in f32 from the row as it is.
 */
#ifndef ZIGCUDA_EXPERTS_ROUTE_CUH
#define ZIGCUDA_EXPERTS_ROUTE_CUH

#include "kernels/cuda/linear_input.cuh"

enum {
    EXPERTS_ROUTED = 8,  /* tokens whose logits are computed at once, at most */
    EXPERTS_ABREAST = 4, /* experts that a warp weighs these for at once */
    EXPERTS_HELD = 4,    /* logits of a lane, mostly */
};

/* Rows times the norm's weights, in shared memory, and 1 / rms of each. */
struct routed {
    float squares[EXPERTS_ROUTED][MATRIX_SLICES], inverse[EXPERTS_ROUTED];
    float row[]; /* [EXPERTS_ROUTED][hidden] */
};
static_assert(sizeof(struct routed) <= EXPERTS_ROUTE_BYTES, "what the host counts on");

/* 1 / rms of a row, from the sums of its slices. */
GPU float experts_inverse(const struct input *in, const float squares[MATRIX_SLICES])
{
    float sum = 0;
#pragma unroll
    for (u32 i = 0; i < MATRIX_SLICES; i++)
        sum += squares[i];
    return 1 / sqrtf(sum / (float)in->features + in->eps);
}

/* sum + a lane's four features times an expert's weights of these. */
GPU float experts_weigh(const float4 &x, const float4 &w, float sum)
{
    return fmaf(x.x, w.x, fmaf(x.y, w.y, fmaf(x.z, w.z, fmaf(x.w, w.w, sum))));
}

/* n rows of `rows` at most. A warp makes a slice. */
template <u32 rows>
GPU void experts_bring_rows(const struct input *in, struct routed *near, u32 token, u32 n)
{
    const struct linear_slice slice = linear_slice_of(in, gpu_warp());
    const float *x = gpu_global(in->x) + (size_t)token * in->stride;
    const float *norm = gpu_global(in->norm);
    float sum[rows] = {};
    for (u32 q = slice.first + gpu_lane(); q < MIN(slice.end, in->features / 4); q += 32) {
        const float4 by = gpu_load<float4>(norm + q * 4);
#pragma unroll
        for (u32 i = 0; i < rows; i++) {
            const float4 v = gpu_load<float4>(x + MIN(i, n - 1) * in->stride + q * 4);
            sum[i] = fmaf(v.x, v.x, sum[i]);
            sum[i] = fmaf(v.y, v.y, sum[i]);
            sum[i] = fmaf(v.z, v.z, sum[i]);
            sum[i] = fmaf(v.w, v.w, sum[i]);
            if (i < n)
                *(float4 *)(near->row + i * in->features + q * 4) = {v.x * by.x, v.y * by.y,
                                                                     v.z * by.z, v.w * by.w};
        }
    }
#pragma unroll
    for (u32 i = 0; i < rows; i++) {
        const float all = gpu_sum_warp(sum[i]);
        if (gpu_lane() == 0)
            near->squares[i][gpu_warp()] = all;
    }
    gpu_sync();
    if (gpu_thread() < n)
        near->inverse[gpu_thread()] = experts_inverse(in, near->squares[gpu_thread()]);
    gpu_sync();
}

/* 32 values of each lane: of a warp together, lane i gets the sum of those of number i in v[0], in
 * gpu_sum_warp's order. */
GPU void experts_sum_each(float v[32])
{
#pragma unroll
    for (u32 s = 0; s < 5; s++) {
        const u32 mask = 16 >> s;
        const bool high = gpu_lane() & mask;
#pragma unroll
        for (u32 i = 0; i < 16; i++)
            if (i < mask) {
                const float kept = high ? v[i + mask] : v[i], given = high ? v[i] : v[i + mask];
                v[i] = kept + gpu_shuffle_xor(given, mask);
            }
    }
}

/* Logits of n tokens of the experts `expert` and on, below `end`, by a warp: what each lane has of
 * a slice, added slice by slice, then over lanes. */
template <u32 tokens, u32 abreast>
GPU void experts_think(const struct op_route *op, const struct routed *near, u32 expert, u32 end,
                       u32 token, u32 n)
{
    const u32 hidden = op->in.features, quads = hidden / 4;
    const u32 slice = linear_slice_of(&op->in, 0).end, last = quads - 1;
    const float *w[abreast];
    static_assert(tokens * abreast == 1 || tokens * abreast == 32, "a sum a lane");
    float all[abreast * tokens] = {}, sum[abreast * tokens] = {};
    float4 v[abreast], next[abreast];
#pragma unroll
    for (u32 e = 0; e < abreast; e++) {
        w[e] = gpu_global(op->router) + (size_t)MIN(expert + e, end - 1) * hidden;
        v[e] = gpu_load<float4>(w[e] + MIN(gpu_lane(), last) * 4);
    }
#pragma unroll 1
    for (u32 first = 0; first < quads; first += 32) { /* no slice ends within these */
        const u32 q = first + gpu_lane();
#pragma unroll
        for (u32 e = 0; e < abreast; e++)
            next[e] = gpu_load<float4>(w[e] + MIN(q + 32, last) * 4);
        if (q < quads)
#pragma unroll
            for (u32 i = 0; i < tokens; i++) {
                const float4 x = gpu_load<float4>(near->row + MIN(i, n - 1) * hidden + q * 4);
#pragma unroll
                for (u32 e = 0; e < abreast; e++)
                    sum[e * tokens + i] = experts_weigh(x, v[e], sum[e * tokens + i]);
            }
        const bool ends = (first + 32) % slice == 0 || first + 32 >= quads;
#pragma unroll
        for (u32 e = 0; e < abreast; e++)
            v[e] = next[e];
        if (ends)
#pragma unroll
            for (u32 i = 0; i < abreast * tokens; i++) {
                all[i] += sum[i];
                sum[i] = 0;
            }
    }
    if constexpr (tokens * abreast == 1)
        all[0] = gpu_sum_warp(all[0]);
    else
        experts_sum_each(all);
    const u32 mine = gpu_lane(), e = mine / tokens, i = mine % tokens;
    if (mine >= tokens * abreast || i >= n || expert + e >= end)
        return;
    const float bias = op->router_bias ? gpu_global(op->router_bias)[expert + e] : -0.0f;
    op->routes.logits[(size_t)(token + i) * op->routes.experts + expert + e] =
        fmaf(all[0], near->inverse[i], bias); /* -0 changes nothing */
}

/* A block takes a token and as many experts as it has warps. */
GPU void experts_route_few(const struct op_route *op, u32 tokens, struct routed *near)
{
    const u32 experts = op->routes.experts, parts = CEIL_DIV(experts, +GPU_WARPS);
    for (u32 item = gpu_block(); item < tokens * parts; item += gpu_blocks()) {
        const u32 token = item / parts, expert = item % parts * GPU_WARPS + gpu_warp();
        experts_bring_rows<1>(&op->in, near, token, 1);
        if (expert < experts)
            experts_think<1, 1>(op, near, expert, experts, token, 1);
        gpu_sync(); /* before other rows come */
    }
}

/* A few tokens, and all experts or, where that leaves blocks idle, some. A function that is called:
 * inlined beside products of four warps, it has ptxas wait for each of these. */
GPU_CALL void experts_route_many(const struct op_route *op, u32 tokens, struct routed *near,
                                 u32 room)
{
    enum { AT_ONCE = GPU_WARPS * EXPERTS_ABREAST };
    const u32 fit = (room - (u32)sizeof *near) / (op->in.features * 4);
    const u32 rows = MIN(fit, (u32)EXPERTS_ROUTED), tiles = CEIL_DIV(tokens, rows);
    const u32 experts = op->routes.experts, share = MAX(gpu_blocks() / tiles, 1u);
    const u32 of = ROUND_UP(CEIL_DIV(experts, share), (u32)AT_ONCE), parts = CEIL_DIV(experts, of);
    for (u32 item = gpu_block(); item < tiles * parts; item += gpu_blocks()) {
        const u32 token = item / parts * rows, n = MIN(rows, tokens - token);
        const u32 first = item % parts * of, end = MIN(first + of, experts);
        experts_bring_rows<EXPERTS_ROUTED>(&op->in, near, token, n);
        for (u32 e = first + gpu_warp() * EXPERTS_ABREAST; e < end; e += AT_ONCE)
            experts_think<EXPERTS_ROUTED, EXPERTS_ABREAST>(op, near, e, end, token, n);
        gpu_sync();
    }
}

/* Begins the count of an expert's tokens, too. few: in `decode`. at: shared memory, to its end. */
template <bool few>
GPU void experts_route(const struct op_route *op, const struct gpu_run *run, u8 *at)
{
    struct routed *near = (struct routed *)at;
    const u32 experts = op->routes.experts, tokens = run->step->n_tokens;
    for (u32 e = gpu_thread(); e < experts && gpu_block() == 0; e += GPU_THREADS)
        op->routes.count[e] = 0;
    if (few || tokens * CEIL_DIV(experts, +GPU_WARPS) <= 2 * gpu_blocks())
        experts_route_few(op, tokens, near);
    else
        experts_route_many(op, tokens, near, run->shared_bytes - (u32)(at - gpu_shared()));
}

/* Softmax over a token's logits: lane i has those of i, i + 32, ..; -INFINITY behind the last. */
template <u32 held> GPU void experts_softmax(float p[held])
{
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (u32 i = 0; i < held; i++)
        most = fmaxf(most, p[i]);
    most = gpu_max_warp(most);
#pragma unroll
    for (u32 i = 0; i < held; i++) {
        p[i] = p[i] == -INFINITY ? 0 : expf(p[i] - most);
        sum += p[i];
    }
    sum = gpu_sum_warp(sum);
#pragma unroll
    for (u32 i = 0; i < held; i++)
        p[i] /= sum;
}

/* The expert with the largest p (of equals the first), which is then taken out. */
template <u32 held> GPU u32 experts_best(float p[held], float *share)
{
    u32 best = 0, at = ~0u;
#pragma unroll
    for (u32 i = 0; i < held; i++)
        if (!(p[i] < 0) && gpu_bits(p[i]) + 1 > best) { /* others compare as their bits do */
            best = gpu_bits(p[i]) + 1;
            at = i * 32 + gpu_lane();
        }
    const u32 most = gpu_most_warp(best);
    at = ~gpu_most_warp(best == most ? ~at : 0);
    *share = gpu_from_bits(most - 1);
#pragma unroll
    for (u32 i = 0; i < held; i++)
        if (i * 32 + gpu_lane() == at)
            p[i] = -1;
    return at;
}

/* Lane i has the token's i-th choice, of which so many come before it in the order of experts. */
struct experts_choice {
    u32 expert, before;
    float share;
};

template <u32 held>
GPU struct experts_choice experts_choice_of(float logits[held], const struct routes *r)
{
    struct experts_choice mine = {~0u, 0, 0};
    float sum = 0;
    experts_softmax<held>(logits);
    for (u32 i = 0; i < r->used; i++) {
        float share;
        const u32 e = experts_best<held>(logits, &share);
        sum += share;
        if (gpu_lane() == i)
            mine.expert = e, mine.share = share;
    }
    for (u32 i = 0; i < r->used; i++)
        mine.before += gpu_shuffle(mine.expert, i) < mine.expert;
    mine.share = r->renormalized ? mine.share / sum : mine.share;
    return mine;
}

template <u32 held>
GPU struct experts_choice experts_choose_token(const struct routes *r, u32 token)
{
    float logits[held];
#pragma unroll
    for (u32 i = 0; i < held; i++) {
        const u32 e = i * 32 + gpu_lane();
        logits[i] = e < r->experts ? r->logits[(size_t)token * r->experts + e] : -INFINITY;
    }
    return experts_choice_of<held>(logits, r);
}

/* A warp takes a token. */
GPU void experts_choose(const struct op_route *op, const struct gpu_step *s)
{
    const struct routes r = op->routes;
    for (u32 token = gpu_block() * GPU_WARPS + gpu_warp(); token < s->n_tokens;
         token += gpu_blocks() * GPU_WARPS) {
        const struct experts_choice mine =
            r.experts <= EXPERTS_HELD * 32 ? experts_choose_token<EXPERTS_HELD>(&r, token)
                                           : experts_choose_token<LIMIT_EXPERTS / 32>(&r, token);
        if (gpu_lane() < r.used) {
            const float by = op->by_expert ? op->by_expert[mine.expert] : 1;
            const u32 nth = gpu_atomic_add(&r.count[mine.expert], 1);
            r.token[(size_t)mine.expert * r.room + nth] = token;
            r.route[(size_t)token * r.used + mine.before] = {mine.expert, nth, mine.share * by, 0};
        }
    }
}

/* In the order of floats, none of them 0. */
GPU u32 experts_rank(float v)
{
    const u32 bits = gpu_bits(v);
    return MAX(bits >> 31 ? ~bits : bits | 1u << 31, 1u);
}

/* As experts_best, of ranks: 0 is taken, or no expert. */
template <u32 held> GPU u32 experts_first(u32 rank[held])
{
    u32 best = 0, at = ~0u;
#pragma unroll
    for (u32 i = 0; i < held; i++)
        if (rank[i] > best) {
            best = rank[i];
            at = i * 32 + gpu_lane();
        }
    const u32 most = gpu_most_warp(best);
    at = ~gpu_most_warp(best == most ? ~at : 0);
#pragma unroll
    for (u32 i = 0; i < held; i++)
        if (i * 32 + gpu_lane() == at)
            rank[i] = 0;
    return at;
}

/* What makes p of a logit: a sigmoid, or a softmax over all of the token's. */
struct experts_chance {
    u32 softmax;
    float most, total;
};

GPU struct experts_chance experts_chance_of(const struct op_route *op, const float *logits)
{
    struct experts_chance c = {op->softmax, -INFINITY, 0};
    const u32 experts = c.softmax ? op->routes.experts : 0;
#pragma unroll 1
    for (u32 e = gpu_lane(); e < experts; e += 32)
        c.most = fmaxf(c.most, logits[e]);
    c.most = gpu_max_warp(c.most);
#pragma unroll 1
    for (u32 e = gpu_lane(); e < experts; e += 32)
        c.total += expf(logits[e] - c.most);
    c.total = gpu_sum_warp(c.total);
    return c;
}

/* One power and one division for both, as this is unrolled for many experts. */
GPU float experts_probability(const struct experts_chance *c, float logit)
{
    const float e = expf(c->softmax ? logit - c->most : -logit);
    return (c->softmax ? e : 1) / (c->softmax ? c->total : 1 + e);
}

/* As experts_choice_of, with a bias. */
template <u32 held>
GPU struct experts_choice experts_choice_biased(const struct op_route *op, u32 token)
{
    const struct routes *r = &op->routes;
    const float *logits = r->logits + (size_t)token * r->experts, *bias = gpu_global(op->bias);
    const struct experts_chance c = experts_chance_of(op, logits);
    struct experts_choice mine = {~0u, 0, 0};
    u32 rank[held];
    float sum = 0;
#pragma unroll
    for (u32 i = 0; i < held; i++) {
        const u32 e = i * 32 + gpu_lane();
        rank[i] = e < r->experts ? experts_rank(experts_probability(&c, logits[e]) + bias[e]) : 0;
    }
    for (u32 i = 0; i < r->used; i++) {
        const u32 e = experts_first<held>(rank);
        if (gpu_lane() == i)
            mine.expert = e, mine.share = experts_probability(&c, logits[e]);
    }
    for (u32 i = 0; i < r->used; i++) {
        mine.before += gpu_shuffle(mine.expert, i) < mine.expert;
        sum += gpu_shuffle(mine.share, i);
    }
    mine.share = r->renormalized ? mine.share / (sum + op->least) : mine.share;
    mine.share *= op->scale;
    return mine;
}

/* As experts_choose. */
GPU_CALL void experts_judge(const struct op_route *op, u32 tokens)
{
    const struct routes *r = &op->routes;
    for (u32 token = gpu_block() * GPU_WARPS + gpu_warp(); token < tokens;
         token += gpu_blocks() * GPU_WARPS) {
        const struct experts_choice mine =
            r->experts <= EXPERTS_HELD * 32 ? experts_choice_biased<EXPERTS_HELD>(op, token)
                                            : experts_choice_biased<LIMIT_EXPERTS / 32>(op, token);
        if (gpu_lane() < r->used) {
            const u32 nth = gpu_atomic_add(&r->count[mine.expert], 1);
            r->token[(size_t)mine.expert * r->room + nth] = token;
            r->route[(size_t)token * r->used + mine.before] = {mine.expert, nth, mine.share, 0};
        }
    }
}

#endif
