#include "drivers/cpu/delta.h"

#include <math.h>

/* n channels of the convolution from `channel` on, whose inputs are columns of f->qkv from `column`
 * on. */
struct channels {
    u32 channel, column, n;
};
static const float nothing[LIMIT_DELTA_DIM];

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

/* Inputs of channels c at token i, from the first in `past` on. Before a sequence all are 0. */
static const float *inputs_at(const struct forward *f, const struct stretch *s, u32 i,
                              struct channels c)
{
    const struct delta_shape *d = &f->model->delta;
    const u32 before = d->taps - 1;
    if (i >= before)
        return row_at(f, s->at + i - before) + c.column;
    return s->first ? nothing : past_of(d, s) + (size_t)i * delta_channels(d) + c.channel;
}

/* y[c.n] at token i of the stretch. */
static void convolve(const struct forward *f, const struct forward_delta *l,
                     const struct stretch *s, u32 i, struct channels c, float *y)
{
    const struct delta_shape *d = &f->model->delta;
    const float *x[LIMIT_DELTA_TAPS + 1];
    for (u32 j = 0; j < d->taps; j++)
        x[j] = inputs_at(f, s, i + j, c);
    x[d->taps] = f->ones;
    f->vector->conv(y, x, l->conv + c.channel, delta_channels(d), l->taps, c.n, true);
}

/* Behind the stretch. */
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

static struct channels channels_q(const struct delta_shape *d, u32 key_head)
{
    return (struct channels){key_head * d->key_dim, column_of(d, DELTA_PART_Q, key_head),
                             d->key_dim};
}

static struct channels channels_k(const struct delta_shape *d, u32 key_head)
{
    return (struct channels){(d->key_heads + key_head) * d->key_dim,
                             column_of(d, DELTA_PART_K, key_head), d->key_dim};
}

static u32 heads_a_key(const struct delta_shape *d)
{
    return d->value_heads / d->key_heads;
}

/* Where something of a value head is, n columns of each. */
static u32 value_column(const struct delta_shape *d, enum delta_part part, u32 head, u32 n)
{
    return column_of(d, part, head / heads_a_key(d)) + head % heads_a_key(d) * n;
}

static struct channels channels_v(const struct delta_shape *d, u32 head)
{
    return (struct channels){2 * d->key_heads * d->key_dim + head * d->value_dim,
                             value_column(d, DELTA_PART_V, head, d->value_dim), d->value_dim};
}

/* A value head's v, decay and beta of n tokens from `token` on; of Mamba beta is dt. */
static void take_values(const struct forward *f, const struct forward_delta *l,
                        const struct stretch *s, u32 token, u32 n, u32 head, const struct hand *h)
{
    const struct delta_shape *d = &f->model->delta;
    const u32 a_at = value_column(d, DELTA_PART_A, head, 1);
    const u32 b_at = value_column(d, DELTA_PART_B, head, 1);
    for (u32 t = 0; t < n; t++) {
        const float *row = row_at(f, s->at + token + t), step = row[a_at] + l->dt_bias[head];
        const float dt = step > 20 ? step : log1pf(expf(step));
        convolve(f, l, s, token + t, channels_v(d, head), h->v + t * d->value_dim);
        h->decay[t] = expf(l->rate[head] * dt);
        h->beta[t] = d->mamba ? dt : 1 / (1 + expf(-row[b_at]));
    }
}

/* What is behind the state: of Mamba all but the norm. */
static void finish_value(const struct forward *f, const struct forward_delta *l, u32 head,
                         const float *v, float *z, float *y)
{
    const struct delta_shape *d = &f->model->delta;
    for (u32 c = 0; c < d->value_dim && d->mamba; c++)
        y[c] += l->skip[head] * v[c];
    if (!d->mamba)
        f->vector->rmsnorm(y, y, l->norm, d->value_dim, d->eps);
    f->vector->gate(z, y, d->value_dim, ACT_SILU);
    memcpy(y, z, d->value_dim * sizeof *y);
}

/* A value head at n tokens from `token` on; q and k are in hand. */
static void run_value_head(const struct forward *f, const struct forward_delta *l,
                           const struct stretch *s, u32 token, u32 n, u32 head,
                           const struct hand *h)
{
    const struct delta_shape *d = &f->model->delta;
    const u32 dim = d->value_dim, z_at = value_column(d, DELTA_PART_Z, head, dim);
    float *y = f->attention + (size_t)(s->at + token) * f->attention_stride + head * dim;
    take_values(f, l, s, token, n, head, h);
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
                                          .y_stride = f->attention_stride,
                                          .mamba = d->mamba});
    for (u32 t = 0; t < n; t++, y += f->attention_stride)
        finish_value(f, l, head, h->v + t * dim, row_at(f, s->at + token + t) + z_at, y);
}

/* q and k of a key head at n tokens from `token` on. */
static void take_keys(const struct forward *f, const struct forward_delta *l,
                      const struct stretch *s, u32 token, u32 n, u32 key_head, const struct hand *h)
{
    const struct delta_shape *d = &f->model->delta;
    const float eps = 1e-6f / (float)d->key_dim; /* of a mean of squares, not of their sum */
    for (u32 i = 0; i < n; i++) {
        float *q = h->q + i * d->key_dim, *k = h->k + i * d->key_dim;
        convolve(f, l, s, token + i, channels_q(d, key_head), q);
        convolve(f, l, s, token + i, channels_k(d, key_head), k);
        if (d->mamba)
            continue;
        f->vector->rmsnorm(q, q, f->delta_unit_q, d->key_dim, eps);
        f->vector->rmsnorm(k, k, f->delta_unit_k, d->key_dim, eps);
    }
}

/* Value heads of one key head through the stretch. */
static void run_heads(const struct pass *p, const struct forward_delta *l, const struct stretch *s,
                      struct range heads)
{
    const struct forward *f = p->f;
    const struct delta_shape *d = &f->model->delta;
    const size_t floats = (size_t)d->key_dim * d->value_dim, n = heads.to - heads.from;
    float *state = s->state + heads.from * floats;
    const struct hand h = hand_of(d, p->mine->delta);
    if (s->first)
        memset(state, 0, n * floats * sizeof *state);
    for (u32 t = 0, tokens; t < s->n; t += tokens) {
        tokens = MIN(s->n - t, (u32)DELTA_TOKENS);
        take_keys(f, l, s, t, tokens, heads.from / heads_a_key(d), &h);
        for (u32 i = heads.from; i < heads.to; i++)
            run_value_head(f, l, s, t, tokens, i, &h);
    }
    if (s->kept)
        memcpy(s->kept + heads.from * floats, state, n * floats * sizeof *state);
}

/* The inputs of a key head and its value heads, when nobody reads those before the stretch. */
static void keep_heads(const struct forward *f, const struct stretch *s, u32 key_head)
{
    const struct delta_shape *d = &f->model->delta;
    keep_inputs(f, s, channels_q(d, key_head));
    keep_inputs(f, s, channels_k(d, key_head));
    for (u32 i = 0; i < heads_a_key(d); i++)
        keep_inputs(f, s, channels_v(d, key_head * heads_a_key(d) + i));
}

/* Mamba's norm, of groups of a token's heads. */
static void norm_rows(const struct pass *p, const struct forward_delta *l)
{
    const struct forward *f = p->f;
    const struct delta_shape *d = &f->model->delta;
    const struct range r = share(p, p->tile->n, 1);
    const u32 n = delta_values(d) / d->norm_groups;
    for (u32 i = r.from; i < r.to; i++) {
        float *y = f->attention + (size_t)i * f->attention_stride;
        for (u32 at = 0; at < delta_values(d); at += n)
            f->vector->rmsnorm(y + at, y + at, l->norm + at, n, d->eps);
    }
}

void delta_pass(const struct pass *p, const struct forward_layer *l)
{
    const struct delta_shape *d = &p->f->model->delta;
    const struct range mine = share(p, d->value_heads, 1);
    struct stretch s = {0};
    while (next_stretch(p, l->state, delta_state_floats(d), &s))
        for (u32 i = mine.from, end; i < mine.to; i = end) {
            end = MIN((i / heads_a_key(d) + 1) * heads_a_key(d), mine.to);
            run_heads(p, l->delta, &s, (struct range){i, end});
        }
    barrier(p);
    s = (struct stretch){0};
    for (u32 item = 0; next_stretch(p, l->state, delta_state_floats(d), &s);)
        for (u32 head = 0; head < d->key_heads; head++, item++)
            if (item % p->f->threads == p->id)
                keep_heads(p->f, &s, head);
    if (d->mamba)
        norm_rows(p, l->delta);
    barrier(p);
}
