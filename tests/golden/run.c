/* golden [--cuda=LIBRARY] [--kv=int8] [--head=int8] DIR [NAME...]: the models of DIR/models.tsv
 * through the device seam, with every kernel set that this CPU can run, against logits and tokens
 * that other software computed (golden.json, golden.f32), and against themselves: the same bits
 * however the prompt is cut, whoever shares the step, whatever is guessed and, of the best set,
 * however many threads compute. Quantised weights with int8 activations are held to a tenth of the
 * logits only, along the golden's tokens; their divergence (KL) is printed. Without NAMEs all
 * models run; with --cuda those that a GPU computes. With --cuda the CUDA backend computes instead,
 * through that driver library: a real one or tests/fakecuda. It rounds weights and activations to
 * half precision, so that it is held to CUDA_TOLERANCE where a golden is closer. With --kv=int8 the
 * KV cache has 8 bits, with --head=int8 the head (model.head), and logits are held to
 * INT8_KV_TOLERANCE and INT8_HEAD_TOLERANCE, along the golden's tokens.
 */
#include "core/base/file.h"
#include "core/base/half.h"
#include "core/base/json.h"
#include "core/engine/embed.h"
#include "core/model/head.h"
#include "drivers/cpu/cpu.h"
#include "drivers/cuda/cuda.h"
#include "drivers/cuda/matrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PROMPT_MAX = 256,
    GREEDY = 64,
    SEQUENCES = 3,
    GUESSES = SEQUENCES - 1,
    PAGES_EACH = 32,
    THREADS = 3
};

struct golden {
    const char *name, *format;
    double tolerance;
    const struct model *model;
    u32 prompt[PROMPT_MAX], n_prompt;
    u32 greedy[GREEDY], n_greedy;
    const float *logits;                                /* [n_prefill + n_decode][vocab] */
    u32 prefill_from, n_prefill, decode_from, n_decode; /* positions */
};

/* What one way of running the prompt gave. */
struct result {
    const u32 *forced; /* in: golden.greedy, so that logits can be compared though tokens differ */
    float *logits;     /* [n_prompt + GREEDY][vocab]: of every position */
    float *hidden;     /* [hidden] behind the layers: of the prompt's last token */
    u32 tokens[GREEDY];
};

/* What computes: a kernel set, or the card. */
struct way {
    const char *name;
    const struct kernel_set *set; /* NULL: the card */
    u32 threads;
};

/* A delta net's state goes through all tokens: transformers with weights and inputs of these models
 * rounded as the card has them is up to 3.5e-3 from the golden as well. */
static const double CUDA_TOLERANCE = 3e-3, CUDA_DELTA_TOLERANCE = 5e-3;
static const double INT8_KV_TOLERANCE = 4e-2; /* of what is not W8A8 nor a mixture 3e-2 at most */
static const u32 INT8_OTHERS = 2;             /* of a golden's tokens */
static const double INT8_HEAD_TOLERANCE = 1e-2;

static bool int8_kv, int8_head;
static struct head head; /* with int8_head */
static u32 passed, failed;
static struct arena forever, keep, scratch;
static struct cuda_info card;
static struct err_text error;

static void verdict(bool ok, const char *model, const char *set, const char *what)
{
    printf("%s %-17s %-12s %s\n", ok ? "ok  " : "FAIL", model, set, what);
    passed += ok;
    failed += !ok;
}

static void give_up(const char *what)
{
    fprintf(stderr, "golden: %s: %s\n", what, error.text);
    exit(1);
}

/* --- reading
 * -------------------------------------------------------------------------------------- */

static u32 number(const struct json *object, const char *key)
{
    u64 v = 0;
    if (!json_u64(json_get(object, key), &v) || v > UINT32_MAX) {
        fprintf(stderr, "golden.json: no whole number %s\n", key);
        exit(1);
    }
    return (u32)v;
}

static u32 numbers(const struct json *object, const char *key, u32 *out, u32 max)
{
    const struct json *list = json_get(object, key);
    u32 n = 0;
    for (const struct json *v = list ? list->child : NULL; v; v = v->next) {
        u64 value;
        ASSERT(n < max && json_u64(v, &value));
        out[n++] = (u32)value;
    }
    ASSERT(n > 0);
    return n;
}

static bool read_golden(struct golden *g, const char *dir)
{
    char path[LIMIT_PATH_BYTES];
    struct str text;
    const struct json *root;
    struct str json_name = STR("golden.json"), logits_name = STR("golden.f32");
    if (file_path(path, dir, json_name, &error) ||
        file_read(&keep, path, LIMIT_CONFIG_FILE_BYTES, ERR_MODEL, &text, &error) ||
        json_parse(&keep, text, path, ERR_MODEL, &root, &error) ||
        file_path(path, dir, logits_name, &error) || file_map(path, ERR_MODEL, &text, &error))
        return false;
    g->n_prompt = numbers(root, "prompt", g->prompt, PROMPT_MAX);
    g->n_greedy = numbers(root, "greedy", g->greedy, GREEDY);
    const struct json *logits = json_get(root, "logits");
    u32 range[2];
    ASSERT(numbers(json_get(logits, "prefill"), "positions", range, 2) == 2);
    g->prefill_from = range[0];
    g->n_prefill = range[1] - range[0];
    ASSERT(numbers(json_get(logits, "decode"), "positions", range, 2) == 2);
    g->decode_from = range[0];
    g->n_decode = range[1] - range[0];
    ASSERT(number(json_get(logits, "prefill"), "offset_bytes") == 0);
    ASSERT(text.n == (size_t)(g->n_prefill + g->n_decode) * g->model->vocab * 4);
    g->logits = (const float *)(const void *)text.p;
    return true;
}

/* --- running
 * -------------------------------------------------------------------------------------- */

struct sequence {
    u32 tokens[PROMPT_MAX + GREEDY]; /* prompt, then output */
    u32 n_prompt, known, done;       /* known: prompt and output so far; done: in the cache */
    u32 chunk;
    u32 chosen[GREEDY];
    const u32 *forced; /* outputs taken from here instead of the device, or NULL */
    const u32 *truth;  /* what it is going to say, to guess from, or NULL */
    u32 pages[PAGES_EACH];
    float *logits; /* [PROMPT_MAX + GREEDY][vocab] or NULL */
    float *hidden; /* [hidden], or NULL */
};

/* f32 where the golden is held to f32 precision, and for W8A8: there a difference of f16's size can
 * move an activation to the next int8, which is no error but looks like one. */
static enum dtype kv_type(const struct golden *g)
{
    bool exact = strcmp(g->format, "f32") == 0 || strcmp(g->format, "ct-w8a8") == 0;
    return int8_kv ? DTYPE_I8 : exact ? DTYPE_F32 : DTYPE_F16;
}

static enum err open_way(const struct golden *g, const struct way *way, struct device **d)
{
    struct device_limits limits = {.slots = SEQUENCES,
                                   .samples = SEQUENCES,
                                   .pages = SEQUENCES * PAGES_EACH,
                                   .step_tokens = SEQUENCES * PROMPT_MAX,
                                   .context = PAGES_EACH * LIMIT_PAGE_TOKENS};
    struct cpu_options cpu = {.set = way->set, .threads = way->threads, .kv_type = kv_type(g)};
    struct cuda_options cuda = {.info = &card,
                                .clock = clock_system(),
                                .spin = true,
                                .step_ms = LIMIT_GPU_WAIT_MS,
                                .share_percent = 90,
                                .kv_int8 = int8_kv};
    return way->set ? cpu_open(&keep, g->model, &limits, &cpu, d, &error)
                    : cuda_open(&keep, g->model, &limits, &cuda, d, &error);
}

static struct device *open_device(const struct golden *g, const struct way *way, struct arena *host)
{
    struct device *d;
    struct plan plan = {0};
    if (open_way(g, way, &d) || d->ops->plan(d, &plan, &error) ||
        arena_open(host, "host", plan_total(&plan, PLACE_HOST) + 8192, false, &error) ||
        d->ops->load(d, host, NULL, NULL, &error))
        give_up(g->name);
    return d;
}

static void start_sequence(struct sequence *s, struct device *d, u32 slot, const u32 *prompt, u32 n,
                           u32 chunk)
{
    *s = (struct sequence){.n_prompt = n, .known = n, .chunk = chunk};
    memcpy(s->tokens, prompt, n * sizeof *prompt);
    for (u32 i = 0; i < PAGES_EACH; i++) /* scattered, never in order */
        s->pages[i] = (i * 7 + 3) % PAGES_EACH * SEQUENCES + slot;
    d->ops->slot_begin(d, slot, prompt, n, 0);
}

/* Guesses of the next tokens of q, behind its newest: two, of which every other time the second is
 * wrong. Returns how many; *right: of them. */
static u32 guess(const struct sequence *q, u32 outputs, u32 vocab, u32 *out, u32 *right)
{
    u32 output = q->known - q->n_prompt;
    *right = 0;
    if (!q->truth || output == 0 || q->known - q->done != 1 || output + GUESSES >= outputs)
        return 0;
    memcpy(out, q->truth + output, GUESSES * sizeof *out);
    *right = GUESSES - output / 2 % 2;
    if (*right < GUESSES)
        out[*right] = (out[*right] + 1) % vocab;
    return GUESSES;
}

/* One step over the sequences that still want output. */
static bool step(struct device *d, struct sequence *seq, u32 n, u32 outputs)
{
    static const struct sampling greedy = {.top_p = 1, .typical_p = 1, .repetition_penalty = 1};
    struct step_row rows[SEQUENCES];
    u32 tokens[SEQUENCES * PROMPT_MAX], vocab = d->model->vocab, of[SEQUENCES], right[SEQUENCES];
    struct step s = {.rows = rows, .tokens = tokens};
    for (u32 i = 0; i < n; i++) {
        struct sequence *q = &seq[i];
        u32 count = MIN(q->chunk, q->known - q->done), end = q->done + count;
        if (count == 0 || q->done >= q->n_prompt + outputs)
            continue;
        u32 from = d->model->rope_long_from, *behind = tokens + s.n_tokens + count;
        u32 guesses = guess(q, outputs, vocab, behind, &right[s.n_rows]);
        of[s.n_rows] = i;
        rows[s.n_rows++] =
            (struct step_row){.slot = i,
                              .first = s.n_tokens,
                              .n = count + guesses,
                              .pos = q->done,
                              .rope_long = from && q->n_prompt + GREEDY > from,
                              .samples = (end == q->known) + guesses,
                              .outputs = q->known - q->n_prompt,
                              .pages = q->pages,
                              .n_pages = PAGES_EACH,
                              .sampling = &greedy,
                              .logits = q->logits ? q->logits + (size_t)q->done * vocab : NULL,
                              .hidden = end == q->n_prompt ? q->hidden : NULL};
        memcpy(tokens + s.n_tokens, q->tokens + q->done, count * sizeof *tokens);
        s.n_tokens += count + guesses;
        q->done = end + right[s.n_rows - 1];
    }
    if (s.n_rows == 0)
        return false;
    const struct step_result *results;
    u32 n_results, at = 0;
    enum err err;
    if (d->ops->submit(d, &s, &error))
        give_up("submit");
    while (d->ops->poll(d, true, &results, &n_results, &err, &error) == 0)
        ;
    if (err != ERR_OK)
        give_up("step");
    for (u32 r = 0; r < s.n_rows; r++) {
        struct sequence *q = &seq[of[r]];
        u32 output = q->known - q->n_prompt, stay = MIN(rows[r].samples, 1 + right[r]);
        for (u32 i = 0; i < stay && output < GREEDY; i++, output++) {
            q->chosen[output] = results[at + i].token;
            q->tokens[q->known++] = q->forced ? q->forced[output] : results[at + i].token;
        }
        at += rows[r].samples;
    }
    ASSERT(at == n_results);
    return true;
}

/* The prompt in chunks, then `outputs` tokens, with other sequences beside it when asked. With
 * truth[GREEDY], what it is going to say, some of it is guessed. */
static void run(const struct golden *g, struct device *d, u32 chunk, bool neighbours, u32 outputs,
                const u32 *truth, struct result *out)
{
    static struct sequence seq[SEQUENCES];
    u32 mirrored[PROMPT_MAX], mine = neighbours ? 1 : 0;
    for (u32 i = 0; i < g->n_prompt; i++)
        mirrored[i] = g->prompt[g->n_prompt - 1 - i];
    for (size_t i = 0; i < (size_t)(g->n_prompt + outputs) * g->model->vocab; i++)
        out->logits[i] = NAN;
    start_sequence(&seq[mine], d, mine, g->prompt, g->n_prompt, chunk);
    seq[mine].logits = out->logits;
    seq[mine].hidden = out->hidden;
    seq[mine].forced = out->forced;
    seq[mine].truth = truth;
    if (neighbours) {
        start_sequence(&seq[0], d, 0, mirrored, g->n_prompt, 13);
        start_sequence(&seq[2], d, 2, mirrored + 5, g->n_prompt / 2, PROMPT_MAX);
    }
    while (step(d, seq, neighbours ? SEQUENCES : 1, outputs))
        ;
    memcpy(out->tokens, seq[mine].chosen, outputs * sizeof *out->tokens);
}

/* --- judging
 * -------------------------------------------------------------------------------------- */

/* Relative L2 distance; a NaN is infinitely far. */
static double distance(const float *a, const float *b, size_t n)
{
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += (double)b[i] * b[i];
    }
    return isnan(d) ? INFINITY : sqrt(d / s);
}

/* Mean over rows of KL(softmax(golden) || softmax(ours)), in nats. */
static double divergence(const float *ours, const float *golden, u32 rows, u32 vocab)
{
    double total = 0;
    for (u32 r = 0; r < rows; r++, ours += vocab, golden += vocab) {
        double so = 0, sg = 0, kl = 0;
        for (u32 i = 0; i < vocab; i++) {
            so += exp(ours[i]);
            sg += exp(golden[i]);
        }
        for (u32 i = 0; i < vocab; i++)
            kl += exp(golden[i]) / sg * ((golden[i] - log(sg)) - (ours[i] - log(so)));
        total += kl / rows;
    }
    return total;
}

/* Only quantised weights meet quantised activations, except where the format itself asks for them:
 * these a device without f32 pages cannot follow to the bit (see kv_type). */
static bool is_exact(const struct golden *g, const struct way *way)
{
    static const char *const formats[] = {"f32", "f16", "bf16", "ct-w8a8"};
    if (!way->set && strcmp(g->format, "ct-w8a8") == 0)
        return false;
    bool exact = !way->set || way->set->linear->activation_bits == 32;
    for (u32 i = 0; i < COUNTOF(formats); i++)
        exact |= strcmp(g->format, formats[i]) == 0 && !int8_head;
    return exact;
}

/* How many of a golden's tokens may be others here. */
static u32 others(const struct golden *g, const struct way *way)
{
    return !is_exact(g, way) ? g->n_greedy : int8_kv || int8_head ? INT8_OTHERS : 0;
}

/* How far logits may be from a golden's. */
static double limit_of(const struct golden *g, const struct way *way)
{
    if (!is_exact(g, way))
        return 0.1;
    const double rounded = g->model->delta.value_heads ? CUDA_DELTA_TOLERANCE : CUDA_TOLERANCE;
    const double bits8 = MAX(int8_kv ? INT8_KV_TOLERANCE : 0, int8_head ? INT8_HEAD_TOLERANCE : 0);
    return MAX(g->tolerance, MAX(bits8, way->set ? 0 : rounded));
}

/* Writes the figures to `what`. */
static bool against_golden(const struct golden *g, const struct way *way, const struct result *r,
                           char *what, size_t cap)
{
    u32 vocab = g->model->vocab, same = 0;
    const float *prefill = r->logits + (size_t)g->prefill_from * vocab;
    const float *decode = r->logits + (size_t)g->decode_from * vocab;
    const float *golden_decode = g->logits + (size_t)g->n_prefill * vocab;
    double p = distance(prefill, g->logits, (size_t)g->n_prefill * vocab);
    double d = distance(decode, golden_decode, (size_t)g->n_decode * vocab);
    for (u32 i = 0; i < g->n_greedy; i++)
        same += r->tokens[i] == g->greedy[i];
    double limit = limit_of(g, way);
    snprintf(what, cap, "prefill %.1e decode %.1e %s %.0e KL %.1e greedy %u/%u", p, d,
             is_exact(g, way) ? "of" : "(int8) of", limit,
             divergence(prefill, g->logits, g->n_prefill, vocab) / 2 +
                 divergence(decode, golden_decode, g->n_decode, vocab) / 2,
             same, g->n_greedy);
    return p <= limit && d <= limit && same + others(g, way) >= g->n_greedy;
}

/* The hidden state of the prompt's last token, through the final norm and a head of floats, gives
 * the golden's logits. */
static bool hidden_fits(const struct golden *g, const struct way *way, const struct result *r)
{
    const struct model *m = g->model;
    const struct weight *w = &m->head;
    static float normed[LIMIT_HIDDEN], logits[4096];
    ASSERT(m->vocab <= COUNTOF(logits) && w->kind == WEIGHT_PLAIN && !w->bias);
    memcpy(normed, r->hidden, m->hidden * sizeof *normed);
    embed_norm(m, normed);
    for (u32 i = 0; i < m->vocab; i++) {
        double sum = 0;
        for (u32 k = 0; k < m->hidden; k++)
            sum += (double)normed[k] * half_load(w->data, w->type, (size_t)i * m->hidden + k);
        sum *= (double)m->logit_scale;
        logits[i] =
            (float)(m->logit_softcap > 0 ? m->logit_softcap * tanh(sum / m->logit_softcap) : sum);
    }
    u32 last = g->n_prompt - 1 - g->prefill_from;
    return distance(logits, g->logits + (size_t)last * m->vocab, m->vocab) <= limit_of(g, way);
}

/* Cutting the prompt and sharing the step give the bits of `want`; so does guessing, where nobody
 * shares the step, as there is a sample for each slot, and guesses can be taken back. */
static bool against_itself(const struct golden *g, struct device *d, const struct result *want,
                           struct result *other, const u32 *chunks, u32 n, bool neighbours)
{
    enum { OUTPUTS = 12 };
    const bool guesses = !neighbours && !model_has_states(g->model);
    const u32 *truth = !guesses ? NULL : want->forced ? want->forced : want->tokens;
    size_t bytes = (size_t)(g->n_prompt + OUTPUTS) * g->model->vocab * sizeof(float);
    bool same = true;
    for (u32 i = 0; i < n; i++) {
        run(g, d, chunks[i], neighbours, OUTPUTS, i ? truth : NULL, other);
        same &= memcmp(want->logits, other->logits, bytes) == 0;
        same &= memcmp(want->tokens, other->tokens, OUTPUTS * sizeof(u32)) == 0;
        same &= memcmp(want->hidden, other->hidden, g->model->hidden * sizeof(float)) == 0;
    }
    return same;
}

static struct result result_space(const struct golden *g)
{
    size_t rows = g->n_prompt + GREEDY;
    struct result r = {.logits = ARENA_NEW(&keep, float, rows * g->model->vocab),
                       .hidden = ARENA_NEW(&keep, float, g->model->hidden)};
    if (!r.logits || !r.hidden)
        give_up("results");
    return r;
}

static void test_way(const struct golden *g, struct way *way, u32 threads_max, struct result *want,
                     struct result *other)
{
    static const u32 chunks[] = {1, 3, 7, PROMPT_MAX}, few[] = {5, PROMPT_MAX};
    char figures[128], what[256];
    want->forced = other->forced = others(g, way) ? g->greedy : NULL;
    bool close = false, cut = false, beside = false, threads_same = true;
    for (way->threads = 1; way->threads <= threads_max; way->threads++) {
        struct arena host;
        if (int8_head)
            head_rows(&head, 0, head.to.n); /* what loads a model frees what it was made of */
        struct device *d = open_device(g, way, &host);
        if (way->threads == 1) {
            run(g, d, PROMPT_MAX, false, GREEDY, NULL, want);
            close = against_golden(g, way, want, figures, sizeof figures) &&
                    (int8_head || hidden_fits(g, way, want));
            cut = against_itself(g, d, want, other, chunks, COUNTOF(chunks), false);
            beside = against_itself(g, d, want, other, chunks, COUNTOF(chunks), true);
        } else {
            threads_same &= against_itself(g, d, want, other, few, COUNTOF(few), false);
            threads_same &= against_itself(g, d, want, other, few, COUNTOF(few), true);
        }
        d->ops->close(d);
        arena_close(&host);
    }
    snprintf(what, sizeof what, "%s; same bits: chunks, guesses%s neighbours%s%s%s", figures,
             cut ? "" : " NO", beside ? "" : " NO", threads_max > 1 ? " threads" : "",
             threads_same ? "" : " NO");
    verdict(close && cut && beside && threads_same, g->name, way->name, what);
}

static void test_model(struct golden *g, const char *dir, bool cuda)
{
    struct model *model;
    arena_reset(&keep, 0);
    error = (struct err_text){0};
    if (model_open(&keep, &scratch, dir, &model, &error)) {
        verdict(false, g->name, "-", error.text);
        return;
    }
    if (int8_head && head_int8(&keep, model, false, &head, &error))
        give_up("a head of 8 bits");
    g->model = model;
    if (cuda && matrix_takes(model, &error)) {
        printf("skip %s: %s\n", g->name, error.text);
        return;
    }
    if (!read_golden(g, dir)) {
        verdict(false, g->name, "-", error.text);
        return;
    }
    struct result want = result_space(g), other = result_space(g);
    if (cuda)
        test_way(g, &(struct way){.name = "cuda"}, 1, &want, &other);
    u32 threads = THREADS; /* what they share is above the kernels: of one set that is shown */
    for (u32 i = 0; kernel_sets[i] && !cuda; i++)
        if (kernel_sets[i]->supported()) {
            test_way(g, &(struct way){kernel_sets[i]->name, kernel_sets[i], 1}, threads, &want,
                     &other);
            threads = 1;
        }
}

/* The next tab-separated field of a line, cut off in place. */
static char *field(char **line)
{
    char *start = *line, *end = start + strcspn(start, "\t\n");
    *line = end + (*end != 0);
    *end = 0;
    return start;
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (strncmp(name, argv[i], strlen(argv[i])) == 0)
            return true;
    return argc <= 2;
}

static void start_card(const char *library)
{
    struct cuda_settings settings = {.library = library};
    struct clock clock = clock_system();
    u32 count;
    if (cuda_start(&forever, &settings, &clock, &count, &error) ||
        cuda_choose("0", count, &card, &error))
        give_up(library);
}

int main(int argc, char **argv)
{
    const char *library = NULL;
    for (; argc > 1 && argv[1][0] == '-'; argv++, argc--) {
        if (strncmp(argv[1], "--cuda=", 7) == 0)
            library = argv[1] + 7;
        else if (strcmp(argv[1], "--kv=int8") == 0)
            int8_kv = true;
        else if (strcmp(argv[1], "--head=int8") == 0)
            int8_head = true;
        else
            break;
    }
    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: golden [--cuda=LIBRARY] [--kv=int8] [--head=int8] DIR [NAME...]\n");
        return EXIT_USAGE;
    }
    char path[LIMIT_PATH_BYTES];
    struct str list;
    if (arena_open(&forever, "forever", LIMIT_BOOT_ARENA_BYTES, false, &error) ||
        arena_open(&keep, "keep", LIMIT_BOOT_ARENA_BYTES, false, &error) ||
        arena_open(&scratch, "scratch", LIMIT_SCRATCH_ARENA_BYTES, false, &error))
        give_up("memory");
    if (library)
        start_card(library);
    snprintf(path, sizeof path, "%s/models.tsv", argv[1]);
    if (file_read(&forever, path, LIMIT_CONFIG_FILE_BYTES, ERR_CONFIG, &list, &error))
        give_up(path);
    for (struct str left = list; left.n;) {
        struct golden g = {0};
        char line[256], *at = line;
        const char *end = memchr(left.p, '\n', left.n);
        ASSERT(end);
        size_t n = (size_t)(end - left.p) + 1;
        ASSERT(n < sizeof line);
        memcpy(line, left.p, n);
        line[n] = 0;
        left = (struct str){left.p + n, left.n - n};
        g.name = field(&at);
        field(&at); /* family */
        g.format = field(&at);
        g.tolerance = strtod(field(&at), NULL);
        if (!wanted(g.name, argc, argv))
            continue;
        snprintf(path, sizeof path, "%s/models/%s", argv[1], g.name);
        test_model(&g, path, library != NULL);
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0 || passed == 0;
}
