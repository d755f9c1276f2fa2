/* `zigcuda serve`: the daemon. Plans all memory, binds, loads, computes a first token, and then one
 * thread turns: bytes in and out, finished steps, next step. */
#include "core/base/log.h"
#include "core/main/args.h"
#include "core/main/boot.h"
#include "core/main/main.h"
#include "net/api.h"
#include "net/loop.h"
#include "net/tls.h"

#include "version.h"

#include <poll.h>
#include <stdio.h>
#include <sys/random.h>

enum { JSON_SHARE = 24 }; /* work memory for the tree of a body, a byte of it */

static struct serve {
    struct box box;
    struct api_config api_config;
    struct conns_config conns_config;
    struct loop_config loop_config;
    struct tls_config tls_config;
    struct api *api;
    struct conns *conns;
    struct loop *loop;
    struct tls *tls;
    struct keys keys;
    char fingerprint[128], kernels[256];
} serve;

static void on_event(void *arg, const struct event *event)
{
    (void)arg;
    api_event(serve.api, event);
}

/* --- from options --------------------------------------------------------------------------------
 */

static enum err check_options(const struct options *o, struct err_text *e)
{
    if (!o->tls_certificate[0] != !o->tls_key[0])
        return err_set(e, ERR_CONFIG, "tls.certificate and tls.key belong together");
    if (!o->tls_certificate[0] && o->tls_client_ca[0])
        return err_set(e, ERR_CONFIG, "tls.client_ca needs tls.certificate and tls.key");
    return ERR_OK;
}

static void configure_net(const struct options *o)
{
    enum option_server_expose x = o->server_expose;
    serve.loop_config = (struct loop_config){
        .connections = (u32)o->server_connections,
        .spin = o->server_wait == SERVER_WAIT_SPIN,
        .core = o->server_pin ? (int)o->server_core : -1,
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
    serve.tls_config = (struct tls_config){o->tls_certificate, o->tls_key, o->tls_client_ca};
    serve.conns_config = (struct conns_config){.connections = (u32)o->server_connections,
                                               .bodies = (u32)o->server_bodies,
                                               .body_bytes = o->server_body_max,
                                               .output_bytes = o->server_output,
                                               .header_ms = o->server_header_time,
                                               .body_ms = o->server_body_time,
                                               .idle_ms = o->server_idle_time,
                                               .write_ms = o->server_write_time};
}

/* Binary, model and kernel set: what decides the bits of an answer. */
static void name_fingerprint(const struct box *b)
{
    u64 h = 0xcbf29ce484222325u;
    const struct str words[] = {b->model->name, b->model->model_type, b->model->quant};
    for (u32 i = 0; i < COUNTOF(words); i++)
        for (size_t k = 0; k < words[i].n; k++)
            h = (h ^ (u8)words[i].p[k]) * 0x100000001b3u;
    h = (h ^ b->model->file_bytes) * 0x100000001b3u;
    snprintf(serve.fingerprint, sizeof serve.fingerprint, "fp_%s_%s_%s_%08x", ZIGCUDA_VERSION,
             ZIGCUDA_COMMIT, b->kernels->name, (u32)(h ^ h >> 32));
    b->device->ops->describe(b->device, serve.kernels, sizeof serve.kernels);
}

static enum err configure_api(struct box *b, struct err_text *e)
{
    const struct options *o = &b->options;
    u64 seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return err_set(e, ERR_SYSTEM, "the kernel gives no random bytes");
    name_fingerprint(b);
    serve.api_config =
        (struct api_config){.model = b->model,
                            .tokenizer = b->tokenizer,
                            .template = b->template,
                            .limits = b->device->limits,
                            .clock = b->clock,
                            .work = &b->work,
                            .prompt_bytes = b->prompt_bytes,
                            .body_bytes = o->server_body_max,
                            .reply_bytes = o->server_reply_memory,
                            .queue = (u32)o->engine_queue,
                            .connections = (u32)o->server_connections,
                            .max_tokens = (u32)o->engine_max_tokens,
                            .queue_tokens = o->server_queue_tokens,
                            .heartbeat_ms = o->server_heartbeat,
                            .name = o->model_name[0] ? o->model_name : b->model->name.p,
                            .version = ZIGCUDA_VERSION,
                            .fingerprint = serve.fingerprint,
                            .kernels = serve.kernels,
                            .hosts = o->server_hosts,
                            .origins = o->server_origins,
                            .keys = o->keys_file[0] ? &serve.keys : NULL,
                            .key_requests = (u32)o->keys_requests,
                            .key_rate = (u32)o->keys_rate,
                            .plan = &b->plan,
                            .seed = seed};
    return ERR_OK;
}

/* --- memory ------------------------------------------------------------------------------------
 */

static void plan_net(struct plan *p)
{
    const struct conns_config *c = &serve.conns_config;
    plan_add(p, PLACE_HOST, conns_bytes(c), "connections", "server.connections",
             "%u, %u bodies of %zu KiB", c->connections, c->bodies, c->body_bytes / KIB);
    plan_add(p, PLACE_HOST, loop_bytes(), "loop", "", "listeners, signals, timers");
}

static enum err open_net(struct box *b, struct err_text *e)
{
    TRY(loop_open(&b->host, &serve.loop_config, &b->clock, &serve.loop, e));
    struct sockets sockets = loop_sockets(serve.loop);
    serve.conns =
        conns_open(&b->host, &serve.conns_config, &sockets, &b->clock, &api_conn_events, serve.api);
    if (!serve.conns)
        return arena_full(&b->host, "connections", e);
    api_attach(serve.api, serve.conns);
    return ERR_OK;
}

/* --- running ------------------------------------------------------------------------------------
 */

static void device_ready(void *arg)
{
    (void)arg; /* api_turn looks */
}

static void reload(void *arg)
{
    struct box *b = arg;
    struct err_text e = {0};
    enum err r = ERR_OK;
    if (b->options.keys_file[0])
        r = keys_read(&serve.keys, &b->work, b->options.keys_file, &e);
    if (r == ERR_OK && serve.tls)
        r = tls_reload(serve.tls, &e);
    if (r == ERR_OK)
        log_event(LOG_INFO, "reloaded", "keys=%u", serve.keys.n);
    else
        log_event(LOG_ERROR, "reload_failed", "why=\"%s\"", e.text);
}

/* READY is said only after a token was computed and found sound. */
static enum err first_token(struct box *b, struct err_text *e)
{
    struct pollfd fd = {.fd = b->device->ops->fd(b->device), .events = POLLIN};
    while (api_turn(serve.api) && api_busy(serve.api))
        if (poll(&fd, 1, -1) < 0)
            return err_set_errno(e, ERR_SYSTEM, "poll");
    if (!api_ready(serve.api))
        return err_set(e, ERR_DEVICE,
                       "the first token is not sound (see the line above): check the model folder, "
                       "or try another kernel set (cpu.kernels)");
    return ERR_OK;
}

static void run(void)
{
    enum loop_state state = LOOP_RUN;
    while (state != LOOP_END) {
        state = loop_turn(serve.loop, api_next_ns(serve.api));
        if (state == LOOP_DRAIN)
            api_drain(serve.api);
        api_turn(serve.api);
    }
    loop_close(serve.loop);
}

static enum err go(int argc, char **argv, struct err_text *e)
{
    struct box *b = &serve.box;
    bool helped;
    u32 words;
    TRY(boot_begin(b, e));
    TRY(options_load(&b->options, &b->scratch, argc, argv, e));
    TRY(args_parse(argc, argv, NULL, 0, &b->options, NULL, 0, &words,
                   "zigcuda serve --model DIR [--server.listen LIST] ...", &helped, e));
    if (helped)
        return ERR_OK;
    TRY(check_options(&b->options, e));
    loop_block_signals();
    if (b->options.keys_file[0])
        TRY(keys_read(&serve.keys, &b->scratch, b->options.keys_file, e));
    TRY(boot_model(b, e));
    b->work_extra_bytes = JSON_SHARE * b->options.server_body_max;
    TRY(boot_plan(b, e));
    configure_net(&b->options);
    if (serve.loop_config.listen.tls)
        TRY(tls_open(&b->boot, &serve.tls_config, &b->clock, &serve.tls, e));
    serve.conns_config.tls = serve.tls; /* each connection then has room for its records */
    TRY(configure_api(b, e));
    plan_net(&b->plan);
    api_plan(&serve.api_config, &b->plan);
    TRY(boot_load(b, on_event, NULL, e));
    serve.api_config.engine = b->engine;
    TRY(api_open(&b->host, &serve.api_config, &serve.api, e));
    TRY(open_net(b, e));
    boot_seal(b);
    TRY(first_token(b, e));
    loop_on_reload(serve.loop, reload, b);
    if (!loop_watch(serve.loop, b->device->ops->fd(b->device), device_ready, NULL))
        return err_set(e, ERR_SYSTEM, "the device's descriptor cannot be watched");
    TRY(loop_start(serve.loop, serve.conns, e));
    run();
    b->device->ops->close(b->device);
    return ERR_OK;
}

int cmd_serve(int argc, char **argv)
{
    struct err_text e = {0};
    enum err r = go(argc, argv, &e);
    if (r != ERR_OK)
        fprintf(stderr, "zigcuda serve: %s\n", e.text);
    return err_exit_class(r);
}
