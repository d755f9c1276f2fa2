#include "core/base/utf8.h"
#include "core/main/args.h"
#include "core/main/boot.h"
#include "core/main/fault.h"
#include "core/main/main.h"
#include "core/model/chat.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const char usage[] = "zigcuda run --model DIR [flags] [PROMPT]   (- or none: from stdin)";

/* One JSON line: a token and those beside it, and the text that has become certain, each byte
 * escaped. */
enum {
    LINE_BYTES = (LIMIT_LOGPROBS + 1) * (6 * LIMIT_TOKEN_BYTES + 64) +
                 6 * (LIMIT_STOP_STRING_BYTES + 2 * DECODE_PIECE_BYTES) + 64
};

struct run {
    struct box box;
    bool json, raw, quiet, logprobs;
    u32 max_tokens, min_tokens, top_k, top_logprobs;
    i64 seed;
    float temperature, top_p, min_p, typical_p, repetition, presence, frequency;
    const char *system;
    struct arg_words stops;
    u64 id, first_ns, submit_ns, end_ns;
    u32 prompt_tokens, output_tokens;
    enum finish finish;
    char line[LINE_BYTES];
};

static struct run run;

static void write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            fprintf(stderr, "zigcuda run: cannot write the answer: %s\n", strerror(errno));
            _exit(EXIT_SYSTEM);
        }
        p += w;
        n -= (size_t)w;
    }
}

/* --- output --------------------------------------------------------------------------------- */

static void json_token(struct json_out *o, u32 id, float logprob)
{
    char bytes[LIMIT_TOKEN_BYTES];
    u32 n = tokenizer_bytes(run.box.tokenizer, id, bytes);
    json_open(o, '{');
    json_key(o, "id");
    json_put_u64(o, id);
    json_key(o, "token");
    json_put_str(o, (struct str){bytes, n});
    if (run.logprobs) {
        json_key(o, "logprob");
        json_put_f32(o, logprob);
    }
}

static void print_json_token(const struct event *event)
{
    struct json_out o = json_out_over(run.line, sizeof run.line - 1);
    const struct step_result *r = event->result;
    json_token(&o, r->token, r->logprob);
    if (r->n_top) {
        json_key(&o, "top_logprobs");
        json_open(&o, '[');
        for (u32 i = 0; i < r->n_top; i++) {
            json_token(&o, r->top[i].id, r->top[i].logprob);
            json_close(&o, '}');
        }
        json_close(&o, ']');
    }
    json_key(&o, "text");
    json_put_str(&o, event->text);
    json_close(&o, '}');
    ASSERT(!o.full);
    run.line[o.n++] = '\n';
    write_all(STDOUT_FILENO, run.line, o.n);
}

static void on_event(void *arg, const struct event *event)
{
    (void)arg;
    if (event->has_token && event->output_tokens == 1)
        run.first_ns = clock_now_ns(&run.box.clock);
    if (run.json && event->has_token)
        print_json_token(event);
    else if (!run.json)
        write_all(STDOUT_FILENO, event->text.p, event->text.n);
    run.prompt_tokens = event->prompt_tokens;
    run.output_tokens = event->output_tokens;
    run.finish = event->finish;
    if (event->finish != FINISH_NONE)
        run.end_ns = clock_now_ns(&run.box.clock);
}

static double ms(u64 from, u64 to)
{
    return to > from ? (double)(to - from) / 1e6 : 0;
}

static double rate(u32 tokens, double milliseconds)
{
    return milliseconds > 0 ? tokens * 1e3 / milliseconds : 0;
}

static void print_end(void)
{
    static const char *const finish[] = {"none",      "stop",     "length",
                                         "cancelled", "deadline", "error"};
    double start = ms(run.box.start_ns, run.submit_ns), first = ms(run.submit_ns, run.first_ns);
    double decode = ms(run.first_ns, run.end_ns);
    u32 decoded = run.output_tokens ? run.output_tokens - 1 : 0;
    if (!run.json) {
        write_all(STDOUT_FILENO, "\n", 1);
        if (!run.quiet && isatty(STDERR_FILENO))
            fprintf(
                stderr,
                "\n[start %.1f ms, prompt %u tokens in %.1f ms, %u tokens at %.1f a second, %s]\n",
                start, run.prompt_tokens, first, run.output_tokens, rate(decoded, decode),
                finish[run.finish]);
        return;
    }
    struct json_out o = json_out_over(run.line, sizeof run.line - 1);
    json_open(&o, '{');
    json_key(&o, "finish_reason");
    json_put_str(&o, str_of(finish[run.finish]));
    json_key(&o, "prompt_tokens");
    json_put_u64(&o, run.prompt_tokens);
    json_key(&o, "completion_tokens");
    json_put_u64(&o, run.output_tokens);
    json_key(&o, "start_ms");
    json_put_f64(&o, start, 6);
    json_key(&o, "first_token_ms");
    json_put_f64(&o, first, 6);
    json_key(&o, "tokens_per_second");
    json_put_f64(&o, rate(decoded, decode), 6);
    json_close(&o, '}');
    ASSERT(!o.full);
    run.line[o.n++] = '\n';
    write_all(STDOUT_FILENO, run.line, o.n);
}

/* --- input ----------------------------------------------------------------------------------- */

/* Whoever types has second thoughts: Ctrl-C ends it here, too. */
static bool ended_before_input(int signals)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = signals, .events = POLLIN}};
    while (poll(fds, COUNTOF(fds), -1) < 0 && errno == EINTR)
        ;
    return fds[1].revents != 0;
}

static enum err read_stdin(struct arena *work, size_t max, int signals, struct str *out,
                           struct err_text *e)
{
    char *p = arena_alloc(work, max + 1, 1);
    size_t n = 0;
    if (!p)
        return arena_full(work, "prompt from stdin", e);
    if (isatty(STDIN_FILENO) && !run.quiet)
        fprintf(stderr, "type the prompt; Ctrl-D on a line of its own ends it\n");
    for (;;) {
        if (ended_before_input(signals))
            return ERR_CANCELLED;
        ssize_t r = read(STDIN_FILENO, p + n, max + 1 - n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_set_errno(e, ERR_SYSTEM, "cannot read the prompt from stdin");
        if (r == 0)
            break;
        n += (size_t)r;
        if (n > max)
            return boot_too_long(&run.box, e);
    }
    while (n > 0 && p[n - 1] == '\n')
        n--;
    *out = (struct str){p, n};
    return ERR_OK;
}

static enum err prompt_ids(struct str text, u32 **ids, u32 *n, struct err_text *e)
{
    struct box *b = &run.box;
    if (run.raw)
        return boot_encode(b, text, ENCODE_ADD_SPECIAL, ids, n, e);
    if (b->template_error.code != ERR_OK)
        return err_set(e, ERR_MODEL,
                       "the chat template is not supported; --raw continues the prompt as plain "
                       "text. %s",
                       b->template_error.text);
    if (!b->template)
        return err_set(e, ERR_MODEL,
                       "%.*s has no chat template; --raw continues the prompt as plain text",
                       STR_ARG(b->model->dir));
    struct json_tree messages = json_grow(json_make(&b->work, JSON_ARRAY, (struct str){0}));
    if (run.system)
        chat_message(&messages, &b->work, STR("system"), str_of(run.system));
    chat_message(&messages, &b->work, STR("user"), text);
    if (messages.full)
        return arena_full(&b->work, "messages", e);
    struct chat chat = {.messages = messages.v,
                        .add_generation_prompt = true,
                        .now_s = b->clock.wall_s(b->clock.arg)};
    enum err r = chat_render(b->template, b->tokenizer, &chat, &b->work, b->prompt_bytes, &text, e);
    if (r == ERR_TOO_LONG)
        return boot_too_long(b, e);
    if ((r == ERR_REQUEST || r == ERR_LIMIT) && !run.system) /* one plain message suits any */
        return ERR_MODEL;
    TRY(r);
    return boot_encode(b, text, 0, ids, n, e);
}

static enum err submit(struct str text, struct err_text *e)
{
    struct box *b = &run.box;
    u32 *ids, n;
    if (b->model->headless)
        return err_set(e, ERR_MODEL,
                       "%s has no lm_head: it predicts no tokens; `zigcuda serve` "
                       "makes embeddings of it",
                       b->model->dir.p);
    TRY(prompt_ids(text, &ids, &n, e));
    const struct thought_format *thoughts = run.raw ? NULL : template_thoughts(b->template);
    bool told = thoughts && (thoughts->next || thoughts->again); /* by special tokens */
    struct request r = {.prompt = ids,
                        .n_prompt = n,
                        .max_tokens = run.max_tokens,
                        .special_text = told,
                        .continues = run.raw};
    r.sampling = (struct sampling){.temperature = run.temperature,
                                   .top_k = run.top_k,
                                   .top_p = run.top_p,
                                   .min_p = run.min_p,
                                   .typical_p = run.typical_p,
                                   .repetition_penalty = run.repetition,
                                   .presence_penalty = run.presence,
                                   .frequency_penalty = run.frequency,
                                   .seed = (u64)run.seed,
                                   .min_tokens = run.min_tokens,
                                   .logprobs = run.logprobs || run.top_logprobs,
                                   .top_logprobs = run.top_logprobs};
    run.logprobs = r.sampling.logprobs;
    for (; r.n_stop < run.stops.n; r.n_stop++)
        r.stop[r.n_stop] = str_of(run.stops.at[r.n_stop].value);
    run.submit_ns = clock_now_ns(&b->clock);
    return engine_submit(b->engine, &r, &run.id, e);
}

/* --- the loop ------------------------------------------------------------------------------ */

static enum err block_signals(int *fd, struct err_text *e)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    *fd = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    return *fd < 0 ? err_set_errno(e, ERR_SYSTEM, "signalfd") : ERR_OK;
}

/* Milliseconds until the engine is to be asked, rounded up; -1: when a descriptor says so. */
static int wait_ms(const struct box *b, int device)
{
    u64 now = clock_now_ns(&b->clock), next = device < 0 ? now : engine_next_ns(b->engine);
    if (next == UINT64_MAX)
        return -1;
    return next <= now ? 0 : (int)MIN(CEIL_DIV(next - now, 1000000u), (u64)INT32_MAX);
}

static enum err loop(int signals, struct err_text *e)
{
    struct box *b = &run.box;
    int device = b->device->ops->fd(b->device), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event finished = {.events = EPOLLIN | EPOLLET, .data.fd = device},
                       ends = {.events = EPOLLIN, .data.fd = signals}, got[2];
    if (epoll < 0 || (device >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, device, &finished) != 0) ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, signals, &ends) != 0)
        return err_set_errno(e, ERR_SYSTEM, "epoll");
    while (!engine_idle(b->engine)) {
        bool end = false;
        engine_step(b->engine);
        int n = epoll_wait(epoll, got, COUNTOF(got), wait_ms(b, device));
        for (int i = 0; i < n; i++)
            end |= got[i].data.fd == signals;
        if (end)
            engine_cancel(b->engine, run.id);
        TRY(engine_poll(b->engine, end, e));
    }
    close(epoll);
    return ERR_OK;
}

/* Defaults: what the model's own generation_config.json says, else OpenAI's; the seed is fixed, so
 * the same line gives the same answer. */
static void sampling_defaults(void)
{
    const struct model *m = run.box.model;
    if (run.temperature < 0)
        run.temperature = m->gen_temperature >= 0 ? m->gen_temperature : 1;
    if (run.top_p < 0)
        run.top_p = m->gen_top_p >= 0 ? m->gen_top_p : 1;
    if (run.min_p < 0)
        run.min_p = m->gen_min_p >= 0 ? m->gen_min_p : 0;
    if (run.repetition < 0)
        run.repetition = m->gen_repetition_penalty >= 0 ? m->gen_repetition_penalty : 1;
    if (run.top_k == UINT32_MAX)
        run.top_k = m->gen_top_k >= 0 ? (u32)m->gen_top_k : 0;
}

/* Flags that one by one are right, and together would not do what they say. */
static enum err check_flags(struct err_text *e)
{
    if (run.max_tokens && run.min_tokens > run.max_tokens)
        return err_set(e, ERR_USAGE, "--min-tokens is %u and --max-tokens is %u", run.min_tokens,
                       run.max_tokens);
    if (run.raw && run.system)
        return err_set(e, ERR_USAGE, "--raw has no place for --system: put that into the prompt");
    if ((run.logprobs || run.top_logprobs) && !run.json)
        return err_set(e, ERR_USAGE, "--logprobs and --top-logprobs are printed with --json only");
    if (run.stops.n > LIMIT_STOP_STRINGS)
        return err_set(e, ERR_USAGE, "--stop: %u texts; the limit is %u", run.stops.n,
                       LIMIT_STOP_STRINGS);
    return ERR_OK;
}

static enum err go(int argc, char **argv, struct err_text *e)
{
    const struct arg table[] = {
        {"--system", ARG_STRING, &run.system, 0, 0, "TEXT", "system message"},
        {"--raw", ARG_FLAG, &run.raw, 0, 0, NULL, "no chat template: continue the prompt"},
        {"--max-tokens", ARG_U32, &run.max_tokens, 1, LIMIT_CONTEXT, "N", "longest answer"},
        {"--min-tokens", ARG_U32, &run.min_tokens, 0, LIMIT_CONTEXT, "N", "shortest answer"},
        {"--temperature", ARG_FLOAT, &run.temperature, 0, 2, "T", "0: always the likeliest token"},
        {"--top-k", ARG_U32, &run.top_k, 0, LIMIT_VOCAB, "N", "0: off"},
        {"--top-p", ARG_FLOAT, &run.top_p, 1e-6, 1, "P", "1: off"},
        {"--min-p", ARG_FLOAT, &run.min_p, 0, 1, "P", "0: off"},
        {"--typical-p", ARG_FLOAT, &run.typical_p, 1e-6, 1, "P", "1: off"},
        {"--repetition-penalty", ARG_FLOAT, &run.repetition, 0.01, 100, "R", "1: off"},
        {"--presence-penalty", ARG_FLOAT, &run.presence, -2, 2, "X", "0: off"},
        {"--frequency-penalty", ARG_FLOAT, &run.frequency, -2, 2, "X", "0: off"},
        {"--seed", ARG_I64, &run.seed, 0, 0, "N", "of the sampling (0); the API's range"},
        {"--stop", ARG_WORDS, &run.stops, 0, 0, "TEXT", "end before this text; may come again"},
        {"--json", ARG_FLAG, &run.json, 0, 0, NULL, "one JSON line a token, one at the end"},
        {"--logprobs", ARG_FLAG, &run.logprobs, 0, 0, NULL, "log probabilities (with --json)"},
        {"--top-logprobs", ARG_U32, &run.top_logprobs, 0, LIMIT_LOGPROBS, "N", "alternatives"},
        {"--quiet", ARG_FLAG, &run.quiet, 0, 0, NULL, "no figures behind the answer"},
    };
    struct box *b = &run.box;
    const char *prompt = "-";
    bool helped;
    u32 words;
    int signals;
    TRY(boot_begin(b, e));
    b->options.server_wait = SERVER_WAIT_SPIN; /* nothing else is to be done meanwhile */
    b->options.engine_slots = 1;
    b->as_needed = true; /* few answers need the KV cache of a whole context */
    TRY(args_parse(b, argc, argv, table, COUNTOF(table), &prompt, 1, &words, usage, &helped, e));
    if (helped)
        return ERR_OK;
    TRY(check_flags(e));
    TRY(block_signals(&signals, e));
    TRY(boot_model(b, e));
    TRY(boot_plan(b, e));
    if (b->kernels) /* on the CPU */
        fault_watch(b->model);
    TRY(boot_load(b, on_event, NULL, e));
    boot_seal(b);
    sampling_defaults();
    struct str text = str_of(prompt);
    if (strcmp(prompt, "-") == 0)
        TRY(read_stdin(&b->work, b->prompt_bytes, signals, &text, e));
    if (!utf8_valid(text) || (run.system && !utf8_valid(str_of(run.system))))
        return err_set(e, ERR_REQUEST, "the prompt is not valid UTF-8");
    TRY(submit(text, e));
    enum err r = loop(signals, e);
    print_end();
    b->device->ops->close(b->device);
    if (r == ERR_OK && run.finish == FINISH_CANCELLED)
        return ERR_CANCELLED;
    return r;
}

int cmd_run(int argc, char **argv)
{
    struct err_text e = {0};
    run.temperature = run.top_p = run.min_p = run.repetition = -1;
    run.typical_p = 1;
    run.top_k = UINT32_MAX;
    const enum err r = go(argc, argv, &e);
    if (r ==
        ERR_CANCELLED) /* by the signal, as at any time before: shells and loops in them see it */
        boot_end_if_asked();
    return main_end("run", r, &e);
}
