#include "drivers/cuda/list.h"

#include "drivers/cuda/buffers.h"
#include "drivers/cuda/matrix.h"
#include "drivers/cuda/place.h"

#include <math.h>

enum err list_open(struct list *l, struct arena *keep, struct err_text *e)
{
    size_t layers = l->model->layers_n;
    l->head_rows = MIN(MAX(l->limits.samples, (u32)LIST_HEAD_ROWS), l->limits.step_tokens);
    size_t weights = LIST_LAYER_WEIGHTS + 3 * l->model->experts;
    l->most_weights = LIST_WEIGHTS_BESIDE + weights * layers;
    l->most_vectors = LIST_VECTORS_BESIDE + LIST_LAYER_VECTORS * layers;
    l->most_ops = LIST_STRETCHES * (LIST_OPS_BESIDE + LIST_LAYER_OPS * layers);
    l->weights = ARENA_NEW(keep, struct list_weight, l->most_weights);
    l->vectors = ARENA_NEW(keep, struct list_vector, l->most_vectors);
    l->ops = ARENA_NEW(keep, struct op, l->most_ops);
    l->labels = ARENA_NEW(keep, const char *, l->most_ops);
    if (!l->weights || !l->vectors || !l->ops || !l->labels)
        return arena_full(keep, "the list of GPU operations", e);
    return ERR_OK;
}

size_t list_kv_layer_bytes(const struct list *l, const struct layer *layer)
{
    const size_t heads = layer_stores(l->model, layer) ? 2 * layer->kv_heads : 0;
    return heads * PAGE_HEAD_BYTES(layer->head_dim, l->kv_int8);
}

size_t list_kv_page_bytes(const struct list *l)
{
    size_t bytes = 0;
    for (u32 i = 0; i < l->model->layers_n; i++)
        bytes += list_kv_layer_bytes(l, &l->model->layers[i]);
    return bytes;
}

bool list_has_delta(const struct model *m)
{
    return m->attention_gated || model_has_states(m);
}

/* --- operations ---------------------------------------------------------------------------- */

static struct op *add(struct list *l, enum op_kind kind, const char *label)
{
    ASSERT(l->n_ops < l->most_ops);
    struct op *op = &l->ops[l->n_ops];
    l->labels[l->n_ops++] = label;
    *op = (struct op){.kind = kind};
    return op;
}

/* Where a row goes: to `usual`, or to a place of its own. */
static float *row_of(struct buffers *b, float *usual, u32 stride)
{
    float *at = b->place;
    if (!at)
        return usual;
    b->place += stride;
    return at;
}

/* Where a linear's result goes. */
struct output {
    const char *label;
    float *y;
    const float *old; /* OUTPUT_ADD */
    u32 stride, kind; /* enum output_kind */
    float *clear;     /* awaited rows of `mid_..`; NULL in other lists */
    u32 clear_stride;
};

/* Rows as w wants them. */
static struct input input_of(const struct buffers *b, struct input in, const struct list_weight *w)
{
    in.order = w->order;
    in.features = w->from->k;
    in.k = w->to.k;
    in.room = b->room;
    in.int8 = w->from->int8_activations;
    in.group = matrix_input_group(w->from);
    return in;
}

/* n weights that share an input, their outputs side by side. */
static struct op_linear *add_linear(struct list *l, const struct buffers *b, struct input in,
                                    const struct list_weight *w, u32 n, const struct output *out)
{
    in = input_of(b, in, w);
    l->k_max = MAX(l->k_max, in.k);
    struct op_linear *op = &add(l, OP_LINEAR, out->label)->linear;
    op->in = in;
    op->output = out->kind;
    op->y = out->y;
    op->old = out->old;
    op->y_stride = out->stride;
    op->clear = out->clear;
    op->clear_stride = out->clear_stride;
    op->activation = l->model->activation;
    op->partial = b->linear_partial;
    op->arrived = b->linear_arrived;
    op->awaited = b->linear_awaited;
    for (u32 i = 0, at = 0; i < n; at += w[i++].from->n) {
        if (w[i].below) /* another's matrix */
            continue;
        op->part[op->parts] = w[i].to;
        op->at[op->parts++] = at;
    }
    return op;
}

/* n weights of the same rows; act-order may want these in another order for each. In `mid_..` the
 * first alone awaits them: who prepares for another has to meet those who still read what was
 * prepared for the one before. */
static void add_linears(struct list *l, const struct buffers *b, struct input in,
                        const struct list_weight *w, u32 n, struct output out)
{
    for (u32 i = 0; i < n;) {
        u32 same = 1, parts = 1;
        for (; i + same < n && matrix_same_input(w[i].from, w[i + same].from); same++)
            if (!w[i + same].below && ++parts > LINEAR_PARTS)
                break;
        add_linear(l, b, in, &w[i], same, &out);
        out.clear = NULL;
        in.awaited &= b->place != NULL;
        for (u32 end = i + same; i < end; i++)
            out.y += w[i].from->n;
    }
}

/* Are the rows that go into w awaited? `mid_..` does not await what it has to look up or cannot
 * read four at a time. */
static bool awaits(const struct buffers *b, const struct list_weight *w)
{
    return b->place || (b->next_x && !w->order && w->from->k % 4 == 0);
}

/* x behind a norm; without one as it is. */
static struct input normed(const struct list *l, const struct buffers *b, const float *norm,
                           const struct list_weight *w)
{
    return (struct input){.x = b->x,
                          .norm = norm,
                          .prepared = b->prepared.inputs,
                          .prepared_scale = b->prepared.scale,
                          .prepared_factor = b->prepared.factor,
                          .kind = norm ? INPUT_NORM : INPUT_ROWS,
                          .stride = b->x_stride,
                          .awaited = awaits(b, w),
                          .eps = l->model->norm_eps};
}

static struct input rows(const struct buffers *b, const float *x, u32 stride, bool awaited)
{
    return (struct input){.x = x,
                          .prepared = b->prepared_rows.inputs,
                          .prepared_scale = b->prepared_rows.scale,
                          .prepared_factor = b->prepared_rows.factor,
                          .kind = INPUT_ROWS,
                          .stride = stride,
                          .awaited = awaited};
}

/* x = (x + norm(y)) * scale, rows of `hidden`. */
static void add_norm(struct list *l, const struct buffers *b, float *x, const float *y,
                     const float *norm, float scale)
{
    add(l, OP_ADD_NORM, "add_norm")->add_norm = (struct op_add_norm){.x = x,
                                                                     .y = y,
                                                                     .norm = norm,
                                                                     .x_stride = b->x_stride,
                                                                     .y_stride = b->x_stride,
                                                                     .heads = 1,
                                                                     .hidden = l->model->hidden,
                                                                     .eps = l->model->norm_eps,
                                                                     .scale = scale};
}

/* x = (x + W in) * scale, W in through a norm where the family has one after the block; without one
 * scale is 1. */
static void add_product(struct list *l, struct buffers *b, const struct input *in,
                        const char *label, const struct list_weight *w, const float *norm_after,
                        float scale, float *clear, u32 clear_stride)
{
    struct output out = {.label = label,
                         .y = norm_after  ? b->y
                              : b->next_x ? b->next_x
                                          : row_of(b, b->x, b->x_stride),
                         .old = b->x,
                         .stride = b->x_stride,
                         .kind = norm_after ? OUTPUT_STORE : OUTPUT_ADD,
                         .clear = b->next_x ? clear : NULL,
                         .clear_stride = clear_stride};
    add_linear(l, b, *in, w, 1, &out);
    if (!norm_after) {
        b->next_x = b->next_x ? b->x : NULL;
        b->x = out.y;
        return;
    }
    add_norm(l, b, b->x, b->y, norm_after, scale);
}

/* Norms [heads][n] features of rows in their place. */
static void add_norm_rows(struct list *l, float *x, u32 stride, const float *norm, u32 heads, u32 n)
{
    add(l, OP_NORM, "norm")->add_norm = (struct op_add_norm){.x = x,
                                                             .y = x,
                                                             .norm = norm,
                                                             .x_stride = stride,
                                                             .y_stride = stride,
                                                             .heads = heads,
                                                             .hidden = n,
                                                             .eps = l->model->norm_eps,
                                                             .scale = 1};
}

static struct op_gated gated(const struct model *m, const struct layer *layer,
                             const struct buffers *b, float *out, u32 stride)
{
    return (struct op_gated){b->in,          out, b->in_stride, stride, m->heads, layer->kv_heads,
                             layer->head_dim};
}

static void add_attention(struct list *l, const struct buffers *b, const struct layer *layer,
                          const struct parts *p)
{
    const struct model *m = l->model;
    float *qkv = layer->window ? b->qkv_window : b->qkv;
    const bool of_heads = m->qk_norm == QK_NORM_HEADS, turned = m->qk_norm == QK_NORM_TURNED;
    struct op_attention a = {.qkv = qkv,
                             .k = p->k,
                             .v = p->v,
                             .norm_q = turned     ? b->ones
                                       : of_heads ? p->norm_q
                                                  : NULL,
                             .norm_k = turned     ? b->ones
                                       : of_heads ? p->norm_k
                                                  : NULL,
                             .turned_q = turned ? p->norm_q : NULL,
                             .turned_k = turned ? p->norm_k : NULL,
                             .rope = b->rope[layer->rope],
                             .rope_long = b->rope_long[layer->rope],
                             .out = b->attention,
                             .partial = b->attention_partial,
                             .arrived = b->attention_arrived,
                             .partial_rows = b->partial_rows,
                             .stride = b->qkv_stride,
                             .out_stride = b->attention_stride,
                             .heads = m->heads,
                             .kv_heads = layer->kv_heads,
                             .head_dim = layer->head_dim,
                             .window = layer->window,
                             .eps = m->norm_eps,
                             .scale = m->attention_scale,
                             .softcap = m->attention_softcap,
                             .awaited = b->place || b->next_x,
                             .int8 = l->kv_int8,
                             .sinks = p->sinks,
                             .query_scale = b->query_scale,
                             .query_part = m->query_scale ? 1.0f / (float)m->query_span : 0};
    ASSERT(!a.sinks || a.softcap == 0); /* struct attention_row has room for one of them */
    if (m->attention_gated)
        add(l, OP_QUERIES, "queries")->gated = gated(m, layer, b, qkv, b->qkv_stride);
    const u32 q = m->heads * layer->head_dim, kv = layer->kv_heads * layer->head_dim;
    if (m->qk_norm == QK_NORM_ROWS) {
        add_norm_rows(l, qkv, b->qkv_stride, p->norm_q, 1, q);
        add_norm_rows(l, qkv + q, b->qkv_stride, p->norm_k, 1, kv);
    }
    if (m->v_norm && layer_stores(m, layer))
        add_norm_rows(l, qkv + q + kv, b->qkv_stride, NULL, layer->kv_heads, layer->head_dim);
    if (m->rope_pairs && a.rope.dims)
        add(l, OP_PAIRS, "pairs")->pairs = (struct op_pairs){
            qkv, b->qkv_stride, m->heads + layer->kv_heads, layer->head_dim, a.rope.dims};
    if (!b->turns)
        add(l, OP_ROPE, "rope")->attention = a;
    add(l, OP_ATTENTION, "attention")->attention = a;
    if (m->attention_gated)
        add(l, OP_GATES, "gates")->gated = gated(m, layer, b, b->attention, b->attention_stride);
}

/* The part of a token's row that is `part`'s. */
static struct delta_columns columns_of(const struct delta_shape *d, enum delta_part part)
{
    const struct delta_place place = delta_place(d, part);
    return (struct delta_columns){place.at, place.step};
}

static void add_delta(struct list *l, const struct buffers *b, const struct parts *p)
{
    const struct delta_shape *shape = &l->model->delta;
    struct op_delta d = p->delta;
    d.in = b->in;
    d.out = b->attention;
    d.stride = b->in_stride;
    d.mixed = b->qkv;
    d.mixed_stride = b->qkv_stride;
    d.out_stride = b->attention_stride;
    d.state_stride = l->state_floats;
    d.q = columns_of(shape, DELTA_PART_Q);
    d.k = columns_of(shape, DELTA_PART_K);
    d.v = columns_of(shape, DELTA_PART_V);
    d.z = columns_of(shape, DELTA_PART_Z);
    d.b = columns_of(shape, DELTA_PART_B);
    d.a = columns_of(shape, DELTA_PART_A);
    d.channels = delta_channels(shape);
    d.key_heads = shape->key_heads;
    d.value_heads = shape->value_heads;
    d.shared = shape->value_heads / shape->key_heads;
    d.key_dim = shape->key_dim;
    d.value_dim = shape->value_dim;
    d.taps = shape->taps;
    d.norm_n = shape->norm_groups > 1 ? delta_values(shape) / shape->norm_groups : shape->value_dim;
    d.eps = shape->eps;
    add(l, OP_CONVOLVE, "convolve")->delta = d;
    add(l, OP_DELTA, "delta")->delta = d;
    add(l, OP_DELTA_END, "delta_end")->delta = d;
}

static void add_short(struct list *l, const struct buffers *b, const struct parts *p)
{
    struct op_delta d = p->delta;
    d.in = b->in;
    d.out = b->attention;
    d.stride = b->in_stride;
    d.out_stride = b->attention_stride;
    d.state_stride = l->state_floats;
    d.channels = l->model->hidden;
    d.taps = l->model->conv_taps;
    add(l, OP_SHORT, "short")->delta = d;
}

/* h = act(gate) * up. */
static void add_mlp(struct list *l, struct buffers *b, const struct layer *layer,
                    const struct parts *p)
{
    const struct model *m = l->model;
    const u32 wide = place_mlp_n(m, layer);
    ASSERT(m->activation != ACT_GPT_OSS); /* experts alone have it */
    ASSERT(m->activation != ACT_RELU || m->mlp_ungated);
    struct input in = normed(l, b, p->norm_mlp, p->gate_up);
    if (place_shares(m, layer)) {
        struct output out = {.label = "gate_up",
                             .y = b->h,
                             .stride = b->h_stride,
                             .kind = OUTPUT_GATE,
                             .clear = b->next_x,
                             .clear_stride = b->x_stride};
        add_linear(l, b, in, p->gate_up, 1, &out);
        return;
    }
    struct output out = {.label = m->mlp_ungated ? "up" : "gate_up",
                         .y = m->mlp_ungated ? b->h : b->raw,
                         .stride = m->mlp_ungated ? b->h_stride : b->raw_stride,
                         .kind = OUTPUT_STORE};
    add_linears(l, b, in, p->gate_up, m->n_gate_up, out);
    add(l, OP_GATE, "gate")->gate = (struct op_gate){.gate = out.y,
                                                     .up = out.y + (m->mlp_ungated ? 0 : wide),
                                                     .h = b->h,
                                                     .in_stride = out.stride,
                                                     .h_stride = b->h_stride,
                                                     .n = wide,
                                                     .activation = m->activation};
}

/* Of experts without gates h = act(up) * up, in place. What a step has of pairs lies in as many
 * rows as it has tokens, each of all of one's pairs. */
static void add_pair_gate(struct list *l, const struct buffers *b)
{
    const u32 n = l->model->experts_used * b->pair_stride;
    add(l, OP_GATE, "gate")->gate = (struct op_gate){.gate = b->pair_h,
                                                     .up = b->pair_h,
                                                     .h = b->pair_h,
                                                     .in_stride = n,
                                                     .h_stride = n,
                                                     .n = n,
                                                     .activation = l->model->activation};
}

static struct op_experts *add_expert_linear(struct list *l, const struct buffers *b,
                                            const char *label, struct input in,
                                            const struct list_weight *w)
{
    struct op_experts *op = &add(l, OP_EXPERTS, label)->experts;
    *op = (struct op_experts){.in = input_of(b, in, w),
                              .matrix = w->to,
                              .routes = b->routes,
                              .units = w->to.n / l->model->experts / 16,
                              .activation = l->model->activation,
                              .partial = b->linear_partial};
    op->in.room = op->in.k;
    op->few_rows = experts_few_rows(op, l->shared_bytes);
    l->few_rows = MIN(l->few_rows, op->few_rows);
    op->in.prepared = b->prepared_pairs.inputs;
    op->in.prepared_scale = b->prepared_pairs.scale;
    op->in.prepared_factor = b->prepared_pairs.factor;
    return op;
}

/* y = what the expert says that all tokens take. */
static void add_shared(struct list *l, struct buffers *b, const struct layer *layer,
                       const struct parts *p)
{
    struct output out = {.label = "down", .y = b->y, .stride = b->x_stride, .kind = OUTPUT_STORE};
    add_mlp(l, b, layer, p);
    add_linear(l, b, rows(b, b->h, b->h_stride, false), p->down, 1, &out);
}

/* x += what the experts say. A gated shared one, whose share is of x as it was, has said it before
 * the others have, and it is added before theirs. Of one that is not, h is made before, and what
 * comes of it is added behind theirs: so it costs no launch between `prefill_..` and theirs. Where
 * mixtures have norms of their own, the answers meet in y. */
static void add_experts(struct list *l, struct buffers *b, const struct layer *layer,
                        const struct parts *p)
{
    const struct model *m = l->model;
    const bool normed_apart = layer->mixture->norms != NULL;
    if (m->shared_gated || normed_apart)
        add_shared(l, b, layer, p);
    else if (m->shared_intermediate)
        add_mlp(l, b, layer, p);
    if (normed_apart)
        add_norm_rows(l, b->y, b->x_stride, p->norm_after_shared, 1, m->hidden);
    const float *before = normed_apart ? p->norm_router : p->norm_mlp;
    struct input in = normed(l, b, before, p->expert_up);
    b->routes.logits = row_of(b, b->routes.logits, row_stride(m->experts));
    b->pair_h = row_of(b, b->pair_h, m->experts_used * b->pair_stride);
    struct op_route route = {b->routes,         input_of(b, in, p->expert_up),
                             p->router,         p->bias,
                             m->experts_scale,  m->experts_least,
                             p->router_bias,    p->by_expert,
                             m->experts_softmax};
    route.in.order = NULL;
    add(l, OP_ROUTE, "route")->route = route;
    if (!b->place)
        add(l, layer->mixture->bias ? OP_JUDGE : OP_CHOOSE, "choose")->route = route;
    in.norm = normed_apart ? p->norm_experts : in.norm;
    struct op_experts *op = add_expert_linear(l, b, "experts_up", in, p->expert_up);
    op->output = m->mlp_ungated ? OUTPUT_STORE : OUTPUT_GATE;
    op->y = b->pair_h;
    op->y_stride = b->pair_stride;
    if (m->mlp_ungated)
        add_pair_gate(l, b);
    in = rows(b, b->pair_h, b->pair_stride, b->place != NULL);
    op = add_expert_linear(l, b, "experts_down", in, p->expert_down);
    op->paired = 1;
    op->y_stride = b->x_stride;
    if (b->place) {
        op->output = OUTPUT_ADD;
        op->old = b->x;
        op->y = b->x = row_of(b, b->x, b->x_stride);
        return;
    }
    op->output = OUTPUT_STORE;
    op->y = b->pair_y;
    if (m->shared_gated) /* of x that the experts have seen */
        add(l, OP_SHARED, "shared")->shared = (struct op_shared){
            b->x, b->y, p->norm_mlp, p->share, b->x_stride, m->hidden, m->norm_eps};
    float *to = normed_apart ? b->said : b->x;
    add(l, OP_MIX, "mix")->mix = (struct op_mix){b->routes,   to,        b->pair_y,   b->x_stride,
                                                 b->x_stride, m->hidden, normed_apart};
    if (normed_apart) {
        add_norm(l, b, b->y, b->said, p->norm_after_experts, 1);
        add_norm(l, b, b->x, b->y, p->norm_after_mlp, layer->scale);
        return;
    }
    in = rows(b, b->h, b->h_stride, false);
    if (m->shared_intermediate && !m->shared_gated)
        add_product(l, b, &in, "down", p->down, NULL, 1, NULL, 0);
}

/* The layer's own input of each token (struct own_inputs). */
static void add_own_input(struct list *l, struct buffers *b, const struct layer *layer,
                          const struct parts *p)
{
    const struct model *m = l->model;
    struct output out = {
        .label = "own_gate", .y = b->own_made, .stride = b->own_stride, .kind = OUTPUT_STORE};
    add_linear(l, b, normed(l, b, NULL, p->own_gate), p->own_gate, 1, &out);
    add(l, OP_GATE, "gate")->gate = (struct op_gate){.gate = b->own_made,
                                                     .up = b->own + (layer - m->layers) * m->own.n,
                                                     .h = b->h,
                                                     .in_stride = b->own_stride,
                                                     .h_stride = b->h_stride,
                                                     .n = m->own.n,
                                                     .activation = m->activation};
    struct input in = rows(b, b->h, b->h_stride, false);
    add_product(l, b, &in, "own_out", p->own_out, p->norm_after_own, layer->scale, NULL, 0);
}

static void add_layer(struct list *l, struct buffers *b, const struct layer *layer,
                      const struct parts *p)
{
    const struct model *m = l->model;
    struct input in = normed(l, b, p->norm_attention, p->qkv);
    if (layer == m->layers && b->next_x) /* in `mid_..` the blocks meet behind OP_EMBED */
        in.awaited = 0;
    b->qkv = row_of(b, b->qkv, b->qkv_stride);
    b->attention = row_of(b, b->attention, b->attention_stride);
    if (!layer->mixture)
        b->h = row_of(b, b->h, b->h_stride);
    const bool attends = layer_attends(layer), apart = !attends || m->attention_gated;
    struct output out = {.label = attends ? "qkv" : "in",
                         .y = apart           ? b->in
                              : layer->window ? b->qkv_window
                                              : b->qkv,
                         .stride = apart ? b->in_stride : b->qkv_stride,
                         .kind = OUTPUT_STORE,
                         .clear = b->next_x,
                         .clear_stride = b->x_stride};
    u32 n;
    layer_inputs(m, layer, &n);
    add_linears(l, b, in, p->qkv, n, out);
    if (layer->delta)
        add_delta(l, b, p);
    else if (layer->conv)
        add_short(l, b, p);
    else
        add_attention(l, b, layer, p);
    in = rows(b, b->attention, b->attention_stride, awaits(b, p->o));
    if (p->norm_mixed) {
        in.kind = INPUT_NORM;
        in.norm = p->norm_mixed;
        in.eps = m->delta.eps;
    }
    add_product(l, b, &in, "o", p->o, p->norm_after_attention, 1, b->qkv, b->qkv_stride);
    if (layer->mixture)
        return add_experts(l, b, layer, p);
    if (!layer_has_mlp(layer)) {
        ASSERT(layer->scale == 1 && !m->own.n);
        return;
    }
    add_mlp(l, b, layer, p);
    in = rows(b, b->h, b->h_stride, awaits(b, p->down) && place_shares(m, layer));
    add_product(l, b, &in, "down", p->down, p->norm_after_mlp, m->own.n ? 1 : layer->scale,
                b->attention, b->attention_stride);
    if (m->own.n)
        add_own_input(l, b, layer, p);
}

static void add_head(struct list *l, const struct buffers *b, const struct list_weight *head,
                     const float *norm_final, const struct op_sample *sample)
{
    struct input in = normed(l, b, norm_final, head);
    in.wanted = 1;
    struct output out = {
        .label = "head", .y = l->logits, .stride = l->logits_stride, .kind = OUTPUT_STORE};
    add_linear(l, b, in, head, 1, &out)->softcap = l->model->logit_softcap;
    add(l, OP_SAMPLE, "sample")->sample = *sample;
}

/* --- all of it ----------------------------------------------------------------------------- */

static void ends_piece(struct list *l, const struct vram *s, enum list_piece piece)
{
    size_t before = 0;
    if (s->taken)
        return;
    for (u32 i = 0; i < LIST_PIECES; i++)
        before += i == piece ? 0 : l->bytes[i];
    l->bytes[piece] = vram_bytes(s) - before;
}

/* A slot's state of all layers lies together, as it is copied to a checkpoint and from there. */
static void carve_states(struct list *l, struct vram *s, struct parts *parts)
{
    const struct model *m = l->model;
    l->state_floats = (u32)(model_state_bytes(m) / sizeof(float));
    if (!l->state_floats)
        return;
    float *at = carve_rows(s, l->limits.slots + l->limits.checkpoints, l->state_floats);
    l->states = (uintptr_t)at;
    for (u32 i = 0; i < m->layers_n; i++) {
        parts[i].delta.state = at;
        at += layer_state_floats(m, &m->layers[i]);
    }
}

/* KV pages, and below them, until the first step, what is uploaded. */
static void carve_kv(struct list *l, struct vram *s, struct parts *parts)
{
    struct vram_mark mark = vram_here(s);
    l->staging = vram_carve(s, l->staging_bytes);
    vram_back(s, mark);
    for (u32 i = 0; i < l->model->layers_n && l->limits.pages; i++) {
        const struct layer *layer = &l->model->layers[i];
        const size_t bytes = l->limits.pages * list_kv_layer_bytes(l, layer) / 2;
        parts[i].k = bytes ? vram_pointer(s, bytes) : parts[layer->kv_layer].k;
        parts[i].v = bytes ? vram_pointer(s, bytes) : parts[layer->kv_layer].v;
    }
}

/* What a step's operations need besides buffers. */
struct ends {
    const struct parts *parts; /* [layers] */
    const struct list_weight *embed, *head, *own_embed, *own_project;
    const float *norm_final, *norm_own;
    struct op_sample sample;
};

/* own = own_embed + norm(own_project x / sqrt(hidden)), where what is divided only changes eps. */
static void add_own_inputs(struct list *l, struct buffers *b, const struct ends *ends)
{
    const struct model *m = l->model;
    const u32 all = m->layers_n * m->own.n;
    add(l, OP_EMBED, "own_embed")->embed = (struct op_embed){
        ends->own_embed->to, b->own, b->own_stride, all, m->own.scale * (float)M_SQRT1_2};
    struct output out = {
        .label = "own_project", .y = b->own_made, .stride = b->own_stride, .kind = OUTPUT_STORE};
    add_linear(l, b, normed(l, b, NULL, ends->own_project), ends->own_project, 1, &out);
    add(l, OP_ADD_NORM, "add_norm")->add_norm =
        (struct op_add_norm){.x = b->own,
                             .y = b->own_made,
                             .norm = ends->norm_own,
                             .x_stride = b->own_stride,
                             .y_stride = b->own_stride,
                             .heads = m->layers_n,
                             .hidden = m->own.n,
                             .eps = m->norm_eps * (float)m->hidden,
                             .scale = 1};
}

/* A list of its own of a step's operations. */
static struct list_stretch add_step(struct list *l, struct buffers b, const struct ends *ends)
{
    const struct model *m = l->model;
    struct list_stretch ops = {.first = l->n_ops};
    if (b.place)
        add(l, OP_CLEAR, "clear")->clear = (struct op_clear){b.places, buffers_places(l, &b)};
    b.x = row_of(&b, b.x, b.x_stride);
    add(l, OP_EMBED, "embed")->embed =
        (struct op_embed){ends->embed->to, b.x, b.x_stride, m->hidden, m->embed_scale};
    if (m->own.n)
        add_own_inputs(l, &b, ends);
    for (u32 i = 0; i < m->layers_n; i++)
        add_layer(l, &b, &m->layers[i], &ends->parts[i]);
    ASSERT(!b.place || b.place == b.places + buffers_places(l, &b));
    b.next_x = NULL; /* what follows is another launch */
    ops.head = l->n_ops;
    ops.x = b.x;
    add_head(l, &b, ends->head, ends->norm_final, &ends->sample);
    ops.last = l->n_ops;
    return ops;
}

/* The same with the rows of `mid_..`. */
static struct buffers in_mid(struct buffers b)
{
    b.x = b.mid_x[0];
    b.next_x = b.mid_x[1];
    b.qkv = b.mid_qkv; /* a token's rows of qkv and h side by side, so that o clears both */
    b.h = b.mid_qkv + b.qkv_stride;
    b.qkv_stride = b.h_stride = b.qkv_stride + b.h_stride;
    b.attention = b.mid_attention;
    b.prepared_rows = b.mid_prepared;
    return b;
}

/* Tells each operation of `step` which linear comes next. */
static void look_ahead(struct list *l)
{
    for (u32 i = l->step.last, ahead = 0; i-- > l->step.first;) {
        l->ops[i].ahead = ahead;
        if (l->ops[i].kind == OP_LINEAR)
            ahead = i;
    }
}

void list_build(struct list *l, struct vram *s)
{
    static struct parts parts[LIMIT_LAYERS];
    const struct model *m = l->model;
    struct buffers b = {0};
    struct ends ends = {.parts = parts};
    l->n_weights = l->n_vectors = l->n_ops = 0;
    l->few_rows = FEW_TOKENS;
    memset(parts, 0, sizeof parts); /* what a layer lacks is NULL */
    if (!s->taken)
        memset(l->bytes, 0, sizeof l->bytes);
    ends.embed = matrix_place(l, s, &m->embed);
    if (m->own.n) {
        ends.own_embed = l->own.in_host ? matrix_place_in_host(l, s, &m->own.embed, &l->own)
                                        : matrix_place(l, s, &m->own.embed);
        ends.own_project = matrix_place(l, s, &m->own.project);
    }
    for (u32 i = 0; i < m->layers_n; i++) {
        place_weights(l, s, &m->layers[i], &parts[i]);
        if (m->layers[i].mixture)
            b.pair_room =
                MAX(b.pair_room, MAX(parts[i].expert_up->to.k, parts[i].expert_down->to.k));
    }
    ends.head = m->tied ? ends.embed : matrix_place(l, s, &m->head);
    l->packed = s->chunks[0].base;
    l->packed_bytes = s->at.chunk == 0 ? s->at.used_bytes : s->chunks[0].bytes;
    ends_piece(l, s, LIST_WEIGHTS);
    for (u32 i = 0; i < m->layers_n; i++)
        place_vectors(l, s, &m->layers[i], &parts[i]);
    ends.norm_final = place_vector(
        l, s,
        (struct list_vector){.tensor = m->norm_final, .scale = m->logit_scale, .n = m->hidden});
    if (m->own.n)
        ends.norm_own = place_vector(
            l, s,
            (struct list_vector){.tensor = m->own.norm, .scale = (float)M_SQRT1_2, .n = m->own.n});
    for (u32 i = 0; i < ROPE_SETS; i++) {
        b.rope[i] = place_rope(l, s, &m->rope[i]);
        b.rope_long[i] = place_rope(l, s, &m->rope_long[i]);
    }
    if (m->qk_norm == QK_NORM_TURNED) {
        static const float ones[] = {[0 ... 127] = 1}; /* matrix_takes */
        b.ones = place_vector(l, s, (struct list_vector){.values = ones, .n = COUNTOF(ones)});
    }
    if (m->query_scale)
        b.query_scale =
            place_vector(l, s,
                         (struct list_vector){.values = m->query_scale,
                                              .n = CEIL_DIV(m->context, m->query_span)});
    buffers_zeros(l, s, &b);
    buffers_state(l, s);
    ends_piece(l, s, LIST_OPS);
    buffers_activations(l, s, &b);
    ends_piece(l, s, LIST_ACTIVATIONS);
    buffers_sampling(l, s, &ends.sample);
    ends.sample.arrived = b.sample_arrived;
    ends.sample.work = (struct sample_work *)(void *)b.sample_work;
    ends_piece(l, s, LIST_SAMPLING);
    carve_states(l, s, parts);
    ends_piece(l, s, LIST_STATES);
    carve_kv(l, s, parts);
    ends_piece(l, s, LIST_KV);

    l->step = add_step(l, b, &ends);
    b.turns = true;
    l->mid = l->decode = l->one = add_step(l, b, &ends);
    if (b.mid_qkv)
        l->mid = add_step(l, in_mid(b), &ends);
    b.place = b.places;
    if (b.place)
        l->one = add_step(l, b, &ends);
    look_ahead(l);
}
