/* `zigcuda bench`: speed through the same engine that serves, beside the floor it is held against.
 * Prefill (pp): tokens of one prompt over the time to its first token. Decode (tg): steps of a
 * batch that all decode, behind prompts of each --depth; with --steps straight on the device and
 * without reading the prompts (step). Guesses (1+N): a step of one stream that samples behind N
 * guessed tokens, too, and is waited for. "host": the part of a step in which this thread plans and
 * submits it; with --steps, in which it submits it and takes its results. The floor of a decode
 * step is its bytes (weights, scales, zeros, head, KV) over the read bandwidth, which is measured
 * before and after each row with the same threads over the same memory, because it drifts from
 * minute to minute on shared machines.
 */
#include "core/main/args.h"
#include "core/main/boot.h"
#include "core/main/main.h"
#include "core/main/steps.h"
#include "drivers/cuda/cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { LIST_MAX = 16, KL_TOKENS = 256, KL_CHUNK = 16, WARM_STEPS = 4 };

static struct bench {
    struct box box;
    const char *prompts, *batches, *depths, *guesses;
    u32 generate, depth, repeat;
    bool json, kl, steps, profile;
    u32 most; /* of a list */
    struct profile *profiled;
    struct arena work;          /* of --steps and --profile */
    u32 outputs, first, wanted; /* first: requests that have their first token, of so many */
    u32 generate_each;          /* outputs of the last of them to get one; then all are over */
    bool over;
    u64 last, first_ns, over_ns, host_ns, host_steps; /* last: that request */
    struct json_out out;
    char text[16 << 10];
} bench;

/* With --kl: the same model on the f32 kernels, to hold int8 activations against. */
static struct box reference;

static void on_event(void *arg, const struct event *event)
{
    (void)arg;
    bench.outputs += event->has_token;
    if (event->has_token && event->output_tokens == 1) {
        bench.first++;
        bench.first_ns = clock_now_ns(&bench.box.clock);
        bench.last = event->id;
    }
    if (bench.first == bench.wanted && event->id == bench.last && !bench.over &&
        event->output_tokens == bench.generate_each) {
        bench.over = true;
        bench.over_ns = clock_now_ns(&bench.box.clock);
    }
}

/* --- bytes of a step ----------------------------------------------------------------------- */

/* What a step of so many tokens reads of a mixture: as many experts as are chosen by chance. */
static size_t mixture_bytes(const struct model *m, const struct mixture *x, u32 tokens)
{
    const struct expert *e = &x->experts[0];
    double all = m->experts, others = pow(1 - m->experts_used / all, tokens);
    size_t each =
        weight_bytes(&e->gate_up[0]) + weight_bytes(&e->gate_up[1]) + weight_bytes(&e->down);
    return weight_bytes(&x->router) + (size_t)(all * (1 - others) * (double)each);
}

static size_t step_weight_bytes(const struct model *m, u32 tokens)
{
    size_t bytes = weight_bytes(&m->head) + (m->own.n ? weight_bytes(&m->own.project) : 0);
    for (u32 l = 0; l < m->layers_n; l++) {
        const struct layer *layer = &m->layers[l];
        u32 n;
        const struct weight *in = layer_inputs(m, layer, &n);
        for (u32 i = 0; i < n; i++)
            bytes += weight_bytes(&in[i]);
        bytes += weight_bytes(&layer->o);
        if (m->own.n)
            bytes += weight_bytes(&layer->own_gate) + weight_bytes(&layer->own_out);
        if (layer->mixture) {
            bytes += mixture_bytes(m, layer->mixture, tokens);
            if (!m->shared_intermediate)
                continue;
        }
        if (!layer_has_mlp(layer))
            continue;
        for (u32 i = 0; i < m->n_gate_up; i++)
            bytes += weight_bytes(&layer->gate_up[i]);
        bytes += weight_bytes(&layer->down);
    }
    return bytes;
}

/* What a token takes of the KV cache. */
static double kv_token_bytes(void)
{
    return (double)bench.box.device->kv_page_bytes / LIMIT_PAGE_TOKENS;
}

/* What a step reads of it for a sequence of so many tokens: each layer what it sees. */
static double kv_seen_bytes(double tokens)
{
    const struct model *m = bench.box.model;
    double kept = 0, seen = 0;
    for (const struct layer *l = m->layers; l < m->layers + m->layers_n; l++) {
        double each = layer_attends(l) ? (double)l->kv_heads * l->head_dim : 0;
        kept += layer_stores(m, l) ? each : 0;
        seen += each * (l->window ? MIN(tokens, (double)l->window) : tokens);
    }
    return kv_token_bytes() / kept * seen;
}

/* --- running requests ---------------------------------------------------------------------- */

static u32 token(u32 i)
{
    return (u32)((i + 1) * 2654435761u >> 8) % bench.box.model->vocab;
}

static bool step_engine(struct engine *g)
{
    u64 from = clock_now_ns(&bench.box.clock);
    bool busy = engine_step(g);
    if (bench.first == bench.wanted && !bench.over) { /* all decode */
        bench.host_ns += clock_now_ns(&bench.box.clock) - from;
        bench.host_steps++;
    }
    return busy;
}

/* Outputs of the first of `batch` requests while the others' prompts are read, at most. */
static u32 outputs_meanwhile(u32 batch, u32 prompt)
{
    const u32 beside =
        MIN((u32)bench.box.options.engine_prefill_beside, bench.box.device->limits.step_tokens);
    return (batch - 1) * (CEIL_DIV(prompt, MAX(beside / 2, 1u)) + 1);
}

/* `batch` requests of `prompt` tokens each, of which the last to begin makes `generate` outputs,
 * while all the others decode, too; then all are over. Seconds from the submit to its first token
 * and from there to the end. */
static enum err run_batch(u32 batch, u32 prompt, u32 generate, double *first_s, double *rest_s,
                          struct err_text *e)
{
    struct box *b = &bench.box;
    arena_reset(&b->work, 0);
    u32 *ids = ARENA_NEW(&b->work, u32, prompt);
    u64 *requests = ARENA_NEW(&b->work, u64, batch);
    if (!ids || !requests)
        return arena_full(&b->work, "benchmark prompt", e);
    struct request r = {.prompt = ids,
                        .n_prompt = prompt,
                        .max_tokens = generate + outputs_meanwhile(batch, prompt),
                        .ignore_eos = true};
    r.sampling = (struct sampling){.top_p = 1, .typical_p = 1, .repetition_penalty = 1};
    bench.first = 0;
    bench.over = false;
    bench.wanted = batch;
    bench.generate_each = generate;
    u64 from = clock_now_ns(&b->clock);
    for (u32 i = 0; i < batch; i++) {
        for (u32 k = 0; k < prompt; k++)
            ids[k] = token(i * 7919 + k);
        TRY(engine_submit(b->engine, &r, &requests[i], e));
    }
    while (step_engine(b->engine)) {
        TRY(engine_poll(b->engine, true, e));
        for (u32 i = 0; i < batch && bench.over; i++)
            engine_cancel(b->engine, requests[i]);
    }
    ASSERT(bench.over);
    *first_s = (double)(bench.first_ns - from) / 1e9;
    *rest_s = (double)(bench.over_ns - bench.first_ns) / 1e9;
    return ERR_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, u32 n)
{
    qsort(v, n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double bandwidth(void)
{
    return bench.box.device->ops->read_bandwidth(bench.box.device);
}

/* --- rows ---------------------------------------------------------------------------------- */

struct row {
    char what[24];
    u32 batch, depth;
    double tok_s, step_s, host_s, bytes_s, roof_s; /* 0: not told */
};

/* Prints what is there of the JSON: how much there will be, nobody knows. */
static void put_json(void)
{
    ASSERT(!bench.out.full);
    fwrite(bench.text, 1, bench.out.n, stdout);
    bench.out.n = 0;
}

static void put_f64(const char *key, double v, u32 digits)
{
    json_key(&bench.out, key);
    json_put_f64(&bench.out, v, digits);
}

static void put_row(const struct row *r)
{
    if (bench.json) {
        json_open(&bench.out, '{');
        json_key(&bench.out, "test");
        json_put_str(&bench.out, str_of(r->what));
        json_key(&bench.out, "batch");
        json_put_u64(&bench.out, r->batch);
        json_key(&bench.out, "depth");
        json_put_u64(&bench.out, r->depth);
        put_f64("tokens_per_second", r->tok_s, 6);
        put_f64("ms", r->step_s * 1e3, 6);
        put_f64("host_us", r->host_s * 1e6, 5);
        put_f64("gb_per_second", r->bytes_s / 1e9, 5);
        put_f64("read_gb_per_second", r->roof_s / 1e9, 5);
        json_close(&bench.out, '}');
        put_json();
        return;
    }
    printf("%-8s %5u %7u %10.1f %10.3f", r->what, r->batch, r->depth, r->tok_s, r->step_s * 1e3);
    if (r->roof_s > 0)
        printf(" %8.1f %8.2f %8.2f %6.0f %%", r->host_s * 1e6, r->bytes_s / 1e9, r->roof_s / 1e9,
               100 * r->bytes_s / r->roof_s);
    printf("\n");
    fflush(stdout);
}

static enum err prefill_row(u32 tokens, struct err_text *e)
{
    double s[LIST_MAX], rest;
    struct row r = {.batch = 1};
    for (u32 i = 0; i < bench.repeat; i++)
        TRY(run_batch(1, tokens, 1, &s[i], &rest, e));
    r.step_s = median(s, bench.repeat);
    r.tok_s = tokens / r.step_s;
    snprintf(r.what, sizeof r.what, "pp%u", tokens);
    put_row(&r);
    return ERR_OK;
}

static struct steps_shape decode_shape(u32 batch)
{
    return (struct steps_shape){
        .batch = batch, .depth = bench.depth, .n = 1, .warm = WARM_STEPS, .steps = bench.generate};
}

static enum err time_decode(u32 batch, double *step_s, double *host_s, struct err_text *e)
{
    struct box *b = &bench.box;
    if (bench.steps) {
        struct steps_shape shape = decode_shape(batch);
        struct steps_times t;
        TRY(steps_run(b->device, &bench.work, &b->clock, &shape, &t, e));
        *step_s = t.step_s;
        *host_s = t.host_s;
        return ERR_OK;
    }
    double first, rest;
    bench.host_ns = bench.host_steps = 0;
    TRY(run_batch(batch, bench.depth, bench.generate + 1, &first, &rest, e));
    *step_s = rest / bench.generate;
    *host_s = (double)bench.host_ns / 1e9 / (double)MAX(bench.host_steps, (u64)1);
    return ERR_OK;
}

static enum err decode_row(u32 batch, struct err_text *e)
{
    const struct model *m = bench.box.model;
    double s[LIST_MAX], share[LIST_MAX], hosts[LIST_MAX];
    struct row r = {.batch = batch, .depth = bench.depth};
    double bytes = (double)step_weight_bytes(m, batch) +
                   batch * kv_seen_bytes(bench.depth + bench.generate / 2.0);
    for (u32 i = 0; i < bench.repeat; i++) {
        double before = bandwidth();
        TRY(time_decode(batch, &s[i], &hosts[i], e));
        share[i] = bytes / s[i] / ((before + bandwidth()) / 2);
    }
    r.step_s = median(s, bench.repeat);
    r.host_s = median(hosts, bench.repeat);
    r.tok_s = batch / r.step_s;
    r.bytes_s = bytes / r.step_s;
    r.roof_s = r.bytes_s / median(share, bench.repeat);
    snprintf(r.what, sizeof r.what, bench.steps ? "step" : "tg%u", bench.generate);
    put_row(&r);
    return ERR_OK;
}

/* A step of one stream with so many guesses; tokens/s if all are right. */
static enum err guesses_row(u32 guesses, struct err_text *e)
{
    double s[LIST_MAX];
    struct row r = {.batch = 1, .depth = bench.depth};
    struct steps_shape shape = decode_shape(1);
    struct steps_times t;
    shape.n = 1 + guesses;
    shape.guesses = guesses;
    for (u32 i = 0; i < bench.repeat; i++) {
        TRY(steps_run(bench.box.device, &bench.work, &bench.box.clock, &shape, &t, e));
        s[i] = t.step_s;
    }
    r.step_s = median(s, bench.repeat);
    r.tok_s = (1 + guesses) / r.step_s;
    snprintf(r.what, sizeof r.what, "1+%u", guesses);
    put_row(&r);
    return ERR_OK;
}

static enum err each(const char *list, enum err (*run)(u32, struct err_text *), struct err_text *e)
{
    for (const char *p = list; *p && strcmp(list, "none") != 0;) {
        char *end;
        unsigned long v = strtoul(p, &end, 10);
        if (end == p || v == 0 || v > LIMIT_CONTEXT || (*end && *end != ','))
            return err_set(e, ERR_USAGE,
                           "'%s' is neither a list of numbers from 1 to %u, such as 128,512, nor "
                           "none",
                           list, LIMIT_CONTEXT);
        TRY(run((u32)v, e));
        p = *end ? end + 1 : end;
    }
    return ERR_OK;
}

static enum err decode_rows(u32 depth, struct err_text *e)
{
    bench.depth = depth;
    TRY(each(bench.batches, decode_row, e));
    return each(bench.guesses, guesses_row, e);
}

static enum err most_of(u32 v, struct err_text *e)
{
    if (v > LIMIT_SLOTS)
        return err_set(e, ERR_USAGE, "--batch: %u; at most %u are computed at the same time", v,
                       LIMIT_SLOTS);
    bench.most = MAX(bench.most, v);
    return ERR_OK;
}

static enum err most_guesses(u32 v, struct err_text *e)
{
    return v < LIMIT_SLOTS
               ? most_of(v + 1, e)
               : err_set(e, ERR_USAGE, "--guesses: %u; a step has %u at most", v, LIMIT_SLOTS - 1);
}

/* For lists that are used only when the model is loaded, but are to be right before. */
static enum err nothing(u32 v, struct err_text *e)
{
    (void)v, (void)e;
    return ERR_OK;
}

/* --- where the time of a step goes ----------------------------------------------------------- */

static void put_profile(const struct profile *p, const struct steps_shape *shape)
{
    double total = 0;
    for (u32 i = 0; i < p->n_rows; i++)
        total += p->rows[i].time.sum_ms / shape->steps;
    if (!bench.json)
        printf("\n%u x %u tokens at %u: %.1f us, each operation launched alone\n"
               "%-10s %7s %9s %9s %9s %9s %9s %7s\n",
               shape->batch, shape->n, shape->depth, total * 1e3, "operation", "a step", "min us",
               "mean us", "max us", "a step us", "GB/s", "share");
    for (u32 i = 0; i < p->n_rows; i++) {
        const struct cuda_timer *t = &p->rows[i].time;
        double mean = cuda_timer_mean_ms(t), step = t->sum_ms / shape->steps;
        if (!bench.json) {
            printf("%-10s %7u %9.2f %9.2f %9.2f %9.1f %9.0f %5.1f %%\n", p->rows[i].label,
                   t->n / shape->steps, t->min_ms * 1e3, mean * 1e3, t->max_ms * 1e3, step * 1e3,
                   cuda_timer_gb_s(t, mean), 100 * step / total);
            continue;
        }
        json_open(&bench.out, '{');
        json_key(&bench.out, "operation");
        json_put_str(&bench.out, str_of(p->rows[i].label));
        json_key(&bench.out, "batch");
        json_put_u64(&bench.out, shape->batch);
        json_key(&bench.out, "tokens_each");
        json_put_u64(&bench.out, shape->n);
        json_key(&bench.out, "depth");
        json_put_u64(&bench.out, shape->depth);
        json_key(&bench.out, "times_a_step");
        json_put_u64(&bench.out, t->n / shape->steps);
        put_f64("min_us", t->min_ms * 1e3, 5);
        put_f64("mean_us", mean * 1e3, 5);
        put_f64("max_us", t->max_ms * 1e3, 5);
        put_f64("gb_per_second", cuda_timer_gb_s(t, mean), 5);
        json_close(&bench.out, '}');
        put_json();
    }
}

static enum err profile_shape(const struct steps_shape *shape, struct err_text *e)
{
    struct box *b = &bench.box;
    struct steps_shape warm = *shape;
    struct steps_times t;
    warm.steps = 1;
    TRY(steps_run(b->device, &bench.work, &b->clock, &warm, &t, e));
    profile_clear(bench.profiled);
    TRY(steps_run(b->device, &bench.work, &b->clock, shape, &t, e));
    put_profile(bench.profiled, shape);
    return ERR_OK;
}

static enum err profile_decode(u32 batch, struct err_text *e)
{
    struct steps_shape shape = decode_shape(batch);
    shape.warm = 0;
    return profile_shape(&shape, e);
}

static enum err profile_depth(u32 depth, struct err_text *e)
{
    bench.depth = depth;
    return each(bench.batches, profile_decode, e);
}

static enum err profile_prefill(u32 tokens, struct err_text *e)
{
    struct steps_shape shape = {.batch = 1, .n = tokens, .steps = bench.repeat};
    return profile_shape(&shape, e);
}

static enum err profile_rows(struct err_text *e)
{
    TRY(cuda_profile(bench.box.device, &bench.box.boot, true, &bench.profiled, e));
    if (bench.json) {
        json_key(&bench.out, "profile");
        json_open(&bench.out, '[');
    }
    TRY(each(bench.depths, profile_depth, e));
    TRY(each(bench.prompts, profile_prefill, e));
    if (bench.json)
        json_close(&bench.out, ']');
    return cuda_profile(bench.box.device, &bench.box.boot, false, &bench.profiled, e);
}

/* --- int8 activations against f32 ------------------------------------------------------------ */

static struct {
    u32 n, ids[KL_TOKENS];
} story;

/* Logits of the `n` tokens from position `pos` on, in KV pages 0, 1, ... of an idle device. */
static enum err logits_of(struct device *d, u32 pos, u32 n, float *out, struct err_text *e)
{
    static u32 pages[CEIL_DIV(KL_TOKENS, LIMIT_PAGE_TOKENS)];
    static struct sampling greedy;
    for (u32 i = 0; i < COUNTOF(pages); i++)
        pages[i] = i;
    struct step_row row = {.n = n,
                           .pos = pos,
                           .pages = pages,
                           .n_pages = CEIL_DIV(story.n, LIMIT_PAGE_TOKENS),
                           .sampling = &greedy,
                           .logits = out};
    struct step step = {.n_rows = 1, .n_tokens = n, .rows = &row, .tokens = story.ids + pos};
    const struct step_result *results;
    u32 n_results;
    enum err code = ERR_OK;
    TRY(d->ops->submit(d, &step, e));
    d->ops->poll(d, true, &results, &n_results, &code, e);
    return code;
}

static double log_sum(const float *z, u32 n)
{
    double max = -INFINITY, sum = 0;
    for (u32 i = 0; i < n; i++)
        max = MAX(max, z[i]);
    for (u32 i = 0; i < n; i++)
        sum += exp(z[i] - max);
    return max + log(sum);
}

static u32 best_of(const float *z, u32 n)
{
    u32 best = 0;
    for (u32 i = 1; i < n; i++)
        best = z[i] > z[best] ? i : best;
    return best;
}

/* KL(p || q) in nats. */
static double divergence(const float *p, const float *q, u32 n)
{
    double p_norm = log_sum(p, n), q_norm = log_sum(q, n), sum = 0;
    for (u32 i = 0; i < n; i++)
        sum += exp(p[i] - p_norm) * ((p[i] - p_norm) - (q[i] - q_norm));
    return sum;
}

static void on_story(void *arg, const struct event *event)
{
    (void)arg;
    if (event->has_token && story.n < KL_TOKENS)
        story.ids[story.n++] = event->result->token;
}

/* A text of the model's own: sampled at temperature 1 by the f32 kernels from its first token. */
static enum err tell_story(struct err_text *e)
{
    const struct model *m = reference.model;
    u32 length = MIN(KL_TOKENS, reference.device->limits.context - 1);
    u64 id;
    story.ids[0] = m->bos >= 0 && m->bos < m->vocab ? (u32)m->bos : 0;
    story.n = 1;
    struct request r = {
        .prompt = story.ids, .n_prompt = 1, .max_tokens = length - 1, .ignore_eos = true};
    r.sampling =
        (struct sampling){.temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1};
    TRY(engine_submit(reference.engine, &r, &id, e));
    while (engine_step(reference.engine))
        TRY(engine_poll(reference.engine, true, e));
    return ERR_OK;
}

struct kl {
    double sum, most;
    u32 agree;
};

static void print_kl(const struct kl *kl)
{
    double mean = kl->sum / story.n, agree = (double)kl->agree / story.n;
    if (bench.json) {
        json_key(&bench.out, "kl_mean");
        json_put_f64(&bench.out, mean, 6);
        json_key(&bench.out, "kl_max");
        json_put_f64(&bench.out, kl->most, 6);
        json_key(&bench.out, "kl_same_first_choice");
        json_put_f64(&bench.out, agree, 6);
        return;
    }
    printf("\nKL of %s against %s over %u tokens of the model's own text:\n"
           "mean %.2e, max %.2e nats; same first choice %.1f %%\n",
           bench.box.device->kernels, reference.device->kernels, story.n, mean, kl->most,
           100 * agree);
}

static enum err kl_row(struct err_text *e)
{
    struct box *b = &bench.box;
    u32 vocab = b->model->vocab;
    struct kl kl = {0};
    TRY(tell_story(e));
    arena_reset(&b->work, 0);
    arena_reset(&reference.work, 0);
    float *q = ARENA_NEW(&b->work, float, (size_t)KL_CHUNK *vocab);
    float *p = ARENA_NEW(&reference.work, float, (size_t)KL_CHUNK *vocab);
    if (!p || !q)
        return arena_full(p ? &b->work : &reference.work, "logits", e);
    b->device->ops->slot_begin(b->device, 0, story.ids, 1, 0);
    reference.device->ops->slot_begin(reference.device, 0, story.ids, 1, 0);
    for (u32 pos = 0; pos < story.n; pos += KL_CHUNK) {
        u32 n = MIN(KL_CHUNK, story.n - pos);
        TRY(logits_of(b->device, pos, n, q, e));
        TRY(logits_of(reference.device, pos, n, p, e));
        for (u32 i = 0; i < n; i++) {
            const float *pi = p + (size_t)i * vocab, *qi = q + (size_t)i * vocab;
            double one = divergence(pi, qi, vocab);
            kl.sum += one;
            kl.most = MAX(kl.most, one);
            kl.agree += best_of(pi, vocab) == best_of(qi, vocab);
        }
    }
    print_kl(&kl);
    return ERR_OK;
}

static enum err open_reference(struct err_text *e)
{
    struct box *b = &bench.box, *r = &reference;
    TRY(boot_begin(r, e));
    r->shape = b->shape;
    r->work_extra_bytes = b->work_extra_bytes;
    r->work_extra_option = b->work_extra_option;
    if (!r->shape.name)
        TRY(options_flag(&r->options, STR("--model"), b->options.model_dir, e));
    r->options.device_kind = DEVICE_KIND_CPU;
    r->options.cpu_threads = b->options.cpu_threads;
    r->options.cpu_activations = CPU_ACTIVATIONS_F32;
    r->options.engine_slots = 1;
    if (b->options.engine_kv_type != ENGINE_KV_TYPE_INT8) /* what that costs is to be seen */
        r->options.engine_kv_type = b->options.engine_kv_type;
    r->options.model_context = MIN(b->device->limits.context, 2 * KL_TOKENS);
    r->options.log_level = b->options.log_level;
    TRY(boot_model(r, e));
    TRY(boot_plan(r, e));
    return boot_load(r, on_story, NULL, e);
}

/* --- head of the table --------------------------------------------------------------------- */

static void begin(double start_ms)
{
    struct box *b = &bench.box;
    char what[256], host[16], file[16], card[16];
    b->device->ops->describe(b->device, what, sizeof what);
    const char *name = b->shape.name ? b->shape.name : b->model->name.p;
    size_t host_bytes = plan_total(&b->plan, PLACE_HOST) + plan_total(&b->plan, PLACE_PINNED);
    size_t file_bytes = plan_total(&b->plan, PLACE_FILE);
    size_t card_bytes = plan_total(&b->plan, PLACE_DEVICE);
    if (!bench.json) {
        printf("%s, %.*s on %s\n", name, STR_ARG(b->model->quant), what);
        printf("start %.1f ms; memory taken %s, on the device %s, weights in place %s; %.3f GB "
               "read a decode step, and %.1f KB a token of context\n\n",
               start_ms, bytes_text(host_bytes, host), bytes_text(card_bytes, card),
               bytes_text(file_bytes, file), (double)step_weight_bytes(b->model, 1) / 1e9,
               kv_token_bytes() / 1e3);
        printf("%-8s %5s %7s %10s %10s %8s %8s %8s %8s\n", "test", "batch", "depth", "tokens/s",
               "ms", "host us", "GB/s", "read", "share");
        return;
    }
    struct json_out *o = &bench.out;
    json_open(o, '{');
    json_key(o, "model");
    json_put_str(o, str_of(name));
    json_key(o, "weights");
    json_put_str(o, b->model->quant);
    json_key(o, "device");
    json_put_str(o, str_of(what));
    json_key(o, "start_ms");
    json_put_f64(o, start_ms, 6);
    json_key(o, "host_bytes");
    json_put_u64(o, host_bytes);
    json_key(o, "file_bytes");
    json_put_u64(o, file_bytes);
    json_key(o, "device_bytes");
    json_put_u64(o, card_bytes);
    json_key(o, "step_bytes");
    json_put_u64(o, step_weight_bytes(b->model, 1));
    json_key(o, "kv_token_bytes");
    json_put_f64(o, kv_token_bytes(), 6);
    json_key(o, "rows");
    json_open(o, '[');
}

static void end(void)
{
    struct rusage usage;
    char peak[16];
    getrusage(RUSAGE_SELF, &usage);
    size_t bytes = (size_t)usage.ru_maxrss * KIB;
    if (!bench.json) {
        printf("\npeak resident %s\n", bytes_text(bytes, peak));
        return;
    }
    json_key(&bench.out, "peak_resident_bytes");
    json_put_u64(&bench.out, bytes);
    json_close(&bench.out, '}');
    put_json();
    printf("\n");
}

static enum err go(int argc, char **argv, struct err_text *e)
{
    struct box *b = &bench.box;
    const struct arg table[] = {
        {"--shape", ARG_STRING, &b->shape.name, 0, 0, "NAME",
         "random weights: llama-3.1-8b, llama-3.2-1b, qwen3-4b, qwen3-30b-a3b, "
         "qwen3.5-9b, lfm2-1.2b, granite-4.0-h-tiny, nemotron-nano-9b-v2, nemotron-3-nano-30b-a3b, "
         "gpt-oss-20b, gemma-4-e4b, gemma-4-26b-a4b, moe-2b, 100m"},
        {"--bits", ARG_U32, &b->shape.bits, 4, 16, "N",
         "of the shape's weights: 4 (default), 8, 16"},
        {"--head-bits", ARG_U32, &b->shape.head_bits, 4, 16, "N", "of its head: 4, 8 or 16"},
        {"--prompt", ARG_STRING, &bench.prompts, 0, 0, "LIST",
         "prefill lengths (128,512), or none"},
        {"--batch", ARG_STRING, &bench.batches, 0, 0, "LIST", "decode batches (1,4), or none"},
        {"--guesses", ARG_STRING, &bench.guesses, 0, 0, "LIST",
         "guessed tokens in a step of one stream (none)"},
        {"--generate", ARG_U32, &bench.generate, 1, LIMIT_CONTEXT, "N", "decode steps (64)"},
        {"--depth", ARG_STRING, &bench.depths, 0, 0, "LIST", "context before decoding (16)"},
        {"--steps", ARG_FLAG, &bench.steps, 0, 0, NULL, "decode without reading prompts before"},
        {"--profile", ARG_FLAG, &bench.profile, 0, 0, NULL, "time of each operation (CUDA)"},
        {"--repeat", ARG_U32, &bench.repeat, 1, LIST_MAX, "N", "runs a row; the median counts (5)"},
        {"--kl", ARG_FLAG, &bench.kl, 0, 0, NULL, "hold the kernels against f32 on the CPU"},
        {"--json", ARG_FLAG, &bench.json, 0, 0, NULL, "one JSON object instead of a table"},
    };
    bool helped;
    u32 words;
    double warm_first, warm_rest;
    TRY(boot_begin(b, e));
    b->options.server_wait = SERVER_WAIT_SPIN;
    TRY(args_parse(b, argc, argv, table, COUNTOF(table), NULL, 0, &words,
                   "zigcuda bench --model DIR | --shape NAME [flags]", &helped, e));
    if (helped)
        return ERR_OK;
    b->options.engine_prefix_cache = false;               /* the same prompts come again */
    b->options.engine_prefill_beside = LIMIT_STEP_TOKENS; /* who decodes waits for the others */
    b->options.engine_drafts = 0; /* figures are of tokens that are computed one by one */
    TRY(each(bench.batches, most_of, e));
    TRY(each(bench.guesses, most_guesses, e));
    TRY(each(bench.prompts, nothing, e));
    TRY(each(bench.depths, nothing, e));
    b->options.engine_slots = MIN(MAX(MAX(b->options.engine_slots, 8), bench.most), LIMIT_SLOTS);
    TRY(boot_model(b, e));
    b->work_extra_bytes = bench.kl ? (size_t)KL_CHUNK * b->model->vocab * sizeof(float) : 0;
    b->work_extra_option = "--kl";
    TRY(boot_plan(b, e));
    TRY(boot_load(b, on_event, NULL, e));
    double start_ms = (double)(clock_now_ns(&b->clock) - b->start_ns) / 1e6;
    if (bench.kl)
        TRY(open_reference(e));
    TRY(arena_open(&bench.work, "benchmark steps", steps_work_bytes(&b->device->limits), true, e));
    if (bench.profile && strcmp(b->device->ops->name, "cuda") != 0)
        return err_set(e, ERR_USAGE, "--profile is of the CUDA backend (device.kind)");
    if (bench.profile)
        TRY(cuda_profile(b->device, &b->boot, false, &bench.profiled, e));
    boot_seal(b);
    bench.out = json_out_over(bench.text, sizeof bench.text);
    TRY(run_batch(1, 16, 4, &warm_first, &warm_rest, e));
    begin(start_ms);
    TRY(each(bench.prompts, prefill_row, e));
    TRY(each(bench.depths, decode_rows, e));
    if (bench.json)
        json_close(&bench.out, ']');
    if (bench.profile)
        TRY(profile_rows(e));
    if (bench.kl)
        TRY(kl_row(e));
    end();
    b->device->ops->close(b->device);
    if (bench.kl)
        reference.device->ops->close(reference.device);
    return ERR_OK;
}

int cmd_bench(int argc, char **argv)
{
    struct err_text e = {0};
    bench.prompts = "128,512";
    bench.batches = "1,4";
    bench.guesses = "none";
    bench.generate = 64;
    bench.depths = "16";
    bench.repeat = 5;
    return main_end("bench", go(argc, argv, &e), &e);
}
