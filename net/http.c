#include "net/http.h"

/* Classes of bytes, RFC 9110 section 5.6 and RFC 3986 section 2. */
enum { TCHAR = 1, FIELD = 2, URI = 4, HOST = 8, HEX = 16 };

static u8 class_of(u8 c)
{
    static u8 table[256];
    static bool built;
    if (!built) {
        for (u32 i = 0; i < 256; i++) {
            bool alnum = (i >= '0' && i <= '9') || (i >= 'a' && i <= 'z') || (i >= 'A' && i <= 'Z');
            bool named = i > 0x20 && i < 0x7f;
            u8 k = 0;
            k |= alnum || (named && strchr("!#$%&'*+-.^_`|~", (int)i)) ? TCHAR : 0;
            k |= i == '\t' || i == ' ' || named || i >= 0x80 ? FIELD : 0;
            k |= alnum || (named && strchr("-._~!$&'()*+,;=:@/?%", (int)i)) ? URI : 0;
            k |= alnum || (named && strchr("-._~!$&'()*+,;=%", (int)i)) ? HOST : 0;
            k |= (i >= '0' && i <= '9') || (i >= 'a' && i <= 'f') || (i >= 'A' && i <= 'F') ? HEX
                                                                                            : 0;
            table[i] = k;
        }
        built = true;
    }
    return table[c];
}

static bool all(struct str s, u8 class)
{
    for (size_t i = 0; i < s.n; i++)
        if (!(class_of((u8)s.p[i]) & class))
            return false;
    return true;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* `z` is lower case. */
static bool same(struct str s, const char *z)
{
    size_t i = 0;
    for (; i < s.n && z[i]; i++)
        if (lower(s.p[i]) != z[i])
            return false;
    return i == s.n && !z[i];
}

static struct str trim(struct str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s.p++, s.n--;
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

/* Cuts the first element off a comma-separated list. */
static struct str list_next(struct str *list)
{
    const char *comma = memchr(list->p, ',', list->n);
    size_t n = comma ? (size_t)(comma - list->p) : list->n;
    struct str item = trim((struct str){list->p, n});
    n += comma != NULL;
    *list = (struct str){list->p + n, list->n - n};
    return item;
}

bool http_list_has(struct str list, const char *token)
{
    while (list.n)
        if (same(list_next(&list), token))
            return true;
    return false;
}

/* True when a list has nothing but this token; empty elements count for nothing (RFC 9110 section
 * 5.6.1.2). */
static bool list_only(struct str list, const char *token)
{
    while (list.n) {
        struct str item = list_next(&list);
        if (item.n && !same(item, token))
            return false;
    }
    return true;
}

struct str http_header(const struct http_request *r, const char *name)
{
    for (u32 i = 0; i < r->n_headers; i++)
        if (same(r->headers[i].name, name))
            return r->headers[i].value;
    return (struct str){0};
}

static int bad(struct http_parser *p, int status, const char *why)
{
    p->why = why;
    return status;
}

/* --- request line ---------------------------------------------------------------------------- */

const char *http_method_name(enum http_method method)
{
    static const char *const names[] = {"GET", "HEAD",  "POST",   "OPTIONS",
                                        "PUT", "PATCH", "DELETE", "TRACE"};
    return names[method];
}

static int read_method(struct http_parser *p, struct str method)
{
    for (u32 i = 0; i <= HTTP_TRACE; i++)
        if (str_is(method, http_method_name(i))) { /* methods are case-sensitive */
            p->r.method = i;
            return HTTP_DONE;
        }
    return bad(p, 501, "this method is not implemented");
}

/* pchar, "/" and "?" with whole percent codes; a fragment is no part of a target. */
static bool uri_valid(struct str s, u8 class)
{
    if (!all(s, class))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '%' && (s.n - i < 3 || !all((struct str){s.p + i + 1, 2}, HEX)))
            return false;
    return true;
}

/* uri-host [ ":" port ], RFC 3986 section 3.2.2; no user information. */
static bool host_valid(struct str h)
{
    size_t host = h.n;
    if (h.n && h.p[0] == '[') {
        const char *close = memchr(h.p, ']', h.n);
        if (!close)
            return false;
        host = (size_t)(close - h.p) + 1;
        for (size_t i = 1; i < host - 1; i++)
            if (h.p[i] != ':' && !(class_of((u8)h.p[i]) & HOST))
                return false;
        if (host < 4)
            return false;
    } else {
        const char *colon = h.n ? memchr(h.p, ':', h.n) : NULL;
        host = colon ? (size_t)(colon - h.p) : h.n;
        if (!uri_valid((struct str){h.p, host}, HOST))
            return false;
    }
    if (host == h.n)
        return true;
    if (h.p[host] != ':' || h.n - host > 6)
        return false;
    for (size_t i = host + 1; i < h.n; i++)
        if (h.p[i] < '0' || h.p[i] > '9')
            return false;
    return true;
}

static bool starts_same(struct str s, const char *z)
{
    size_t n = strlen(z);
    return s.n >= n && same((struct str){s.p, n}, z);
}

/* RFC 9112 section 3.2: origin-form, absolute-form, or "*" for OPTIONS. */
static int read_target(struct http_parser *p, struct str t)
{
    if (str_is(t, "*") && p->r.method == HTTP_OPTIONS) {
        p->r.path = t;
        return HTTP_DONE;
    }
    size_t scheme = starts_same(t, "http://") ? 7 : starts_same(t, "https://") ? 8 : 0;
    if (scheme) {
        size_t n = scheme;
        while (n < t.n && t.p[n] != '/' && t.p[n] != '?')
            n++;
        p->r.host = (struct str){t.p + scheme, n - scheme};
        p->r.https = scheme == 8;
        if (!p->r.host.n || p->r.host.p[0] == ':' || !host_valid(p->r.host))
            return bad(p, 400, "the target's host is not valid");
        t = (struct str){t.p + n, t.n - n};
        if (!t.n || t.p[0] == '?') /* an empty path is "/" */
            p->r.path = STR("/");
    } else if (!t.n || t.p[0] != '/') {
        return bad(p, 400, "the request target has to begin with '/', http:// or https://");
    }
    if (!uri_valid(t, URI))
        return bad(p, 400, "the request target holds bytes that a URI must percent-encode");
    const char *mark = t.n ? memchr(t.p, '?', t.n) : NULL;
    size_t path = mark ? (size_t)(mark - t.p) : t.n;
    if (path)
        p->r.path = (struct str){t.p, path};
    if (mark)
        p->r.query = (struct str){mark + 1, t.n - path - 1};
    return HTTP_DONE;
}

static int read_version(struct http_parser *p, struct str v)
{
    if (v.n != 8 || memcmp(v.p, "HTTP/", 5) != 0 || v.p[6] != '.' || v.p[5] < '0' || v.p[5] > '9' ||
        v.p[7] < '0' || v.p[7] > '9')
        return bad(p, 400, "the request line has to end in HTTP/1.1");
    if (v.p[5] != '1')
        return bad(p, 505, "HTTP/1.1 and HTTP/1.0 are spoken here");
    p->http10 = v.p[7] == '0';
    return HTTP_DONE;
}

static int request_line(struct http_parser *p, struct str line)
{
    const char *a = memchr(line.p, ' ', line.n);
    struct str method = {line.p, a ? (size_t)(a - line.p) : line.n};
    if (!method.n || !all(method, TCHAR) || !a)
        return bad(p, 400, "the request line has to be: method SP target SP HTTP/1.1");
    struct str rest = {a + 1, line.n - method.n - 1};
    const char *b = memchr(rest.p, ' ', rest.n);
    if (!b)
        return bad(p, 400, "the request line has to be: method SP target SP HTTP/1.1");
    struct str target = {rest.p, (size_t)(b - rest.p)};
    int r = read_version(p, (struct str){b + 1, rest.n - target.n - 1});
    r = r == HTTP_DONE ? read_method(p, method) : r;
    return r == HTTP_DONE ? read_target(p, target) : r;
}

/* --- header fields --------------------------------------------------------------------------- */

static int read_length(struct http_parser *p, struct str v)
{
    if (p->has_length)
        return bad(p, 400, "more than one Content-Length");
    if (!v.n)
        return bad(p, 400, "Content-Length is empty");
    u64 n = 0;
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] < '0' || v.p[i] > '9')
            return bad(p, 400, "Content-Length has to be one decimal number");
        if (__builtin_mul_overflow(n, 10u, &n) ||
            __builtin_add_overflow(n, (u64)(v.p[i] - '0'), &n) || n > INT64_MAX)
            return bad(p, 400, "Content-Length is beyond all measure");
    }
    p->has_length = true;
    p->length_bytes = n;
    return HTTP_DONE;
}

/* The field may come in several lines: what it says as a whole is checked behind the last. */
static int read_coding(struct http_parser *p, struct str v)
{
    if (p->http10)
        return bad(p, 400, "HTTP/1.0 has no Transfer-Encoding");
    p->has_coding = true;
    while (v.n) {
        struct str coding = list_next(&v);
        if (!coding.n)
            continue;
        if (p->chunked)
            return bad(p, 400, "Transfer-Encoding goes on behind chunked");
        p->chunked = same(coding, "chunked");
        p->other_coding |= !p->chunked;
    }
    return HTTP_DONE;
}

static int read_field(struct http_parser *p, struct str name, struct str v)
{
    if (same(name, "host")) {
        for (u32 i = 0; i + 1 < p->r.n_headers; i++)
            if (same(p->headers[i].name, "host"))
                return bad(p, 400, "more than one Host");
        if (!host_valid(v))
            return bad(p, 400, "Host is not valid");
        if (!p->r.host.p)
            p->r.host = v;
        return HTTP_DONE;
    }
    if (same(name, "content-length"))
        return read_length(p, v);
    if (same(name, "transfer-encoding"))
        return read_coding(p, v);
    if (same(name, "connection")) {
        p->connection_close |= http_list_has(v, "close");
        p->connection_keep |= http_list_has(v, "keep-alive");
        p->connection_upgrade |= http_list_has(v, "upgrade");
        return HTTP_DONE;
    }
    if (same(name, "expect") && !p->http10) {
        if (!list_only(v, "100-continue"))
            return bad(p, 417, "Expect: only 100-continue is understood");
        p->expect_continue |= http_list_has(v, "100-continue");
    }
    if (same(name, "content-encoding") && !list_only(v, "identity"))
        return bad(p, 415, "Content-Encoding: bodies are taken as they are, not encoded");
    return HTTP_DONE;
}

static int header_line(struct http_parser *p, struct str line)
{
    const char *colon = memchr(line.p, ':', line.n);
    struct str name = {line.p, colon ? (size_t)(colon - line.p) : 0};
    if (!name.n || !all(name, TCHAR)) /* a folded line begins with a blank: no name either */
        return bad(p, 400, "a header line has to be: name, colon, value");
    struct str value = trim((struct str){colon + 1, line.n - name.n - 1});
    if (!all(value, FIELD))
        return bad(p, 400, "a header value holds control bytes");
    if (p->http10 && same(name, "upgrade")) /* as if it were not there: RFC 9110 section 7.8 */
        return HTTP_DONE;
    if (p->r.n_headers == LIMIT_HTTP_HEADERS)
        return bad(p, 431, "too many header lines");
    p->headers[p->r.n_headers++] = (struct http_header){name, value};
    return read_field(p, name, value);
}

/* RFC 9112 section 6.3 and RFC 9110 section 7.2: what the fields mean together. */
static int head_done(struct http_parser *p)
{
    if (!p->http10 && !http_header(&p->r, "host").p)
        return bad(p, 400, "HTTP/1.1 needs a Host");
    if (p->has_coding && p->has_length)
        return bad(p, 400, "Content-Length and Transfer-Encoding together");
    if (p->has_coding && !p->chunked)
        return bad(p, 400, "Transfer-Encoding has to end in chunked");
    if (p->other_coding)
        return bad(p, 501, "Transfer-Encoding: only chunked is understood");
    p->keep_alive = !p->connection_close && (!p->http10 || p->connection_keep);
    p->expect_continue = p->expect_continue && (p->chunked || p->length_bytes);
    return HTTP_DONE;
}

void http_begin(struct http_parser *p)
{
    memset(p, 0, offsetof(struct http_parser, headers));
    p->r.headers = p->headers;
}

/* One whole line without its CRLF. HTTP_MORE: go on with the next line. */
static int one_line(struct http_parser *p, struct str line)
{
    int r;
    if (!p->started) {
        if (!line.n && p->at == 0) /* one empty line may precede a request */
            return HTTP_MORE;
        r = request_line(p, line);
        p->started = true;
    } else if (line.n) {
        r = header_line(p, line);
    } else {
        return head_done(p);
    }
    return r == HTTP_DONE ? HTTP_MORE : r;
}

int http_parse(struct http_parser *p, const char *buf, size_t n)
{
    while (p->scanned < n) {
        const char *lf = memchr(buf + p->scanned, '\n', n - p->scanned);
        size_t end = lf ? (size_t)(lf - buf) : n;
        bool first = !p->started && p->at < n && buf[p->at] != '\r';
        if (first && !(class_of((u8)buf[p->at]) & TCHAR))
            return bad(p, 400, "this is not HTTP");
        if (end - p->at > LIMIT_HTTP_LINE_BYTES)
            return p->started ? bad(p, 431, "a header line is too long")
                              : bad(p, 414, "the request line is too long");
        if (end >= LIMIT_HTTP_HEAD_BYTES)
            return bad(p, 431, "the headers are too long");
        p->scanned = end;
        if (!lf)
            break;
        if (end == p->at || buf[end - 1] != '\r')
            return bad(p, 400, "lines have to end in CR LF");
        struct str line = {buf + p->at, end - 1 - p->at};
        int r = one_line(p, line);
        p->at = p->scanned = end + 1;
        if (r != HTTP_MORE)
            return r;
    }
    return HTTP_MORE;
}

/* --- chunked bodies -------------------------------------------------------------------------- */

enum chunk_stage {
    CHUNK_SIZE,
    CHUNK_BLANK,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_LINE,
    CHUNK_NAME,
    CHUNK_VALUE,
    CHUNK_LINE_LF,
    CHUNK_END_LF
};

static int hex(u8 c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

static bool chunk_size(struct http_chunked *c, u8 b)
{
    if (hex(b) >= 0) {
        if (c->digits == 15) /* 60 bits: more is no honest size */
            return false;
        c->digits++;
        c->left = c->left << 4 | (u64)hex(b);
        return true;
    }
    if (!c->digits)
        return false;
    c->stage = b == '\r'               ? CHUNK_SIZE_LF
               : b == ';'              ? CHUNK_EXTENSION
               : b == ' ' || b == '\t' ? CHUNK_BLANK
                                       : CHUNK_END_LF;
    return c->stage != CHUNK_END_LF;
}

/* Any byte outside the data. False: not valid. */
static bool chunk_frame(struct http_chunked *c, u8 b)
{
    bool field = class_of(b) & FIELD;
    switch (c->stage) {
    case CHUNK_SIZE:
        return chunk_size(c, b);
    case CHUNK_BLANK: /* blanks stand only before an extension */
        c->stage = b == ';' ? CHUNK_EXTENSION : CHUNK_BLANK;
        return b == ';' || b == ' ' || b == '\t';
    case CHUNK_EXTENSION:
        c->stage = b == '\r' ? CHUNK_SIZE_LF : CHUNK_EXTENSION;
        return field || b == '\r';
    case CHUNK_SIZE_LF:
        c->stage = c->left ? CHUNK_DATA : CHUNK_LINE;
        return b == '\n';
    case CHUNK_DATA_CR:
        c->stage = CHUNK_DATA_LF;
        return b == '\r';
    case CHUNK_DATA_LF:
        c->stage = CHUNK_SIZE;
        c->digits = 0;
        c->line = 0;
        return b == '\n';
    case CHUNK_LINE:
        c->stage = b == '\r' ? CHUNK_END_LF : CHUNK_NAME;
        return b == '\r' || (class_of(b) & TCHAR);
    case CHUNK_NAME:
        c->stage = b == ':' ? CHUNK_VALUE : CHUNK_NAME;
        return b == ':' || (class_of(b) & TCHAR);
    case CHUNK_VALUE:
        c->stage = b == '\r' ? CHUNK_LINE_LF : CHUNK_VALUE;
        return field || b == '\r';
    case CHUNK_LINE_LF:
        c->stage = CHUNK_LINE;
        return b == '\n';
    default: /* CHUNK_END_LF */
        return b == '\n';
    }
}

int http_chunk(struct http_chunked *c, const char *in, size_t n, size_t *used, char *out,
               size_t cap, size_t *got)
{
    *used = *got = 0;
    while (*used < n) {
        if (c->stage == CHUNK_DATA) {
            size_t take = (size_t)MIN(c->left, (u64)(n - *used));
            if (take > cap - *got)
                return 413;
            memmove(out + *got, in + *used, take);
            *used += take;
            *got += take;
            c->left -= take;
            c->stage = c->left ? CHUNK_DATA : CHUNK_DATA_CR;
            continue;
        }
        u8 stage = c->stage;
        if (!chunk_frame(c, (u8)in[(*used)++]))
            return 400;
        c->line += stage <= CHUNK_SIZE_LF;
        c->extra += stage == CHUNK_BLANK || stage == CHUNK_EXTENSION || stage >= CHUNK_LINE;
        if (c->line > LIMIT_HTTP_CHUNK_LINE_BYTES || c->extra > LIMIT_HTTP_CHUNK_EXTRA_BYTES)
            return stage >= CHUNK_LINE ? 431 : 400;
        if (c->stage == CHUNK_SIZE_LF && stage != CHUNK_SIZE_LF && c->left > cap - *got)
            return 413; /* known before the data comes */
        if (stage == CHUNK_END_LF)
            return HTTP_DONE;
    }
    return HTTP_MORE;
}

/* --- replies --------------------------------------------------------------------------------- */

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } table[] = {{100, "Continue"},
                 {101, "Switching Protocols"},
                 {200, "OK"},
                 {204, "No Content"},
                 {304, "Not Modified"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {406, "Not Acceptable"},
                 {408, "Request Timeout"},
                 {409, "Conflict"},
                 {411, "Length Required"},
                 {412, "Precondition Failed"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {417, "Expectation Failed"},
                 {421, "Misdirected Request"},
                 {422, "Unprocessable Content"},
                 {426, "Upgrade Required"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < COUNTOF(table); i++)
        if (table[i].status == status)
            return table[i].text;
    return "";
}

static void two_digits(char *out, u32 v)
{
    out[0] = (char)('0' + v / 10 % 10);
    out[1] = (char)('0' + v % 10);
}

/* Civil date from days: the era method of H. Hinnant, "chrono-compatible low-level date
 * algorithms". */
void http_date(i64 wall_s, char out[HTTP_DATE_BYTES])
{
    static const char week[] = "ThuFriSatSunMonTueWed",
                      months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    u64 t = wall_s > 0 ? MIN((u64)wall_s, 253402300799u) : 0; /* 1970 to 9999 */
    u32 day = (u32)(t / 86400), second = (u32)(t % 86400);
    u32 z = day + 719468, era = z / 146097, doe = z % 146097;
    u32 yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    u32 doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    u32 month = mp < 10 ? mp + 2 : mp - 10; /* 0..11 */
    u32 year = yoe + era * 400 + (month <= 1);
    memcpy(out, "Xxx, 00 Xxx 0000 00:00:00 GMT", HTTP_DATE_BYTES);
    memcpy(out, week + day % 7 * 3, 3);
    two_digits(out + 5, doy - (153 * mp + 2) / 5 + 1);
    memcpy(out + 8, months + month * 3, 3);
    two_digits(out + 12, year / 100);
    two_digits(out + 14, year % 100);
    two_digits(out + 17, second / 3600);
    two_digits(out + 20, second / 60 % 60);
    two_digits(out + 23, second % 60);
}
