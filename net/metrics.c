#include "net/metrics.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const double second_edges[METRICS_EDGES] = {
    0.00001, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.05,    0.1,     0.25,   0.5,     1,      2.5,   5,      10,    30,   60};
static const double fine_edges[METRICS_EDGES] = {
    1e-6, 2e-6, 3e-6,   5e-6,    7e-6,   1e-5,   1.5e-5, 2e-5,  3e-5, 4e-5,
    5e-5, 7e-5, 0.0001, 0.00015, 0.0002, 0.0003, 0.0005, 0.001, 0.01, 0.1};
static const double count_edges[METRICS_EDGES] = {
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 192, 256, 512, 1024, 2048, 4096, 6144, 8192};
static const int statuses[METRICS_STATUSES] = {200, 101, 204, 304, 400, 401, 403, 404, 405, 408,
                                               409, 411, 412, 413, 414, 415, 417, 421, 426, 429,
                                               431, 499, 500, 501, 503, 504, 505, 0};

static void add(struct histogram *h, const double *edges, double x)
{
    u32 i = 0;
    while (i < METRICS_EDGES && x > edges[i])
        i++;
    h->buckets[i]++;
    h->count++;
    h->sum += x;
}

void metrics_add_s(struct histogram *h, double seconds)
{
    add(h, second_edges, seconds);
}

void metrics_add_us(struct histogram *h, double seconds)
{
    add(h, fine_edges, seconds);
}

void metrics_add_n(struct histogram *h, u32 n)
{
    add(h, count_edges, n);
}

void metrics_reply(struct metrics *m, u32 route, int status)
{
    u32 i = 0;
    while (statuses[i] && statuses[i] != status)
        i++;
    m->requests[MIN(route, (u32)METRICS_ROUTES - 1)][i]++;
    m->refused_busy += status == 429;
}

/* --- the page --------------------------------------------------------------------------------- */

struct page {
    char *p;
    size_t n, cap;
    bool full;
    const char *model;
};

static void line(struct page *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void line(struct page *o, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(o->p + o->n, o->cap - o->n, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= o->cap - o->n)
        o->full = true;
    else
        o->n += (size_t)n;
}

static void head(struct page *o, const char *name, const char *type, const char *help)
{
    line(o, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Backslash, quote and newline in a label value are escaped. */
static void label(struct page *o, const char *value)
{
    for (; *value; value++)
        line(o, *value == '\\' || *value == '"' ? "\\%c" : "%c", *value == '\n' ? ' ' : *value);
}

static void model_label(struct page *o)
{
    line(o, "{model_name=\"");
    label(o, o->model);
    line(o, "\"");
}

static void number(struct page *o, const char *type, const char *name, const char *alias,
                   const char *help, double value)
{
    head(o, name, type, help);
    line(o, "%s %.17g\n", name, value);
    if (!alias)
        return;
    head(o, alias, type, help);
    line(o, "%s", alias);
    model_label(o);
    line(o, "} %.17g\n", value);
}

static void histogram_as(struct page *o, const char *name, bool labelled, const char *help,
                         const struct histogram *h, const double *edges)
{
    u64 sum = 0;
    head(o, name, "histogram", help);
    for (u32 i = 0; i <= METRICS_EDGES; i++) {
        sum += h->buckets[i];
        line(o, "%s_bucket", name);
        if (labelled)
            model_label(o);
        else
            line(o, "{");
        line(o, "%sle=\"", labelled ? "," : "");
        if (i < METRICS_EDGES)
            line(o, "%.7g\"} %llu\n", edges[i], (unsigned long long)sum);
        else
            line(o, "+Inf\"} %llu\n", (unsigned long long)sum);
    }
    for (u32 i = 0; i < 2; i++) {
        line(o, "%s_%s", name, i ? "count" : "sum");
        if (labelled) {
            model_label(o);
            line(o, "}");
        }
        line(o, " %.17g\n", i ? (double)h->count : h->sum);
    }
}

static void histogram(struct page *o, const char *name, const char *alias, const char *help,
                      const struct histogram *h, const double *edges)
{
    histogram_as(o, name, false, help, h, edges);
    if (alias)
        histogram_as(o, alias, true, help, h, edges);
}

static void requests(struct page *o, const struct metrics_view *v)
{
    head(o, "zigcuda_http_requests_total", "counter", "Replies by route and status.");
    for (u32 r = 0; r < METRICS_ROUTES; r++)
        for (u32 s = 0; s < METRICS_STATUSES; s++) {
            const char *path = v->route(r);
            if (v->m->requests[r][s])
                line(o, "zigcuda_http_requests_total{path=\"%s\",status=\"%d\"} %llu\n",
                     path ? path : "none", statuses[s], (unsigned long long)v->m->requests[r][s]);
        }
}

static void finished(struct page *o, const struct metrics_view *v)
{
    static const char *const names[] = {NULL, "stop", "length", "abort", "deadline", "error"};
    for (u32 alias = 0; alias < 2; alias++) {
        const char *name = alias ? "vllm:request_success_total" : "zigcuda_finished_total";
        head(o, name, "counter", "Sequences that ended, by reason.");
        for (u32 i = 1; i < COUNTOF(names); i++) {
            line(o, "%s", name);
            if (alias) {
                model_label(o);
                line(o, ",finished_");
            } else {
                line(o, "{");
            }
            line(o, "reason=\"%s\"} %llu\n", names[i], (unsigned long long)v->m->finished[i]);
        }
    }
}

static void connections(struct page *o, const struct conn_counts *c)
{
    const struct {
        const char *name, *type, *help;
        u64 value;
    } rows[] = {
        {"connections", "gauge", "Open connections.", c->open},
        {"websockets", "gauge", "Open WebSockets.", c->open_ws},
        {"body_buffers_used", "gauge", "Body buffers lent out.", c->bodies_used},
        {"connections_accepted_total", "counter", "Connections accepted.", c->accepted},
        {"connections_evicted_total", "counter", "Idle peers dropped for room.", c->evicted},
        {"connections_refused_total", "counter", "Refused: no slot.", c->refused},
        {"bad_requests_total", "counter", "Requests that broke HTTP.", c->bad_requests},
        {"clients_gone_total", "counter", "Clients gone before their answer.", c->gone},
        {"slow_readers_dropped_total", "counter", "Dropped at their output bound.",
         c->dropped_slow},
        {"timeouts_header_total", "counter", "Slow headers.", c->timeout_header},
        {"timeouts_body_total", "counter", "Slow bodies.", c->timeout_body},
        {"timeouts_idle_total", "counter", "Idle connections closed.", c->timeout_idle},
        {"timeouts_write_total", "counter", "Slow readers timed out.", c->timeout_write},
        {"tls_handshakes_total", "counter", "TLS handshakes.", c->tls_handshakes},
        {"tls_resumed_total", "counter", "Of them, resumed sessions.", c->tls_resumed},
        {"tls_failures_total", "counter", "Failed TLS handshakes.", c->tls_failures},
        {"bytes_in_total", "counter", "Bytes received.", c->bytes_in},
        {"bytes_out_total", "counter", "Bytes sent.", c->bytes_out},
        {"websocket_messages_in_total", "counter", "Messages received.", c->ws_messages_in},
        {"websocket_messages_out_total", "counter", "Messages sent.", c->ws_messages_out},
    };
    for (u32 i = 0; i < COUNTOF(rows); i++) {
        char name[64];
        snprintf(name, sizeof name, "zigcuda_%s", rows[i].name);
        number(o, rows[i].type, name, NULL, rows[i].help, (double)rows[i].value);
    }
}

static void engine(struct page *o, const struct metrics_view *v)
{
    const struct engine_stats *s = &v->engine;
    double used = s->pages ? 1 - (double)s->pages_free / s->pages : 0;
    number(o, "gauge", "zigcuda_requests_running", "vllm:num_requests_running",
           "Sequences in a slot.", s->running);
    number(o, "gauge", "zigcuda_requests_waiting", "vllm:num_requests_waiting",
           "Sequences in the queue.", s->waiting);
    number(o, "gauge", "zigcuda_kv_usage_ratio", "vllm:kv_cache_usage_perc",
           "Share of KV pages that are held.", used);
    number(o, "gauge", "zigcuda_kv_pages", NULL, "KV pages.", s->pages);
    number(o, "counter", "zigcuda_prompt_tokens_total", "vllm:prompt_tokens_total",
           "Prompt tokens of admitted requests.", (double)s->prompt_tokens);
    number(o, "counter", "zigcuda_output_tokens_total", "vllm:generation_tokens_total",
           "Tokens produced.", (double)s->output_tokens);
    number(o, "counter", "zigcuda_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total",
           "Tokens guessed (engine.drafts).", (double)s->drafts);
    number(o, "counter", "zigcuda_draft_tokens_right_total",
           "vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were right.",
           (double)s->drafts_stayed);
    number(o, "counter", "zigcuda_prefix_queries_total", "vllm:prefix_cache_queries_total",
           "Prompt tokens looked up in the prefix cache.", (double)s->prompt_tokens);
    number(o, "counter", "zigcuda_prefix_hits_total", "vllm:prefix_cache_hits_total",
           "Of them, found there.", (double)s->cached_tokens);
    number(o, "counter", "zigcuda_steps_total", NULL, "Steps of the device.", (double)s->steps);
}

/* A gauge that is left out when the card does not tell it. */
static void told(struct page *o, const char *name, const char *help, double value)
{
    if (!isnan(value))
        number(o, "gauge", name, NULL, help, value);
}

static void told_two(struct page *o, const char *name, const char *help, const char *label_name,
                     const char *const labels[2], const double values[2])
{
    if (isnan(values[0]) && isnan(values[1]))
        return;
    head(o, name, "gauge", help);
    for (u32 i = 0; i < 2; i++)
        if (!isnan(values[i]))
            line(o, "%s{%s=\"%s\"} %.17g\n", name, label_name, labels[i], values[i]);
}

static void card(struct page *o, const struct device_report *d)
{
    told(o, "zigcuda_gpu_power_watts", "Power that the card takes.", d->power_w);
    told(o, "zigcuda_gpu_temperature_celsius", "Temperature of the GPU.", d->temperature_c);
    told_two(o, "zigcuda_gpu_clock_hertz", "Clocks.", "domain",
             (const char *const[]){"sm", "memory"}, (double[]){d->sm_hz, d->memory_hz});
    told_two(o, "zigcuda_gpu_memory_bytes", "Memory of the card, used by all processes and whole.",
             "kind", (const char *const[]){"used", "total"},
             (double[]){d->memory_used_bytes, d->memory_bytes});
    if (!d->throttle)
        return;
    head(o, "zigcuda_gpu_throttle", "gauge", "1 where the reason lowers the clocks.");
    for (u32 i = 0; d->throttle[i]; i++) {
        line(o, "zigcuda_gpu_throttle{reason=\"");
        for (const char *p = d->throttle[i]; *p; p++)
            line(o, "%c", *p == ' ' ? '_' : *p);
        line(o, "\"} %u\n", d->throttled >> i & 1);
    }
}

static void device(struct page *o, const struct device_report *d)
{
    static const char name[] = "zigcuda_device_step_seconds";
    double bytes = (double)d->step_bytes;
    head(o, name, "summary", "Time of a step by the device's own clock.");
    line(o, "%s_sum %.17g\n%s_count %llu\n", name, d->steps_s, name, (unsigned long long)d->steps);
    if (d->steps) {
        number(o, "gauge", "zigcuda_device_step_min_seconds", NULL, "The shortest since the start.",
               d->step_min_s);
        number(o, "gauge", "zigcuda_device_step_max_seconds", NULL, "The longest since the start.",
               d->step_max_s);
    }
    number(o, "gauge", "zigcuda_device_step_weight_bytes", NULL, "Weights that a step reads.",
           bytes);
    number(o, "counter", "zigcuda_device_weight_bytes_total", NULL, "Weights read by all steps.",
           bytes * (double)d->steps);
    if (d->steps && d->step_min_s > 0 && d->step_last_s > 0)
        told_two(o, "zigcuda_device_weight_bytes_per_second", "Weights over the time of a step.",
                 "step", (const char *const[]){"fastest", "newest"},
                 (double[]){bytes / d->step_min_s, bytes / d->step_last_s});
    card(o, d);
}

static void histograms(struct page *o, const struct metrics *m)
{
    histogram(o, "zigcuda_queue_seconds", "vllm:request_queue_time_seconds",
              "From request to slot.", &m->queue_s, second_edges);
    histogram(o, "zigcuda_first_token_seconds", "vllm:time_to_first_token_seconds",
              "From request to first token.", &m->first_s, second_edges);
    histogram(o, "zigcuda_inter_token_seconds", "vllm:inter_token_latency_seconds",
              "Between two tokens of a sequence.", &m->inter_s, second_edges);
    histogram(o, "zigcuda_request_seconds", "vllm:e2e_request_latency_seconds",
              "From request to the end of its reply.", &m->request_s, second_edges);
    histogram(o, "zigcuda_step_seconds", NULL, "From submitting a step to its results.", &m->step_s,
              second_edges);
    histogram(o, "zigcuda_host_seconds", NULL, "From the end of a step to the next one submitted.",
              &m->host_s, second_edges);
    histogram(o, "zigcuda_submit_seconds", NULL,
              "From reading the last bytes of a request to its first step submitted, where no step "
              "was in flight.",
              &m->submit_s, fine_edges);
    histogram(o, "zigcuda_write_seconds", NULL,
              "From the end of a step to the bytes of a streamed token given to the socket, once "
              "all of that step are.",
              &m->write_s, fine_edges);
    histogram(o, "zigcuda_batch_sequences", NULL, "Sequences of a step.", &m->batch_rows,
              count_edges);
    histogram(o, "zigcuda_batch_tokens", "vllm:iteration_tokens_total", "Tokens of a step.",
              &m->batch_tokens, count_edges);
}

size_t metrics_write(const struct metrics_view *v, char *out, size_t cap)
{
    struct page o = {.p = out, .cap = cap, .model = v->model};
    head(&o, "zigcuda_info", "gauge", "What is running.");
    line(&o, "zigcuda_info{version=\"%s\",fingerprint=\"%s\",model=\"", v->version, v->fingerprint);
    label(&o, v->model);
    line(&o, "\"} 1\n");
    number(&o, "gauge", "zigcuda_ready", NULL, "1 once a first token was verified.", v->ready);
    number(&o, "gauge", "zigcuda_uptime_seconds", NULL, "Since the start.", v->uptime_s);
    if (v->certificate_ends_s)
        number(&o, "gauge", "zigcuda_tls_certificate_end_timestamp_seconds", NULL,
               "When the certificate ends, in seconds since 1970.", (double)v->certificate_ends_s);
    number(&o, "gauge", "zigcuda_predicted_wait_seconds", NULL,
           "What a request would wait for its slot.", v->predicted_wait_s);
    number(&o, "gauge", "zigcuda_waiting_prompt_tokens", NULL, "Prompt tokens in the queue.",
           (double)v->engine.waiting_tokens);
    number(&o, "gauge", "zigcuda_reply_blocks", NULL, "Blocks for whole replies.",
           (double)v->reply_blocks);
    number(&o, "gauge", "zigcuda_reply_blocks_free", NULL, "Of them, free.",
           (double)v->reply_blocks_free);
    number(&o, "gauge", "zigcuda_conversation_blocks", NULL, "Blocks for conversations.",
           (double)v->conversation_blocks);
    number(&o, "gauge", "zigcuda_conversation_blocks_free", NULL, "Of them, free.",
           (double)v->conversation_blocks_free);
    number(&o, "counter", "zigcuda_conversations_lost_total", NULL,
           "Conversations of WebSockets that did not fit, or made room for others.",
           (double)v->m->conversations_lost);
    number(&o, "counter", "zigcuda_refused_busy_total", NULL, "Requests answered with 429.",
           (double)v->m->refused_busy);
    number(&o, "counter", "zigcuda_cancelled_by_client_total", NULL,
           "Requests cancelled because their client left or said so.",
           (double)v->m->cancelled_by_client);
    number(&o, "counter", "zigcuda_heartbeats_total", NULL, "Heartbeats sent.",
           (double)v->m->heartbeats);
    requests(&o, v);
    finished(&o, v);
    engine(&o, v);
    histograms(&o, v->m);
    if (v->device)
        device(&o, v->device);
    if (v->conns)
        connections(&o, v->conns);
    return o.full ? 0 : o.n;
}
