/* `zigcuda bench`: speed through the same engine that serves, beside the floor it is held against.
 * Prefill (pp): tokens of one prompt over the time to its first token. Decode (tg): steps of a
 * batch that all decode. The floor of a decode step is its bytes (weights, scales, zeros, head, KV)
 * over the read bandwidth, which is measured before and after each row with the same threads over
 * the same memory, because it drifts from minute to minute on shared machines.
 */
#include "core/main/args.h"
#include "core/main/boot.h"
#include "core/main/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { LIST_MAX = 16, KL_TOKENS = 256, KL_CHUNK = 16 };

static struct bench {
    struct box box;
    const char *prompts, *batches;
    u32 generate, depth, repeat;
    bool json, kl;
    u32 outputs, first; /* requests that have their first token */
    u64 first_ns;
    struct json_out out;
    char text[64 << 10];
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
    }
}

/* --- bytes of a step ----------------------------------------------------------------------- */

static size_t step_weight_bytes(const struct model *m)
{
    size_t bytes = weight_bytes(&m->head);
    for (u32 l = 0; l < m->layers_n; l++) {
        const struct layer *layer = &m->layers[l];
        for (u32 i = 0; i < m->n_qkv; i++)
            bytes += weight_bytes(&layer->qkv[i]);
        for (u32 i = 0; i < m->n_gate_up; i++)
            bytes += weight_bytes(&layer->gate_up[i]);
        bytes += weight_bytes(&layer->o) + weight_bytes(&layer->down);
    }
    return bytes;
}

/* --- running requests ---------------------------------------------------------------------- */

static u32 token(u32 i)
{
    return (u32)((i + 1) * 2654435761u >> 8) % bench.box.model->vocab;
}

/* `batch` requests of `prompt` tokens and `generate` outputs each, to their end. Seconds from the
 * submit to the first token (of the last to get one) and from there to the end. */
static enum err run_batch(u32 batch, u32 prompt, u32 generate, double *first_s, double *rest_s,
                          struct err_text *e)
{
    struct box *b = &bench.box;
    arena_reset(&b->work, 0);
    u32 *ids = ARENA_NEW(&b->work, u32, prompt);
    if (!ids)
        return arena_full(&b->work, "benchmark prompt", e);
    struct request r = {
        .prompt = ids, .n_prompt = prompt, .max_tokens = generate, .ignore_eos = true};
    r.sampling = (struct sampling){.top_p = 1, .typical_p = 1, .repetition_penalty = 1};
    bench.first = 0;
    u64 from = clock_now_ns(&b->clock), id;
    for (u32 i = 0; i < batch; i++) {
        for (u32 k = 0; k < prompt; k++)
            ids[k] = token(i * 7919 + k);
        TRY(engine_submit(b->engine, &r, &id, e));
    }
    while (engine_step(b->engine))
        TRY(engine_poll(b->engine, true, e));
    *first_s = (double)(bench.first_ns - from) / 1e9;
    *rest_s = (double)(clock_now_ns(&b->clock) - bench.first_ns) / 1e9;
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

static void row(const char *what, u32 batch, double tok_s, double ms, double gb_s, double roof_gb_s)
{
    if (bench.json) {
        struct json_out *o = &bench.out;
        json_open(o, '{');
        json_key(o, "test");
        json_put_str(o, str_of(what));
        json_key(o, "batch");
        json_put_u64(o, batch);
        json_key(o, "tokens_per_second");
        json_put_f64(o, tok_s, 6);
        json_key(o, "ms");
        json_put_f64(o, ms, 6);
        json_key(o, "gb_per_second");
        json_put_f64(o, gb_s, 5);
        json_key(o, "read_gb_per_second");
        json_put_f64(o, roof_gb_s, 5);
        json_close(o, '}');
        return;
    }
    printf("%-10s %5u %10.1f %10.2f", what, batch, tok_s, ms);
    if (roof_gb_s > 0)
        printf(" %8.2f %8.2f %6.0f %%", gb_s, roof_gb_s, 100 * gb_s / roof_gb_s);
    printf("\n");
    fflush(stdout);
}

static enum err prefill_row(u32 tokens, struct err_text *e)
{
    double s[LIST_MAX], rest;
    char what[24];
    for (u32 i = 0; i < bench.repeat; i++)
        TRY(run_batch(1, tokens, 1, &s[i], &rest, e));
    double m = median(s, bench.repeat);
    snprintf(what, sizeof what, "pp%u", tokens);
    row(what, 1, tokens / m, m * 1e3, 0, 0);
    return ERR_OK;
}

static enum err decode_row(u32 batch, struct err_text *e)
{
    const struct model *m = bench.box.model;
    double s[LIST_MAX], share[LIST_MAX], roofs[LIST_MAX], first, rest;
    char what[24];
    size_t kv = (size_t)m->layers_n * 2 * m->kv_heads * m->head_dim * 2;
    double bytes = (double)step_weight_bytes(m) +
                   (double)batch * (bench.depth + bench.generate / 2.0) * (double)kv;
    for (u32 i = 0; i < bench.repeat; i++) {
        double before = bandwidth();
        TRY(run_batch(batch, bench.depth, bench.generate + 1, &first, &rest, e));
        s[i] = rest / bench.generate;
        roofs[i] = (before + bandwidth()) / 2;
        share[i] = bytes / s[i] / roofs[i];
    }
    double step = median(s, bench.repeat), roof = bytes / step / median(share, bench.repeat);
    snprintf(what, sizeof what, "tg%u", bench.generate);
    row(what, batch, batch / step, step * 1e3, bytes / step / 1e9, roof / 1e9);
    return ERR_OK;
}

static enum err each(const char *list, enum err (*run)(u32, struct err_text *), struct err_text *e)
{
    for (const char *p = list; *p;) {
        char *end;
        unsigned long v = strtoul(p, &end, 10);
        if (end == p || v == 0 || v > LIMIT_CONTEXT || (*end && *end != ','))
            return err_set(e, ERR_USAGE, "'%s' is no list of numbers such as 128,512", list);
        TRY(run((u32)v, e));
        p = *end ? end + 1 : end;
    }
    return ERR_OK;
}

/* --- int8 activations against f32 ------------------------------------------------------------ */

/* Logits of `n` tokens from position `pos` on, in KV pages 0, 1, ... of an idle device. */
static enum err logits_of(struct device *d, const u32 *tokens, u32 pos, u32 n, float *out,
                          struct err_text *e)
{
    static u32 pages[CEIL_DIV(KL_TOKENS, LIMIT_PAGE_TOKENS)];
    static struct sampling greedy;
    for (u32 i = 0; i < COUNTOF(pages); i++)
        pages[i] = i;
    struct step_row row = {.n = n, .pos = pos, .pages = pages, .sampling = &greedy, .logits = out};
    struct step step = {.n_rows = 1, .n_tokens = n, .rows = &row, .tokens = tokens + pos};
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

static struct {
    u32 n, ids[KL_TOKENS];
} story;

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
           bench.box.kernels->name, reference.kernels->name, story.n, mean, kl->most, 100 * agree);
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
    b->device->ops->slot_begin(b->device, 0, story.ids, 1);
    reference.device->ops->slot_begin(reference.device, 0, story.ids, 1);
    for (u32 pos = 0; pos < story.n; pos += KL_CHUNK) {
        u32 n = MIN(KL_CHUNK, story.n - pos);
        TRY(logits_of(b->device, story.ids, pos, n, q, e));
        TRY(logits_of(reference.device, story.ids, pos, n, p, e));
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
    TRY(options_flag(&r->options, STR("--model"), b->options.model_dir, e));
    r->options.cpu_threads = b->options.cpu_threads;
    r->options.cpu_activations = CPU_ACTIVATIONS_F32;
    r->options.engine_slots = 1;
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
    char what[256], host[16], file[16];
    b->device->ops->describe(b->device, what, sizeof what);
    const char *name = b->shape.name ? b->shape.name : b->model->name.p;
    size_t host_bytes = plan_total(&b->plan, PLACE_HOST);
    size_t file_bytes = plan_total(&b->plan, PLACE_FILE);
    if (!bench.json) {
        printf("%s, %.*s on %s\n", name, STR_ARG(b->model->quant), what);
        printf(
            "start %.1f ms; memory taken %s, weights in place %s; %.3f GB read a decode step\n\n",
            start_ms, bytes_text(host_bytes, host), bytes_text(file_bytes, file),
            (double)step_weight_bytes(b->model) / 1e9);
        printf("%-10s %5s %10s %10s %8s %8s %8s\n", "test", "batch", "tokens/s", "ms", "GB/s",
               "read", "share");
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
    json_key(o, "step_bytes");
    json_put_u64(o, step_weight_bytes(b->model));
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
    printf("%.*s\n", (int)bench.out.n, bench.out.p);
}

static enum err go(int argc, char **argv, struct err_text *e)
{
    struct box *b = &bench.box;
    const struct arg table[] = {
        {"--shape", ARG_STRING, &b->shape.name, 0, 0, "NAME",
         "random weights: llama-3.1-8b, llama-3.2-1b, qwen3-4b, 100m"},
        {"--bits", ARG_U32, &b->shape.bits, 4, 16, "N",
         "of the shape's weights: 4 (default), 8, 16"},
        {"--head-bits", ARG_U32, &b->shape.head_bits, 4, 16, "N", "of its head: 4 or 16 (default)"},
        {"--prompt", ARG_STRING, &bench.prompts, 0, 0, "LIST", "prefill lengths (128,512)"},
        {"--batch", ARG_STRING, &bench.batches, 0, 0, "LIST", "decode batches (1,4)"},
        {"--generate", ARG_U32, &bench.generate, 1, LIMIT_CONTEXT, "N", "decode steps (64)"},
        {"--depth", ARG_U32, &bench.depth, 1, LIMIT_CONTEXT, "N", "context before decoding (16)"},
        {"--repeat", ARG_U32, &bench.repeat, 1, LIST_MAX, "N", "runs a row; the median counts (5)"},
        {"--kl", ARG_FLAG, &bench.kl, 0, 0, NULL, "hold int8 activations against f32 kernels"},
        {"--json", ARG_FLAG, &bench.json, 0, 0, NULL, "one JSON object instead of a table"},
    };
    bool helped;
    u32 words;
    double warm_first, warm_rest;
    TRY(boot_begin(b, e));
    b->shape.bits = 4;
    b->shape.head_bits = 16;
    TRY(options_load(&b->options, &b->scratch, argc, argv, e));
    TRY(args_parse(argc, argv, table, COUNTOF(table), &b->options, NULL, 0, &words,
                   "zigcuda bench --model DIR | --shape NAME [flags]", &helped, e));
    if (helped)
        return ERR_OK;
    b->options.engine_prefix_cache = false; /* the same prompts come again */
    TRY(boot_model(b, e));
    b->work_extra_bytes = bench.kl ? (size_t)KL_CHUNK * b->model->vocab * sizeof(float) : 0;
    TRY(boot_plan(b, e));
    TRY(boot_load(b, on_event, NULL, e));
    double start_ms = (double)(clock_now_ns(&b->clock) - b->start_ns) / 1e6;
    if (bench.kl)
        TRY(open_reference(e));
    boot_seal(b);
    bench.out = json_out_over(bench.text, sizeof bench.text);
    TRY(run_batch(1, 16, 4, &warm_first, &warm_rest, e));
    begin(start_ms);
    TRY(each(bench.prompts, prefill_row, e));
    TRY(each(bench.batches, decode_row, e));
    if (bench.json)
        json_close(&bench.out, ']');
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
    bench.generate = 64;
    bench.depth = 16;
    bench.repeat = 5;
    enum err r = go(argc, argv, &e);
    if (r != ERR_OK)
        fprintf(stderr, "zigcuda bench: %s\n", e.text);
    return err_exit_class(r);
}
