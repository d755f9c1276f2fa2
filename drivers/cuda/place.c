#include "drivers/cuda/place.h"

#include "drivers/cuda/matrix.h"

#include <math.h>

const float *place_vector(struct list *l, struct vram *s, struct list_vector v)
{
    v.to = vram_pointer(s, (size_t)v.n * sizeof *v.to);
    ASSERT(l->n_vectors < l->most_vectors);
    l->vectors[l->n_vectors++] = v;
    return v.to;
}

static const float *norm(struct list *l, struct vram *s, const struct tensor *t, u32 n)
{
    return t ? place_vector(l, s, (struct list_vector){.tensor = t, .scale = 1, .n = n}) : NULL;
}

/* A vector of a delta net. */
static const float *as_is(struct list *l, struct vram *s, const struct tensor *t, u32 n)
{
    return place_vector(l, s, (struct list_vector){.tensor = t, .scale = 1, .as_is = true, .n = n});
}

struct gpu_rope place_rope(struct list *l, struct vram *s, const struct rope *r)
{
    if (!r->dims)
        return (struct gpu_rope){0};
    struct list_vector v = {.values = r->freq, .n = r->dims / 2};
    return (struct gpu_rope){place_vector(l, s, v), r->dims, r->scale};
}

u32 place_mlp_n(const struct model *m, const struct layer *layer)
{
    return layer->mixture ? m->shared_intermediate : layer->intermediate;
}

bool place_shares(const struct model *m, const struct layer *layer)
{
    if (layer->mixture && !m->shared_intermediate)
        return true;
    if (m->mlp_ungated || !place_mlp_n(m, layer))
        return false;
    if (m->n_gate_up == 1) /* parts of a weight begin at whole words of it */
        return layer->intermediate % 16 == 0;
    return matrix_can_share(&layer->gate_up[0], &layer->gate_up[1]);
}

static void place_mlp(struct list *l, struct vram *s, const struct layer *from, struct parts *to)
{
    const struct model *m = l->model;
    if (from->mixture) {
        to->expert_up = matrix_place_experts(l, s, from->mixture, false);
        to->expert_down = matrix_place_experts(l, s, from->mixture, true);
    }
    if (!place_mlp_n(m, from))
        return;
    if (place_shares(m, from)) {
        to->gate_up = matrix_place_pair(l, s, &from->gate_up[0], &from->gate_up[m->n_gate_up - 1]);
    } else {
        to->gate_up = matrix_place_rows(l, s, from->gate_up, m->n_gate_up);
    }
    to->down = matrix_place(l, s, &from->down);
}

void place_weights(struct list *l, struct vram *s, const struct layer *from, struct parts *to)
{
    const struct model *m = l->model;
    if (from->delta) { /* b and a are often of another kind than the rest */
        const u32 all = delta_inputs(&m->delta), first = CEIL_DIV(all, 2u);
        to->qkv = matrix_place_rows(l, s, from->delta->in, first);
        matrix_place_rows(l, s, &from->delta->in[first], all - first);
    } else {
        u32 n;
        layer_inputs(m, from, &n);
        to->qkv = matrix_place_rows(l, s, from->qkv, n);
    }
    to->o = matrix_place(l, s, &from->o);
    place_mlp(l, s, from, to);
    if (m->own.n) {
        to->own_gate = matrix_place(l, s, &from->own_gate);
        to->own_out = matrix_place(l, s, &from->own_out);
    }
}

/* Beside scores that are multiplied by log2(e). */
static const float *sinks(struct list *l, struct vram *s, const struct tensor *t)
{
    const float log2_e = 1.44269504f;
    return t ? place_vector(l, s,
                            (struct list_vector){
                                .tensor = t, .scale = log2_e, .as_is = true, .n = l->model->heads})
             : NULL;
}

static void place_norms(struct list *l, struct vram *s, const struct layer *from, struct parts *to)
{
    const struct model *m = l->model;
    to->norm_attention = norm(l, s, from->norm_attention, m->hidden);
    to->norm_mlp = norm(l, s, from->norm_mlp, m->hidden);
    to->norm_after_attention = norm(l, s, from->norm_after_attention, m->hidden);
    to->norm_after_mlp = norm(l, s, from->norm_after_mlp, m->hidden);
    to->norm_after_own = norm(l, s, from->norm_after_own, m->hidden);
    to->norm_q = norm(l, s, from->norm_q, layer_qk_norm_n(m, from, m->heads));
    to->norm_k = norm(l, s, from->norm_k, layer_qk_norm_n(m, from, from->kv_heads));
    to->sinks = sinks(l, s, from->sinks);
    if (from->mixture)
        to->router = place_vector(
            l, s,
            (struct list_vector){.router = &from->mixture->router, .n = m->experts * m->hidden});
    if (from->mixture && from->mixture->router.bias)
        to->router_bias = place_vector(
            l, s, (struct list_vector){.biased = &from->mixture->router, .n = m->experts});
    if (from->mixture)
        to->bias = norm(l, s, from->mixture->bias, m->experts);
    if (from->mixture && m->shared_gated)
        to->share = place_vector(
            l, s, (struct list_vector){.router = &from->mixture->share, .n = m->hidden});
}

static void place_mixture_norms(struct list *l, struct vram *s, const struct mixture_norms *from,
                                struct parts *to)
{
    const u32 hidden = l->model->hidden;
    to->norm_router = place_vector(
        l, s,
        (struct list_vector){
            .tensor = from->router, .scale = 1 / sqrtf((float)hidden), .as_is = true, .n = hidden});
    to->norm_experts = as_is(l, s, from->experts, hidden);
    to->norm_after_shared = as_is(l, s, from->after_shared, hidden);
    to->norm_after_experts = as_is(l, s, from->after_experts, hidden);
    to->by_expert = as_is(l, s, from->scale, l->model->experts);
}

static const float *conv(struct list *l, struct vram *s, const struct weight *w)
{
    return place_vector(l, s, (struct list_vector){.conv = w, .n = w->n * w->k});
}

/* What Mamba has besides, and its norm. */
static void place_mamba(struct list *l, struct vram *s, const struct delta_net *from,
                        struct parts *to)
{
    const struct delta_shape *d = &l->model->delta;
    if (from->conv_bias)
        to->delta.conv_bias = place_vector(l, s,
                                           (struct list_vector){.tensor = from->conv_bias,
                                                                .scale = 1,
                                                                .as_is = true,
                                                                .of_conv = true,
                                                                .n = delta_channels(d)});
    to->delta.skip = as_is(l, s, from->skip, d->value_heads);
    const float *norm = as_is(l, s, from->norm, delta_values(d));
    if (d->norm_groups > 1)
        to->delta.norm = norm;
    else
        to->norm_mixed = norm;
}

static void place_delta(struct list *l, struct vram *s, const struct delta_net *from,
                        struct parts *to)
{
    const struct delta_shape *d = &l->model->delta;
    to->delta.conv = conv(l, s, &from->conv);
    to->delta.a_log = as_is(l, s, from->a_log, d->value_heads);
    to->delta.dt_bias = as_is(l, s, from->dt_bias, d->value_heads);
    if (d->mamba)
        place_mamba(l, s, from, to);
    else
        to->delta.norm = as_is(l, s, from->norm, d->value_dim);
}

void place_vectors(struct list *l, struct vram *s, const struct layer *from, struct parts *to)
{
    place_norms(l, s, from, to);
    if (from->delta)
        place_delta(l, s, from->delta, to);
    if (from->mixture && from->mixture->norms)
        place_mixture_norms(l, s, from->mixture->norms, to);
    if (from->conv)
        to->delta.conv = conv(l, s, from->conv);
}
