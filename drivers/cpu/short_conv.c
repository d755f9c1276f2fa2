#include "drivers/cpu/short_conv.h"

/* b * x at token i of the stretch, from the first that its state knows on; columns from r.from. */
static const float *inputs_at(const struct forward *f, const struct stretch *s, u32 i,
                              struct range r)
{
    const u32 before = f->model->conv_taps - 1;
    return i < before ? s->state + (size_t)i * f->model->hidden + r.from
                      : row_at(f, s->at + i - before) + r.from;
}

/* b *= x, and what the state is behind no token. */
static void begin(const struct forward *f, const struct stretch *s, struct range r)
{
    const u32 hidden = f->model->hidden;
    for (u32 i = 0; i + 1 < f->model->conv_taps && s->first; i++)
        memset(s->state + (size_t)i * hidden + r.from, 0, (r.to - r.from) * sizeof *s->state);
    for (u32 i = 0; i < s->n; i++) {
        float *b = row_at(f, s->at + i), *x = b + 2 * (size_t)hidden;
        for (u32 c = r.from; c < r.to; c++)
            b[c] *= x[c];
    }
}

static void convolve(const struct forward *f, const float *conv, const struct stretch *s,
                     struct range r)
{
    const u32 hidden = f->model->hidden, taps = f->model->conv_taps;
    const float *x[LIMIT_DELTA_TAPS];
    for (u32 i = 0; i < s->n; i++) {
        float *y = f->attention + (size_t)(s->at + i) * f->attention_stride;
        const float *c = row_at(f, s->at + i) + hidden;
        for (u32 j = 0; j < taps; j++)
            x[j] = inputs_at(f, s, i + j, r);
        f->vector->conv(y + r.from, x, conv + r.from, hidden, taps, r.to - r.from, false);
        for (u32 k = r.from; k < r.to; k++)
            y[k] *= c[k];
    }
}

/* Oldest first: what moves up is read before it is overwritten. */
static void keep(const struct forward *f, const struct stretch *s, struct range r)
{
    const size_t bytes = (r.to - r.from) * sizeof *s->state;
    for (u32 i = 0; i + 1 < f->model->conv_taps; i++) {
        const size_t at = (size_t)i * f->model->hidden + r.from;
        memcpy(s->state + at, inputs_at(f, s, s->n + i, r), bytes);
        if (s->kept)
            memcpy(s->kept + at, s->state + at, bytes);
    }
}

void short_conv_pass(const struct pass *p, const struct forward_layer *l)
{
    const struct forward *f = p->f;
    const struct range r = share(p, f->model->hidden, 16);
    struct stretch s = {0};
    while (next_stretch(p, l->state, (f->model->conv_taps - 1) * f->model->hidden, &s)) {
        begin(f, &s, r);
        convolve(f, l->conv, &s, r);
        keep(f, &s, r);
    }
    barrier(p);
}
