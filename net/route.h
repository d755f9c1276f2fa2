/* The route table: path, method, and who handles it. Inside the API only (net/parts.h). */
#ifndef ZIGCUDA_ROUTE_H
#define ZIGCUDA_ROUTE_H

#include "net/parts.h"

enum {
    ROUTE_OPEN = 1,     /* no key needed */
    ROUTE_JSON = 2,     /* the body is JSON */
    ROUTE_SOCKET = 4,   /* GET is a WebSocket */
    ROUTE_PREFIX = 8,   /* the rest of the path is an argument */
    ROUTE_MESSAGES = 16 /* errors have Anthropic's form */
};

struct route {
    const char *method, *path; /* "GET" also takes HEAD */
    u32 flags;
    void (*run)(struct api *api, const struct caller *c, const struct http_request *r);
};

/* The route of a path, and its index; NULL: none. */
const struct route *route_of(struct str path, u32 *index);
const char *route_path(u32 i); /* NULL behind the last */
u32 route_flags(u32 i);        /* 0 there */

/* net/gate: whether this request may come in at all. 0 and *c is filled, or CONN_ANSWERED. */
int gate_admit(void *app, conn_id id, const struct http_request *r);
/* The same view of a request that has been admitted. */
struct caller gate_caller(struct api *api, conn_id id, const struct http_request *r, u32 route);
/* Whether the caller's key is known now: it may have gone since he was admitted. */
MUST bool gate_key(const struct api *api, const struct caller *c, struct refusal *f);
bool gate_lists(struct api *api, struct err_text *e); /* splits hosts and origins */

/* net/socket: WebSockets. */
void socket_open(struct api *api, const struct caller *c, const struct http_request *r,
                 const struct dialect *dialect);
struct socket *socket_of(const struct api *api, conn_id id); /* NULL: there is none */
/* Whether it may ask now; `instead`: of waiting for the end of the one in work. */
MUST bool socket_free(const struct api *api, const struct caller *c, const char *instead,
                      struct refusal *f);
void socket_text(void *app, conn_id id, struct str message);
bool socket_done(struct api *api, conn_id id, const char *request);
void socket_gone(struct api *api, conn_id id);
void socket_close_idle(struct api *api);

/* net/converse: conversations over them. */
MUST bool converse_message(struct api *api, struct socket *s, size_t bytes, const struct json *v,
                           const struct caller *c, struct refusal *f);
/* v: the message; NULL where it is no JSON. */
void converse_refuse(struct api *api, const struct caller *c, const struct json *v,
                     const struct refusal *f);
/* What was answered goes to the conversation: items, written behind those that it has. */
struct json_out converse_open(struct api *api, conn_id id);
void converse_end(struct api *api, conn_id id, const char *response, const struct json_out *o);
void converse_lose(struct api *api, struct socket *s, const char *why);

#endif
