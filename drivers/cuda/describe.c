#include "drivers/cuda/describe.h"

static u32 passes_max(const struct list *l)
{
    return CEIL_DIV(l->limits.step_tokens, l->head_rows);
}

size_t description_bytes(const struct list *l)
{
    size_t tokens = l->limits.step_tokens;
    return passes_max(l) * sizeof(struct gpu_step) + l->limits.slots * sizeof(struct gpu_row) +
           tokens * (2 * sizeof(u32) + sizeof(struct gpu_tile) + sizeof(struct gpu_want)) + 128;
}

/* Arrays side by side in the pinned memory of an entry, and where the card will have them. */
struct writer {
    u8 *host;
    u64 card;
    size_t bytes;
};

static void *array(struct writer *w, size_t bytes, void *card)
{
    void *p = w->host + w->bytes;
    u64 at = w->card + w->bytes;
    memcpy(card, &at, sizeof at); /* a pointer of the structs that both share */
    w->bytes += ROUND_UP(bytes, (size_t)16);
    return p;
}

static void put_rows(const struct step *step, struct gpu_row *rows, u32 *token_row)
{
    for (u32 r = 0; r < step->n_rows; r++) {
        const struct step_row *row = &step->rows[r];
        u32 flags = (row->follows ? ROW_FOLLOWS : 0) | (row->rope_long ? ROW_ROPE_LONG : 0);
        rows[r] = (struct gpu_row){row->slot, row->first, row->n, row->pos, flags, row->outputs};
        for (u32 t = row->first; t < row->first + row->n; t++)
            token_row[t] = r;
    }
}

static u32 put_tiles(const struct model *m, const struct step *step, struct gpu_tile *tiles)
{
    u32 most = MAX(ATTENTION_ROWS / (m->heads / m->kv_heads), 1u), n = 0;
    for (u32 r = 0; r < step->n_rows; r++)
        for (u32 t = 0; t < step->rows[r].n; t += most)
            tiles[n++] =
                (struct gpu_tile){r, step->rows[r].first + t, MIN(most, step->rows[r].n - t)};
    return n;
}

static void put_wants(const struct step *step, struct gpu_want *wants, struct gpu_result *given,
                      struct description *d)
{
    for (u32 r = 0; r < step->n_rows; r++) {
        const struct step_row *row = &step->rows[r];
        u32 end = row->first + row->n, sampled = end - row->samples;
        for (u32 t = row->logits || row->scores ? row->first : sampled; t < end; t++) {
            struct gpu_want *want = &wants[d->n_wants++];
            *want = (struct gpu_want){.token = t, .row = r, .result = ~0u};
            if (t < sampled && !row->scores)
                continue;
            want->result = d->n_results++;
            if (t < sampled) {
                want->mask = WANT_GIVEN;
                given[want->result].token = step_row_behind(step, row, t - row->first);
                continue;
            }
            want->nth = (u16)(t - sampled);
            want->mask = row->masks ? (u16)++d->n_masks : 0;
        }
    }
}

static u32 splits_max(const struct step *step)
{
    u32 n = 0;
    for (u32 r = 0; r < step->n_rows; r++)
        n = MAX(n, CEIL_DIV(step->rows[r].pos + step->rows[r].n, (u32)ATTENTION_SPLIT));
    return n;
}

struct description describe(const struct list *l, const struct step *step, u32 serial,
                            const struct description_places *to)
{
    struct writer w = {to->host, to->card, 0};
    struct gpu_step g = {.n_rows = step->n_rows,
                         .n_tokens = step->n_tokens,
                         .serial = serial,
                         .max_splits = splits_max(step),
                         .results = (struct gpu_result *)(uintptr_t)to->results,
                         .stamps = (u64 *)(uintptr_t)to->stamps};
    struct gpu_row *rows = array(&w, step->n_rows * sizeof *rows, &g.rows);
    u32 *tokens = array(&w, step->n_tokens * sizeof *tokens, &g.tokens);
    u32 *token_row = array(&w, step->n_tokens * sizeof *token_row, &g.token_row);
    put_rows(step, rows, token_row);
    memcpy(tokens, step->tokens, step->n_tokens * sizeof *tokens);
    g.n_tiles = put_tiles(l->model, step, (struct gpu_tile *)(void *)(w.host + w.bytes));
    array(&w, g.n_tiles * sizeof *g.tiles, &g.tiles);
    struct description d = {.wants = (const struct gpu_want *)(void *)(w.host + w.bytes)};
    put_wants(step, (struct gpu_want *)(void *)(w.host + w.bytes), to->given, &d);
    array(&w, d.n_wants * sizeof *d.wants, &g.wants);
    d.passes = MAX(CEIL_DIV(d.n_wants, l->head_rows), 1u);
    struct gpu_step *passes = array(&w, d.passes * sizeof *passes, &d.passes_card);
    for (u32 i = 0; i < d.passes; i++) {
        bool last = i + 1 == d.passes;
        g.n_wants = MIN(d.n_wants - i * l->head_rows, l->head_rows);
        g.done = (u32 *)(uintptr_t)to->done + (last ? 0 : 1);
        passes[i] = g;
        g.wants += g.n_wants;
    }
    d.bytes = w.bytes;
    ASSERT(d.bytes <= description_bytes(l));
    return d;
}
