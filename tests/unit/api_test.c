#include "net/api.h"
#include "net/pages.h"
#include "net/params.h"
#include "tests/unit/unit.h"

/* The real API over the real connections, with sockets, clock and device that the test moves by
 * hand: what an end-to-end test cannot make happen when it wants it. */
enum { VOCAB = 26, SLOTS = 4, QUEUE = 4, CONTEXT = 64, PEERS = 8, PEER_BYTES = 256 << 10 };

static struct peer {
    char in[16 << 10], out[PEER_BYTES];
    size_t in_n, in_at, out_n;
    size_t a_turn, room; /* takes so much a turn, and now; 0 a turn: whatever comes */
    u64 id;
    u32 watch;
    bool open, left;
} peers[PEERS];

static struct {
    u64 now_ns;
    struct device device;
    struct model model;
    struct step_result results[SLOTS];
    u32 n_results, steps;
    bool stuck, broken;
    struct engine *engine;
    struct api *api;
    struct conns *conns;
    struct arena work;
    u32 n_peers;
} world;

/* --- clock, sockets, device ------------------------------------------------------------------- */

static u64 now_ns(void *arg)
{
    (void)arg;
    return world.now_ns;
}

static i64 wall_s(void *arg)
{
    (void)arg;
    return 1700000000 + (i64)(world.now_ns / 1000000000);
}

static ssize_t peer_read(void *arg, int fd, void *p, size_t n)
{
    (void)arg;
    struct peer *peer = &peers[fd];
    size_t k = MIN(n, peer->in_n - peer->in_at);
    memcpy(p, peer->in + peer->in_at, k);
    peer->in_at += k;
    return k ? (ssize_t)k : peer->left ? 0 : -11; /* EAGAIN */
}

static ssize_t peer_write(void *arg, int fd, const struct iovec *v, int n)
{
    (void)arg;
    struct peer *peer = &peers[fd];
    size_t before = peer->out_n;
    if (peer->left)
        return -32; /* EPIPE */
    for (int i = 0; i < n; i++) {
        size_t k = peer->a_turn ? MIN(v[i].iov_len, peer->room) : v[i].iov_len;
        ASSERT(k < PEER_BYTES - peer->out_n);
        memcpy(peer->out + peer->out_n, v[i].iov_base, k);
        peer->out_n += k;
        peer->room -= peer->a_turn ? k : 0;
        if (k < v[i].iov_len)
            break;
    }
    peer->out[peer->out_n] = 0;
    return peer->out_n > before ? (ssize_t)(peer->out_n - before) : -11; /* EAGAIN */
}

static void peer_end(void *arg, int fd)
{
    (void)arg, (void)fd;
}

static void peer_close(void *arg, int fd)
{
    (void)arg;
    peers[fd].open = false;
}

static bool peer_watch(void *arg, int fd, u64 id, u32 what, bool first)
{
    (void)arg, (void)first;
    peers[fd].id = id;
    peers[fd].watch = what;
    return true;
}

static void slot_begin(struct device *d, u32 slot, const u32 *prompt, u32 n, u32 checkpoint)
{
    (void)d, (void)slot, (void)prompt, (void)n, (void)checkpoint;
}

static enum err submit(struct device *d, const struct step *s, struct err_text *e)
{
    (void)d, (void)e;
    world.n_results = 0;
    world.steps++;
    for (u32 i = 0; i < s->n_rows; i++)
        if (s->rows[i].samples)
            world.results[world.n_results++] =
                (struct step_result){.slot = s->rows[i].slot,
                                     .token = (s->rows[i].pos + s->rows[i].n) % VOCAB,
                                     .logprob = -1};
    return ERR_OK;
}

static int device_poll(struct device *d, bool wait, const struct step_result **out, u32 *n,
                       enum err *code, struct err_text *e)
{
    (void)d, (void)wait;
    if (world.stuck)
        return 0;
    *out = world.results;
    *n = world.n_results;
    if (world.broken)
        *code = err_set(e, ERR_DEVICE, "planned failure");
    return 1;
}

static const struct device_ops ops = {
    .name = "fake", .slot_begin = slot_begin, .submit = submit, .poll = device_poll};

/* --- the world -------------------------------------------------------------------------------- */

static struct tokenizer *letters(void)
{
    static char text[2048];
    struct tokenizer *t = NULL;
    struct err_text e = {0};
    struct arena scratch = arena_over("scratch", arena_alloc(&unit_arena, MIB, 16), MIB);
    int n = snprintf(text, sizeof text,
                     "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,"
                     "\"pre_tokenizer\":null,\"post_processor\":null,"
                     "\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"merges\":[],"
                     "\"vocab\":{");
    for (int i = 0; i < VOCAB; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s\"%c\":%d", i ? "," : "", 'a' + i, i);
    n += snprintf(text + n, sizeof text - (size_t)n, "}}}");
    const struct tokenizer_source from[TOKENIZER_FILES] = {{"letters", {text, (size_t)n}}};
    if (tokenizer_parse(&unit_arena, &scratch, from, &t, &e) != ERR_OK)
        unit_failed(__FILE__, __LINE__, e.text);
    return t;
}

static void on_event(void *arg, const struct event *event)
{
    (void)arg;
    api_event(world.api, event);
}

static void turn(void)
{
    for (u32 i = 0; i < world.n_peers; i++) {
        struct peer *p = &peers[i];
        p->room = p->a_turn;
        if (p->open && (p->in_at < p->in_n || p->left))
            conns_ready(world.conns, p->id, WIRE_IN | (p->left ? WIRE_GONE : 0));
        else if (p->open && (p->watch & WIRE_OUT))
            conns_ready(world.conns, p->id, WIRE_OUT);
    }
    conns_turn(world.conns);
    api_turn(world.api, false);
}

static void turns(u32 n)
{
    while (n-- > 0)
        turn();
}

static enum err open_world(u32 context, struct err_text *e)
{
    static struct engine_config engine = {.queue = QUEUE, .prefill_beside = 8};
    struct clock clock = {now_ns, wall_s, NULL};
    struct sockets sockets = {peer_read, peer_write, peer_end, peer_close, peer_watch, NULL};
    struct conns_config net = {.connections = PEERS,
                               .bodies = 2,
                               .body_bytes = 64 << 10,
                               .output_bytes = 64 << 10,
                               .header_ms = 3600000,
                               .body_ms = 3600000,
                               .idle_ms = 3600000,
                               .write_ms = 3600000};
    struct tokenizer *t = letters();
    world.model = (struct model){.vocab = VOCAB,
                                 .n_eos = 1,
                                 .eos = {25},
                                 .bos = -1,
                                 .gen_temperature = -1,
                                 .gen_top_p = -1,
                                 .gen_min_p = -1,
                                 .gen_repetition_penalty = -1,
                                 .gen_top_k = -1};
    world.device = (struct device){.ops = &ops,
                                   .model = &world.model,
                                   .limits = {.slots = SLOTS,
                                              .samples = SLOTS,
                                              .pages = SLOTS * context / LIMIT_PAGE_TOKENS,
                                              .step_tokens = 32,
                                              .context = context,
                                              .context_by = "t"},
                                   .depth = 1};
    world.work = arena_over("work", arena_alloc(&unit_arena, 8 * MIB, 16), 8 * MIB);
    TRY(engine_open(&unit_arena, &world.device, t, &engine, clock, on_event, NULL, &world.engine,
                    e));
    struct api_config g = {.engine = world.engine,
                           .model = &world.model,
                           .tokenizer = t,
                           .limits = world.device.limits,
                           .clock = clock,
                           .work = &world.work,
                           .prompt_bytes = MAX(4096u, context),
                           .body_bytes = net.body_bytes,
                           .queue = QUEUE,
                           .connections = PEERS,
                           .heartbeat_ms = 1000,
                           .name = "letters",
                           .version = "0",
                           .fingerprint = "fp",
                           .kernels = "none",
                           .hosts = "",
                           .origins = "",
                           .seed = 1};
    TRY(api_open(&unit_arena, &g, &world.api, e));
    world.conns = conns_open(&unit_arena, &net, &sockets, &clock, &api_conn_events, world.api);
    api_attach(world.api, world.conns);
    return world.conns ? ERR_OK : arena_full(&unit_arena, "connections", e);
}

static void fresh_with(u32 context)
{
    struct err_text e = {0};
    memset(&world, 0, sizeof world);
    memset(peers, 0, sizeof peers);
    world.now_ns = 1000000000;
    if (open_world(context, &e) != ERR_OK)
        unit_failed(__FILE__, __LINE__, e.text);
    turns(3);
}

static void fresh(void)
{
    fresh_with(CONTEXT);
}

/* A new peer with a request; its reply is in `out` after some turns. */
static struct peer *ask(const char *method, const char *path, const char *body)
{
    struct peer *p = &peers[world.n_peers];
    p->open = true;
    p->in_n = (size_t)snprintf(p->in, sizeof p->in,
                               "%s %s HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                               method, path, strlen(body), body);
    ASSERT(conns_add(world.conns, (int)world.n_peers++, false, true, "127.0.0.1"));
    return p;
}

static struct peer *complete(const char *more)
{
    char body[512];
    snprintf(body, sizeof body, "{\"model\":\"letters\",\"prompt\":\"abc\"%s}", more);
    return ask("POST", "/v1/completions", body);
}

static bool says(const struct peer *p, const char *words)
{
    return strstr(p->out, words) != NULL;
}

/* --- tests ---------------------------------------------------------------------------------------
 */

void api_answers_whole_and_streamed(void)
{
    fresh();
    CHECK(api_ready(world.api));
    struct peer *whole = complete(",\"max_tokens\":4"), *stream = complete(",\"stream\":true");
    turns(40);
    CHECK(says(whole, "HTTP/1.1 200") && says(whole, "\"text\":\"defg\""));
    CHECK(says(whole, "\"finish_reason\":\"length\"") && says(whole, "\"completion_tokens\":4"));
    CHECK(says(stream, "\"text\":\"y\"") && !says(stream, "\"text\":\"z\""));
    CHECK(says(stream, "\"finish_reason\":\"stop\"") && says(stream, "data: [DONE]"));
    CHECK(api_idle(world.api) && engine_idle(world.engine));
}

void api_device_failure_ends_everybody(void)
{
    fresh();
    world.stuck = true;
    struct peer *stream = complete(",\"stream\":true"), *whole = complete("");
    turns(3);
    CHECK(says(stream, "HTTP/1.1 200"));
    world.stuck = false;
    world.broken = true;
    turns(2);
    CHECK(says(stream, "\"code\":\"device_failed\"") && says(stream, "data: [DONE]"));
    CHECK(says(whole, "HTTP/1.1 503") && says(whole, "device_failed"));
    struct peer *late = complete(""), *ready = ask("GET", "/ready", "");
    struct peer *health = ask("GET", "/health", "");
    turns(3);
    CHECK(says(late, "HTTP/1.1 503") && says(ready, "HTTP/1.1 503"));
    CHECK(says(health, "HTTP/1.1 200") && api_idle(world.api));
}

void api_deadlines_and_heartbeats(void)
{
    fresh();
    world.stuck = true;
    struct peer *stream = complete(",\"stream\":true,\"deadline_ms\":5000");
    struct peer *whole = complete(",\"deadline_ms\":4000"), *patient = complete(",\"stream\":true");
    turns(3);
    CHECK(!says(stream, ": still working"));
    world.now_ns += 1500000000;
    turns(1);
    CHECK(says(stream, ": still working") && says(patient, ": still working"));
    world.now_ns += 4000000000;
    world.stuck = false;
    turns(40);
    CHECK(says(whole, "HTTP/1.1 504") && says(whole, "\"param\":\"deadline_ms\""));
    CHECK(says(stream, "deadline_exceeded") && says(stream, "data: [DONE]"));
    CHECK(!says(patient, "error") && says(patient, "data: [DONE]") && api_idle(world.api));
}

void api_client_gone_is_cancelled_by_the_next_step(void)
{
    fresh();
    world.stuck = true;
    struct peer *p[] = {complete(",\"stream\":true,\"n\":2"), complete(",\"n\":2")};
    turns(3);
    CHECK(engine_stats(world.engine).running + engine_stats(world.engine).waiting == 4);
    p[0]->left = p[1]->left = true;
    turn();
    world.stuck = false;
    u32 steps = world.steps;
    turns(2);
    CHECK(engine_idle(world.engine) && api_idle(world.api) && world.steps <= steps + 1);
    CHECK(engine_stats(world.engine).cancelled == 4);
    struct peer *next = complete(",\"max_tokens\":1");
    turns(6);
    CHECK(says(next, "HTTP/1.1 200"));
}

void api_full_queue_says_when_to_come_back(void)
{
    fresh();
    world.stuck = true;
    struct peer *slow = complete(",\"max_tokens\":1");
    turns(2);
    world.now_ns += 8000000000;
    world.stuck = false;
    turns(3);
    CHECK(says(slow, "HTTP/1.1 200")); /* a slot is taken for 8 s: behind 7 in 4 slots it is 16 */
    world.stuck = true;
    struct peer *some = complete(",\"n\":4");
    turns(2);
    struct peer *more = complete(",\"n\":4");
    turns(2);
    struct peer *over = complete("");
    turns(2);
    CHECK(says(over, "HTTP/1.1 429") && says(over, "Retry-After: 17\r\n"));
    CHECK(says(over, "\"code\":\"queue_full\"") && says(over, "\"type\":\"rate_limit_error\""));
    world.stuck = false;
    turns(80);
    CHECK(says(some, "HTTP/1.1 200") && says(more, "HTTP/1.1 200") && api_idle(world.api));
}

/* Prompts whose replies do not fit the memory together are refused for good; those that only have
 * to wait for others are told so. 19 blocks of a kibibyte are fitted to this world. */
void api_replies_that_never_fit_are_not_asked_again(void)
{
    fresh();
    world.stuck = true;
    struct peer *never =
        ask("POST", "/v1/completions",
            "{\"model\":\"letters\",\"logprobs\":5,\"prompt\":[\"a\",\"a\",\"a\","
            "\"a\",\"a\",\"a\",\"a\",\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]}");
    turns(2);
    CHECK(says(never, "HTTP/1.1 400") && says(never, "server.reply_memory"));
    struct peer *one = complete(",\"n\":4,\"logprobs\":5"),
                *two = complete(",\"n\":4,\"logprobs\":5");
    turns(2);
    CHECK(says(two, "HTTP/1.1 429") && says(two, "Retry-After: 1\r\n"));
    world.stuck = false;
    turns(80);
    CHECK(says(one, "HTTP/1.1 200") && api_idle(world.api));
}

/* The text of a choice, as the chunks of its stream bring it. */
static size_t streamed_text(const struct peer *p, u32 index, char *to)
{
    char begin[48];
    size_t n = 0;
    snprintf(begin, sizeof begin, "\"index\":%u,\"text\":\"", index);
    for (const char *at = p->out; (at = strstr(at, begin));)
        for (at += strlen(begin); *at != '"'; at++)
            to[n++] = *at;
    return n;
}

/* Eight times a prompt that the output buffer holds five times: who takes it as it comes gets all
 * of it. Who takes next to nothing has it in the order of the reply as long as the buffer holds it.
 */
void api_echo_waits_for_the_reader(void)
{
    enum { LONG = 12500 };
    static char body[LONG + 256], prompt[LONG + 1], text[LONG + 256];
    for (u32 k = 0; k < 2; k++) {
        u32 choices = k == 0 ? 8 : 4;
        fresh_with(4 * LONG);
        for (u32 i = 0; i < LONG; i++)
            prompt[i] = (char)('a' + i % 7);
        snprintf(body, sizeof body,
                 "{\"model\":\"letters\",\"stream\":true,\"echo\":true,\"max_tokens\":2,"
                 "\"n\":%u,\"prompt\":\"%s\"}",
                 choices, prompt);
        struct peer *p = ask("POST", "/v1/completions", body);
        p->a_turn = k == 0 ? 8 << 10 : 1;
        turns(LONG);
        CHECK(k == 1 || api_idle(world.api));
        p->a_turn = 0;
        turns(LONG / 4);
        CHECK(says(p, "data: [DONE]") && api_idle(world.api));
        CHECK(conns_counts(world.conns)->dropped_slow == 0);
        for (u32 i = 0; i < choices; i++)
            CHECK(streamed_text(p, i, text) == LONG + 2 && memcmp(text, prompt, LONG) == 0);
    }
}

/* --- the document ---------------------------------------------------------------------------- */

static const struct json *path_of(const struct json *paths, const char *path)
{
    return json_get(paths, strcmp(path, "/v1/models/") == 0 ? "/v1/models/{id}" : path);
}

void api_document_has_every_route(void)
{
    const struct json *document;
    struct err_text e = {0};
    const char *method, *path;
    u32 n = 0;
    CHECK(json_parse(&unit_arena, pages_openapi(), "openapi.json", ERR_MODEL, &document, &e) ==
          ERR_OK);
    const struct json *paths = json_get(document, "paths");
    for (; api_route(n, &method, &path); n++)
        CHECK(json_get(path_of(paths, path), strcmp(method, "GET") == 0 ? "get" : "post"));
    CHECK(paths && paths->n == n);
}

void api_document_has_every_field(void)
{
    static const char *const names[] = {"ChatRequest",       "CompletionRequest", "TokenizeRequest",
                                        "DetokenizeRequest", "ResponseRequest",   "MessagesRequest",
                                        "CountRequest",      "EmbeddingRequest",  "ResponseCreate"};
    const struct json *document;
    struct err_text e = {0};
    CHECK(json_parse(&unit_arena, pages_openapi(), "openapi.json", ERR_MODEL, &document, &e) ==
          ERR_OK);
    const struct json *schemas = json_get(json_get(document, "components"), "schemas");
    for (u32 k = 0; k < COUNTOF(names); k++) {
        if (!names[k])
            continue;
        const struct json *fields = json_get(json_get(schemas, names[k]), "properties");
        const char *field;
        u32 kinds, n = 0;
        for (u32 i = 0; (field = params_field(i, &kinds)); i++) {
            bool taken = kinds & 1u << k;
            if (taken && !json_get(fields, field))
                printf("    %s: %s\n", names[k], field);
            CHECK(!taken || json_get(fields, field)); /* a name can have a row for each kind */
            n += taken;
        }
        CHECK(fields && fields->n == n);
    }
}
