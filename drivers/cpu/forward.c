#include "drivers/cpu/forward.h"

#include "drivers/cpu/delta.h"
#include "drivers/cpu/mixture.h"
#include "drivers/cpu/pass.h"
#include "drivers/cpu/short_conv.h"

#include <math.h>

/* --- memory -------------------------------------------------------------------------------- */

void *carve(struct carve *c, size_t bytes)
{
    size_t at = c->bytes;
    c->bytes += ROUND_UP(bytes, (size_t)64);
    return c->base ? c->base + at : NULL;
}

static float *carve_rows(struct carve *c, u32 rows, u32 stride)
{
    return carve(c, (size_t)rows * stride * sizeof(float));
}

/* Floats between rows: whole cache lines, and never a power of two, which would put a column's
 * rows into the same few sets of the cache. */
static u32 stride_of(u32 n)
{
    return ROUND_UP(n, 16u) + 16;
}

/* Of the widest MLP that all tokens take; 0 where there is none. */
static u32 plain_intermediate(const struct model *m)
{
    u32 wide = MAX(m->shared_intermediate, m->own.n);
    for (u32 i = 0; i < m->layers_n; i++)
        if (!m->layers[i].mixture)
            wide = MAX(wide, m->layers[i].intermediate);
    return wide;
}

/* Input features of the widest matrix. */
static u32 k_max(const struct model *m)
{
    u32 mlp = MAX(plain_intermediate(m), m->expert_intermediate);
    return MAX(MAX(m->hidden, model_mixed_n(m)), mlp);
}

static size_t act_bytes_max(const struct forward *f, u32 rows)
{
    return f->linear->act_bytes(rows, k_max(f->model));
}

/* Of an expert both see the input in one form, unless act-order sorts it for each. */
static u32 count_prepares(const struct model *m)
{
    for (u32 i = 0; i < m->layers_n && !m->mlp_ungated; i++)
        for (u32 e = 0; m->layers[i].mixture && e < m->experts; e++) {
            const struct weight *w = m->layers[i].mixture->experts[e].gate_up;
            if (w[0].group_index || w[1].group_index || w[0].kind != w[1].kind)
                return 2;
        }
    return 1;
}

static void layout_routes(struct forward *f, struct carve *c, u32 tokens, struct forward_routes *to)
{
    const struct model *m = f->model;
    u32 routes = tokens * m->experts_used;
    to->first = carve(c, (m->experts + 1) * sizeof *to->first);
    to->active = carve(c, m->experts * sizeof *to->active);
    to->route = carve(c, routes * sizeof *to->route);
    to->row = carve(c, routes * sizeof *to->row);
}

/* mlp and prepared, and what else a mixture of experts takes. */
static void layout_mlp(struct forward *f, struct carve *c)
{
    const struct model *m = f->model;
    u32 routes = f->tile * m->experts_used;
    f->mlp_stride = stride_of((m->mlp_ungated ? 1 : 2) * plain_intermediate(m));
    f->expert_stride = stride_of(model_expert_parts(m) * m->expert_intermediate);
    f->router_stride = ROUND_UP(m->experts, 16u);
    f->prepares = count_prepares(m);
    size_t plain = (size_t)f->tile * f->mlp_stride, mixed = (size_t)routes * f->expert_stride;
    f->mlp = carve(c, MAX(plain, mixed) * sizeof *f->mlp);
    size_t in = f->prepares * f->linear->act_bytes(routes, m->hidden);
    size_t between = f->linear->act_bytes(routes, m->expert_intermediate);
    f->prepared = carve(c, MAX(act_bytes_max(f, f->tile), MAX(in, between)));
    f->routed = carve_rows(c, routes, f->x_stride);
    f->router = carve_rows(c, f->tile, f->router_stride);
    f->share = carve_rows(c, m->shared_gated ? f->tile : 0, 1);
    f->routes = carve(c, routes * sizeof *f->routes);
}

static void layout_step(struct forward *f, struct carve *c)
{
    u32 tokens = f->limits.step_tokens;
    f->token_row = carve(c, tokens * sizeof *f->token_row);
    f->want_index = carve(c, tokens * sizeof *f->want_index);
    f->blocks = carve(c, tokens * sizeof *f->blocks);
    f->wants = carve(c, tokens * sizeof *f->wants);
    f->tiles = carve(c, CEIL_DIV(tokens, f->tile) * sizeof *f->tiles);
    f->results = carve(c, (f->limits.samples + f->limits.scores) * sizeof *f->results);
}

static size_t attention_bytes(const struct model *m)
{
    size_t bytes = 0;
    for (const struct layer *l = m->layers; l < m->layers + m->layers_n; l++) {
        u32 rows = ATTENTION_TOKENS * (m->heads / l->kv_heads);
        bytes = MAX(bytes, attention_scratch_bytes(rows, l->head_dim));
    }
    return bytes;
}

void forward_layout(struct forward *f, struct carve *c)
{
    const struct model *m = f->model;
    u32 rope_dims = 0;
    for (u32 i = 0; i < ROPE_SETS; i++)
        rope_dims = MAX(rope_dims, MAX(m->rope[i].dims, m->rope_long[i].dims));
    f->x_stride = stride_of(m->hidden);
    f->qkv_stride = stride_of(model_row_n(m));
    f->attention_stride = stride_of(model_mixed_n(m));
    f->rope_stride = ROUND_UP(rope_dims, 16u);
    f->own_stride = stride_of(m->layers_n * m->own.n);
    f->x = carve_rows(c, f->tile, f->x_stride);
    f->y = carve_rows(c, f->tile, f->x_stride);
    f->h = carve_rows(c, f->tile, f->x_stride);
    f->qkv = carve_rows(c, f->tile, f->qkv_stride);
    f->attention = carve_rows(c, f->tile, f->attention_stride);
    f->angles = carve_rows(c, f->tile, ROPE_SETS * f->rope_stride);
    f->own = carve_rows(c, m->own.n ? f->tile : 0, f->own_stride);
    f->own_made = carve_rows(c, m->own.n ? f->tile : 0, f->own_stride);
    layout_mlp(f, c);
    layout_step(f, c);
    struct forward_worker *workers = carve(c, f->threads * sizeof *workers);
    for (u32 i = 0; i < f->threads; i++) {
        struct forward_worker w = {0};
        w.rows = carve_rows(c, FEW_ROWS, f->x_stride);
        w.prepared = carve(c, act_bytes_max(f, FEW_ROWS));
        w.scratch = carve(c, f->linear->scratch_bytes(k_max(m)));
        w.few_routes = carve(c, FEW_ROWS * m->experts_used * sizeof *w.few_routes);
        layout_routes(f, c, f->tile, &w.routes);
        w.attention = carve(c, attention_bytes(m));
        w.delta = carve(c, delta_work_floats(&m->delta) * sizeof *w.delta);
        if (workers)
            workers[i] = w;
    }
    f->workers = workers;
}

void forward_layout_sampling(struct forward *f, struct carve *c)
{
    u32 vocab = f->model->vocab;
    f->logits_stride = ROUND_UP(vocab, 16u);
    f->logits = carve_rows(c, f->head_rows, f->logits_stride);
    for (u32 i = 0; i < f->threads; i++) {
        struct sample_scratch s;
        s.z = carve(c, vocab * sizeof *s.z);
        s.key = carve(c, vocab * sizeof *s.key);
        s.index = carve(c, vocab * sizeof *s.index);
        if (f->workers)
            f->workers[i].sample = s;
    }
    struct sample_counts *counts = carve(c, f->limits.slots * sizeof *counts);
    for (u32 i = 0; i < f->limits.slots; i++) {
        struct sample_counts s;
        s.output = carve(c, vocab * sizeof *s.output);
        s.prompt = carve(c, vocab * sizeof *s.prompt);
        if (counts)
            counts[i] = s;
    }
    f->counts = counts;
}

/* --- cutting a step ------------------------------------------------------------------------ */

static void cut_row_piece(struct forward *f, struct forward_tile *tile, u32 row_index, u32 from,
                          u32 to)
{
    const struct step_row *row = &f->step->rows[row_index];
    u32 blocks = 0;
    for (u32 t = from; t < to; blocks++) {
        u32 pos = row->pos + (t - row->first);
        u32 n = MIN(to - t, ATTENTION_TOKENS - pos % ATTENTION_TOKENS);
        f->blocks[tile->block + tile->blocks++] = (struct forward_block){row_index, t, n};
        t += n;
    }
    tile->one_block_per_row &= blocks <= 1;
    tile->hands_over |= row->hidden && to == row->first + row->n;
    for (u32 t = from; t < to; t++) {
        bool sampled = t + row->samples >= row->first + row->n;
        f->token_row[t] = row_index;
        if (!sampled && !row->logits && !row->scores)
            continue;
        u32 at = tile->want + tile->wants++;
        f->wants[at] = (struct forward_want){row_index, t, NULL};
        f->want_index[at] = t - tile->token;
        if (sampled || row->scores)
            f->wants[at].result = &f->results[f->n_results++];
    }
}

void forward_begin(struct forward *f, const struct step *step)
{
    f->step = step;
    atomic_store_explicit(&f->ticket, 0, memory_order_relaxed);
    f->n_tiles = CEIL_DIV(step->n_tokens, f->tile);
    f->n_results = 0;
    u32 row = 0, block = 0, want = 0;
    for (u32 i = 0; i < f->n_tiles; i++) {
        struct forward_tile *tile = &f->tiles[i];
        u32 from = i * f->tile, to = MIN(from + f->tile, step->n_tokens);
        *tile = (struct forward_tile){from, to - from, block, 0, want, 0, true, false};
        while (from < to) { /* rows lie one behind the other in step.tokens */
            const struct step_row *r = &step->rows[row];
            u32 end = MIN(r->first + r->n, to);
            cut_row_piece(f, tile, row, from, end);
            row += end == r->first + r->n;
            from = end;
        }
        block += tile->blocks;
        want += tile->wants;
    }
}

/* --- the pass: everything below runs in the workers ---------------------------------------- */

/* x = (x + W in) * scale, W in through a norm where the family has one after the block; without one
 * scale is 1. Ends with a barrier. */
static void add_product(const struct pass *p, const struct packed *w, struct input *in,
                        const float *norm_after, float scale)
{
    struct forward *f = p->f;
    struct range r;
    make_ready(p, in, w);
    for (struct deal d = deal_out(p, tiles_of(p, w)); next_tiles(p, &d, &r);) {
        struct range c = multiply(p, w, &in->a, f->y, f->x_stride, r);
        for (u32 i = 0; !norm_after && i < in->a.m; i++) {
            size_t at = (size_t)i * f->x_stride + c.from;
            f->vector->add(f->x + at, f->y + at, c.to - c.from);
        }
    }
    barrier(p);
    if (!norm_after)
        return;
    r = share(p, in->a.m, 1);
    for (u32 i = r.from; i < r.to; i++) {
        float *y = f->y + (size_t)i * f->x_stride, *x = f->x + (size_t)i * f->x_stride;
        f->vector->rmsnorm(y, y, norm_after, f->model->hidden, f->model->norm_eps);
        f->vector->add(x, y, f->model->hidden);
        if (scale != 1)
            f->vector->scale(x, scale, f->model->hidden);
    }
    barrier(p);
}

static void embed(const struct pass *p)
{
    struct forward *f = p->f;
    const struct model *m = f->model;
    struct range r = share(p, p->tile->n, 1);
    for (u32 i = r.from; i < r.to; i++) {
        u32 token = p->tile->token + i;
        const struct step_row *row = &f->step->rows[f->token_row[token]];
        float *x = f->x + (size_t)i * f->x_stride;
        f->linear->row(&f->embed, f->step->tokens[token], x);
        if (m->embed_scale != 1)
            f->vector->scale(x, m->embed_scale, m->hidden);
        const struct rope *rope = row->rope_long ? m->rope_long : m->rope;
        for (u32 set = 0; set < ROPE_SETS; set++)
            if (rope[set].dims)
                vector_rope_table(f->angles + ((size_t)i * ROPE_SETS + set) * f->rope_stride,
                                  rope[set].freq, rope[set].dims, row->pos + token - row->first,
                                  rope[set].scale);
    }
    barrier(p);
}

/* The per-layer inputs of the tile's tokens, from x as the first layer gets it. */
static void make_own_inputs(const struct pass *p)
{
    struct forward *f = p->f;
    const struct own_inputs *own = &f->model->own;
    u32 n = p->tile->n, hidden = f->model->hidden, all = f->model->layers_n * own->n;
    struct input in = input_rows(p, f->x, f->x_stride, n, hidden, NULL, NULL);
    multiply_group(p, &f->own_project, 1, &in, f->own_made, f->own_stride);
    barrier(p);
    struct range r = share(p, n, 1);
    for (u32 i = r.from; i < r.to; i++) {
        float *to = f->own + (size_t)i * f->own_stride, *made = f->own_made + (to - f->own);
        /* what is normed is divided by sqrt(hidden): eps takes part in that alone */
        for (u32 at = 0; at < all; at += own->n)
            f->vector->rmsnorm(made + at, made + at, f->norm_own, own->n,
                               f->model->norm_eps * (float)hidden);
        f->linear->row(&f->own_embed, f->step->tokens[p->tile->token + i], to);
        f->vector->scale(to, own->scale * (float)M_SQRT1_2, all);
        f->vector->add(to, made, all);
    }
    barrier(p);
}

/* What a layer does with its own. */
static void add_own_input(const struct pass *p, u32 layer)
{
    struct forward *f = p->f;
    const struct model *m = f->model;
    const struct forward_layer *l = &f->layers[layer];
    u32 n = p->tile->n;
    struct input in = input_rows(p, f->x, f->x_stride, n, m->hidden, NULL, NULL);
    struct range r;
    make_ready(p, &in, &l->own_gate);
    for (struct deal d = deal_out(p, tiles_of(p, &l->own_gate)); next_tiles(p, &d, &r);) {
        struct range c = multiply(p, &l->own_gate, &in.a, f->mlp, f->mlp_stride, r);
        for (u32 i = 0; i < n; i++)
            f->vector->gate(f->mlp + (size_t)i * f->mlp_stride + c.from,
                            f->own + (size_t)i * f->own_stride + layer * m->own.n + c.from,
                            c.to - c.from, m->activation);
    }
    barrier(p);
    in = input_rows(p, f->mlp, f->mlp_stride, n, m->own.n, NULL, NULL);
    add_product(p, &l->own_out, &in, l->norm[NORM_AFTER_OWN], m->layers[layer].scale);
}

static void norm_heads(const struct forward *f, float *x, const float *norm, u32 dim, u32 heads)
{
    for (u32 h = 0; h < heads; h++)
        f->vector->rmsnorm(x + h * dim, x + h * dim, norm, dim, f->model->norm_eps);
}

/* Pairs of neighbours x0 y0 x1 y1 .. -> halves x0 x1 .. y0 y1 ..: scores are the same in any order
 * that q and k have in common. */
static void part_pairs(float *x, u32 dims, u32 dim, u32 heads)
{
    float y[LIMIT_HEAD_DIM / 2];
    for (u32 h = 0; h < heads; h++, x += dim) {
        for (u32 i = 0; i < dims / 2; i++) {
            y[i] = x[2 * i + 1];
            x[i] = x[2 * i];
        }
        memcpy(x + dims / 2, y, dims / 2 * sizeof *y);
    }
}

/* Norms the queries of each token, and its keys. */
static void norm_rows(const struct pass *p, const struct forward_layer *l)
{
    struct forward *f = p->f;
    const struct model *m = f->model;
    const u32 q_n = m->heads * m->head_dim, k_n = m->kv_heads * m->head_dim; /* of all layers */
    struct range r = share(p, p->tile->n, 1);
    for (u32 i = r.from; i < r.to; i++) {
        float *q = f->qkv + (size_t)i * f->qkv_stride, *k = q + q_n;
        f->vector->rmsnorm(q, q, l->norm[NORM_Q], q_n, m->norm_eps);
        f->vector->rmsnorm(k, k, l->norm[NORM_K], k_n, m->norm_eps);
    }
    barrier(p);
}

/* The queries of a KV head of the layer at a row of the tile: with gates, [group][dim] and as many
 * of these. */
static float *queries_at(const struct forward *f, const struct layer *l, u32 at, u32 kv_head)
{
    const struct model *m = f->model;
    const u32 n = m->heads / l->kv_heads * l->head_dim * (1 + m->attention_gated);
    return f->qkv + (size_t)at * f->qkv_stride + kv_head * n;
}

/* [group][query, gate][dim] -> [query, gate][group][dim]. work: [group][dim] */
static void part_gates(float *q, u32 dim, u32 group, float *work)
{
    const size_t bytes = dim * sizeof *q;
    for (u32 h = 0; h < group; h++) {
        memcpy(work + h * dim, q + (2 * h + 1) * dim, bytes);
        memmove(q + h * dim, q + 2 * h * dim, bytes);
    }
    memcpy(q + group * dim, work, group * bytes);
}

/* Norms and rotates the queries and the key of one KV head for a block's tokens, and stores key and
 * value in the pages; of layers that see those of another, the queries alone. */
static void store_block(const struct pass *p, u32 layer, const struct forward_block *b, u32 kv_head)
{
    struct forward *f = p->f;
    const struct model *m = f->model;
    const struct forward_layer *l = &f->layers[layer];
    const struct layer *shape = &m->layers[layer];
    const struct step_row *row = &f->step->rows[b->row];
    u32 dim = shape->head_dim, group = m->heads / shape->kv_heads, set = shape->rope;
    const bool stores = layer_stores(m, shape);
    u32 dims = set == ROPE_SETS ? 0 : (row->rope_long ? m->rope_long : m->rope)[set].dims;
    for (u32 t = b->token; t < b->token + b->n; t++) {
        u32 at = t - p->tile->token, pos = row->pos + t - row->first;
        float *q = queries_at(f, shape, at, kv_head);
        float *k = queries_at(f, shape, at, shape->kv_heads) + kv_head * dim;
        float *v = k + shape->kv_heads * dim;
        const float *cs = f->angles + ((size_t)at * ROPE_SETS + set) * f->rope_stride;
        if (m->attention_gated)
            part_gates(q, dim, group,
                       f->attention + (size_t)at * f->attention_stride + kv_head * group * dim);
        if (m->qk_norm == QK_NORM_HEADS)
            norm_heads(f, q, l->norm[NORM_Q], dim, group);
        if (m->rope_pairs)
            part_pairs(q, dims, dim, group);
        if (dims)
            f->vector->rope(q, cs, dims, dim, group);
        if (m->qk_norm == QK_NORM_TURNED)
            norm_heads(f, q, l->norm[NORM_Q], dim, group);
        for (u32 i = 0; m->query_scale && i < group * dim; i++)
            q[i] *= m->query_scale[pos / m->query_span];
        if (!stores)
            continue;
        if (m->qk_norm == QK_NORM_HEADS)
            norm_heads(f, k, l->norm[NORM_K], dim, 1);
        if (m->v_norm)
            norm_heads(f, v, f->ones, dim, 1);
        if (m->rope_pairs)
            part_pairs(k, dims, dim, 1);
        if (dims)
            f->vector->rope(k, cs, dims, dim, 1);
        if (m->qk_norm == QK_NORM_TURNED)
            norm_heads(f, k, l->norm[NORM_K], dim, 1);
        f->vector->kv_write(&l->kv, k, v, row->pages[pos / LIMIT_PAGE_TOKENS],
                            pos % LIMIT_PAGE_TOKENS, kv_head);
    }
}

static void attend_block(const struct pass *p, u32 layer, const struct forward_block *b,
                         u32 kv_head)
{
    struct forward *f = p->f;
    const struct model *m = f->model;
    const struct layer *shape = &m->layers[layer];
    const struct step_row *row = &f->step->rows[b->row];
    const u32 group = m->heads / shape->kv_heads, n = group * shape->head_dim;
    const u32 at = b->token - p->tile->token;
    float *out = f->attention + (size_t)at * f->attention_stride;
    f->vector->attention(
        &(struct attention_args){
            .q = queries_at(f, shape, at, kv_head) - kv_head * n, /* where it looks for them */
            .q_stride = f->qkv_stride,
            .out = out,
            .out_stride = f->attention_stride,
            .kv = &f->layers[layer].kv,
            .pages = row->pages,
            .pos = row->pos + b->token - row->first,
            .tokens = b->n,
            .window = shape->window,
            .sinks = f->layers[layer].sinks,
            .group = group,
            .scale = m->attention_scale,
            .softcap = m->attention_softcap,
        },
        kv_head, p->mine->attention);
    for (u32 i = 0; m->attention_gated && i < b->n; i++) {
        float *gates = queries_at(f, shape, at + i, kv_head) + n, *to = out + kv_head * n;
        f->vector->gate(gates, to + i * f->attention_stride, n, ACT_SIGMOID);
        memcpy(to + i * f->attention_stride, gates, n * sizeof *to);
    }
}

/* The same worker stores and attends one (block, KV head), so that only keys of other blocks of
 * the same sequence need a barrier in between. */
static void attend(const struct pass *p, u32 layer)
{
    const struct forward *f = p->f;
    u32 kv_heads = f->model->layers[layer].kv_heads, items = p->tile->blocks * kv_heads;
    const struct forward_block *blocks = f->blocks + p->tile->block;
    if (f->model->qk_norm == QK_NORM_ROWS)
        norm_rows(p, &f->layers[layer]);
    for (u32 i = p->id; i < items; i += f->threads)
        store_block(p, layer, &blocks[i / kv_heads], i % kv_heads);
    if (!p->tile->one_block_per_row)
        barrier(p);
    for (u32 i = p->id; i < items; i += f->threads)
        attend_block(p, layer, &blocks[i / kv_heads], i % kv_heads);
    barrier(p);
}

/* act(gate) * up of rows that are normed. Ends with a barrier. */
static void gate_up(const struct pass *p, const struct forward_layer *l, struct input *in, u32 wide)
{
    struct forward *f = p->f;
    u32 n = p->tile->n, parts = f->model->n_gate_up;
    struct range r;
    if (f->model->mlp_ungated ||
        (parts == 2 && f->linear->act_shared(&l->gate_up[0], &l->gate_up[1]))) {
        make_ready(p, in,
                   &l->gate_up[0]); /* the same columns of both: no barrier before the gate */
        for (struct deal d = deal_out(p, tiles_of(p, &l->gate_up[0])); next_tiles(p, &d, &r);) {
            struct range c = multiply(p, &l->gate_up[0], &in->a, f->mlp, f->mlp_stride, r);
            if (parts == 2)
                multiply(p, &l->gate_up[1], &in->a, f->mlp + wide, f->mlp_stride, r);
            gate(f, f->mlp, f->mlp_stride, n, wide, c);
        }
    } else {
        multiply_group(p, l->gate_up, parts, in, f->mlp, f->mlp_stride);
        barrier(p);
        gate(f, f->mlp, f->mlp_stride, n, wide, share(p, wide, 64));
    }
    barrier(p);
}

static void mlp(const struct pass *p, u32 layer)
{
    struct forward *f = p->f;
    const struct forward_layer *l = &f->layers[layer];
    const struct layer *shape = &f->model->layers[layer];
    u32 n = p->tile->n, wide = shape->intermediate;
    struct input in =
        input_rows(p, f->x, f->x_stride, n, f->model->hidden, l->norm[NORM_MLP], NULL);
    gate_up(p, l, &in, wide);
    in = input_rows(p, f->mlp, f->mlp_stride, n, wide, NULL, NULL);
    add_product(p, &l->down, &in, l->norm[NORM_AFTER_MLP], f->model->own.n ? 1 : shape->scale);
}

/* y = what the expert says that all tokens take, if gated times the token's share of it, or behind
 * a norm. Ends with a barrier. */
static void shared_expert(const struct pass *p, const struct forward_layer *l)
{
    struct forward *f = p->f;
    u32 n = p->tile->n, wide = f->model->shared_intermediate, hidden = f->model->hidden;
    struct input in = input_rows(p, f->x, f->x_stride, n, hidden, l->norm[NORM_MLP], NULL);
    struct range r = share(p, n, 1); /* of rows that this worker has normed */
    bool gated = l->mixture->share != NULL;
    for (u32 i = r.from; gated && i < r.to; i++)
        f->share[i] = mixture_share(l->mixture, in.a.x + (size_t)i * in.a.x_stride, hidden);
    gate_up(p, l, &in, wide);
    in = input_rows(p, f->mlp, f->mlp_stride, n, wide, NULL, NULL);
    make_ready(p, &in, &l->down);
    for (struct deal d = deal_out(p, tiles_of(p, &l->down)); next_tiles(p, &d, &r);) {
        struct range c = multiply(p, &l->down, &in.a, f->y, f->x_stride, r);
        for (u32 i = 0; gated && i < n; i++)
            f->vector->scale(f->y + (size_t)i * f->x_stride + c.from, f->share[i], c.to - c.from);
    }
    barrier(p);
    const float *norm = l->mixture->norm_after_shared;
    r = share(p, n, 1);
    for (u32 i = r.from; norm && i < r.to; i++) {
        float *y = f->y + (size_t)i * f->x_stride;
        f->vector->rmsnorm(y, y, norm, hidden, f->model->norm_eps);
    }
    if (norm)
        barrier(p);
}

static void layer_pass(const struct pass *p, u32 layer)
{
    struct forward *f = p->f;
    const struct model *m = f->model;
    const struct forward_layer *l = &f->layers[layer];
    u32 n = p->tile->n;
    struct input in = input_rows(p, f->x, f->x_stride, n, m->hidden, l->norm[NORM_ATTENTION], NULL);
    u32 inputs;
    layer_inputs(m, &m->layers[layer], &inputs);
    multiply_group(p, l->delta ? l->delta->in : l->qkv, inputs, &in, f->qkv, f->qkv_stride);
    barrier(p);
    if (l->delta)
        delta_pass(p, l);
    else if (l->conv)
        short_conv_pass(p, l);
    else
        attend(p, layer);
    in = input_rows(p, f->attention, f->attention_stride, n, l->o.w->k, NULL, NULL);
    add_product(p, &l->o, &in, l->norm[NORM_AFTER_ATTENTION], 1);
    if (l->mixture && m->shared_intermediate)
        shared_expert(p, l);
    if (l->mixture)
        mixture_pass(p, l, m->layers[layer].scale);
    else if (layer_has_mlp(&m->layers[layer]))
        mlp(p, layer);
    if (m->own.n)
        add_own_input(p, layer);
}

/* Hands a token's logits over, and samples the next token or says what they say of it. */
static void deliver(const struct pass *p, const struct forward_want *want, const float *logits)
{
    struct forward *f = p->f;
    const struct step_row *row = &f->step->rows[want->row];
    u32 vocab = f->model->vocab;
    if (row->logits)
        memcpy(row->logits + (size_t)(want->token - row->first) * vocab, logits,
               vocab * sizeof *logits);
    if (!want->result)
        return;
    struct sample_counts *counts = &f->counts[row->slot];
    u32 at = want->token - row->first;
    *want->result = (struct step_result){.slot = row->slot};
    if (at < step_row_scores(row)) {
        want->result->token = step_row_behind(f->step, row, at);
        sample_logprobs(row->sampling, logits, vocab, want->result);
        return;
    }
    u32 nth = row->samples - (row->n - at);
    sample_token(row->sampling, logits, vocab,
                 row->masks ? row->masks + (size_t)nth * MASK_WORDS(vocab) : NULL, row->pos + at,
                 row->outputs + nth, counts, &p->mine->sample, want->result);
    if (sampling_counts(row->sampling)) /* of others several may be sampled at once */
        sample_count(counts, want->result->token);
}

static void head(const struct pass *p)
{
    struct forward *f = p->f;
    const struct model *m = f->model;
    for (u32 done = 0; done < p->tile->wants; done += f->head_rows) {
        u32 first = p->tile->want + done, n = MIN(f->head_rows, p->tile->wants - done);
        struct input in =
            input_rows(p, f->x, f->x_stride, n, m->hidden, f->norm_final, f->want_index + first);
        struct range r;
        make_ready(p, &in, f->head);
        for (struct deal d = deal_out(p, tiles_of(p, f->head)); next_tiles(p, &d, &r);) {
            struct range c = multiply(p, f->head, &in.a, f->logits, f->logits_stride, r);
            for (u32 i = 0; m->logit_softcap > 0 && i < n; i++)
                f->vector->softcap(f->logits + (size_t)i * f->logits_stride + c.from, c.to - c.from,
                                   m->logit_softcap);
        }
        barrier(p);
        for (u32 i = p->id; i < n; i += f->threads)
            deliver(p, &f->wants[first + i], f->logits + (size_t)i * f->logits_stride);
        barrier(p);
    }
}

/* Of rows whose last token lies in this tile, before the next one writes x. */
static void hand_over(const struct pass *p)
{
    const struct forward *f = p->f;
    for (u32 i = p->id; i < p->tile->blocks; i += f->threads) {
        const struct forward_block *b = &f->blocks[p->tile->block + i];
        const struct step_row *row = &f->step->rows[b->row];
        u32 last = b->token + b->n - 1;
        if (row->hidden && last == row->first + row->n - 1)
            memcpy(row->hidden, f->x + (size_t)(last - p->tile->token) * f->x_stride,
                   f->model->hidden * sizeof *row->hidden);
    }
    barrier(p);
}

void forward_run(void *arg, u32 worker)
{
    struct forward *f = arg;
    u32 deals = 0;
    for (u32 t = 0; t < f->n_tiles; t++) {
        struct pass p = {f, &f->workers[worker], &f->tiles[t], worker, &deals};
        embed(&p);
        if (f->model->own.n)
            make_own_inputs(&p);
        for (u32 l = 0; l < f->model->layers_n; l++)
            layer_pass(&p, l);
        if (p.tile->hands_over)
            hand_over(&p);
        head(&p);
    }
}
