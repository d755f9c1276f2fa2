#include "kernels/cpu/linear_pack.h"

#include "kernels/cpu/stored.h"

/* Where the pieces of a packed matrix lie in its memory. */
struct layout {
    u32 tiles, rows, k;
    size_t scale_bytes; /* one scale */
    size_t scales, zeros, order, end;
};

static bool used_in_place(const struct weight *w)
{
    if (w->kind == WEIGHT_PLAIN)
        return true;
    return w->kind == WEIGHT_GPTQ && !w->group_index && w->n % TILE_N == 0 && w->k % UNIT_K == 0;
}

static struct layout lay_out(const struct weight *w)
{
    struct layout l = {.tiles = CEIL_DIV(w->n, TILE_N), .k = ROUND_UP(w->k, UNIT_K)};
    l.scale_bytes = w->scale_type == DTYPE_F32 ? 4 : 2;
    l.rows = l.k / (32 / w->bits);
    size_t per_group = (size_t)l.tiles * w->groups * TILE_N;
    l.scales = (size_t)l.tiles * l.rows * TILE_N * 4;
    l.zeros = ROUND_UP(l.scales + per_group * l.scale_bytes, 64);
    l.order = ROUND_UP(l.zeros + (w->zeros ? per_group * w->bits / 8 : 0), 64);
    l.end = ROUND_UP(l.order + (w->group_index ? (size_t)w->k * 4 : 0), 64);
    return l;
}

size_t linear_pack_bytes(const struct weight *w)
{
    return used_in_place(w) ? 0 : lay_out(w).end;
}

/* The fields of input feature k for the tile's output features from n. */
static void read_fields(const struct weight *w, u32 n, u32 k, u8 out[TILE_N])
{
    u32 count = MIN(TILE_N, w->n - n);
    if (w->kind == WEIGHT_AWQ) {
        const u8 *row = (const u8 *)w->data + ((size_t)k * w->n + n) / 2;
        for (u32 c = 0; c < count; c++)
            out[c] = (u8)stored_field(stored_word(row, c / 8), stored_awq_nibble(c % 8), 4);
    } else if (w->kind == WEIGHT_GPTQ) {
        u32 per = 32 / w->bits, shift = k % per * w->bits, mask = (1u << w->bits) - 1;
        const u8 *row = (const u8 *)w->data + ((size_t)(k / per) * w->n + n) * 4;
        for (u32 c = 0; c < count; c++)
            out[c] = (u8)(stored_word(row, c) >> shift & mask);
    } else {
        for (u32 c = 0; c < count; c++)
            out[c] = (u8)stored_q(w, n + c, k);
    }
    memset(out + count, 0, TILE_N - count);
}

/* Input feature k of tiles [t0, t1) becomes packed feature j; features come in order of j. */
static void put_feature(const struct weight *w, const struct layout *l, u8 *data, u32 t0, u32 t1,
                        u32 j, u32 k)
{
    u32 per = 32 / w->bits, shift = j % per * w->bits;
    u8 fields[TILE_N];
    for (u32 t = t0; t < t1; t++) {
        u32 *row = (u32 *)(void *)data + ((size_t)t * l->rows + j / per) * TILE_N;
        read_fields(w, t * TILE_N, k, fields);
        for (u32 c = 0; c < TILE_N; c++)
            row[c] = (shift ? row[c] : 0) | (u32)fields[c] << shift;
    }
}

/* Without memory of its own: one pass over group_index a group. */
static void put_ordered(const struct weight *w, const struct layout *l, u8 *data, u32 t0, u32 t1)
{
    u32 j = 0;
    for (u32 g = 0; g < w->groups; g++)
        for (u32 k = 0; k < w->k; k++)
            if (stored_group(w, k) == g)
                put_feature(w, l, data, t0, t1, j++, k);
}

/* Formats whose rows lie along k: a stored word is a packed word. */
static void put_words(const struct weight *w, const struct layout *l, u8 *data, u32 t)
{
    u32 *tile = (u32 *)(void *)data + (size_t)t * l->rows * TILE_N;
    u32 words = w->k * w->bits / 32, flip = w->kind == WEIGHT_INT8 ? 0x80808080u : 0;
    for (u32 c = 0; c < TILE_N; c++) {
        u32 n = t * TILE_N + c;
        for (u32 r = 0; r < words; r++)
            tile[(size_t)r * TILE_N + c] =
                n < w->n ? stored_word(w->data, (size_t)n * words + r) ^ flip : 0;
    }
}

static void put_scales(const struct weight *w, const struct layout *l, u8 *memory, u32 t)
{
    for (u32 g = 0; g < w->groups; g++) {
        size_t at = ((size_t)t * w->groups + g) * TILE_N;
        u8 *scales = memory + l->scales + at * l->scale_bytes;
        u8 *zeros = memory + l->zeros + at * w->bits / 8;
        memset(scales, 0, TILE_N * l->scale_bytes);
        if (w->zeros)
            memset(zeros, 0, TILE_N * w->bits / 8);
        for (u32 c = 0; c < TILE_N && t * TILE_N + c < w->n; c++) {
            u32 n = t * TILE_N + c;
            memcpy(scales + c * l->scale_bytes,
                   (const u8 *)w->scales + stored_scale_at(w, n, g) * l->scale_bytes,
                   l->scale_bytes);
            if (w->zeros)
                zeros[c * w->bits / 8] |= (u8)(stored_zero(w, n, g) << c * w->bits % 8);
        }
    }
}

static void put_order(const struct weight *w, u32 *order)
{
    u32 j = 0;
    for (u32 g = 0; g < w->groups; g++)
        for (u32 k = 0; k < w->k; k++)
            if (stored_group(w, k) == g)
                order[j++] = k;
    ASSERT(j == w->k);
}

static void describe(const struct weight *w, u8 *memory, struct packed *out)
{
    *out = (struct packed){.w = w, .data = w->data, .k = w->k};
    if (w->kind == WEIGHT_PLAIN)
        return;
    struct layout l = lay_out(w);
    out->k = l.k;
    out->group = w->group >= w->k ? l.k : w->group;
    out->block = out->group == l.k ? ACT_BLOCK : MIN(out->group & -out->group, ACT_BLOCK);
    ASSERT(out->group % UNIT_K == 0 && w->groups == CEIL_DIV(l.k, out->group));
    size_t row = used_in_place(w) ? w->n : TILE_N;
    out->data_row = row * 4;
    out->scales_row = row * l.scale_bytes;
    out->zeros_row = row * w->bits / 8;
    if (used_in_place(w)) {
        out->scales = w->scales;
        out->zeros = w->zeros;
        out->plus_one = w->zero_plus_one;
        out->data_tile = TILE_N * 4;
        out->scales_tile = TILE_N * l.scale_bytes;
        out->zeros_tile = TILE_N * w->bits / 8;
        return;
    }
    out->data = memory;
    out->scales = memory + l.scales;
    out->zeros = w->zeros ? memory + l.zeros : NULL;
    out->data_tile = l.rows * out->data_row;
    out->scales_tile = w->groups * out->scales_row;
    out->zeros_tile = w->groups * out->zeros_row;
    out->order = w->group_index ? (const u32 *)(void *)(memory + l.order) : NULL;
}

void linear_pack(const struct weight *w, void *memory, struct packed *out, u32 part, u32 parts)
{
    if (part == 0)
        describe(w, memory, out);
    if (used_in_place(w))
        return;
    struct layout l = lay_out(w);
    u32 t0 = (u32)((u64)l.tiles * part / parts), t1 = (u32)((u64)l.tiles * (part + 1) / parts);
    if (l.k != w->k)
        memset((u8 *)memory + (size_t)t0 * l.rows * TILE_N * 4, 0,
               (size_t)(t1 - t0) * l.rows * TILE_N * 4);
    bool along_k = w->kind == WEIGHT_PACKED || w->kind == WEIGHT_INT8;
    if (w->group_index)
        put_ordered(w, &l, memory, t0, t1);
    else if (along_k && w->k * w->bits % 32 == 0)
        for (u32 t = t0; t < t1; t++)
            put_words(w, &l, memory, t);
    else
        for (u32 k = 0; k < w->k; k++)
            put_feature(w, &l, memory, t0, t1, k, k);
    for (u32 t = t0; t < t1; t++)
        put_scales(w, &l, memory, t);
    if (w->group_index && part == 0)
        put_order(w, (u32 *)(void *)((u8 *)memory + l.order));
}

bool linear_same_order(const struct packed *a, const struct packed *b)
{
    if (!a->order || !b->order)
        return a->order == b->order;
    return a->k == b->k && memcmp(a->order, b->order, (size_t)a->w->k * 4) == 0;
}
