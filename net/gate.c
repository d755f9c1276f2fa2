#include "net/route.h"

#include <stdio.h>

/* Of a path that nothing is at: what the log has of it, and the longest that can mean another. */
enum { LOGGED_PATH_BYTES = 100, MEANT_BYTES = 300 };

/* --- lists ------------------------------------------------------------------------------------ */

static bool split(const char *list, struct str *out, u32 cap, u32 *n)
{
    for (const char *p = list; *p;) {
        const char *end = strchrnul(p, ',');
        struct str word = {p, (size_t)(end - p)};
        while (word.n && word.p[0] == ' ')
            word = (struct str){word.p + 1, word.n - 1};
        while (word.n && word.p[word.n - 1] == ' ')
            word.n--;
        if (word.n && *n == cap)
            return false;
        if (word.n)
            out[(*n)++] = word;
        p = *end ? end + 1 : end;
    }
    return true;
}

/* As browsers send it (RFC 6454, 6.2): scheme://host, a port where it is not the usual one, no
 * path.
 */
static bool is_origin(struct str s)
{
    const char *name = memmem(s.p, s.n, "://", 3);
    if (str_is(s, "*") || str_is(s, "null"))
        return true;
    if (!name || name == s.p)
        return false;
    struct str rest = {name + 3, s.n - (size_t)(name + 3 - s.p)};
    return rest.n && !memchr(rest.p, '/', rest.n) && !memchr(s.p, ' ', s.n);
}

/* As it can stand in a Host without its port: labels with dots between. A dot at the end is sent
 * by who writes one.
 */
static bool is_host(struct str s)
{
    if (str_is(s, "*"))
        return true;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i], lower = c | 32;
        bool label = (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9');
        bool dot = c == '.' && i && s.p[i - 1] != '.';
        if (!label && !dot && c != '-' && c != '_')
            return false;
    }
    return true;
}

bool gate_lists(struct api *api, struct err_text *e)
{
    if (!split(api->g.hosts, api->hosts, LIMIT_HOSTS, &api->n_hosts))
        err_set(e, ERR_CONFIG, "server.hosts has more than %u names", LIMIT_HOSTS);
    if (!split(api->g.origins, api->origins, LIMIT_ORIGINS, &api->n_origins))
        err_set(e, ERR_CONFIG, "server.origins has more than %u origins", LIMIT_ORIGINS);
    for (u32 i = 0; i < api->n_origins && e->code == ERR_OK; i++)
        if (!is_origin(api->origins[i]))
            err_set(e, ERR_CONFIG,
                    "server.origins: '%.*s' is no origin as browsers send it: "
                    "https://app.example, with its port if it has one, and no path",
                    (int)MIN(api->origins[i].n, (size_t)100), api->origins[i].p);
    for (u32 i = 0; i < api->n_hosts && e->code == ERR_OK; i++)
        if (!is_host(api->hosts[i]))
            err_set(e, ERR_CONFIG,
                    "server.hosts: '%.*s' is no name that a Host can have: box.example, whole, "
                    "without scheme, port and path (numbers are taken anyway), or * for any",
                    (int)MIN(api->hosts[i].n, (size_t)100), api->hosts[i].p);
    return e->code == ERR_OK;
}

static bool same_nocase(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++) {
        u8 x = (u8)a.p[i], y = (u8)b.p[i];
        x = x >= 'A' && x <= 'Z' ? x | 32 : x;
        y = y >= 'A' && y <= 'Z' ? y | 32 : y;
        if (x != y)
            return false;
    }
    return true;
}

static i32 in_list(const struct str *list, u32 n, struct str s)
{
    for (u32 i = 0; i < n; i++)
        if (same_nocase(list[i], s))
            return (i32)i;
    return -1;
}

/* --- Host: DNS rebinding ------------------------------------------------------------------- */

static struct str without_port(struct str host)
{
    if (host.n && host.p[0] == '[') {
        const char *end = memchr(host.p, ']', host.n);
        return end ? (struct str){host.p, (size_t)(end - host.p) + 1} : host;
    }
    const char *colon = host.n ? memchr(host.p, ':', host.n) : NULL;
    return colon ? (struct str){host.p, (size_t)(colon - host.p)} : host;
}

/* On loopback a page of any site can reach us under that site's own name, once its DNS says
 * 127.0.0.1. Only names that DNS can not give away are taken there: numbers, "localhost" and
 * what server.hosts lists. HTTP/1.0 without a Host is no browser, and no browser opens a Unix
 * socket: there any name is taken, such as the one that a proxy before it has. */
static bool host_allowed(const struct api *api, const struct http_request *r)
{
    struct str host = without_port(r->host);
    bool numbers = host.n > 0;
    if (!r->loopback || host.n == 0)
        return true;
    for (size_t i = 0; i < host.n; i++)
        numbers &= (host.p[i] >= '0' && host.p[i] <= '9') || host.p[i] == '.';
    if (numbers || host.p[0] == '[' || same_nocase(host, STR("localhost")))
        return true;
    return in_list(api->hosts, api->n_hosts, host) >= 0 ||
           in_list(api->hosts, api->n_hosts, STR("*")) >= 0;
}

/* --- Origin: cross-site requests --------------------------------------------------------- */

static bool same_site(struct str origin, struct str host)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (u32 i = 0; i < COUNTOF(schemes); i++) {
        struct str s = str_of(schemes[i]);
        if (str_starts(origin, s))
            return same_nocase((struct str){origin.p + s.n, origin.n - s.n}, host);
    }
    return false;
}

static i32 origin_index(const struct api *api, struct str origin)
{
    i32 any = in_list(api->origins, api->n_origins, STR("*"));
    i32 exact = in_list(api->origins, api->n_origins, origin);
    return exact >= 0 ? exact : any;
}

/* --- keys ---------------------------------------------------------------------------------------
 */

static struct str bearer(const struct http_request *r)
{
    struct str v = http_header(r, "authorization");
    if (v.n <= 7 || !same_nocase((struct str){v.p, 7}, STR("Bearer ")))
        return (struct str){0};
    v = (struct str){v.p + 7, v.n - 7};
    while (v.n && v.p[0] == ' ')
        v = (struct str){v.p + 1, v.n - 1};
    return v;
}

static i32 key_of(const struct api *api, const struct http_request *r)
{
    struct str key = bearer(r);
    if (!key.n) /* Anthropic's clients */
        key = http_header(r, "x-api-key");
    return api->g.keys && key.n ? keys_find(api->g.keys, key) : -1;
}

/* --- the gate -----------------------------------------------------------------------------------
 */

/* RFC 9110 section 13. Nothing here has an entity tag or a modification date: If-Match holds for
 * "*" alone, If-None-Match for all but "*", and the conditions on dates count for nothing. */
static int instead_of_200(const struct http_request *r)
{
    struct str match = http_header(r, "if-match");
    if (r->method != HTTP_GET && r->method != HTTP_HEAD)
        return 200;
    if (match.p && !str_is(match, "*"))
        return 412;
    return str_is(http_header(r, "if-none-match"), "*") ? 304 : 200;
}

struct caller gate_caller(struct api *api, conn_id id, const struct http_request *r, u32 route)
{
    const char *path = route_path(route);
    struct str asked = {r->path.p, MIN(r->path.n, (size_t)LOGGED_PATH_BYTES)};
    struct caller c = {.conn = id,
                       .start_ns = r->read_ns,
                       .number = r->request_number,
                       .key = key_of(api, r),
                       .origin = origin_index(api, http_header(r, "origin")),
                       .route = route,
                       .ok = instead_of_200(r),
                       .method = asked.p ? http_method_name(r->method) : "-",
                       .path = path      ? str_of(path)
                               : asked.p ? asked
                                         : STR("-")};
    snprintf(c.peer, sizeof c.peer, "%s", r->peer);
    return c;
}

static bool check_origin(const struct api *api, const struct http_request *r, struct refusal *f)
{
    struct str origin = http_header(r, "origin");
    if (!host_allowed(api, r))
        return refuse(f, 403, "host_not_allowed", NULL,
                      "the name '%.*s' is not taken on loopback (protection against DNS "
                      "rebinding); use localhost, or list it in server.hosts",
                      (int)MIN(r->host.n, (size_t)100), r->host.p);
    if (!origin.p || same_site(origin, r->host) || origin_index(api, origin) >= 0)
        return true;
    return refuse(f, 403, "origin_not_allowed", NULL,
                  "pages of '%.*s' may not call this server; list it in server.origins",
                  (int)MIN(origin.n, (size_t)100), origin.p);
}

static bool wants_socket(const struct http_request *r)
{
    return http_list_has(http_header(r, "upgrade"), "websocket");
}

static bool method_fits(const struct route *route, const struct http_request *r)
{
    bool get = strcmp(route->method, "GET") == 0;
    if (r->method == HTTP_OPTIONS)
        return true;
    if (r->method == HTTP_GET && (route->flags & ROUTE_SOCKET))
        return wants_socket(r);
    return get ? r->method == HTTP_GET || r->method == HTTP_HEAD : r->method == HTTP_POST;
}

static bool is_json(struct str type)
{
    const char *semicolon = type.n ? memchr(type.p, ';', type.n) : NULL;
    if (semicolon)
        type.n = (size_t)(semicolon - type.p);
    while (type.n && type.p[type.n - 1] == ' ')
        type.n--;
    return same_nocase(type, STR("application/json"));
}

/* Who sends no body is told that it is missing, not that its type is wrong. */
static bool sends_body(const struct http_request *r)
{
    struct str length = http_header(r, "content-length");
    return http_header(r, "transfer-encoding").p || (length.p && !str_is(length, "0"));
}

bool gate_key(const struct api *api, const struct caller *c, struct refusal *f)
{
    return !api->g.keys || c->key >= 0 ||
           refuse(f, 401, "invalid_api_key", NULL, "the API key is not known here any more");
}

/* --- paths that nothing is at -------------------------------------------------------------------
 */

/* What others serve, and what does that here. A slash at the end: all below it. */
static const struct {
    const char *path, *instead;
} elsewhere[] = {
    {"/api/", "Ollama's own API is not served here, OpenAI's is: /v1/chat/completions"},
    {"/v1/responses/", "no response is kept here: POST /v1/responses with all items in input; "
                       "/v1/responses/input_tokens counts"},
    {"/v1/messages/", "of Anthropic's API /v1/messages and its count_tokens are served here"},
};

static const char *elsewhere_than(struct str path)
{
    for (u32 i = 0; i < COUNTOF(elsewhere); i++) {
        struct str p = str_of(elsewhere[i].path);
        if (str_eq(path, p) || (p.p[p.n - 1] == '/' && str_starts(path, p)))
            return elsewhere[i].instead;
    }
    return NULL;
}

/* `before` and what is meant by a path: that behind its last /v1, without slashes around it. */
static bool meant(const char *before, struct str path, char out[MEANT_BYTES])
{
    for (size_t i = path.n; i >= 4; i--)
        if (memcmp(path.p + i - 4, "/v1/", 4) == 0) {
            path = (struct str){path.p + i, path.n - i};
            break;
        }
    while (path.n && path.p[0] == '/')
        path = (struct str){path.p + 1, path.n - 1};
    while (path.n && path.p[path.n - 1] == '/')
        path.n--;
    int n =
        snprintf(out, MEANT_BYTES, "%s%.*s", before, (int)MIN(path.n, (size_t)MEANT_BYTES), path.p);
    return path.n && n > 0 && n < MEANT_BYTES;
}

/* Mostly a base URL that lacks its /v1, or has a slash behind it. No alias is served: clients would
 * come to count on it. */
static bool refuse_path(struct str path, struct refusal *f)
{
    static const char *const before[] = {"/v1/", "/"};
    char text[MEANT_BYTES];
    u32 index;
    for (u32 i = 0; i < COUNTOF(before); i++) {
        if (!meant(before[i], path, text))
            continue;
        const char *instead = elsewhere_than(str_of(text));
        if (instead)
            return refuse(f, 404, "not_found", NULL, "there is nothing at %.*s: %s",
                          (int)MIN(path.n, (size_t)100), path.p, instead);
        if (route_of(str_of(text), &index))
            return refuse(f, 404, "not_found", NULL, "there is nothing at %.*s; did you mean %s?%s",
                          (int)MIN(path.n, (size_t)100), path.p, text,
                          i == 0 ? " A client's base URL ends in /v1, once, with no slash behind it"
                                 : "");
    }
    return refuse(f, 404, "not_found", NULL,
                  "there is nothing at %.*s; /openapi.json lists what there is",
                  (int)MIN(path.n, (size_t)100), path.p);
}

static bool check(struct api *api, const struct http_request *r, const struct route *route,
                  const struct caller *c, struct refusal *f)
{
    if (!check_origin(api, r, f))
        return false;
    if (!route)
        return refuse_path(r->path, f);
    if (!method_fits(route, r))
        return refuse(f, 405, "method_not_allowed", NULL, "%s takes %s", route->path,
                      route->method);
    if (r->method == HTTP_OPTIONS)
        return true;
    if (api->g.keys && !(route->flags & ROUTE_OPEN) && c->key < 0)
        return refuse(
            f, 401, "invalid_api_key", NULL,
            http_header(r, "authorization").p || http_header(r, "x-api-key").p
                ? "the API key is not known here"
                : "this needs an API key: 'Authorization: Bearer KEY', or 'x-api-key: KEY'");
    if (r->method == HTTP_POST && (route->flags & ROUTE_JSON) && sends_body(r) &&
        !is_json(http_header(r, "content-type")))
        return refuse(f, 415, "unsupported_media_type", NULL,
                      "the body has to be JSON, with 'Content-Type: application/json'");
    return true;
}

int gate_admit(void *app, conn_id id, const struct http_request *r)
{
    struct api *api = app;
    struct refusal f = {0};
    u32 index;
    const struct route *route = route_of(r->path, &index);
    struct caller c = gate_caller(api, id, r, index);
    if (check(api, r, route, &c, &f))
        return 0;
    api_refuse(api, &c, &f);
    return CONN_ANSWERED;
}
