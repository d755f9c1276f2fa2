#include "core/main/steps.h"

struct flight {
    struct step step;
    struct step_row rows[LIMIT_SLOTS];
    u32 *tokens;
};

struct steps_state {
    struct device *d;
    const struct clock *clock;
    const struct steps_shape *shape;
    struct flight flights[2];
    u32 *pages; /* [batch][pages_each] */
    u32 pages_each, submitted, polled;
    struct sampling sampling;
    u64 host_ns, host_max_ns;
};

/* Does each step begin where the one before did, or a token behind it? */
static bool moves(const struct steps_shape *s)
{
    return s->n == 1 + s->guesses;
}

static u32 positions(const struct steps_shape *s)
{
    return s->depth + s->n + (moves(s) ? s->warm + s->steps - 1 : 0);
}

static u32 pages_each(const struct steps_shape *s)
{
    return CEIL_DIV(positions(s), (u32)LIMIT_PAGE_TOKENS);
}

size_t steps_work_bytes(const struct device_limits *limits)
{
    return sizeof(struct steps_state) + 4 * (size_t)limits->pages +
           8 * (size_t)limits->step_tokens + 4096;
}

static enum err check(const struct device *d, const struct steps_shape *s, struct err_text *e)
{
    const struct device_limits *l = &d->limits;
    if (s->batch * (1 + s->guesses) > l->samples || positions(s) > l->context ||
        (u64)s->batch * pages_each(s) > l->pages || (u64)s->batch * s->n > l->step_tokens)
        return err_set(e, ERR_USAGE,
                       "%u rows of %u tokens at %u do not fit %u slots, %u pages, a context of %u "
                       "and steps of %u tokens (engine.slots, engine.kv, model.context, "
                       "engine.step_tokens)",
                       s->batch, s->n, s->depth, l->slots, l->pages, l->context, l->step_tokens);
    return ERR_OK;
}

/* Step `turn` of the run, in the flight it shares with those two before and behind it. */
static void plan(struct steps_state *s, u32 turn)
{
    const struct steps_shape *shape = s->shape;
    struct flight *f = &s->flights[turn % 2];
    u32 n = shape->n, decoded = moves(shape) ? turn : 0;
    for (u32 i = 0; i < shape->batch; i++) {
        f->rows[i] = (struct step_row){.slot = i,
                                       .first = i * n,
                                       .n = n,
                                       .pos = shape->depth + decoded,
                                       .follows = n == 1 && turn > 0 && s->d->depth > 1,
                                       .samples = 1 + shape->guesses,
                                       .outputs = turn,
                                       .pages = s->pages + (size_t)i * s->pages_each,
                                       .n_pages = s->pages_each,
                                       .sampling = &s->sampling};
        for (u32 k = 0; k < n; k++)
            f->tokens[i * n + k] = (i * 7919 + k * 104729 + turn) % s->d->model->vocab;
    }
    f->step = (struct step){
        .n_rows = shape->batch, .n_tokens = shape->batch * n, .rows = f->rows, .tokens = f->tokens};
}

static void add_host(struct steps_state *s, u64 ns)
{
    s->host_ns += ns;
    s->host_max_ns = MAX(s->host_max_ns, ns);
}

/* Host time is that of the submit, and of the one poll that finds the step done. Who computes on
 * this machine's own cores is not asked all the time, but waited for: the asking would cost it one.
 */
static enum err turn(struct steps_state *s, u64 *submit_ns, struct err_text *e)
{
    const struct step_result *results;
    u32 n;
    enum err code = ERR_OK;
    plan(s, s->submitted);
    u64 from = clock_now_ns(s->clock), asked;
    TRY(s->d->ops->submit(s->d, &s->flights[s->submitted++ % 2].step, e));
    *submit_ns = clock_now_ns(s->clock) - from;
    if (s->submitted - s->polled < s->d->depth && !s->shape->guesses)
        return ERR_OK;
    const bool wait = s->d->ops->fd(s->d) >= 0;
    do
        asked = clock_now_ns(s->clock);
    while (!s->d->ops->poll(s->d, wait, &results, &n, &code, e));
    s->polled++;
    add_host(s, *submit_ns + (wait ? 0 : clock_now_ns(s->clock) - asked));
    return code;
}

enum err steps_run(struct device *d, struct arena *work, const struct clock *clock,
                   const struct steps_shape *shape, struct steps_times *out, struct err_text *e)
{
    static const u32 prompt;
    u64 submit_ns, from = 0;
    TRY(check(d, shape, e));
    arena_reset(work, 0);
    struct steps_state *s = ARENA_NEW(work, struct steps_state, 1);
    if (!s)
        return arena_full(work, "benchmark steps", e);
    *s = (struct steps_state){.d = d, .clock = clock, .shape = shape};
    s->sampling = (struct sampling){.top_p = 1, .typical_p = 1, .repetition_penalty = 1};
    s->pages_each = pages_each(shape);
    s->pages = ARENA_NEW(work, u32, (size_t)shape->batch * s->pages_each);
    for (u32 i = 0; i < 2; i++)
        s->flights[i].tokens = ARENA_NEW(work, u32, (size_t)shape->batch * shape->n);
    if (!s->pages || !s->flights[0].tokens || !s->flights[1].tokens)
        return arena_full(work, "benchmark steps", e);
    for (u32 i = 0; i < shape->batch * s->pages_each; i++) /* scattered, as after a long run */
        s->pages[i] = (u32)((u64)i * 7919 % d->limits.pages);
    for (u32 i = 0; i < shape->batch; i++)
        d->ops->slot_begin(d, i, &prompt, 1, 0);
    for (u32 t = 0; t < shape->warm + shape->steps; t++) {
        if (t == shape->warm) {
            from = clock_now_ns(clock);
            s->host_ns = s->host_max_ns = 0;
        }
        TRY(turn(s, &submit_ns, e));
    }
    out->step_s = (double)(clock_now_ns(clock) - from) / 1e9 / shape->steps;
    out->host_s = (double)s->host_ns / 1e9 / shape->steps;
    out->host_max = (double)s->host_max_ns / 1e9;
    while (s->polled < s->submitted) {
        const struct step_result *results;
        u32 n;
        enum err code = ERR_OK;
        if (d->ops->poll(d, true, &results, &n, &code, e))
            s->polled++;
        TRY(code);
    }
    return ERR_OK;
}
