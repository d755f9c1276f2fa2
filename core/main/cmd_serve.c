/* `zigcuda serve`: the daemon. Plans all memory, binds, loads, computes a first token, and then one
 * thread turns: bytes in and out, finished steps, next step. When the device is lost (a sticky
 * error of the driver, a step that hangs) the process starts again in its place. */
#include "core/base/log.h"
#include "core/main/args.h"
#include "core/main/fault.h"
#include "core/main/main.h"
#include "core/main/restart.h"
#include "core/main/serve.h"

#include <stdio.h>

enum { LOST_MS = 250 };

static struct box box;
static struct serve serve;
static bool certificate_waits; /* for handshakes to end, so that there is a place for it */

static void on_event(void *arg, const struct event *event)
{
    (void)arg;
    api_event(serve.api, event);
}

static void device_ready(void *arg)
{
    (void)arg; /* api_turn looks */
}

static enum err reload_keys(struct err_text *e)
{
    static struct keys before; /* 50 KB: too much for the stack */
    before = serve.keys;
    TRY(keys_read(&serve.keys, &box.work, box.options.keys_file, e));
    api_keys_changed(serve.api, &before);
    return ERR_OK;
}

static void say_failed(const char *what, const struct err_text *e)
{
    log_event(LOG_ERROR, "reload_failed", "what=%s why=\"%s\"", what, e->text);
}

/* Nobody may be there to send SIGHUP again: what is busy is tried with each turn, and ends in time.
 */
static void reload_certificate(bool first)
{
    struct err_text e = {0};
    enum err r = tls_reload(serve.tls, &e);
    certificate_waits = r == ERR_BUSY;
    if (r == ERR_OK)
        log_event(LOG_INFO, "reloaded", "what=tls.certificate");
    else if (!certificate_waits)
        say_failed("tls.certificate", &e);
    else if (first)
        log_event(LOG_WARN, "reload_waits", "what=tls.certificate why=\"%s\"", e.text);
}

/* Each by itself: a key that must go does not stay for the sake of a bad certificate. What fails
 * stays as it was. */
static void reload(void *arg)
{
    (void)arg;
    struct err_text e = {0};
    bool keys = box.options.keys_file[0] != 0;
    if (keys && reload_keys(&e) == ERR_OK)
        log_event(LOG_INFO, "reloaded", "what=keys.file keys=%u", serve.keys.n);
    else if (keys)
        say_failed("keys.file", &e);
    if (serve.tls)
        reload_certificate(true);
    if (!keys && !serve.tls)
        log_event(LOG_INFO, "reloaded", "what=nothing");
}

static void drain(void *arg)
{
    (void)arg;
    api_drain(serve.api);
}

/* READY is said only after a token was computed and found sound. */
static enum err first_token(struct err_text *e)
{
    while (api_turn(serve.api, true) && api_busy(serve.api)) {
    }
    if (!api_ready(serve.api))
        return err_set(e, ERR_DEVICE,
                       "the first token is not sound (see the line above): check the model folder, "
                       "or try another kernel set (cpu.kernels)");
    return ERR_OK;
}

/* True: the device is lost and the process is to start again. Before it does, for a short time, all
 * who ask learn that it is lost and streams get their last bytes. */
static bool run(void)
{
    enum loop_state state = LOOP_RUN;
    u64 restart_ns = UINT64_MAX;
    while (state != LOOP_END && clock_now_ns(&box.clock) < restart_ns) {
        state = loop_turn(serve.loop, MIN(api_next_ns(serve.api), restart_ns));
        if (certificate_waits)
            reload_certificate(false);
        if (!api_turn(serve.api, false) && restart_ns == UINT64_MAX)
            restart_ns = clock_now_ns(&box.clock) + LOST_MS * 1000000ull;
    }
    return state == LOOP_RUN;
}

/* Peers that connect meanwhile wait in the listeners, which stay. */
static enum err start_again(char **argv, struct err_text *e)
{
    char listeners[LISTEN_KEPT_BYTES];
    log_event(LOG_WARN, "restart", "why=\"the compute device is lost\"");
    restart_close_all();
    loop_keep(serve.loop, listeners);
    return restart_exec(argv, LISTEN_KEPT, listeners, e);
}

static enum err start(struct err_text *e)
{
    TRY(boot_load(&box, on_event, NULL, e));
    TRY(serve_open(&serve, &box, e));
    boot_seal(&box);
    TRY(loop_claim(serve.loop, e));
    TRY(first_token(e));
    (void)engine_report(box.engine, &(struct device_report){0}); /* the slow one */
    loop_call(serve.loop, &(struct loop_calls){.reload = reload, .drain = drain});
    if (!serve.loop_config.spin && /* who spins looks all the time */
        !loop_watch(serve.loop, box.device->ops->fd(box.device), device_ready, NULL))
        return err_set(e, ERR_SYSTEM, "the device's descriptor cannot be watched");
    return loop_start(serve.loop, serve.conns, e);
}

static enum err go(int argc, char **argv, struct err_text *e)
{
    bool helped;
    u32 words;
    TRY(boot_begin(&box, e));
    TRY(args_parse(&box, argc, argv, NULL, 0, NULL, 0, &words,
                   "zigcuda serve --model DIR [--server.listen LIST] ...", &helped, e));
    if (helped)
        return ERR_OK;
    loop_block_signals();
    restart_begin();
    TRY(boot_model(&box, e));
    TRY(serve_plan(&serve, &box, e));
    if (box.kernels) /* on the CPU */
        fault_watch(box.model);
    TRY(serve_listen(&serve, &box, e));
    enum err r = start(e);
    if (r != ERR_OK) {
        loop_close(serve.loop);
        return r;
    }
    if (run())
        return start_again(argv - 1, e);
    api_cut(serve.api);
    loop_close(serve.loop);
    box.device->ops->close(box.device);
    return ERR_OK;
}

int cmd_serve(int argc, char **argv)
{
    struct err_text e = {0};
    const enum err r = go(argc, argv, &e);
    if (e.code == ERR_OK || log_is_text())
        return main_end("serve", r, &e);
    log_event(LOG_ERROR, "fatal", "why=\"%s\"", e.text); /* for whoever reads the log */
    return err_exit_class(r);
}
