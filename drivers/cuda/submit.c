#include "drivers/cuda/submit.h"

#include "drivers/cuda/profile.h"

#include <sys/eventfd.h>
#include <unistd.h>

/* Serials wrap: every process passes there soon after its start, so that it is no rare event. */
static const u32 first_serial = UINT32_MAX - 99;
_Static_assert((STEPS_DEPTH & (STEPS_DEPTH - 1)) == 0, "entries go on in turn where serials wrap");

enum {
    /* Steps of so many tokens and more take less time by `mid_..` than by `decode`: where it does
     * all layers, and else. */
    MID_LAYERS_TOKENS = 2,
    MID_LINEARS_TOKENS = 5,
    TICK_MS = 20,      /* how often a running step is asked about errors */
    SPINS_A_LOOK = 256 /* at *done, between two looks at the clock */
};

/* --- memory -------------------------------------------------------------------------------- */

static u32 passes_max(const struct list *l)
{
    return CEIL_DIV(l->limits.step_tokens, l->head_rows);
}

size_t steps_bytes(const struct list *l)
{
    size_t tokens = l->limits.step_tokens;
    return passes_max(l) * sizeof(struct gpu_step) + l->limits.slots * sizeof(struct gpu_row) +
           tokens * (2 * sizeof(u32) + sizeof(struct gpu_tile) + sizeof(struct gpu_want)) + 128;
}

struct pinned {
    u8 *base;
    size_t bytes;
};

static void *piece(struct pinned *p, size_t bytes)
{
    void *at = p->base ? p->base + p->bytes : NULL;
    p->bytes += ROUND_UP(bytes, (size_t)256);
    return at;
}

static void lay_out(struct steps *s, const struct list *l, struct pinned *p)
{
    size_t slots = l->limits.slots;
    s->done = piece(p, 2 * sizeof *s->done);
    for (u32 i = 0; i < STEPS_DEPTH; i++) {
        s->entries[i].host = piece(p, steps_bytes(l));
        s->entries[i].results = piece(p, l->limits.samples * sizeof *s->entries[i].results);
        s->entries[i].stamps = piece(p, 2 * sizeof *s->entries[i].stamps);
        s->entries[i].hidden = piece(p, slots * l->model->hidden * sizeof(float));
    }
    s->sampling = piece(p, slots * sizeof *s->sampling);
    s->tables = piece(p, slots * l->state.pages_stride * sizeof *s->tables);
    s->seen = piece(p, slots * l->model->vocab);
}

size_t steps_pinned_bytes(const struct list *l)
{
    struct steps s;
    struct pinned p = {0};
    lay_out(&s, l, &p);
    return p.bytes;
}

size_t steps_host_bytes(const struct list *l)
{
    return l->limits.slots * sizeof(struct steps_slot) +
           l->limits.samples * sizeof(struct step_result) + 128;
}

static enum err open_wake(struct steps *s, struct err_text *e)
{
    s->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->event < 0)
        return err_set_errno(e, ERR_SYSTEM, "no eventfd for the CUDA backend");
    if (s->spin)
        return ERR_OK;
    CUDA_TRY(cuda_stream_open(&s->calls, CU_STREAM_NON_BLOCKING), e, "make a stream");
    CUDA_TRY(cuda_event_open(&s->over, CU_EVENT_DISABLE_TIMING), e, "make an event");
    return ERR_OK;
}

/* Can layers be all of `mid_..`, `one_token` or `one_experts`? These have no OP_NORM, OP_PAIRS or
 * OP_SHARED, and heads that fit. */
static bool layers_fit(const struct model *m)
{
    if (m->qk_norm == QK_NORM_ROWS || m->rope_pairs || m->shared_intermediate)
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

/* Can `one_token` do all of it, or `one_experts`? Then it takes less time than `decode`. */
static bool one_does(const struct steps *s)
{
    const struct list *l = s->list;
    const u32 have = s->one.launch_bytes - STEP_SHARED_BYTES - s->one.rings_bytes;
    if (!s->one.function || !layers_fit(l->model) || step_least_bytes(l->model->head_dim) > have)
        return false;
    for (u32 i = l->one.first; i < l->one.last; i++)
        if (!is_one(&l->ops[i], have))
            return false;
    return true;
}

enum err steps_open(struct steps *s, struct arena *host, struct err_text *e)
{
    const struct list *l = s->list;
    size_t bytes = steps_pinned_bytes(l);
    s->event = -1;
    s->mid_does = mid_does(s);
    s->one_does = one_does(s);
    s->few_experts = s->decode.function && l->model->experts && l->few_rows;
    s->broad_experts = broad_experts(s);
    s->slots = ARENA_NEW(host, struct steps_slot, l->limits.slots);
    s->results = ARENA_NEW(host, struct step_result, l->limits.samples);
    if (!s->slots || !s->results)
        return arena_full(host, "steps of the CUDA backend", e);
    CUDA_TRY(
        cuda_pinned_take(&s->pinned, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        e, "take %zu KiB of pinned memory", bytes / KIB);
    memset(s->pinned, 0, bytes);
    lay_out(s, l, &(struct pinned){.base = s->pinned});
    s->submitted = s->finished = *s->done = first_serial;
    CUDA_TRY(cuda_pinned_device(&s->done_card, s->done, 0), e, "map pinned memory");
    for (u32 i = 0; i < STEPS_DEPTH; i++) {
        struct steps_entry *entry = &s->entries[i];
        CUDA_TRY(cuda_pinned_device(&entry->results_card, entry->results, 0), e,
                 "map pinned memory");
        CUDA_TRY(cuda_pinned_device(&entry->stamps_card, entry->stamps, 0), e, "map pinned memory");
    }
    return open_wake(s, e);
}

void steps_close(struct steps *s)
{
    if (!s->pinned)
        return;
    (void)!cuda_pinned_free(s->pinned);
    s->pinned = NULL;
    if (s->over)
        (void)!cuda_event_close(s->over);
    if (s->calls)
        (void)!cuda_stream_close(s->calls);
    if (s->event >= 0)
        close(s->event);
}

/* --- errors and completion ----------------------------------------------------------------- */

/* Has the card finished it? A step that is in flight, or was not long ago. */
static bool is_done(const struct steps *s, u32 serial)
{
    return (i32)(__atomic_load_n(s->done, __ATOMIC_ACQUIRE) - serial) >= 0;
}

/* Keeps the first error, wakes whoever sleeps on the event, and tells it. */
static enum err fail(struct steps *s, enum err code, const struct err_text *why, struct err_text *e)
{
    static const u64 one = 1;
    if (s->failed.code == ERR_OK) {
        s->failed = *why;
        s->failed.code = code;
        (void)!write(s->event, &one, sizeof one);
    }
    return err_set(e, s->failed.code, "%s", s->failed.text);
}

/* Asks the stream for an error, and the clock whether the step takes too long. */
static enum err look(struct steps *s, struct err_text *e)
{
    u64 now = clock_now_ns(&s->clock);
    u64 began = s->entries[(s->finished + 1) % STEPS_DEPTH].submitted_ns;
    struct err_text why = {0};
    if (now - s->asked_ns < TICK_MS * 1000000ull)
        return ERR_OK;
    s->asked_ns = now;
    enum cuda_result r = cuda_stream_query(s->stream);
    if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY)
        return fail(s, cuda_failed(r, &why, "compute a step"), &why, e);
    if (now - began < s->limit_ms * 1000000)
        return ERR_OK;
    err_set(&why, ERR_DEVICE,
            "the GPU has not finished a step in %llu ms (cuda.step_time); it hangs, or another "
            "process keeps it busy",
            (unsigned long long)s->limit_ms);
    return fail(s, ERR_DEVICE, &why, e);
}

/* Until the card has finished the step, or an error. */
static enum err wait_for(struct steps *s, u32 serial, struct err_text *e)
{
    while (!is_done(s, serial)) {
        for (u32 i = 0; i < SPINS_A_LOOK && !is_done(s, serial); i++)
#ifdef __x86_64__
            __builtin_ia32_pause();
#else
            __asm__ volatile("yield");
#endif
        TRY(look(s, e));
    }
    return ERR_OK;
}

/* Runs on a thread of the driver: nothing of musl here, not even errno. */
static void wake(void *arg)
{
    static const u64 one = 1;
    const struct steps *s = arg;
#ifdef __x86_64__
    long r = 1; /* write */
    __asm__ volatile("syscall"
                     : "+a"(r)
                     : "D"((long)s->event), "S"(&one), "d"(sizeof one)
                     : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = 64; /* write */
    register long fd __asm__("x0") = s->event;
    register const u64 *p __asm__("x1") = &one;
    register size_t n __asm__("x2") = sizeof one;
    __asm__ volatile("svc 0" : "+r"(fd) : "r"(number), "r"(p), "r"(n) : "memory");
#endif
}

/* Has the driver call wake once the step is over that was submitted last. */
static enum err ask_for_wake(struct steps *s, struct err_text *e)
{
    CUDA_TRY(cuda_event_record(s->over, s->stream), e, "mark the end of a step");
    CUDA_TRY(cuda_stream_wait_event(s->calls, s->over, 0), e, "wait for the end of a step");
    CUDA_TRY(cuda_call_host(s->calls, wake, s), e, "ask to be woken");
    return ERR_OK;
}

u64 steps_look_ns(const struct steps *s)
{
    u64 began = s->entries[(s->finished + 1) % STEPS_DEPTH].submitted_ns;
    return MAX(began, s->asked_ns) + TICK_MS * 1000000ull;
}

/* --- slots --------------------------------------------------------------------------------- */

void steps_slot_begin(struct steps *s, u32 slot, const u32 *prompt, u32 n)
{
    struct steps_slot *mine = &s->slots[slot];
    mine->fresh = true;
    mine->prompt = prompt;
    mine->n_prompt = n;
}

static enum err send_seen(struct steps *s, u32 slot, struct err_text *e)
{
    const struct steps_slot *mine = &s->slots[slot];
    size_t vocab = s->list->model->vocab, at = slot * vocab;
    memset(s->seen + at, 0, vocab);
    for (u32 i = 0; i < mine->n_prompt; i++)
        s->seen[at + mine->prompt[i]] = 1;
    CUDA_TRY(
        cuda_copy_in((uintptr_t)(s->list->state.prompt_seen + at), s->seen + at, vocab, s->stream),
        e, "send the tokens of a prompt");
    return ERR_OK;
}

static void put_sampling(struct gpu_sampling *to, const struct sampling *from)
{
    to->temperature = from->temperature;
    to->top_p = from->top_p;
    to->min_p = from->min_p;
    to->typical_p = from->typical_p;
    to->repetition_penalty = from->repetition_penalty;
    to->presence_penalty = from->presence_penalty;
    to->frequency_penalty = from->frequency_penalty;
    to->top_k = from->top_k;
    to->min_tokens = from->min_tokens;
    to->n_stop = from->n_stop;
    to->n_bias = from->n_bias;
    to->logprobs = from->logprobs;
    to->top_logprobs = from->top_logprobs;
    to->seed[0] = (u32)from->seed;
    to->seed[1] = (u32)(from->seed >> 32);
    memcpy(to->stop, from->stop, from->n_stop * sizeof *to->stop);
    memcpy(to->bias_id, from->bias_id, from->n_bias * sizeof *to->bias_id);
    memcpy(to->bias, from->bias, from->n_bias * sizeof *to->bias);
}

static enum err send_table(struct steps *s, const struct step_row *row, struct err_text *e)
{
    const struct gpu_state *state = &s->list->state;
    size_t at = (size_t)row->slot * state->pages_stride, bytes = row->n_pages * sizeof(u32);
    memcpy(s->tables + at, row->pages, bytes);
    s->slots[row->slot].version = row->pages_version;
    CUDA_TRY(cuda_copy_in((uintptr_t)(state->pages + at), s->tables + at, bytes, s->stream), e,
             "send a page table");
    return ERR_OK;
}

/* What a sequence begins with. Counts are read only by penalties, so only these have them cleared
 * and the prompt's tokens sent. */
static enum err send_start(struct steps *s, const struct step_row *row, struct err_text *e)
{
    const struct gpu_state *state = &s->list->state;
    const struct sampling *p = row->sampling;
    size_t vocab = s->list->model->vocab, at = row->slot * vocab;
    put_sampling(&s->sampling[row->slot], p);
    CUDA_TRY(cuda_copy_in((uintptr_t)(state->sampling + row->slot), &s->sampling[row->slot],
                          sizeof *s->sampling, s->stream),
             e, "send sampling parameters");
    if (p->repetition_penalty != 1)
        TRY(send_seen(s, row->slot, e));
    if (sampling_counts(p))
        CUDA_TRY(cuda_fill_u8((uintptr_t)(state->output_counts + at), 0,
                              vocab * sizeof *state->output_counts, s->stream),
                 e, "clear token counts");
    return ERR_OK;
}

static enum err send_slot(struct steps *s, const struct step_row *row, u32 serial,
                          struct err_text *e)
{
    struct steps_slot *mine = &s->slots[row->slot];
    if (!mine->fresh && mine->version == row->pages_version)
        return ERR_OK;
    if (serial - mine->sent - 1 < STEPS_DEPTH - 1) /* in flight: its pinned copies may be read */
        TRY(wait_for(s, mine->sent, e));
    mine->sent = serial;
    if (mine->fresh)
        TRY(send_start(s, row, e));
    mine->fresh = false;
    return send_table(s, row, e);
}

/* --- the description of a step ------------------------------------------------------------- */

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

static u32 put_wants(const struct step *step, struct gpu_want *wants, u32 *n_results)
{
    u32 n = 0;
    for (u32 r = 0; r < step->n_rows; r++) {
        const struct step_row *row = &step->rows[r];
        u32 end = row->first + row->n, sampled = end - row->samples;
        for (u32 t = row->logits ? row->first : sampled; t < end; t++)
            wants[n++] = t < sampled ? (struct gpu_want){t, r, ~0u, 0}
                                     : (struct gpu_want){t, r, (*n_results)++, t - sampled};
    }
    return n;
}

static u32 splits_max(const struct step *step)
{
    u32 n = 0;
    for (u32 r = 0; r < step->n_rows; r++)
        n = MAX(n, CEIL_DIV(step->rows[r].pos + step->rows[r].n, (u32)ATTENTION_SPLIT));
    return n;
}

/* The description of a step: `passes` of struct gpu_step on the card, each with as many wants as
 * there are rows of logits, and the last marks the step as done. */
struct description {
    size_t bytes;
    u64 passes_card;
    u32 passes;
    const struct gpu_want *wants;
    u32 n_wants;
};

static struct description describe(struct steps *s, const struct step *step, u32 serial)
{
    const struct list *l = s->list;
    struct steps_entry *entry = &s->entries[serial % STEPS_DEPTH];
    struct writer w = {entry->host, l->card_steps[serial % STEPS_DEPTH], 0};
    struct gpu_step g = {.n_rows = step->n_rows,
                         .n_tokens = step->n_tokens,
                         .serial = serial,
                         .max_splits = splits_max(step),
                         .results = (struct gpu_result *)(uintptr_t)entry->results_card,
                         .stamps = (u64 *)(uintptr_t)entry->stamps_card};
    struct gpu_row *rows = array(&w, step->n_rows * sizeof *rows, &g.rows);
    u32 *tokens = array(&w, step->n_tokens * sizeof *tokens, &g.tokens);
    u32 *token_row = array(&w, step->n_tokens * sizeof *token_row, &g.token_row);
    put_rows(step, rows, token_row);
    memcpy(tokens, step->tokens, step->n_tokens * sizeof *tokens);
    g.n_tiles = put_tiles(l->model, step, (struct gpu_tile *)(void *)(w.host + w.bytes));
    array(&w, g.n_tiles * sizeof *g.tiles, &g.tiles);
    struct description d = {.wants = (const struct gpu_want *)(void *)(w.host + w.bytes)};
    entry->n_results = 0;
    d.n_wants = put_wants(step, (struct gpu_want *)(void *)(w.host + w.bytes), &entry->n_results);
    array(&w, d.n_wants * sizeof *d.wants, &g.wants);
    d.passes = MAX(CEIL_DIV(d.n_wants, l->head_rows), 1u);
    struct gpu_step *passes = array(&w, d.passes * sizeof *passes, &d.passes_card);
    for (u32 i = 0; i < d.passes; i++) {
        bool last = i + 1 == d.passes;
        g.n_wants = MIN(d.n_wants - i * l->head_rows, l->head_rows);
        g.done = (u32 *)(uintptr_t)s->done_card + (last ? 0 : 1);
        passes[i] = g;
        g.wants += g.n_wants;
    }
    d.bytes = w.bytes;
    ASSERT(d.bytes <= steps_bytes(l));
    return d;
}

/* --- submit -------------------------------------------------------------------------------- */

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
    return op->kind >= OP_ROUTE && op->kind <= OP_MIX;
}

/* Operations by k; experts by `step` where k is `decode` and does not have them. */
static enum err launch_plain(struct steps *s, const struct steps_kernel *k, u64 card_step,
                             u32 ring_bytes, u32 first, u32 last, struct err_text *e)
{
    const struct op *ops = s->list->ops;
    const bool all = k != &s->decode || s->few_experts;
    for (u32 i = first, end; i < last; i = end) {
        const bool experts = is_experts(&ops[i]) && !all;
        for (end = i + 1; end < last && (all || is_experts(&ops[end]) == experts);)
            end++;
        TRY(launch_some(s, experts ? &s->step : k, card_step, experts ? 0 : ring_bytes, i, end, e));
    }
    return ERR_OK;
}

/* The kernels that layers are computed by: one a kind of matrix, `mid_..` or `prefill_..`, `step`
 * for what the former cannot do, and one for experts. */
enum { TABLE_KERNELS = MATRIX_HALF + 3 };
struct table {
    bool mid;
    struct steps_kernel of[TABLE_KERNELS];
};

enum { TABLE_STEP = 1u << (MATRIX_HALF + 1), TABLE_EXPERTS = 1u << (MATRIX_HALF + 2) };

/* Bits of those of a table that an operation needs, each for some of its matrices. */
static u32 kernels_of(const struct op *op, const struct table *table)
{
    u32 bits = 0;
    if (is_experts(op))
        return TABLE_EXPERTS;
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
    struct table t = {true, {[MATRIX_HALF + 1] = s->step, few ? s->decode : s->step}};
    for (u32 kind = 0; kind <= MATRIX_HALF; kind++)
        t.of[kind] = s->mid[mid_kernel(kind, tokens)];
    return t;
}

static struct table prefill_table(const struct steps *s)
{
    struct table t = {
        false, {[MATRIX_HALF + 1] = s->step, s->broad_experts ? s->prefill_experts : s->step}};
    memcpy(t.of, s->prefill, sizeof s->prefill);
    return t;
}

/* Or what `step` and `decode` alone have. */
static bool is_attention(const struct op *op)
{
    return op->kind == OP_NORM || op->kind == OP_PAIRS || op->kind == OP_SHARED ||
           op->kind == OP_ROPE || op->kind == OP_ATTENTION;
}

/* What is_attention says: `step`, and with `grouped` `prefill_attention` rows of many
 * tokens. */
static enum err launch_attention(struct steps *s, u64 card_step, bool grouped, u32 first, u32 last,
                                 struct err_text *e)
{
    struct steps_kernel step = s->step;
    step.many_apart = grouped;
    TRY(launch_some(s, &step, card_step, 0, first, last, e));
    for (u32 i = first; i < last && grouped; i++)
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

/* Has the step rows that `prefill_attention` is for? */
static bool is_grouped(const struct steps *s, const struct step *step)
{
    return s->group.function && attention_is_grouped(s->list->model->head_dim) &&
           longest_row(step) >= GROUP_TOKENS;
}

/* The layers [first, last) of a step: attention by itself; what is between by the kernel of its
 * matrices, or where an operation needs several by each of these in turn. */
static enum err launch_layers(struct steps *s, u64 card_step, const struct table *table,
                              bool grouped, u32 first, u32 last, struct err_text *e)
{
    const struct op *ops = s->list->ops;
    for (u32 i = first, end; i < last; i = end) {
        u32 bits = kernels_of(&ops[i], table), more;
        bool attention = is_attention(&ops[i]);
        for (end = i + 1; end < last && is_attention(&ops[end]) == attention; end++) {
            more = bits | kernels_of(&ops[end], table);
            if (more & (more - 1)) /* more than one */
                break;
            bits = more;
        }
        if (attention)
            TRY(launch_attention(s, card_step, grouped, i, end, e));
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
    const u32 head = kernels_of(&s->list->ops[ops->head], &table);
    const u32 end = ops->head + (head != TABLE_STEP);
    u32 from = ops->first;
    if (way == MID_LAYERS) {
        u32 same = head == 1u << s->mid_kind ? end : ops->head;
        TRY(launch_some(s, mid_layers(s, step), card_step, 0, from, same, e));
        from = same;
    }
    *first = end;
    return launch_layers(s, card_step, &table, is_grouped(s, step), from, end, e);
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

/* A step, or with head_only what makes more logits of it, which is left to `step`. */
static enum err launch_all(struct steps *s, u64 card_step, const struct steps_entry *entry,
                           bool head_only, struct err_text *e)
{
    const struct step *step = entry->step;
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
    const struct steps_kernel *k = one ? &s->one : ring ? &s->decode : &s->step;
    const struct list_stretch *ops = mid == MID_LAYERS ? &s->list->mid
                                     : one             ? &s->list->one
                                     : ring            ? &s->list->decode
                                                       : &s->list->step;
    u32 first = head_only ? ops->head : ops->first;
    if (!ring && !head_only && mid)
        TRY(launch_mid(s, card_step, ops, mid, step, &first, e));
    if (!ring && !head_only && prefill && !mid) {
        const struct table table = prefill_table(s);
        TRY(launch_layers(s, card_step, &table, is_grouped(s, step), first, ops->head, e));
        first = ops->head;
    }
    const bool apart = ring || (entry->embeds && !head_only); /* `decode` does not sample */
    u32 end = apart ? ops->last - 1 : ops->last;
    ASSERT(s->list->ops[ops->last - 1].kind == OP_SAMPLE);
    TRY(one ? launch_some(s, k, card_step, 0, first, end, e)
            : launch_plain(s, k, card_step, ring, first, end, e));
    if (entry->embeds && !head_only)
        TRY(fetch_hidden(s, entry, ops, e));
    TRY(launch_some(s, &s->step, card_step, 0, end, ops->last, e));
    return s->profile ? profile_end(s->profile, s->stream, e) : ERR_OK;
}

/* Logits of the wants [from, from + n), which lie in the rows 0.. of the buffer, to their rows. */
static enum err fetch_logits(struct steps *s, const struct step *step, const struct gpu_want *wants,
                             u32 n, struct err_text *e)
{
    size_t vocab = s->list->model->vocab;
    for (u32 i = 0; i < n; i++) {
        const struct step_row *row = &step->rows[wants[i].row];
        const float *from = s->list->logits + (size_t)i * s->list->logits_stride;
        if (row->logits)
            CUDA_TRY(cuda_copy_out(row->logits + (wants[i].token - row->first) * vocab,
                                   (uintptr_t)from, vocab * sizeof *from, s->stream),
                     e, "fetch logits");
    }
    return ERR_OK;
}

static enum err start(struct steps *s, const struct step *step, u32 serial, struct err_text *e)
{
    const struct list *l = s->list;
    struct steps_entry *entry = &s->entries[serial % STEPS_DEPTH];
    bool fetches = false;
    entry->step = step;
    entry->embeds = false;
    for (u32 r = 0; r < step->n_rows; r++) {
        TRY(send_slot(s, &step->rows[r], serial, e));
        fetches |= step->rows[r].logits != NULL;
        entry->embeds |= step->rows[r].hidden != NULL;
    }
    if (s->profile)
        profile_step(s->profile, step);
    struct description d = describe(s, step, serial);
    CUDA_TRY(cuda_copy_in(l->card_steps[serial % STEPS_DEPTH], entry->host, d.bytes, s->stream), e,
             "send a step");
    for (u32 i = 0; i < d.passes; i++) {
        u32 first = i * l->head_rows, n = MIN(d.n_wants - first, l->head_rows);
        TRY(launch_all(s, d.passes_card + i * sizeof(struct gpu_step), entry, i > 0, e));
        if (fetches)
            TRY(fetch_logits(s, step, d.wants + first, n, e));
    }
    if (fetches)
        CUDA_TRY(cuda_stream_wait(s->stream), e, "compute a step");
    return s->spin ? ERR_OK : ask_for_wake(s, e);
}

enum err steps_submit(struct steps *s, const struct step *step, struct err_text *e)
{
    struct err_text why = {0};
    u32 serial = s->submitted + 1;
    ASSERT(serial - s->finished <= STEPS_DEPTH);
    s->submitted = serial;
    if (s->failed.code != ERR_OK)
        return fail(s, s->failed.code, &s->failed, e);
    s->entries[serial % STEPS_DEPTH].submitted_ns = clock_now_ns(&s->clock);
    enum err code = start(s, step, serial, &why);
    if (code != ERR_OK)
        return fail(s, code, &why, e);
    return ERR_OK;
}

static void put_result(struct step_result *to, const struct gpu_result *from)
{
    to->slot = from->slot;
    to->token = from->token;
    to->logprob = from->logprob;
    to->n_top = MIN(from->n_top, (u32)LIMIT_LOGPROBS);
    for (u32 i = 0; i < to->n_top; i++)
        to->top[i] = (struct top_logprob){from->top_id[i], from->top[i]};
}

static void put_hidden(const struct steps_entry *entry, u32 hidden)
{
    for (u32 r = 0; r < entry->step->n_rows; r++)
        if (entry->step->rows[r].hidden)
            memcpy(entry->step->rows[r].hidden, entry->hidden + (size_t)r * hidden,
                   hidden * sizeof *entry->hidden);
}

static void add_time(struct steps_times *t, const u64 stamps[2])
{
    t->last_ns = stamps[1] - stamps[0];
    t->min_ns = t->n ? MIN(t->min_ns, t->last_ns) : t->last_ns;
    t->max_ns = MAX(t->max_ns, t->last_ns);
    t->sum_ns += t->last_ns;
    t->n++;
}

int steps_poll(struct steps *s, bool wait, const struct step_result **out, u32 *n, enum err *err,
               struct err_text *e)
{
    u32 serial = s->finished + 1;
    struct steps_entry *entry = &s->entries[serial % STEPS_DEPTH];
    ASSERT(s->submitted != s->finished);
    *n = 0;
    *out = s->results;
    *err = s->failed.code;
    if (*err != ERR_OK) {
        fail(s, *err, &s->failed, e);
    } else if (wait) {
        *err = wait_for(s, serial, e);
    } else if (!is_done(s, serial)) {
        *err = look(s, e);
        if (*err == ERR_OK)
            return 0;
    }
    s->finished = serial;
    if (*err != ERR_OK)
        return 1;
    add_time(&s->times, entry->stamps);
    *n = entry->n_results;
    for (u32 i = 0; i < *n; i++)
        put_result(&s->results[i], &entry->results[i]);
    if (entry->embeds)
        put_hidden(entry, s->list->model->hidden);
    if (s->profile)
        *err = profile_read(s->profile, e);
    return 1;
}
