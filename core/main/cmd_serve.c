/* `zigcuda serve`: the daemon. Plans all memory, binds, loads, computes a first token, and then one
 * thread turns: bytes in and out, finished steps, next step. When the device is lost (a sticky
 * error of the driver, a step that hangs) the process starts again in its place. */
#include "core/base/log.h"
#include "core/main/args.h"
#include "core/main/main.h"
#include "core/main/restart.h"
#include "core/main/serve.h"

#include <stdio.h>

enum { LOST_MS = 250 };

static struct box box;
static struct serve serve;

static void on_event(void *arg, const struct event *event)
{
    (void)arg;
    api_event(serve.api, event);
}

static void device_ready(void *arg)
{
    (void)arg; /* api_turn looks */
}

static void reload(void *arg)
{
    (void)arg;
    static struct keys before; /* 50 KB: too much for the stack */
    struct err_text e = {0};
    enum err r = ERR_OK;
    before = serve.keys;
    if (box.options.keys_file[0])
        r = keys_read(&serve.keys, &box.work, box.options.keys_file, &e);
    if (r == ERR_OK && box.options.keys_file[0])
        api_keys_changed(serve.api, &before);
    if (r == ERR_OK && serve.tls)
        r = tls_reload(serve.tls, &e);
    if (r == ERR_OK)
        log_event(LOG_INFO, "reloaded", "keys=%u", serve.keys.n);
    else
        log_event(LOG_ERROR, "reload_failed", "why=\"%s\"", e.text);
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
        if (state == LOOP_DRAIN)
            api_drain(serve.api);
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
    TRY(first_token(e));
    (void)engine_report(box.engine, &(struct device_report){0}); /* the slow one */
    loop_on_reload(serve.loop, reload, NULL);
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
    TRY(serve_listen(&serve, &box, e));
    enum err r = start(e);
    if (r != ERR_OK) {
        loop_close(serve.loop);
        return r;
    }
    if (run())
        return start_again(argv - 1, e);
    loop_close(serve.loop);
    box.device->ops->close(box.device);
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
