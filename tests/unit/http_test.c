#include "net/http.h"
#include "tests/unit/unit.h"

/* One vector: what is sent and the status it gets; 1 is a whole good head. "RFC section" says which
 * rule it is for. */
struct vector {
    const char *section, *text;
    int status;
};

#define GOOD "Host: a\r\n\r\n"

static const struct vector vectors[] = {
    /* request line: 9112 section 3 */
    {"9112 3", "GET / HTTP/1.1\r\n" GOOD, 1},
    {"9112 2.2 empty line first", "\r\nGET / HTTP/1.1\r\n" GOOD, 1},
    {"9112 2.2 only one", "\r\n\r\nGET / HTTP/1.1\r\n" GOOD, 400},
    {"9112 3 blank first", " GET / HTTP/1.1\r\n" GOOD, 400},
    {"9112 3 two blanks", "GET  / HTTP/1.1\r\n" GOOD, 400},
    {"9112 3 two blanks", "GET /  HTTP/1.1\r\n" GOOD, 400},
    {"9112 3 tab", "GET\t/ HTTP/1.1\r\n" GOOD, 400},
    {"9112 3 blank at the end", "GET / HTTP/1.1 \r\n" GOOD, 400},
    {"9112 3 HTTP/0.9", "GET /\r\n\r\n", 400},
    {"9112 2.2 bare LF", "GET / HTTP/1.1\nHost: a\n\n", 400},
    {"9112 2.2 bare LF in headers", "GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
    {"9112 2.2 bare CR", "GET /\r HTTP/1.1\r\n" GOOD, 400},
    {"9112 2.2 bare CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nA: b\rc\r\n\r\n", 400},
    {"9110 9.1 case", "get / HTTP/1.1\r\n" GOOD, 501},
    {"9110 9.1 unknown", "BREW / HTTP/1.1\r\n" GOOD, 501},
    {"9110 9.3.6", "CONNECT a:80 HTTP/1.1\r\n" GOOD, 501},
    {"9110 9.1 not a token", "G@T / HTTP/1.1\r\n" GOOD, 400},
    {"9112 2.3", "GET / HTTP/1.2\r\n" GOOD, 1},
    {"9112 2.3", "GET / HTTP/2.0\r\n" GOOD, 505},
    {"9112 2.3 case", "GET / http/1.1\r\n" GOOD, 400},
    {"9112 2.3 digits", "GET / HTTP/1.10\r\n" GOOD, 400},
    {"9112 2.3 digits", "GET / HTTP/11\r\n" GOOD, 400},
    {"binary", "\x16\x03\x01\x02", 400},
    /* targets: 9112 section 3.2 */
    {"9112 3.2.1", "GET /a/b?c=d&e=%20 HTTP/1.1\r\n" GOOD, 1},
    {"9112 3.2.2", "GET http://x:80/a HTTP/1.1\r\n" GOOD, 1},
    {"9112 3.2.2 no path", "GET http://x?q HTTP/1.1\r\n" GOOD, 1},
    {"9112 3.2.2 user", "GET http://u@x/ HTTP/1.1\r\n" GOOD, 400},
    {"9112 3.2.2 empty host", "GET http:/// HTTP/1.1\r\n" GOOD, 400},
    {"9112 3.2.2 empty host", "GET http://:80/ HTTP/1.1\r\n" GOOD, 400},
    {"9112 3.2.2 scheme", "GET ftp://x/ HTTP/1.1\r\n" GOOD, 400},
    {"9112 3.2.3 only CONNECT", "GET x:80 HTTP/1.1\r\n" GOOD, 400},
    {"9112 3.2.4", "OPTIONS * HTTP/1.1\r\n" GOOD, 1},
    {"9112 3.2.4 only OPTIONS", "GET * HTTP/1.1\r\n" GOOD, 400},
    {"3986 3.5 fragment", "GET /#x HTTP/1.1\r\n" GOOD, 400},
    {"3986 2.1", "GET /%zz HTTP/1.1\r\n" GOOD, 400},
    {"3986 2.1", "GET /%2 HTTP/1.1\r\n" GOOD, 400},
    {"3986 2", "GET /\x80 HTTP/1.1\r\n" GOOD, 400},
    {"3986 2", "GET /<> HTTP/1.1\r\n" GOOD, 400},
    {"3986 2 backslash", "GET \\ HTTP/1.1\r\n" GOOD, 400},
    /* fields: 9112 section 5, 9110 section 5 */
    {"9112 5.1", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
    {"9112 5.1", "GET / HTTP/1.1\r\nHost: a\r\nA B: c\r\n\r\n", 400},
    {"9112 5.2 folded", "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", 400},
    {"9112 2.2 blank before the first", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400},
    {"9112 5 no colon", "GET / HTTP/1.1\r\nHost: a\r\nabc\r\n\r\n", 400},
    {"9112 5 no name", "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400},
    {"9110 5.5 control", "GET / HTTP/1.1\r\nHost: a\r\nA: \x01\r\n\r\n", 400},
    {"9110 5.5 DEL", "GET / HTTP/1.1\r\nHost: a\r\nA: \x7f\r\n\r\n", 400},
    {"9110 5.5 obs-text", "GET / HTTP/1.1\r\nHost: a\r\nA: \xe9\r\n\r\n", 1},
    {"9110 5.5 empty", "GET / HTTP/1.1\r\nHost: a\r\nA:\r\n\r\n", 1},
    {"9110 5.1 case", "GET / HTTP/1.1\r\nhOsT: a\r\n\r\n", 1},
    /* Host: 9112 section 3.2 */
    {"9112 3.2 none", "GET / HTTP/1.1\r\n\r\n", 400},
    {"9112 3.2 none with an absolute target", "GET http://x/ HTTP/1.1\r\n\r\n", 400},
    {"9112 3.2 two", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
    {"9112 3.2 two, apart", "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nhost: c\r\n\r\n", 400},
    {"9112 3.2 empty", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 1},
    {"9112 3.2 invalid", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
    {"9112 3.2 invalid", "GET / HTTP/1.1\r\nHost: a,b@c\r\n\r\n", 400},
    {"9112 3.2 invalid", "GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", 400},
    {"9112 3.2 port", "GET / HTTP/1.1\r\nHost: a:80\r\n\r\n", 1},
    {"9112 3.2 port", "GET / HTTP/1.1\r\nHost: a:8x\r\n\r\n", 400},
    {"9112 3.2 IPv6", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 1},
    {"9112 3.2 IPv6", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400},
    {"9112 3.2 IPv6", "GET / HTTP/1.1\r\nHost: []\r\n\r\n", 400},
    {"9112 3.2 not needed in 1.0", "GET / HTTP/1.0\r\n\r\n", 1},
    /* lengths and codings: 9112 section 6 */
    {"9112 6.2", "POST / HTTP/1.1\r\nContent-Length: 5\r\n" GOOD, 1},
    {"9112 6.2 largest", "POST / HTTP/1.1\r\nContent-Length: 9223372036854775807\r\n" GOOD, 1},
    {"9110 8.6 sign", "POST / HTTP/1.1\r\nContent-Length: +5\r\n" GOOD, 400},
    {"9110 8.6 sign", "POST / HTTP/1.1\r\nContent-Length: -5\r\n" GOOD, 400},
    {"9110 8.6 empty", "POST / HTTP/1.1\r\nContent-Length:\r\n" GOOD, 400},
    {"9110 8.6 hex", "POST / HTTP/1.1\r\nContent-Length: 0x5\r\n" GOOD, 400},
    {"9110 8.6 blank", "POST / HTTP/1.1\r\nContent-Length: 5 5\r\n" GOOD, 400},
    {"9112 6.3 list", "POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n" GOOD, 400},
    {"9112 6.3 two", "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n" GOOD, 400},
    {"9112 6.3 two", "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n" GOOD, 400},
    {"overflow", "POST / HTTP/1.1\r\nContent-Length: 9223372036854775808\r\n" GOOD, 400},
    {"overflow", "POST / HTTP/1.1\r\nContent-Length: 18446744073709551621\r\n" GOOD, 400},
    {"9110 15.5.12 is net/conn's", "POST / HTTP/1.1\r\n" GOOD, 1},
    {"9112 6.1", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" GOOD, 1},
    {"9112 7 case", "POST / HTTP/1.1\r\nTransfer-Encoding: CHUNKED\r\n" GOOD, 1},
    {"9112 6.3 not chunked", "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n" GOOD, 400},
    {"9112 6.3 empty", "POST / HTTP/1.1\r\nTransfer-Encoding:\r\n" GOOD, 400},
    {"9112 6.1 list", "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n" GOOD, 501},
    {"9112 6.3 not last", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n" GOOD, 400},
    {"9112 7 quoted", "POST / HTTP/1.1\r\nTransfer-Encoding: \"chunked\"\r\n" GOOD, 400},
    {"9110 5.6.1.2", "POST / HTTP/1.1\r\nTransfer-Encoding: , chunked,\r\n" GOOD, 1},
    {"9112 6.1 twice",
     "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" GOOD, 400},
    {"9112 6.1 vertical tab",
     "POST / HTTP/1.1\r\nTransfer-Encoding: \x0b"
     "chunked\r\n" GOOD,
     400},
    {"9112 6.1 in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" GOOD, 400},
    {"9112 6.3 both", "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n" GOOD,
     400},
    {"9112 6.3 both", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n" GOOD,
     400},
    /* the rest */
    {"9110 10.1.1", "POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n" GOOD, 1},
    {"9110 10.1.1", "POST / HTTP/1.1\r\nExpect: tea\r\nContent-Length: 1\r\n" GOOD, 417},
    {"9110 10.1.1 in 1.0", "POST / HTTP/1.0\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n", 1},
    {"9110 15.5.16", "POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n" GOOD,
     415},
    {"9110 8.4", "POST / HTTP/1.1\r\nContent-Encoding: identity\r\nContent-Length: 1\r\n" GOOD, 1},
};

/* Feeds n bytes of a copy of exact size that grows to `first`, then by `step`. */
static int feed(struct http_parser *p, const char *text, size_t n, size_t first, size_t step)
{
    int r = HTTP_MORE;
    http_begin(p);
    for (size_t at = first; r == HTTP_MORE; at += step) {
        r = http_parse(p, text, MIN(at, n));
        if (at >= n)
            break;
    }
    return r;
}

void http_vectors(void)
{
    static struct http_parser p, q;
    for (size_t i = 0; i < COUNTOF(vectors); i++) {
        const struct vector *v = &vectors[i];
        size_t n = strlen(v->text);
        char *text = arena_alloc(&unit_arena, n, 1);
        memcpy(text, v->text, n);
        if (feed(&p, text, n, n, 1) != v->status)
            printf("    %s: %d: %s\n", v->section, feed(&p, text, n, n, 1), v->text);
        CHECK(feed(&p, text, n, n, 1) == v->status);
        CHECK(v->status == 1 || p.why);
        CHECK(feed(&q, text, n, 1, 1) == v->status);
        for (size_t cut = 1; cut < n; cut++) {
            CHECK(feed(&q, text, n, cut, n) == v->status);
            CHECK(v->status != 1 || (q.at == p.at && q.r.n_headers == p.r.n_headers));
        }
        /* with pipelined bytes behind it, the same head is found */
        char *more = arena_alloc(&unit_arena, n + 5, 1);
        memcpy(more, text, n);
        memcpy(more + n, "GET /", 5);
        CHECK(v->status != 1 || (feed(&q, more, n + 5, n + 5, 1) == 1 && q.at == p.at));
    }
}

static int parse(struct http_parser *p, const char *text)
{
    http_begin(p);
    return http_parse(p, text, strlen(text));
}

void http_fields(void)
{
    static struct http_parser p;
    CHECK(parse(&p, "GET http://x.y:1?q=1 HTTP/1.1\r\nHost: z\r\nA: \t b c \t\r\n\r\n") == 1);
    CHECK(str_is(p.r.host, "x.y:1") && str_is(p.r.path, "/") && str_is(p.r.query, "q=1"));
    CHECK(str_is(http_header(&p.r, "a"), "b c") && !http_header(&p.r, "b").p);
    CHECK(p.keep_alive && p.r.method == HTTP_GET);
    CHECK(parse(&p, "GET /p?a?b HTTP/1.1\r\nHost: h\r\nConnection: a, Close\r\n\r\n") == 1);
    CHECK(str_is(p.r.path, "/p") && str_is(p.r.query, "a?b") && !p.keep_alive);
    CHECK(parse(&p, "GET / HTTP/1.0\r\n\r\n") == 1 && !p.keep_alive);
    CHECK(parse(&p, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n") == 1 && p.keep_alive);
    CHECK(parse(&p, "DELETE / HTTP/1.1\r\nHost: h\r\n\r\n") == 1 && p.r.method == HTTP_DELETE);
    CHECK(parse(&p, "GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n") == 1);
    CHECK(!p.expect_continue); /* there is nothing to expect */
    char date[HTTP_DATE_BYTES];
    http_date(784111777, date); /* the example of RFC 9110 section 5.6.7 */
    CHECK(strcmp(date, "Sun, 06 Nov 1994 08:49:37 GMT") == 0);
    http_date(951782400, date);
    CHECK(strcmp(date, "Tue, 29 Feb 2000 00:00:00 GMT") == 0);
    http_date(253402300799, date);
    CHECK(strcmp(date, "Fri, 31 Dec 9999 23:59:59 GMT") == 0);
}

/* head, then `n` bytes of `fill`, then tail */
static int parse_long(struct http_parser *p, const char *head, char fill, size_t n,
                      const char *tail)
{
    size_t a = strlen(head), b = strlen(tail);
    char *text = arena_alloc(&unit_arena, a + n + b, 1);
    memcpy(text, head, a);
    memset(text + a, fill, n);
    memcpy(text + a + n, tail, b);
    int whole = feed(p, text, a + n + b, a + n + b, 1);
    return feed(p, text, a + n + b, 1, 97) == whole ? whole : -1;
}

void http_bounds(void)
{
    static struct http_parser p;
    CHECK(parse_long(&p, "GET /", 'a', 8000, " HTTP/1.1\r\n" GOOD) == 1); /* 9112 section 3 */
    CHECK(parse_long(&p, "GET /", 'a', LIMIT_HTTP_LINE_BYTES, " HTTP/1.1\r\n" GOOD) == 414);
    CHECK(parse_long(&p, "GET /", 'a', 20000, "") == 414);
    CHECK(parse_long(&p, "GET / HTTP/1.1\r\nA: ", 'a', LIMIT_HTTP_LINE_BYTES, "\r\n" GOOD) == 431);
    char many[64 * 210] = "GET / HTTP/1.1\r\n";
    for (u32 i = 0, n = 16; i <= LIMIT_HTTP_HEADERS; i++)
        n += (u32)snprintf(many + n, sizeof many - n, "A%u: b\r\n%s", i,
                           i == LIMIT_HTTP_HEADERS ? GOOD : "");
    CHECK(parse(&p, many) == 431);
    char big[3 * 8000 + 100] = "GET / HTTP/1.1\r\n";
    for (u32 i = 0, n = 16; i < 3; i++) {
        memcpy(big + n, "A: ", 3);
        memset(big + n + 3, 'x', 7000);
        memcpy(big + n + 7003, "\r\n", 3);
        n += 7005;
    }
    CHECK(parse(&p, big) == 431);
}

/* --- chunks ---------------------------------------------------------------------------------- */

static const struct vector chunks[] = {
    {"9112 7.1", "5\r\nhello\r\n0\r\n\r\n", 1},
    {"9112 7.1 two", "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", 1},
    {"9112 7.1 zeros", "0005\r\nhello\r\n000\r\n\r\n", 1},
    {"9112 7.1 letters", "1\r\nh\r\n00a\r\nello123456\r\n0\r\n\r\n", 1},
    {"9112 7.1.1 extension", "5;a=b;c=\"d\"\r\nhello\r\n0;x\r\n\r\n", 1},
    {"9112 7.1.1 blanks", "5 ; a\r\nhello\r\n0\r\n\r\n", 1},
    {"9112 7.1.2 trailers", "5\r\nhello\r\n0\r\nA: b\r\nC:\r\n\r\n", 1},
    {"no size", "\r\nhello\r\n0\r\n\r\n", 400},
    {"sign", "+5\r\nhello\r\n0\r\n\r\n", 400},
    {"prefix", "0x5\r\nhello\r\n0\r\n\r\n", 400},
    {"bare LF", "5\nhello\r\n0\r\n\r\n", 400},
    {"bare LF behind data", "5\r\nhello\n0\r\n\r\n", 400},
    {"no CRLF behind data", "5\r\nhello0\r\n\r\n", 400},
    {"blank at the end", "5 \r\nhello\r\n0\r\n\r\n", 400},
    {"blank first", " 5\r\nhello\r\n0\r\n\r\n", 400},
    {"overflow", "10000000000000005\r\nhello\r\n0\r\n\r\n", 400},
    {"huge", "fffffffffffffff\r\nhello", 413},
    {"control in an extension", "5;a\x01\r\nhello\r\n0\r\n\r\n", 400},
    {"LF in an extension", "5;a\nb\r\nhello\r\n0\r\n\r\n", 400},
    {"trailer without a name", "0\r\n: b\r\n\r\n", 400},
    {"trailer folded", "0\r\nA: b\r\n c\r\n\r\n", 400},
    {"trailer bare LF", "0\r\nA: b\n\r\n", 400},
    {"not ended", "5\r\nhello\r\n0\r\n", 0},
};

/* Decodes text in two pieces (and within them byte by byte when step is 1), in place. */
static int decode(const char *text, size_t cut, size_t step, char *out, size_t cap, size_t *n_out)
{
    struct http_chunked c = {0};
    size_t n = strlen(text), at = 0, used, got;
    int r = HTTP_MORE;
    *n_out = 0;
    while (at < n && r == HTTP_MORE) {
        size_t end = MIN(step ? at + step : at < cut ? cut : n, n);
        char *piece = arena_alloc(&unit_arena, end - at, 1);
        memcpy(piece, text + at, end - at);
        r = http_chunk(&c, piece, end - at, &used, piece, cap - *n_out, &got);
        memcpy(out + *n_out, piece, got);
        *n_out += got;
        at += used;
        if (r == HTTP_MORE && at != end)
            return -1;
    }
    return r;
}

void http_chunks(void)
{
    char out[64];
    size_t n;
    for (size_t i = 0; i < COUNTOF(chunks); i++) {
        const struct vector *v = &chunks[i];
        for (size_t cut = 0; cut <= strlen(v->text); cut++) {
            CHECK(decode(v->text, cut, 0, out, sizeof out, &n) == v->status);
            CHECK(v->status != 1 || n < 5 || memcmp(out, "hello", 5) == 0);
        }
        CHECK(decode(v->text, 0, 1, out, sizeof out, &n) == v->status);
        CHECK(v->status != 1 || memcmp(out, "hello", 5) == 0);
    }
    CHECK(decode(chunks[0].text, 0, 0, out, 5, &n) == 1);
    CHECK(decode(chunks[0].text, 0, 0, out, 4, &n) == 413);
    CHECK(decode(chunks[1].text, 0, 1, out, 4, &n) == 413);
    char line[600] = "5;";
    memset(line + 2, 'x', 500);
    CHECK(decode(line, 0, 0, out, sizeof out, &n) == 400);
    static char trailer[LIMIT_HTTP_CHUNK_EXTRA_BYTES + 100] = "0\r\nA: ";
    memset(trailer + 6, 'x', LIMIT_HTTP_CHUNK_EXTRA_BYTES + 50);
    CHECK(decode(trailer, 0, 0, out, sizeof out, &n) == 431);
}
