#include "core/main/serve.h"

#include "core/base/utf8.h"
#include "version.h"

#include <sched.h>
#include <stdio.h>
#include <sys/random.h>

enum { JSON_SHARE = 24 }; /* work memory for the tree of a body, a byte of it */

/* --- from options --------------------------------------------------------------------------------
 */

static enum err check_options(const struct options *o, struct err_text *e)
{
    if (!o->tls_certificate[0] != !o->tls_key[0])
        return err_set(e, ERR_CONFIG, "tls.certificate and tls.key belong together");
    if (!o->tls_certificate[0] && o->tls_client_ca[0])
        return err_set(e, ERR_CONFIG, "tls.client_ca needs tls.certificate and tls.key");
    if (!o->keys_file[0] && (o->keys_rate || o->keys_requests))
        return err_set(e, ERR_CONFIG,
                       "keys.rate and keys.requests bound each key, and without keys.file there is "
                       "none: set that, or leave them at 0");
    return ERR_OK;
}

static bool spins(const struct options *o)
{
    return o->server_wait == SERVER_WAIT_SPIN;
}

/* Workers start on the cores of the mask they inherit: the one that the loop keeps for itself
 * (server.core) is taken out of it, unless it is the only one. Threads that spin on one core would
 * wait for each other by the time slice. */
static enum err leave_core(const struct options *o, struct err_text *e)
{
    cpu_set_t set, own;
    if ((!o->server_pin && !spins(o)) || sched_getaffinity(0, sizeof set, &set) != 0)
        return ERR_OK;
    CPU_ZERO(&own);
    if (o->server_core < CPU_SETSIZE)
        CPU_SET(o->server_core, &own);
    /* what the loop will do once all is loaded, and too late to be told that it cannot */
    if (sched_setaffinity(0, sizeof own, &own) != 0)
        return err_set_errno(e, ERR_CONFIG,
                             "server.core is %u, on which this process cannot run; name a core of "
                             "this box (of its cpuset, in a container)",
                             (u32)o->server_core);
    CPU_CLR(o->server_core, &set);
    u32 left = (u32)CPU_COUNT(&set);
    if (spins(o) && MAX(o->cpu_threads, (u64)1) > left)
        return err_set(e, ERR_CONFIG,
                       "server.wait = spin needs a core for each thread: beside server.core there "
                       "are %u for %u workers; lower cpu.threads, or set server.wait = block",
                       left, (u32)MAX(o->cpu_threads, (u64)1));
    if (left > 0)
        (void)!sched_setaffinity(0, sizeof set, &set);
    return ERR_OK;
}

static void configure_net(struct serve *s, const struct options *o)
{
    enum option_server_expose x = o->server_expose;
    s->loop_config = (struct loop_config){
        .connections = (u32)o->server_connections,
        .spin = spins(o),
        .core = o->server_pin || spins(o) ? (int)o->server_core : -1,
        .fifo = (int)o->server_fifo,
        .lock = o->server_lock,
        .drain_ms = o->server_drain_time,
        .listen = {.list = o->server_listen,
                   .tls = o->tls_certificate[0] != 0,
                   .keys = o->keys_file[0] != 0,
                   .without_tls = x == SERVER_EXPOSE_WITHOUT_TLS || x == SERVER_EXPOSE_WITHOUT_BOTH,
                   .without_keys =
                       x == SERVER_EXPOSE_WITHOUT_KEYS || x == SERVER_EXPOSE_WITHOUT_BOTH,
                   .unix_mode = (u32)o->server_unix_mode,
                   .unix_uids = o->server_unix_uids}};
    s->tls_config = (struct tls_config){o->tls_certificate, o->tls_key, o->tls_client_ca};
    s->conns_config = (struct conns_config){.connections = (u32)o->server_connections,
                                            .bodies = (u32)o->server_bodies,
                                            .body_bytes = o->server_body_max,
                                            .output_bytes = o->server_output,
                                            .header_ms = o->server_header_time,
                                            .body_ms = o->server_body_time,
                                            .idle_ms = o->server_idle_time,
                                            .write_ms = o->server_write_time};
}

/* Binary, model, kernel set and KV cache: what decides the bits of an answer. */
static void name_fingerprint(struct serve *s, const struct box *b)
{
    u64 h = 0xcbf29ce484222325u;
    const struct str words[] = {b->model->name, b->model->revision, b->model->model_type,
                                b->model->quant};
    for (u32 i = 0; i < COUNTOF(words); i++)
        for (size_t k = 0; k < words[i].n; k++)
            h = (h ^ (u8)words[i].p[k]) * 0x100000001b3u;
    h = (h ^ b->model->file_bytes) * 0x100000001b3u;
    h = (h ^ b->kv_type) * 0x100000001b3u;
    snprintf(s->fingerprint, sizeof s->fingerprint, "fp_%s_%s_%s_%08x", ZIGCUDA_VERSION,
             ZIGCUDA_COMMIT, b->device->kernels, (u32)(h ^ h >> 32));
    b->device->ops->describe(b->device, s->kernels, sizeof s->kernels);
}

/* Clients read this: no path of the server's. */
static const char *template_error(const struct box *b)
{
    const char *text = b->template_error.text;
    const struct str dir = str_of(b->options.model_dir);
    if (b->template_error.code == ERR_OK)
        return NULL;
    return str_starts(str_of(text), dir) ? text + dir.n + 1 : text;
}

static enum err configure_api(struct serve *s, struct box *b, struct err_text *e)
{
    const struct options *o = &b->options;
    const char *name = o->model_name[0] ? o->model_name : b->model->name.p;
    u64 seed;
    if (!utf8_valid(str_of(name))) /* Prometheus takes no page with other bytes in it */
        return err_set(e, ERR_CONFIG,
                       "the model's name '%s' is not valid UTF-8: set model.name, or rename its "
                       "folder",
                       name);
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return err_set(e, ERR_SYSTEM, "the kernel gives no random bytes");
    name_fingerprint(s, b);
    s->api_config = (struct api_config){.model = b->model,
                                        .tokenizer = b->tokenizer,
                                        .template = b->template,
                                        .template_error = template_error(b),
                                        .limits = b->device->limits,
                                        .clock = b->clock,
                                        .work = &b->work,
                                        .prompt_bytes = b->prompt_bytes,
                                        .body_bytes = o->server_body_max,
                                        .reply_bytes = o->server_reply_memory,
                                        .conversation_bytes = o->server_conversation_memory,
                                        .queue = (u32)o->engine_queue,
                                        .connections = (u32)o->server_connections,
                                        .max_tokens = (u32)o->engine_max_tokens,
                                        .prompt_logprobs = o->engine_prompt_logprobs,
                                        .grammars = o->engine_grammars,
                                        .queue_tokens = o->server_queue_tokens,
                                        .heartbeat_ms = o->server_heartbeat,
                                        .name = name,
                                        .version = ZIGCUDA_VERSION,
                                        .fingerprint = s->fingerprint,
                                        .kernels = s->kernels,
                                        .hosts = o->server_hosts,
                                        .origins = o->server_origins,
                                        .keys = o->keys_file[0] ? &s->keys : NULL,
                                        .key_requests = (u32)o->keys_requests,
                                        .key_rate = (u32)o->keys_rate,
                                        .plan = &b->plan,
                                        .seed = seed};
    return ERR_OK;
}

/* --- memory ------------------------------------------------------------------------------------
 */

static void plan_net(struct serve *s, struct plan *p)
{
    const struct conns_config *c = &s->conns_config;
    plan_add(p, PLACE_HOST, conns_bytes(c), "connections", "server.connections",
             "%u, %u bodies of %zu KiB", c->connections, c->bodies, c->body_bytes / KIB);
}

static enum err open_net(struct serve *s, struct box *b, struct err_text *e)
{
    struct sockets sockets = loop_sockets(s->loop);
    s->conns =
        conns_open(&b->host, &s->conns_config, &sockets, &b->clock, &api_conn_events, s->api);
    if (!s->conns)
        return arena_full(&b->host, "connections", e);
    api_attach(s->api, s->conns);
    return ERR_OK;
}

enum err serve_plan(struct serve *s, struct box *b, struct err_text *e)
{
    const struct options *o = &b->options;
    TRY(check_options(o, e));
    if (o->keys_file[0])
        TRY(keys_read(&s->keys, &b->scratch, o->keys_file, e));
    b->work_extra_bytes = JSON_SHARE * o->server_body_max;
    b->work_extra_option = "server.body_max";
    b->spin = spins(o);
    TRY(leave_core(o, e));
    TRY(boot_plan(b, e));
    b->config.even_steps = true;
    configure_net(s, o);
    if (s->loop_config.listen.tls)
        TRY(tls_open(&b->boot, &s->tls_config, &b->clock, &s->tls, e));
    s->conns_config.tls = s->tls; /* each connection then has room for its records */
    TRY(configure_api(s, b, e));
    plan_net(s, &b->plan);
    api_plan(&s->api_config, &b->plan);
    return ERR_OK;
}

enum err serve_listen(struct serve *s, struct box *b, struct err_text *e)
{
    return loop_open(&b->boot, &s->loop_config, &b->clock, &s->loop, e);
}

enum err serve_open(struct serve *s, struct box *b, struct err_text *e)
{
    s->api_config.engine = b->engine;
    TRY(api_open(&b->host, &s->api_config, &s->api, e));
    return open_net(s, b, e);
}
