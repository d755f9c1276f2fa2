/* The API above the connections: routes, the OpenAI dialect, admission, keys, metrics. It turns
 * requests into engine requests and tokens into JSON; it never sees a device. One thread drives it:
 * conns call its events, the engine calls api_event, the loop calls api_turn.
 *
 * All memory is planned (api_plan) and taken at boot (api_open): jobs and choices as many as the
 * engine takes requests, a store for whole replies and one for conversations, one buffer in which
 * JSON is built. Requests are parsed, rendered and tokenized in the work arena of the box, which is
 * empty between calls.
 */
#ifndef ZIGCUDA_API_H
#define ZIGCUDA_API_H

#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/model/template.h"
#include "net/conn.h"
#include "net/keys.h"

struct api_config {
    struct engine *engine;
    const struct model *model;
    const struct tokenizer *tokenizer;
    const struct template *template; /* NULL: no chat */
    const char *template_error;      /* what the model's template has that is not supported */
    struct device_limits limits;
    struct clock clock;
    struct arena *work;
    size_t prompt_bytes;         /* longest text of one prompt */
    size_t body_bytes;           /* longest body */
    size_t reply_bytes;          /* the store (net/store); 0: fitted, and so is */
    size_t conversation_bytes;   /* that of conversations */
    u32 queue, connections;      /* requests that may wait; connections */
    u32 max_tokens;              /* when a request gives none; 0: up to the context */
    bool prompt_logprobs;        /* the engine can */
    bool grammars;               /* it can */
    u64 queue_tokens;            /* prompt tokens that may wait; 0: any */
    u64 heartbeat_ms;            /* 0: none */
    const char *name;            /* of the model, for clients */
    const char *version;         /* "0.1.0" */
    const char *fingerprint;     /* binary, model and kernel set */
    const char *kernels;         /* what computes, for people */
    const char *hosts, *origins; /* comma lists: more Host names on loopback; CORS */
    const struct keys *keys;     /* NULL: open */
    u32 key_requests;            /* requests of one key at once; 0: any */
    u32 key_rate;                /* requests of one key a minute; 0: any */
    const struct plan *plan;     /* for the status page */
    u64 seed;                    /* random: of ids and of requests that give none */
};

struct api;

void api_plan(const struct api_config *g, struct plan *p);
MUST enum err api_open(struct arena *a, const struct api_config *g, struct api **out,
                       struct err_text *e);

/* After api_config.keys was read again: `before` is what it held. Requests in work and WebSockets
 * stay with their key, wherever it stands now; a WebSocket whose key has gone gets no answer. */
void api_keys_changed(struct api *api, const struct keys *before);

/* What conns_open wants; `app` is the struct api. Then api_attach, before the first turn. */
extern const struct conn_events api_conn_events;
void api_attach(struct api *api, struct conns *conns);

/* Passes an event of the engine on. */
void api_event(struct api *api, const struct event *event);

/* Collects a finished step (waits for it when `wait`), starts the next, sends what has been put off
 * (conns_flush), heartbeats. False: the device has failed, which is logged; the API goes on
 * answering 503. */
bool api_turn(struct api *api, bool wait);

/* When api_turn has something to do although nothing came, on the clock; UINT64_MAX: never. */
u64 api_next_ns(const struct api *api);

/* True while a step is in flight. */
bool api_busy(const struct api *api);

/* True once a first token was computed and checked. */
bool api_ready(const struct api *api);

/* /ready turns false, idle WebSockets are closed in the turns to come; what was accepted is
 * answered. */
void api_drain(struct api *api);

/* The end, with requests in work: who waits for one is told, and each has its line in the log. The
 * engine takes no further step. */
void api_cut(struct api *api);
bool api_idle(const struct api *api);

/* Path and method of the i-th route, false behind the last: for the test against openapi.json. */
bool api_route(u32 i, const char **method, const char **path);

#endif
