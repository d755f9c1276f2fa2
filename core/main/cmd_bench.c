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

enum { LIST_MAX = 16, KL_TOKENS = 256 };

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

static void on_event(void *arg, const struct event *event)
{
    (void)arg;
    bench.outputs += event->has_token;
    if (event->has_token && event->output_tokens == 1) {
        bench.first++;
        bench.first_ns = clock_now_ns(&bench.box.clock);
    }
}

/* --- bytes of a step -------------------------------------------------------------------------- */

static size_t type_bytes(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_I32 ? 4 : type == DTYPE_I8 ? 1 : 2;
}

static size_t weight_bytes(const struct weight *w)
{
    size_t values = (size_t)w->n * w->k, groups = (size_t)w->n * w->groups;
    if (w->kind == WEIGHT_PLAIN)
        return values * type_bytes(w->type);
    return values * w->bits / 8 + groups * type_bytes(w->scale_type) +
           (w->zeros ? groups * w->bits / 8 : 0);
}

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

/* --- running requests --------------------------------------------------------------------------
 */

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

/* --- rows
 * ------------------------------------------------------------------------------------------ */

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

/* --- head of the table
 * ------------------------------------------------------------------------------ */

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
    json_close(&bench.out, ']');
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
    TRY(boot_plan(b, e));
    TRY(boot_load(b, on_event, NULL, e));
    boot_seal(b);
    double start_ms = (double)(clock_now_ns(&b->clock) - b->start_ns) / 1e6;
    bench.out = json_out_over(bench.text, sizeof bench.text);
    TRY(run_batch(1, 16, 4, &warm_first, &warm_rest, e));
    begin(start_ms);
    TRY(each(bench.prompts, prefill_row, e));
    TRY(each(bench.batches, decode_row, e));
    end();
    b->device->ops->close(b->device);
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
