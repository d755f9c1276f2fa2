/* The scalar reference: every weight dequantised in f32 exactly as its format says, every sum in
 * double, rounded once. Plain loops over the stored layout, no packing.
 */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/stored.h"

#include <math.h>

void linear_row(const struct packed *p, u32 j, float *y)
{
    const struct weight *w = p->w;
    for (u32 k = 0; k < w->k; k++) {
        if (w->kind == WEIGHT_PLAIN) {
            y[k] = half_load(w->data, w->type, (size_t)j * w->k + k);
            continue;
        }
        u32 g = stored_group(w, k);
        i32 q = (i32)stored_q(w, j, k) - (i32)stored_zero(w, j, g);
        y[k] = stored_scale(w, j, g) * (float)q;
    }
}

void linear_round_row(float *y, const float *x, u32 k)
{
    float most = 0;
    for (u32 i = 0; i < k; i++)
        most = fmaxf(most, fabsf(x[i]));
    float scale = most / 127, inverse = most > 0 ? 127 / most : 0;
    for (u32 i = 0; i < k; i++)
        y[i] = rintf(x[i] * inverse) * scale;
}

static size_t pack_bytes(const struct weight *w)
{
    (void)w;
    return 0;
}

static void pack(const struct weight *w, void *memory, struct packed *out, u32 part, u32 parts)
{
    (void)memory;
    (void)parts;
    if (part == 0)
        *out = (struct packed){.w = w, .data = w->data, .k = w->k};
}

static size_t act_bytes(u32 m, u32 k)
{
    return (size_t)m * k * sizeof(float);
}

static void act_prepare(struct activations *a, const struct packed *w, u32 m0, u32 m1)
{
    if (!w->w->int8_activations)
        return;
    for (u32 i = m0; i < m1; i++)
        linear_round_row((float *)a->prepared + (size_t)i * a->k, a->x + (size_t)i * a->x_stride,
                         a->k);
}

static bool act_shared(const struct packed *p, const struct packed *w)
{
    return p->w->int8_activations || !w->w->int8_activations;
}

static size_t scratch_bytes(u32 k)
{
    return ROUND_UP((size_t)k * sizeof(float), 64);
}

static void matmul(const struct packed *p, const struct activations *a, float *y, u32 y_stride,
                   u32 n0, u32 n1, void *scratch)
{
    const struct weight *w = p->w;
    float *row = scratch;
    for (u32 j = n0; j < n1; j++) {
        linear_row(p, j, row);
        float bias = stored_bias(w, j);
        for (u32 i = 0; i < a->m; i++) {
            const float *x = w->int8_activations ? (const float *)a->prepared + (size_t)i * a->k
                                                 : a->x + (size_t)i * a->x_stride;
            double sum = 0;
            for (u32 k = 0; k < w->k; k++)
                sum += (double)row[k] * (double)x[k];
            y[(size_t)i * y_stride + j] = (float)(sum + (double)bias);
        }
    }
}

const struct linear_ops linear_scalar = {
    .activation_bits = 32,
    .tile_n = 1,
    .pack_bytes = pack_bytes,
    .pack = pack,
    .act_bytes = act_bytes,
    .act_prepare = act_prepare,
    .act_shared = act_shared,
    .scratch_bytes = scratch_bytes,
    .matmul = matmul,
    .row = linear_row,
};
