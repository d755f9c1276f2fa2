#include "drivers/cpu/delta.h"

#include <math.h>

/* n channels of the convolution from `channel` on, whose inputs are columns of f->qkv from `column`
 * on. */
struct channels {
    u32 channel, column, n;
};

/* A state is [value_heads][key_dim][value_dim], and behind it [taps - 1][channels]. */
static float *past_of(const struct delta_shape *d, const struct stretch *s)
{
    return s->state + (size_t)delta_values(d) * d->key_dim;
}

static u32 column_of(const struct delta_shape *d, enum delta_part part, u32 key_head)
{
    const struct delta_place place = delta_place(d, part);
    return place.at + key_head * place.step;
}

/* Inputs of channels c at token i, from the first in `past` on. */
static const float *inputs_at(const struct forward *f, const struct stretch *s, u32 i,
                              struct channels c)
{
    const struct delta_shape *d = &f->model->delta;
    const u32 before = d->taps - 1;
    return i < before ? past_of(d, s) + (size_t)i * delta_channels(d) + c.channel
                      : row_at(f, s->at + i - before) + c.column;
}

/* y[c.n] at token i of the stretch. */
static void convolve(const struct forward *f, const struct forward_delta *l,
                     const struct stretch *s, u32 i, struct channels c, float *y)
{
    const struct delta_shape *d = &f->model->delta;
    const float *x[LIMIT_DELTA_TAPS];
    for (u32 j = 0; j < d->taps; j++)
        x[j] = inputs_at(f, s, i + j, c);
    f->vector->conv(y, x, l->conv + c.channel, delta_channels(d), d->taps, c.n, true);
}

/* Before the stretch, if it is the sequence's first. */
static void forget_inputs(const struct forward *f, const struct stretch *s, struct channels c)
{
    const struct delta_shape *d = &f->model->delta;
    for (u32 j = 0; j + 1 < d->taps && s->first; j++)
        memset(past_of(d, s) + (size_t)j * delta_channels(d) + c.channel, 0, c.n * sizeof(float));
}

/* Behind it. */
static void keep_inputs(const struct forward *f, const struct stretch *s, struct channels c)
{
    const struct delta_shape *d = &f->model->delta;
    for (u32 j = 0; j + 1 < d->taps; j++) {
        float *to = past_of(d, s) + (size_t)j * delta_channels(d) + c.channel;
        memcpy(to, inputs_at(f, s, s->n + j, c), c.n * sizeof *to);
        if (s->kept)
            memcpy(s->kept + (to - s->state), to, c.n * sizeof *to);
    }
}

/* What a worker has in hand: of DELTA_TOKENS tokens q, k, v of a head, decay and beta. */
struct hand {
    float *q, *k, *v, *decay, *beta;
};

static struct hand hand_of(const struct delta_shape *d, float *work)
{
    struct hand h = {.q = work};
    h.k = h.q + DELTA_TOKENS * d->key_dim;
    h.v = h.k + DELTA_TOKENS * d->key_dim;
    h.decay = h.v + DELTA_TOKENS * d->value_dim;
    h.beta = h.decay + DELTA_TOKENS;
    return h;
}

/* The i-th value head of a key head at n tokens from `token` on; q and k are in hand. */
static void run_value_head(const struct forward *f, const struct forward_delta *l,
                           const struct stretch *s, u32 token, u32 n, u32 key_head, u32 i,
                           const struct hand *h)
{
    const struct delta_shape *d = &f->model->delta;
    const u32 share = d->value_heads / d->key_heads, head = key_head * share + i;
    const u32 dim = d->value_dim, z_at = column_of(d, DELTA_PART_Z, key_head) + i * dim;
    const u32 b_at = column_of(d, DELTA_PART_B, key_head) + i;
    const u32 a_at = column_of(d, DELTA_PART_A, key_head) + i;
    const struct channels c = {2 * d->key_heads * d->key_dim + head * dim,
                               column_of(d, DELTA_PART_V, key_head) + i * dim, dim};
    float *y = f->attention + (size_t)(s->at + token) * f->attention_stride + head * dim;
    for (u32 t = 0; t < n; t++) {
        const float *row = row_at(f, s->at + token + t), step = row[a_at] + l->dt_bias[head];
        convolve(f, l, s, token + t, c, h->v + t * dim);
        h->decay[t] = expf(l->rate[head] * (step > 20 ? step : log1pf(expf(step))));
        h->beta[t] = 1 / (1 + expf(-row[b_at]));
    }
    f->vector->delta(&(struct delta_args){.state = s->state + (size_t)head * d->key_dim * dim,
                                          .q = h->q,
                                          .k = h->k,
                                          .v = h->v,
                                          .y = y,
                                          .decay = h->decay,
                                          .beta = h->beta,
                                          .tokens = n,
                                          .key_dim = d->key_dim,
                                          .value_dim = dim,
                                          .y_stride = f->attention_stride});
    for (u32 t = 0; t < n; t++, y += f->attention_stride) {
        float *z = row_at(f, s->at + token + t) + z_at;
        f->vector->rmsnorm(y, y, l->norm, dim, f->model->norm_eps);
        f->vector->gate(z, y, dim, ACT_SILU);
        memcpy(y, z, dim * sizeof *y);
    }
}

/* A key head, with its value heads, through the stretch. */
static void run_key_head(const struct pass *p, const struct forward_delta *l,
                         const struct stretch *s, u32 head)
{
    const struct forward *f = p->f;
    const struct delta_shape *d = &f->model->delta;
    const u32 share = d->value_heads / d->key_heads, keys = d->key_heads * d->key_dim;
    const struct channels q_of = {head * d->key_dim, column_of(d, DELTA_PART_Q, head), d->key_dim};
    const struct channels k_of = {keys + q_of.channel, column_of(d, DELTA_PART_K, head),
                                  d->key_dim};
    const struct channels v_of = {2 * keys + head * share * d->value_dim,
                                  column_of(d, DELTA_PART_V, head), share * d->value_dim};
    const float eps = 1e-6f / (float)d->key_dim; /* of a mean of squares, not of their sum */
    const size_t floats = (size_t)d->key_dim * d->value_dim * share;
    const struct hand h = hand_of(d, p->mine->delta);
    forget_inputs(f, s, q_of);
    forget_inputs(f, s, k_of);
    forget_inputs(f, s, v_of);
    if (s->first)
        memset(s->state + head * floats, 0, floats * sizeof *s->state);
    for (u32 t = 0, n; t < s->n; t += n) {
        n = MIN(s->n - t, (u32)DELTA_TOKENS);
        for (u32 i = 0; i < n; i++) {
            float *q = h.q + i * d->key_dim, *k = h.k + i * d->key_dim;
            convolve(f, l, s, t + i, q_of, q);
            convolve(f, l, s, t + i, k_of, k);
            f->vector->rmsnorm(q, q, f->delta_unit_q, d->key_dim, eps);
            f->vector->rmsnorm(k, k, f->delta_unit_k, d->key_dim, eps);
        }
        for (u32 i = 0; i < share; i++)
            run_value_head(f, l, s, t, n, head, i, &h);
    }
    keep_inputs(f, s, q_of);
    keep_inputs(f, s, k_of);
    keep_inputs(f, s, v_of);
    if (s->kept)
        memcpy(s->kept + head * floats, s->state + head * floats, floats * sizeof *s->state);
}

void delta_pass(const struct pass *p, const struct forward_layer *l)
{
    const struct delta_shape *d = &p->f->model->delta;
    struct stretch s = {0};
    for (u32 item = 0; next_stretch(p, l->state, delta_state_floats(d), &s);)
        for (u32 head = 0; head < d->key_heads; head++, item++)
            if (item % p->f->threads == p->id)
                run_key_head(p, l->delta, &s, head);
    barrier(p);
}
