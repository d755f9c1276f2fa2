#include "drivers/cuda/buffers.h"

#include "drivers/cuda/place.h"

/* Inputs of the widest matrix, packed. */
static u32 inputs_max(const struct list *l)
{
    u32 k = 0;
    for (u32 i = 0; i < l->n_weights; i++)
        k = MAX(k, l->weights[i].to.k);
    return k;
}

/* Enough for a sequence of 128k positions and groups of four; what is beyond works with fewer
 * blocks a sequence. */
enum { PARTIAL_ROWS_MAX = 65536 };

/* Are there answers of matrices that are not just added to x? */
static bool has_answers(const struct model *m)
{
    return m->layers[0].norm_after_attention || m->layers[0].norm_after_mlp || m->shared_gated;
}

/* Does a layer see the keys and values of another? */
static bool shares_keys(const struct model *m)
{
    for (u32 i = 0; i < m->layers_n; i++)
        if (m->layers[i].kv_layer != i)
            return true;
    return false;
}

static bool shares_all(const struct model *m)
{
    for (u32 i = 0; i < m->layers_n; i++)
        if (!place_shares(m, &m->layers[i]))
            return false;
    return true;
}

void buffers_zeros(struct list *l, struct vram *s, struct buffers *b)
{
    const struct {
        u32 **to;
        size_t n;
    } words[] = {{&b->sample_work, l->head_rows * sizeof(struct sample_work) / sizeof(u32)},
                 {&b->attention_arrived, l->blocks * SPLITS_TEAMS},
                 {&b->linear_arrived, LINEAR_COUNTERS},
                 {&b->sample_arrived, 1},
                 {&l->state.barrier, 1}};
    l->n_zeros = 0;
    for (u32 i = 0; i < COUNTOF(words); i++)
        l->n_zeros += words[i].n;
    u32 *p = vram_pointer(s, l->n_zeros * sizeof *p);
    l->zeros = (uintptr_t)p;
    for (u32 i = 0; i < COUNTOF(words); i++) {
        *words[i].to = p;
        p += words[i].n;
    }
}

u32 buffers_places(const struct list *l, const struct buffers *b)
{
    const struct model *m = l->model;
    u32 n = b->x_stride + m->layers_n * (2 * b->x_stride + b->qkv_stride + b->attention_stride);
    for (u32 i = 0; i < m->layers_n; i++)
        n += m->layers[i].mixture ? row_stride(m->experts) + m->experts_used * b->pair_stride
                                  : b->h_stride;
    return n;
}

/* Rows of `room` inputs. */
static struct prepared carve_prepared(struct vram *s, u32 room, u32 n)
{
    const u32 rows = ROUND_UP(n, 128u);
    const size_t groups = (size_t)rows * (room / MATRIX_K_UNIT);
    return (struct prepared){.inputs = vram_pointer(s, groups * PREPARED_GROUP_BYTES),
                             .scale = carve_rows(s, rows, MATRIX_SLICES),
                             .factor = carve_rows(s, rows, 1)};
}

/* What must be NOT_YET before the first step, side by side; of models that have a list for `mid_..`
 * all that is awaited there, else only what any linear of `mid_..` needs. */
static void carve_awaited(struct list *l, struct vram *s, struct buffers *b)
{
    const bool one = shares_all(l->model) && !has_answers(l->model) &&
                     !l->model->shared_intermediate && !list_has_delta(l->model);
    const bool layers = one && !l->model->experts;
    const u32 tokens = layers ? MIN(l->limits.step_tokens, (u32)MID_TOKENS) : 0;
    const u32 qkv_h = b->qkv_stride + b->h_stride;
    l->n_unset = LINEAR_PARTIALS + (size_t)tokens * (qkv_h + b->attention_stride);
    b->linear_awaited = vram_pointer(s, l->n_unset * sizeof *b->linear_awaited);
    l->unset = (uintptr_t)b->linear_awaited;
    if (one)
        b->places = carve_rows(s, 1, buffers_places(l, b));
    if (!layers)
        return;
    b->mid_qkv = b->linear_awaited + LINEAR_PARTIALS;
    b->mid_attention = b->mid_qkv + (size_t)tokens * qkv_h;
    for (u32 i = 0; i < 2; i++)
        b->mid_x[i] = carve_rows(s, tokens, b->x_stride);
    b->mid_prepared = carve_prepared(s, b->room, tokens);
}

static void carve_experts(struct list *l, struct vram *s, struct buffers *b)
{
    const struct model *m = l->model;
    const size_t tokens = l->limits.step_tokens, pairs = tokens * m->experts_used;
    struct routes *r = &b->routes;
    *r = (struct routes){.experts = m->experts,
                         .used = m->experts_used,
                         .room = l->limits.step_tokens,
                         .renormalized = m->experts_renormalized};
    r->logits = vram_pointer(s, tokens * m->experts * sizeof *r->logits);
    r->count = vram_pointer(s, m->experts * sizeof *r->count);
    r->token = vram_pointer(s, tokens * m->experts * sizeof *r->token);
    r->route = vram_pointer(s, pairs * sizeof *r->route);
    b->pair_stride = row_stride(m->expert_intermediate);
    b->pair_h = carve_rows(s, (u32)pairs, b->pair_stride);
    b->pair_y = carve_rows(s, (u32)pairs, b->x_stride);
    b->said = carve_rows(s, m->layers[0].norm_after_mlp ? (u32)tokens : 0, b->x_stride);
    b->prepared_pairs =
        carve_prepared(s, b->pair_room, experts_prepared_rows(m->experts, (u32)pairs));
}

void buffers_activations(struct list *l, struct vram *s, struct buffers *b)
{
    const struct model *m = l->model;
    u32 tokens = l->limits.step_tokens;
    b->x_stride = l->x_stride = row_stride(m->hidden);
    const u32 mixed = delta_channels(&m->delta) + 4 * m->delta.value_heads; /* struct op_delta */
    const u32 gates = m->attention_gated ? m->heads * m->head_dim : 0;
    b->qkv_stride = row_stride(MAX(model_qkv_n(m) - gates, mixed));
    b->attention_stride = row_stride(model_mixed_n(m));
    b->h_stride = row_stride(MAX(MAX(m->intermediate, m->shared_intermediate), m->own.n));
    b->raw_stride = row_stride(2 * MAX(m->intermediate, m->shared_intermediate));
    b->x = carve_rows(s, tokens, b->x_stride);
    b->y = has_answers(m) ? carve_rows(s, tokens, b->x_stride) : NULL;
    b->in_stride = row_stride(model_row_n(m));
    b->in = list_has_delta(m) ? carve_rows(s, tokens, b->in_stride) : NULL;
    b->qkv = carve_rows(s, tokens, b->qkv_stride);
    b->qkv_window = shares_keys(m) ? carve_rows(s, tokens, b->qkv_stride) : b->qkv;
    b->own_stride = row_stride(m->layers_n * m->own.n);
    b->own = carve_rows(s, tokens, b->own_stride);
    b->own_made = carve_rows(s, tokens, b->own_stride);
    b->attention = carve_rows(s, tokens, b->attention_stride);
    b->h = carve_rows(s, tokens, b->h_stride);
    b->raw = shares_all(m) || m->mlp_ungated ? NULL : carve_rows(s, tokens, b->raw_stride);
    b->room = inputs_max(l);
    b->prepared = b->prepared_rows = carve_prepared(s, b->room, tokens);
    b->linear_partial = carve_rows(s, LINEAR_PARTIALS, 1);
    u32 splits = CEIL_DIV(l->limits.context, (u32)ATTENTION_SPLIT);
    b->partial_rows = MIN(2 * ATTENTION_ROWS * splits * m->kv_heads, (u32)PARTIAL_ROWS_MAX);
    b->attention_partial = carve_rows(s, b->partial_rows, ROUND_UP(m->head_dim, 16u) + 4);
    if (m->experts)
        carve_experts(l, s, b);
    if (l->awaits)
        carve_awaited(l, s, b);
}

void buffers_state(struct list *l, struct vram *s)
{
    const struct model *m = l->model;
    size_t slots = l->limits.slots;
    struct gpu_state *state = &l->state;
    state->pages_stride = CEIL_DIV(l->limits.context, (u32)LIMIT_PAGE_TOKENS);
    state->vocab = m->vocab;
    state->pages = vram_pointer(s, slots * state->pages_stride * sizeof *state->pages);
    state->sampling = vram_pointer(s, slots * sizeof *state->sampling);
    state->last = vram_pointer(s, slots * sizeof *state->last);
    for (u32 i = 0; i < l->steps; i++)
        l->card_steps[i] = vram_carve(s, l->step_bytes);
    l->card_ops = vram_pointer(s, l->most_ops * sizeof *l->ops);
}

void buffers_sampling(struct list *l, struct vram *s, struct op_sample *op)
{
    size_t slots = l->limits.slots, samples = l->limits.samples, vocab = l->model->vocab;
    l->logits_stride = row_stride(l->model->vocab);
    l->logits = carve_rows(s, l->head_rows, l->logits_stride);
    op->logits = l->logits;
    op->stride = l->logits_stride;
    op->vocab = l->model->vocab;
    op->z = carve_rows(s, l->head_rows, l->logits_stride);
    op->list =
        vram_pointer(s, (size_t)l->head_rows * SAMPLE_SIDES * l->logits_stride * sizeof *op->list);
    op->mask_stride = 2 * MASK_WORDS(l->model->vocab);
    op->masks = l->masks = vram_pointer(s, samples * op->mask_stride * sizeof *op->masks);
    l->state.output_counts = vram_pointer(s, slots * vocab * sizeof *l->state.output_counts);
    l->state.prompt_seen = vram_pointer(s, slots * vocab * sizeof *l->state.prompt_seen);
}
