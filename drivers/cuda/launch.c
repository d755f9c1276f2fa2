#include "drivers/cuda/launch.h"

#include "drivers/cuda/profile.h"

enum {
    /* Steps of so many tokens and more take less time by `mid_..` than by `decode`: where it does
     * all layers, and else. */
    MID_LAYERS_TOKENS = 2,
    MID_LINEARS_TOKENS = 5,
};

/* --- what kernels can do --------------------------------------------------------------------- */

/* Can layers be all of `mid_..`, `one_token` or `one_experts`? These have no OP_NORM, OP_PAIRS,
 * OP_SHARED, nothing of `delta`, no ACT_RELU, and heads that fit. */
static bool layers_fit(const struct model *m)
{
    if (m->qk_norm == QK_NORM_ROWS || m->v_norm || m->rope_pairs || m->shared_intermediate ||
        list_has_delta(m) || m->activation == ACT_RELU)
        return false;
    for (u32 i = 0; i < ROPE_SETS; i++)
        if (!attention_is_low(m->heads, m->kv_heads, m->head_dim, m->rope[i].dims) ||
            !attention_is_low(m->heads, m->kv_heads, m->head_dim, m->rope_long[i].dims))
            return false;
    return true;
}

/* What `mid_..` can do of the model. */
static enum mid_way mid_does(struct steps *s)
{
    const struct list *l = s->list;
    u32 linears = 0, mid[MATRIX_HALF + 1] = {0}, all = 0;
    for (u32 i = l->step.first; i < l->step.head; i++) {
        linears += l->ops[i].kind == OP_LINEAR;
        for (u32 kind = 0; kind <= MATRIX_HALF && l->ops[i].kind == OP_LINEAR; kind++)
            mid[kind] += linear_is_mid(&l->ops[i].linear, kind);
    }
    for (u32 kind = 0; kind <= MATRIX_HALF; kind++) {
        all += mid[kind];
        s->mid_kind = mid[kind] ? kind : s->mid_kind;
    }
    if (!s->mid[0].function || !all)
        return MID_NONE;
    const bool pages = !l->kv_int8 || s->mid_kind == MATRIX_INT4; /* that attention of it knows */
    const bool layers =
        pages && mid[s->mid_kind] == linears && layers_fit(l->model) && !l->model->experts;
    return layers ? MID_LAYERS : MID_LINEARS;
}

/* An operation of the list for `one_token` or `one_experts`; in so many bytes of shared memory. */
static bool is_one(const struct op *op, u32 have)
{
    switch (op->kind) {
    case OP_LINEAR:
        return linear_is_one(&op->linear) &&
               FEW_ROW_BYTES(op->linear.in.k) + ONE_WORK_BYTES <= have;
    case OP_ROUTE:
        return route_is_one(&op->route);
    case OP_EXPERTS:
        return experts_is_one(&op->experts) &&
               op->experts.routes.used * FEW_ROW_BYTES(op->experts.in.k) + ONE_WORK_BYTES <= have;
    case OP_CHOOSE: /* a list that awaits nothing */
    case OP_JUDGE:
        return false;
    default:
        return true;
    }
}

/* Can `prefill_experts` do all experts? */
static bool broad_experts(const struct steps *s)
{
    const struct list *l = s->list;
    if (!s->prefill_experts.function)
        return false;
    for (u32 i = l->step.first; i < l->step.last; i++)
        if (l->ops[i].kind == OP_EXPERTS && !experts_are_broad(&l->ops[i].experts))
            return false;
    return true;
}

/* Can `one_token` do all layers, or `one_experts`? Then it takes less time than `decode`. */
static bool one_does(const struct steps *s, u32 have)
{
    const struct list *l = s->list;
    if (!s->one.function || !layers_fit(l->model) || step_least_bytes(l->model->head_dim) > have)
        return false;
    for (u32 i = l->one.first; i < l->one.head; i++)
        if (!is_one(&l->ops[i], have))
            return false;
    return true;
}

void launch_open(struct steps *s)
{
    const struct list *l = s->list;
    s->mid_does = mid_does(s);
    const u32 one_bytes = s->one.launch_bytes - STEP_SHARED_BYTES - s->one.rings_bytes;
    s->one_does = one_does(s, one_bytes);
    s->one_head = s->one_does && is_one(&l->ops[l->one.head], one_bytes);
    s->few_experts = s->decode.function && l->model->experts && l->few_rows;
    s->broad_experts = broad_experts(s);
    s->few_delta = s->prefill[0].function && !l->kv_int8; /* that is Hopper's */
}

/* --- launches -------------------------------------------------------------------------------- */

/* One launch of operations [first, last). ring_bytes: see struct gpu_run. */
static enum err launch(struct steps *s, const struct steps_kernel *k, u64 card_step, u32 ring_bytes,
                       u32 first, u32 last, struct err_text *e)
{
    struct gpu_run run = {.ops = s->list->card_ops,
                          .step = (const struct gpu_step *)(uintptr_t)card_step,
                          .state = s->list->state,
                          .first = first,
                          .last = last,
                          .shared_bytes = k->launch_bytes - STEP_SHARED_BYTES - k->rings_bytes -
                                          GPU_WARPS * ring_bytes,
                          .ring_bytes = ring_bytes,
                          .many_apart = k->many_apart};
    CUDA_TRY(cuda_launch_cooperative(k->function, k->blocks, 1, 1, k->threads, 1, 1,
                                     k->launch_bytes, s->stream, (void *[]){&run}),
             e, "start a step");
    return ERR_OK;
}

/* Operations [first, last), each alone when they are timed. */
static enum err launch_some(struct steps *s, const struct steps_kernel *k, u64 card_step,
                            u32 ring_bytes, u32 first, u32 last, struct err_text *e)
{
    if (!s->profile)
        return first < last ? launch(s, k, card_step, ring_bytes, first, last, e) : ERR_OK;
    for (u32 i = first; i < last; i++) {
        TRY(profile_begin(s->profile, s->stream, i, e));
        TRY(launch(s, k, card_step, ring_bytes, i, i + 1, e));
    }
    return ERR_OK;
}

static bool is_experts(const struct op *op)
{
    return (op->kind >= OP_ROUTE && op->kind <= OP_MIX) || op->kind == OP_JUDGE;
}

static bool is_delta(const struct op *op)
{
    return op->kind == OP_SHORT || (op->kind >= OP_QUERIES && op->kind <= OP_DELTA_END);
}

/* Which computes it where k does the rest? `decode` has no OP_JUDGE, and may have no experts. */
static const struct steps_kernel *kernel_for(const struct steps *s, const struct steps_kernel *k,
                                             const struct op *op)
{
    if (is_delta(op) && !(k == &s->decode && (op->kind == OP_SHORT || s->few_delta)))
        return &s->delta;
    const bool apart = op->kind == OP_JUDGE || (is_experts(op) && !s->few_experts);
    return k == &s->decode && apart ? &s->step : k;
}

/* Operations by k, and by others what it leaves. */
static enum err launch_plain(struct steps *s, const struct steps_kernel *k, u64 card_step,
                             u32 ring_bytes, u32 first, u32 last, struct err_text *e)
{
    const struct op *ops = s->list->ops;
    for (u32 i = first, end; i < last; i = end) {
        const struct steps_kernel *its = kernel_for(s, k, &ops[i]);
        for (end = i + 1; end < last && kernel_for(s, k, &ops[end]) == its;)
            end++;
        TRY(launch_some(s, its, card_step, its == k ? ring_bytes : 0, i, end, e));
    }
    return ERR_OK;
}

/* The kernels that layers are computed by: one a kind of matrix, `mid_..` or `prefill_..`, `step`
 * for what the former cannot do, one for experts, and `delta`. */
enum { TABLE_KERNELS = MATRIX_HALF + 4 };
struct table {
    bool mid;
    struct steps_kernel of[TABLE_KERNELS];
};

enum {
    TABLE_STEP = 1u << (MATRIX_HALF + 1),
    TABLE_EXPERTS = 1u << (MATRIX_HALF + 2),
    TABLE_DELTA = 1u << (MATRIX_HALF + 3)
};

/* Bits of those of a table that an operation needs, each for some of its matrices. */
static u32 kernels_of(const struct model *m, const struct op *op, const struct table *table)
{
    u32 bits = 0;
    const bool beside_experts = op->kind == OP_ADD_NORM && m->experts; /* theirs has no norms */
    const bool relu = op->kind == OP_GATE && op->gate.activation == ACT_RELU;
    if (op->kind == OP_JUDGE || beside_experts || relu)
        return TABLE_STEP;
    if (op->kind == OP_ROUTE && op->route.bias && !table->mid) /* its choice is not what follows */
        return TABLE_STEP;
    if (is_experts(op))
        return TABLE_EXPERTS;
    if (is_delta(op))
        return TABLE_DELTA;
    if (op->kind != OP_LINEAR)
        return 0;
    for (u32 i = 0; i < op->linear.parts; i++)
        bits |= 1u << op->linear.part[i].kind;
    if (table->mid && !linear_is_mid(&op->linear, op->linear.part[0].kind))
        return TABLE_STEP;
    return bits;
}

static struct table mid_table(const struct steps *s, u32 tokens)
{
    const struct model *m = s->list->model;
    /* Where a launch is due anyhow, experts of few pairs take a tenth less by `decode`. */
    const bool few = s->few_experts && tokens * m->experts_used <= m->experts;
    struct table t = {true, {[MATRIX_HALF + 1] = s->step, few ? s->decode : s->step, s->delta}};
    for (u32 kind = 0; kind <= MATRIX_HALF; kind++)
        t.of[kind] = s->mid[mid_kernel(kind, tokens)];
    return t;
}

static struct table prefill_table(const struct steps *s)
{
    const struct steps_kernel experts = s->broad_experts ? s->prefill_experts : s->step;
    struct table t = {false, {[MATRIX_HALF + 1] = s->step, experts, s->delta}};
    memcpy(t.of, s->prefill, sizeof s->prefill);
    return t;
}

/* Or what `step` and `decode` alone have. */
static bool is_attention(const struct op *op)
{
    return op->kind == OP_NORM || op->kind == OP_PAIRS || op->kind == OP_SHARED ||
           op->kind == OP_ROPE || op->kind == OP_ATTENTION;
}

/* Which kernels compute the attention of a step: rows of many tokens, and others. */
struct attention_way {
    bool grouped; /* the former by `prefill_attention` */
    bool none;    /* there are no others then */
};

/* What is_attention says: `step`, but for what way says. */
static enum err launch_attention(struct steps *s, u64 card_step, struct attention_way way,
                                 u32 first, u32 last, struct err_text *e)
{
    struct steps_kernel step = s->step;
    u32 end = last;
    step.many_apart = way.grouped;
    while (way.none && end > first && s->list->ops[end - 1].kind == OP_ATTENTION)
        end--;
    TRY(launch_some(s, &step, card_step, 0, first, end, e));
    for (u32 i = first; i < last && way.grouped; i++)
        if (s->list->ops[i].kind == OP_ATTENTION)
            TRY(launch_some(s, &s->group, card_step, 0, i, i + 1, e));
    return ERR_OK;
}

static u32 longest_row(const struct step *step)
{
    u32 longest = 0;
    for (u32 i = 0; i < step->n_rows; i++)
        longest = MAX(longest, step->rows[i].n);
    return longest;
}

/* Can `prefill_attention` do all layers? */
static bool heads_are_grouped(const struct model *m)
{
    for (const struct layer *l = m->layers; l < m->layers + m->layers_n; l++)
        if (!attention_is_grouped(l->head_dim) || l->kv_heads != m->kv_heads)
            return false;
    return true;
}

static struct attention_way attention_way(const struct steps *s, const struct step *step)
{
    const struct model *m = s->list->model;
    const bool grouped =
        s->group.function && heads_are_grouped(m) && longest_row(step) >= GROUP_TOKENS;
    const u32 few = FEW_TILES * ATTENTION_TILE_TOKENS(m->heads / m->kv_heads);
    bool none = grouped;
    for (u32 i = 0; i < step->n_rows; i++)
        none &= step->rows[i].n > few;
    return (struct attention_way){grouped, none};
}

/* The layers [first, last) of a step: attention by itself; what is between by the kernel of its
 * matrices, or where an operation needs several by each of these in turn. */
static enum err launch_layers(struct steps *s, u64 card_step, const struct table *table,
                              struct attention_way way, u32 first, u32 last, struct err_text *e)
{
    const struct op *ops = s->list->ops;
    for (u32 i = first, end; i < last; i = end) {
        u32 bits = kernels_of(s->list->model, &ops[i], table), more;
        bool attention = is_attention(&ops[i]);
        for (end = i + 1; end < last && is_attention(&ops[end]) == attention; end++) {
            more = bits | kernels_of(s->list->model, &ops[end], table);
            if (more & (more - 1)) /* more than one */
                break;
            bits = more;
        }
        if (attention)
            TRY(launch_attention(s, card_step, way, i, end, e));
        else if (!bits)
            TRY(launch_some(s, &s->step, card_step, 0, i, end, e));
        for (u32 k = 0; bits >> k; k++)
            if (bits >> k & 1)
                TRY(launch_some(s, &table->of[k], card_step, 0, i, end, e));
    }
    return ERR_OK;
}

/* The kernel that does all layers of a step of up to MID_TOKENS tokens; function NULL: there is
 * none. */
static const struct steps_kernel *mid_layers(const struct steps *s, const struct step *step)
{
    const u32 i = mid_kernel(s->mid_kind, step->n_tokens);
    return step->n_rows == step->n_tokens ? &s->mid[i] : &s->rows[i];
}

static enum mid_way mid_way(const struct steps *s, const struct step *step)
{
    const u32 tokens = step->n_tokens;
    const bool layers = s->mid_does == MID_LAYERS && tokens <= MID_TOKENS &&
                        longest_row(step) <= FRESH_TOKENS && mid_layers(s, step)->function;
    const u32 least = layers ? MID_LAYERS_TOKENS : MID_LINEARS_TOKENS;
    if (tokens < least || tokens > MID_TOKENS || (s->few_experts && tokens <= FEW_TOKENS))
        return MID_NONE;
    return layers ? MID_LAYERS : s->mid_does ? MID_LINEARS : MID_NONE;
}

/* The layers of a step by `mid_..`, and the head where its matrices are of one kind; *first: what
 * is left to `step`. */
static enum err launch_mid(struct steps *s, u64 card_step, const struct list_stretch *ops,
                           enum mid_way way, const struct step *step, u32 *first,
                           struct err_text *e)
{
    const struct table table = mid_table(s, step->n_tokens);
    const u32 head = kernels_of(s->list->model, &s->list->ops[ops->head], &table);
    const u32 end = ops->head + (head != TABLE_STEP);
    u32 from = ops->first;
    if (way == MID_LAYERS) {
        u32 same = head == 1u << s->mid_kind ? end : ops->head;
        TRY(launch_some(s, mid_layers(s, step), card_step, 0, from, same, e));
        from = same;
    }
    *first = end;
    return launch_layers(s, card_step, &table, attention_way(s, step), from, end, e);
}

/* What the layers left of rows that want it, before the step is marked as done. */
static enum err fetch_hidden(struct steps *s, const struct steps_entry *entry,
                             const struct list_stretch *ops, struct err_text *e)
{
    const u32 hidden = s->list->model->hidden;
    for (u32 r = 0; r < entry->step->n_rows; r++) {
        const struct step_row *row = &entry->step->rows[r];
        const float *from = ops->x + (size_t)(row->first + row->n - 1) * s->list->x_stride;
        if (row->hidden)
            CUDA_TRY(cuda_copy_out(entry->hidden + (size_t)r * hidden, (uintptr_t)from,
                                   hidden * sizeof *from, s->stream),
                     e, "fetch a hidden state");
    }
    return ERR_OK;
}

/* The last operations, by `step`. */
static enum err launch_end(struct steps *s, u64 card_step, u32 first, u32 last, struct err_text *e)
{
    TRY(launch_some(s, &s->step, card_step, 0, first, last, e));
    return s->profile ? profile_end(s->profile, s->stream, e) : ERR_OK;
}

enum err launch_sample(struct steps *s, u64 card_step, struct err_text *e)
{
    const u32 last = s->list->step.last; /* the same in all lists */
    return launch_end(s, card_step, last - 1, last, e);
}

enum err launch_step(struct steps *s, u64 card_step, const struct steps_entry *entry,
                     enum launch_what what, struct err_text *e)
{
    const struct step *step = entry->step;
    const bool head_only = what == LAUNCH_HEAD;
    const enum mid_way mid = mid_way(s, step);
    const u32 tokens = step->n_tokens;
    const bool prefill = tokens > PREFILL_TOKENS && s->prefill[0].function;
    /* FEW_TOKENS rows of one each take a tenth less by `step`, of which attention turns heads. */
    const bool few = tokens < FEW_TOKENS || step->n_rows < tokens || s->few_experts;
    u32 ring = 0;
    if (!mid && s->decode.function && few)
        ring = decode_ring_bytes(tokens, s->list->k_max, step_least_bytes(s->list->model->head_dim),
                                 s->decode.launch_bytes - STEP_SHARED_BYTES);
    const bool one = ring && tokens == 1 && s->one_does;
    const struct steps_kernel *k = ring ? &s->decode : &s->step;
    const struct list_stretch *ops = mid == MID_LAYERS ? &s->list->mid
                                     : one             ? &s->list->one
                                     : ring            ? &s->list->decode
                                                       : &s->list->step;
    u32 first = head_only ? ops->head : ops->first;
    if (!ring && !head_only && mid)
        TRY(launch_mid(s, card_step, ops, mid, step, &first, e));
    if (!ring && !head_only && prefill && !mid) {
        const struct table table = prefill_table(s);
        TRY(launch_layers(s, card_step, &table, attention_way(s, step), first, ops->head, e));
        first = ops->head;
    }
    /* `decode` does not sample. */
    const bool apart = ring || what == LAUNCH_LOGITS || (entry->embeds && !head_only);
    u32 end = apart ? ops->last - 1 : ops->last;
    ASSERT(s->list->ops[ops->last - 1].kind == OP_SAMPLE);
    if (one) { /* a head of 8 bits is left to `decode` */
        const u32 rest = s->one_head ? end : MAX(first, ops->head);
        TRY(launch_some(s, &s->one, card_step, 0, first, rest, e));
        first = rest;
    }
    TRY(launch_plain(s, k, card_step, ring, first, end, e));
    if (entry->embeds && !head_only)
        TRY(fetch_hidden(s, entry, ops, e));
    return what == LAUNCH_LOGITS ? ERR_OK : launch_end(s, card_step, end, ops->last, e);
}
