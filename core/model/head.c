#include "core/model/head.h"

#include "core/base/box.h"
#include "core/base/half.h"

#include <stdio.h>
#include <sys/mman.h>

enum { LEAST_GROUP = 8, ROUNDS = 0x4b400000 }; /* 1.5 * 2^23 in f32, which has no bit for halves */

/* The values of a group in f32; returns the largest without its sign, also where one is infinite or
 * none: then it is the like. */
static float load(const struct weight *w, size_t at, u32 n, float *x)
{
    u32 most = 0;
    if (w->type == DTYPE_F32) {
        memcpy(x, (const u8 *)w->data + at * 4, n * sizeof *x);
    } else {
        u16 half[HEAD_GROUP];
        memcpy(half, (const u8 *)w->data + at * 2, n * sizeof *half);
        for (u32 i = 0; i < n; i++)
            x[i] = w->type == DTYPE_F16 ? half_from_f16(half[i]) : half_from_bf16(half[i]);
    }
    for (u32 i = 0; i < n; i++) /* as numbers of f32 are ordered, but for their sign */
        most = MAX(most, half_to_bits(x[i]) & 0x7fffffff);
    return half_from_bits(most);
}

/* f32 to f16, not negative, to the nearest; what is too large becomes infinite. */
static u16 to_f16(float f)
{
    u32 bits = half_to_bits(f);
    if (bits >= 0x47800000) /* 65536; infinity, NaN */
        return bits > 0x7f800000 ? 0x7e00 : 0x7c00;
    if (bits < 0x38800000) /* 2^-14: a multiple of 2^-24 */
        return (u16)(half_to_bits(f + half_from_bits(0x3f000000)) - 0x3f000000);
    bits += 0xfff + (bits >> 13 & 1);
    return (u16)((bits - 0x38000000) >> 13);
}

static void quantize(const struct head *h, size_t at, u32 n, u16 *scale)
{
    float x[HEAD_GROUP];
    const float most = load(&h->from, at, n, x);
    *scale = to_f16(most / 127);
    const float by = half_from_f16(*scale), one = by > 0 && by < 0x1p16f ? 1 / by : 0;
    for (u32 i = 0; i < n; i++) {
        float q = MIN(MAX(x[i] * one, -127.0f), 127.0f);
        h->values[at + i] = (u8)(half_to_bits(q + half_from_bits(ROUNDS)) - ROUNDS + 128);
    }
}

void head_rows(const struct head *h, u32 first, u32 n)
{
    const u32 k = h->to.k, group = h->to.group;
    for (u32 row = first; row < first + n; row++)
        for (u32 g = 0; g < h->to.groups; g++)
            quantize(h, (size_t)row * k + g * group, MIN(group, k - g * group),
                     &h->scales[(size_t)row * h->to.groups + g]);
}

/* Values, and scales behind them. */
static size_t values_bytes(const struct weight *w)
{
    return (size_t)w->n * w->k; /* even, as 8 divides k */
}

static size_t made_bytes(const struct weight *w)
{
    return values_bytes(w) + (size_t)w->n * w->groups * sizeof(u16);
}

static enum err take_memory(struct model *m, struct head *h, struct err_text *e)
{
    const size_t bytes = made_bytes(&h->to), have = box_available_bytes();
    if (have && bytes > have)
        return err_set(e, ERR_MEMORY,
                       "model.head = int8 takes %zu MiB while the model is loaded, and %zu MiB are "
                       "available; set it to file",
                       bytes >> 20, have >> 20);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set_errno(e, ERR_MEMORY, "no %zu MiB for model.head = int8", bytes >> 20);
    m->made = (struct str){p, bytes};
    h->values = p;
    h->scales = (u16 *)(void *)(h->values + values_bytes(&h->to));
    h->to.data = h->values;
    h->to.scales = h->scales;
    return ERR_OK;
}

static enum err name_head(struct arena *keep, struct model *m, struct err_text *e)
{
    char text[128];
    snprintf(text, sizeof text, "%.*s, head int8", STR_ARG(m->quant));
    m->quant = arena_str(keep, str_of(text));
    return m->quant.p ? ERR_OK : arena_full(keep, "model.head", e);
}

enum err head_int8(struct arena *keep, struct model *m, bool only_plan, struct head *h,
                   struct err_text *e)
{
    *h = (struct head){.from = m->head};
    if (m->head.kind != WEIGHT_PLAIN || m->headless)
        return ERR_OK;
    const u32 k = m->head.k;
    u32 group = HEAD_GROUP;
    while (group > LEAST_GROUP && k % group)
        group /= 2;
    if (k % group)
        return err_set(e, ERR_CONFIG,
                       "model.head = int8 wants a hidden size that 8 divides; this model has %u",
                       k);
    h->to = (struct weight){.name = m->head.name,
                            .kind = WEIGHT_PACKED,
                            .n = m->head.n,
                            .k = k,
                            .bits = 8,
                            .group = group,
                            .groups = k / group,
                            .type = DTYPE_I32,
                            .scale_type = DTYPE_F16,
                            .bias = m->head.bias,
                            .bias_type = m->head.bias_type};
    TRY(name_head(keep, m, e));
    if (only_plan)
        m->made.n = made_bytes(&h->to);
    else
        TRY(take_memory(m, h, e));
    m->head = h->to;
    m->tied = false;
    if (only_plan)
        h->to.n = 0;
    return ERR_OK;
}
