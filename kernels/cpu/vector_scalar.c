#include "kernels/cpu/vector.h"

#include "core/base/half.h"
#include "kernels/cpu/read.h"

#include <math.h>

void vector_rope_table(float *cs, const float *freq, u32 dims, u32 pos, float scale)
{
    for (u32 i = 0; i < dims / 2; i++) {
        float angle = (float)pos * freq[i]; /* rounded to f32 as the reference models do */
        cs[i] = cosf(angle) * scale;
        cs[dims / 2 + i] = sinf(angle) * scale;
    }
}

static void rmsnorm(float *y, const float *x, const float *w, u32 n, float eps)
{
    double sum = 0;
    for (u32 i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    float inverse = 1 / sqrtf((float)(sum / n) + eps);
    for (u32 i = 0; i < n; i++)
        y[i] = x[i] * inverse * w[i];
}

static void add(float *y, const float *x, u32 n)
{
    for (u32 i = 0; i < n; i++)
        y[i] += x[i];
}

static void scale(float *y, float factor, u32 n)
{
    for (u32 i = 0; i < n; i++)
        y[i] *= factor;
}

static void rope(float *x, const float *cs, u32 dims, u32 head_dim, u32 heads)
{
    u32 half = dims / 2;
    for (u32 h = 0; h < heads; h++, x += head_dim) {
        for (u32 i = 0; i < half; i++) {
            float a = x[i], b = x[half + i];
            x[i] = a * cs[i] - b * cs[half + i];
            x[half + i] = b * cs[i] + a * cs[half + i];
        }
    }
}

static float saturated(float x)
{
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
}

/* x[n] and zeros up to dim into every `stride`th place from `at` on. */
static void store_row(enum dtype type, void *head, u32 at, u32 stride, const float *x, u32 n,
                      u32 dim)
{
    for (u32 i = 0; i < dim; i++, at += stride) {
        float value = i < n ? x[i] : 0;
        if (type == DTYPE_F16)
            ((_Float16 *)head)[at] = (_Float16)saturated(value);
        else
            ((float *)head)[at] = value;
    }
}

/* The same as bytes. Returns their scale. */
static float store_bytes(i8 *head, u32 at, u32 stride, const float *x, u32 n, u32 dim)
{
    float max = 0;
    for (u32 i = 0; i < n; i++)
        max = isnan(x[i]) || isnan(max) ? NAN : fmaxf(max, fabsf(saturated(x[i])));
    for (u32 i = 0; i < dim; i++, at += stride)
        head[at] = i < n && max > 0 ? (i8)rintf(saturated(x[i]) * 127 / max) : 0;
    return max / 127;
}

static void kv_write(const struct kv_layer *kv, const float *k, const float *v, u32 page, u32 at,
                     u32 kv_head)
{
    u32 n = kv->head_dim, dim = kv_dim(n);
    void *keys = kv_head_at(kv, kv->k, page, kv_head);
    void *values = kv_head_at(kv, kv->v, page, kv_head);
    if (kv->type == DTYPE_I8) {
        kv_scales(keys, dim)[at] = store_bytes(keys, at, LIMIT_PAGE_TOKENS, k, n, dim);
        kv_scales(values, dim)[at] = store_bytes(values, at * dim, 1, v, n, dim);
    } else {
        store_row(kv->type, keys, at, LIMIT_PAGE_TOKENS, k, n, dim);
        store_row(kv->type, values, at * dim, 1, v, n, dim);
    }
}

static float kv_load(enum dtype type, const void *head, u32 at)
{
    return type == DTYPE_F16  ? half_from_f16(((const u16 *)head)[at])
           : type == DTYPE_I8 ? (float)((const i8 *)head)[at]
                              : ((const float *)head)[at];
}

static float score(const struct attention_args *a, const float *q, u32 kv_head, u32 key)
{
    const struct kv_layer *kv = a->kv;
    void *head = kv_head_at(kv, kv->k, a->pages[key / LIMIT_PAGE_TOKENS], kv_head);
    u32 at = key % LIMIT_PAGE_TOKENS;
    float sum = 0;
    for (u32 i = 0; i < kv->head_dim; i++)
        sum += q[i] * kv_load(kv->type, head, i * LIMIT_PAGE_TOKENS + at);
    if (kv->type == DTYPE_I8)
        sum *= kv_scales(head, kv_dim(kv->head_dim))[at];
    sum *= a->scale;
    return a->softcap > 0 ? a->softcap * tanhf(sum / a->softcap) : sum;
}

static void attention_row(const struct attention_args *a, const float *q, float *out, u32 head,
                          u32 pos)
{
    const struct kv_layer *kv = a->kv;
    u32 first = a->window && pos + 1 > a->window ? pos + 1 - a->window : 0;
    u32 dim = kv_dim(kv->head_dim), kv_head = head / a->group;
    float max = -INFINITY;
    double sum = 0;
    for (u32 key = first; key <= pos; key++)
        max = fmaxf(max, score(a, q, kv_head, key));
    for (u32 i = 0; i < kv->head_dim; i++)
        out[i] = 0;
    for (u32 key = first; key <= pos; key++) {
        float p = expf(score(a, q, kv_head, key) - max);
        void *values = kv_head_at(kv, kv->v, a->pages[key / LIMIT_PAGE_TOKENS], kv_head);
        u32 at = key % LIMIT_PAGE_TOKENS;
        sum += p;
        if (kv->type == DTYPE_I8)
            p *= kv_scales(values, dim)[at];
        for (u32 i = 0; i < kv->head_dim; i++)
            out[i] += p * kv_load(kv->type, values, at * dim + i);
    }
    if (a->sinks)
        sum += exp((double)a->sinks[head] - (double)max);
    for (u32 i = 0; i < kv->head_dim; i++)
        out[i] = (float)(out[i] / sum);
}

static void attention(const struct attention_args *a, u32 kv_head, void *scratch)
{
    (void)scratch;
    for (u32 t = 0; t < a->tokens; t++) {
        for (u32 h = kv_head * a->group; h < (kv_head + 1) * a->group; h++) {
            size_t at = (size_t)h * a->kv->head_dim;
            attention_row(a, a->q + (size_t)t * a->q_stride + at,
                          a->out + (size_t)t * a->out_stride + at, h, a->pos + t);
        }
    }
}

static void gate(float *g, const float *up, u32 n, enum activation act)
{
    for (u32 i = 0; i < n; i++) {
        float x = g[i], y = up[i];
        if (act == ACT_GPT_OSS) {
            x = x > 7 ? 7 : x;
            y = 1 + (y > 7 ? 7 : y < -7 ? -7 : y);
            x = x / (1 + expf(-1.702f * x));
        } else if (act == ACT_SILU)
            x = x / (1 + expf(-x));
        else if (act == ACT_GELU_TANH)
            x = 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
        else if (act == ACT_RELU)
            x = x < 0 ? 0 : x;
        else if (act == ACT_GELU)
            x = 0.5f * x * (1 + erff(x * 0.7071067812f));
        else
            x = 1 / (1 + expf(-x));
        g[i] = x * y;
    }
}

static void softcap(float *x, u32 n, float cap)
{
    for (u32 i = 0; i < n; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

static void conv(float *y, const float *const *x, const float *w, u32 w_stride, u32 taps, u32 n,
                 bool silu)
{
    for (u32 c = 0; c < n; c++) {
        float sum = 0;
        for (u32 j = 0; j < taps; j++)
            sum += w[(size_t)j * w_stride + c] * x[j][c];
        y[c] = silu ? sum / (1 + expf(-sum)) : sum;
    }
}

static void delta_token(const struct delta_args *a, u32 t)
{
    const float *q = a->q + (size_t)t * a->key_dim, *k = a->k + (size_t)t * a->key_dim;
    for (u32 c = 0; c < a->value_dim; c++) {
        float *state = a->state + c, had = 0, y = 0;
        for (u32 i = 0; i < a->key_dim && !a->mamba; i++)
            had += state[(size_t)i * a->value_dim] * k[i];
        float change = a->beta[t] * (a->v[(size_t)t * a->value_dim + c] - a->decay[t] * had);
        for (u32 i = 0; i < a->key_dim; i++, state += a->value_dim) {
            *state = *state * a->decay[t] + k[i] * change;
            y += *state * q[i];
        }
        a->y[(size_t)t * a->y_stride + c] = y;
    }
}

static void delta(const struct delta_args *a)
{
    for (u32 t = 0; t < a->tokens; t++)
        delta_token(a, t);
}

const struct vector_ops vector_scalar = {
    .rmsnorm = rmsnorm,
    .add = add,
    .scale = scale,
    .rope = rope,
    .kv_write = kv_write,
    .attention = attention,
    .gate = gate,
    .softcap = softcap,
    .conv = conv,
    .delta = delta,
    .read = read_memory,
};
