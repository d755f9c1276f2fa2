#include "net/parts.h"

/* /status: what the status page shows. */

static void number(struct json_out *o, const char *key, double v)
{
    json_key(o, key);
    json_put_f64(o, v, 9);
}

static void load(struct json_out *o, const struct api *api)
{
    struct engine_stats s = engine_stats(api->g.engine);
    const struct histogram *first = &api->metrics.first_s, *inter = &api->metrics.inter_s;
    json_key(o, "load");
    json_open(o, '{');
    number(o, "running", s.running);
    number(o, "waiting", s.waiting);
    number(o, "slots", api->g.limits.slots);
    number(o, "queue", api->g.queue);
    number(o, "pages", s.pages);
    number(o, "pages_free", s.pages_free);
    number(o, "prompt_tokens", (double)s.prompt_tokens);
    number(o, "cached_tokens", (double)s.cached_tokens);
    number(o, "output_tokens", (double)s.output_tokens);
    number(o, "steps", (double)s.steps);
    number(o, "finished", (double)s.finished);
    number(o, "connections", (double)conns_counts(api->conns)->open);
    number(o, "predicted_wait_ms", 1e3 * admission_wait_s(&api->admission, &s));
    number(o, "mean_first_token_ms", first->count ? 1e3 * first->sum / (double)first->count : 0);
    number(o, "mean_inter_token_ms", inter->count ? 1e3 * inter->sum / (double)inter->count : 0);
    json_close(o, '}');
}

static void memory(struct json_out *o, const struct plan *plan)
{
    static const char *const places[PLACE_COUNT] = {"host", "pinned", "device", "file"};
    json_key(o, "memory");
    json_open(o, '[');
    for (u32 i = 0; plan && i < plan->n; i++) {
        const struct plan_row *row = &plan->rows[i];
        json_open(o, '{');
        json_pair_text(o, "place", places[row->place]);
        json_pair_text(o, "what", row->what);
        json_pair_text(o, "detail", row->detail);
        json_pair_text(o, "option", row->option);
        json_key(o, "bytes");
        json_put_u64(o, row->bytes);
        json_close(o, '}');
    }
    json_close(o, ']');
}

void status_json(struct json_out *o, const struct api *api)
{
    json_open(o, '{');
    json_pair_text(o, "version", api->g.version);
    json_pair_text(o, "system_fingerprint", api->g.fingerprint);
    json_pair_text(o, "model", api->g.name);
    json_key(o, "weights");
    json_put_str(o, api->g.model->quant);
    json_pair_text(o, "kernels", api->g.kernels);
    number(o, "context", api->g.limits.context);
    json_key(o, "ready");
    json_put_bool(o, api_ready(api));
    json_key(o, "chat");
    json_put_bool(o, api->g.template != NULL);
    number(o, "uptime_s", (double)(api_now(api) - api->open_ns) / 1e9);
    load(o, api);
    memory(o, api->g.plan);
    json_close(o, '}');
}
