#include "kernels/cpu/linear_pack.h"

#include "kernels/cpu/stored.h"

/* A matrix being packed: the shape of its packed form, and the tiles [t0, t1) of this part. */
struct job {
    const struct weight *w;
    struct packed p;
    u8 *memory;
    u32 per; /* fields a word */
    u32 t0, t1;
};

static u32 scale_size(const struct weight *w)
{
    return (u32)dtype_bytes(w->scale_type);
}

static struct packed shape(const struct weight *w, const u8 *memory)
{
    struct packed p = {.w = w, .data = w->data, .k = w->k};
    if (w->kind == WEIGHT_PLAIN)
        return p;
    p.data = memory;
    p.k = ROUND_UP(w->k, UNIT_K);
    p.group = w->group >= w->k ? p.k : w->group;
    p.block = p.group == p.k ? ACT_BLOCK : MIN(p.group & -p.group, ACT_BLOCK);
    ASSERT(p.group % UNIT_K == 0 && w->groups == CEIL_DIV(p.k, p.group));
    p.head_bytes = TILE_N * (scale_size(w) + (w->zeros ? 1 : 0));
    p.group_bytes = p.head_bytes + (size_t)p.group * w->bits / 8 * TILE_N;
    p.tile_bytes = w->groups * p.head_bytes + (size_t)p.k * w->bits / 8 * TILE_N;
    return p;
}

static size_t tiles_bytes(const struct packed *p)
{
    return CEIL_DIV(p->w->n, TILE_N) * p->tile_bytes;
}

size_t linear_pack_bytes(const struct weight *w)
{
    if (w->kind == WEIGHT_PLAIN)
        return 0;
    struct packed p = shape(w, NULL);
    return ROUND_UP(tiles_bytes(&p) + (w->group_index ? (size_t)w->k * 4 : 0), 64);
}

static u32 *row_of(const struct job *b, u32 t, u32 j)
{
    u32 g = j / b->p.group;
    u8 *group = b->memory + t * b->p.tile_bytes + g * b->p.group_bytes + b->p.head_bytes;
    return (u32 *)(void *)group + (size_t)((j - g * b->p.group) / b->per) * TILE_N;
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

/* Input feature k becomes packed feature j; features come in order of j. */
static void put_feature(const struct job *b, u32 j, u32 k)
{
    u32 shift = j % b->per * b->w->bits;
    u8 fields[TILE_N];
    for (u32 t = b->t0; t < b->t1; t++) {
        u32 *row = row_of(b, t, j);
        read_fields(b->w, t * TILE_N, k, fields);
        for (u32 c = 0; c < TILE_N; c++)
            row[c] = (shift ? row[c] : 0) | (u32)fields[c] << shift;
    }
}

/* Any kind, any order: feature by feature. Without memory of its own: one pass over group_index a
 * group. */
static void put_features(const struct job *b)
{
    const struct weight *w = b->w;
    u32 j = 0;
    for (u32 g = 0; g < w->groups; g++)
        for (u32 k = w->group_index ? 0 : j; k < w->k && (w->group_index || k / w->group == g); k++)
            if (stored_group(w, k) == g)
                put_feature(b, j++, k);
    ASSERT(j == w->k);
    for (; j < b->p.k && j % b->per == 0; j += b->per) /* whole words of padding */
        for (u32 t = b->t0; t < b->t1; t++)
            memset(row_of(b, t, j), 0, TILE_N * 4);
}

/* Formats whose stored words are packed words: GPTQ row by row, the others feature by feature. */
static void put_words(const struct job *b, u32 t)
{
    const struct weight *w = b->w;
    u32 words = w->k / b->per, count = MIN(TILE_N, w->n - t * TILE_N);
    u32 flip = w->kind == WEIGHT_INT8 ? 0x80808080u : 0;
    for (u32 r = 0; r < words; r++) {
        u32 *row = row_of(b, t, r * b->per);
        size_t from = (size_t)r * w->n + t * TILE_N;
        if (w->kind == WEIGHT_GPTQ)
            memcpy(row, (const u8 *)w->data + from * 4, count * 4);
        else
            for (u32 c = 0; c < count; c++)
                row[c] = stored_word(w->data, stored_row(w, t * TILE_N + c) * words + r) ^ flip;
        memset(row + count, 0, (TILE_N - count) * 4);
    }
}

static void put_head(const struct job *b, u32 t, u32 g)
{
    const struct weight *w = b->w;
    u32 size = scale_size(w), count = MIN(TILE_N, w->n - t * TILE_N);
    u8 *scales = b->memory + t * b->p.tile_bytes + g * b->p.group_bytes;
    memset(scales, 0, b->p.head_bytes);
    for (u32 c = 0; c < count; c++) {
        u32 n = t * TILE_N + c;
        memcpy(scales + c * size, (const u8 *)w->scales + stored_scale_at(w, n, g) * size, size);
        if (w->zeros)
            scales[TILE_N * size + c] = (u8)stored_zero(w, n, g);
    }
}

static void put_order(const struct weight *w, u32 *order)
{
    u32 j = 0;
    for (u32 g = 0; g < w->groups; g++)
        for (u32 k = 0; k < w->k; k++)
            if (stored_group(w, k) == g)
                order[j++] = k;
}

void linear_pack(const struct weight *w, void *memory, struct packed *out, u32 part, u32 parts)
{
    struct job b = {.w = w, .p = shape(w, memory), .memory = memory};
    u32 *order = w->group_index ? (u32 *)(void *)(b.memory + tiles_bytes(&b.p)) : NULL;
    b.p.order = order;
    if (part == 0)
        *out = b.p;
    if (part == 0 && order)
        put_order(w, order);
    if (w->kind == WEIGHT_PLAIN)
        return;
    u32 tiles = CEIL_DIV(w->n, TILE_N);
    b.per = 32 / w->bits;
    b.t0 = (u32)((u64)tiles * part / parts);
    b.t1 = (u32)((u64)tiles * (part + 1) / parts);
    bool words = w->kind != WEIGHT_AWQ && !order && w->k == b.p.k;
    if (!words)
        put_features(&b);
    for (u32 t = b.t0; t < b.t1; t++) {
        if (words)
            put_words(&b, t);
        for (u32 g = 0; g < w->groups; g++)
            put_head(&b, t, g);
    }
}

bool linear_same_order(const struct packed *a, const struct packed *b)
{
    if (!a->order || !b->order)
        return a->order == b->order;
    return a->k == b->k && memcmp(a->order, b->order, (size_t)a->w->k * 4) == 0;
}
