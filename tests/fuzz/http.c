/* libFuzzer: the request parser and the chunk decoder answer the same however the bytes are cut,
 * and read nothing outside them. The first two bytes choose the cuts and the parser.
 */
#include "net/http.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static int parse(struct http_parser *p, const char *text, size_t n, size_t step)
{
    int r = HTTP_MORE;
    http_begin(p);
    for (size_t at = MIN(step, n); r == HTTP_MORE; at = MIN(at + step, n)) {
        r = http_parse(p, text, at);
        if (at == n)
            break;
    }
    return r;
}

static void inside(struct str s, const char *text, size_t n)
{
    bool literal = str_is(s, "/"); /* of an absolute target without a path */
    ASSERT(s.n == 0 || literal || (s.p >= text && s.p + s.n <= text + n));
}

static void head(const char *text, size_t n, size_t step)
{
    static struct http_parser a, b;
    int r = parse(&a, text, n, n ? n : 1);
    ASSERT(parse(&b, text, n, step) == r);
    ASSERT(r == HTTP_MORE || r == HTTP_DONE || (r >= 400 && r < 600 && a.why));
    if (r != HTTP_DONE)
        return;
    ASSERT(a.at == b.at && a.at <= n && a.r.n_headers == b.r.n_headers);
    ASSERT(!(a.chunked && a.has_length));
    inside(a.r.path, text, a.at);
    inside(a.r.query, text, a.at);
    inside(a.r.host, text, a.at);
    for (u32 i = 0; i < a.r.n_headers; i++)
        inside(a.headers[i].value, text, a.at);
}

static int decode(char *text, size_t n, size_t step, char *out, size_t cap, size_t *n_out)
{
    struct http_chunked c = {0};
    int r = HTTP_MORE;
    *n_out = 0;
    for (size_t at = 0, used, got; at < n && r == HTTP_MORE; at += used) {
        r = http_chunk(&c, text + at, MIN(step, n - at), &used, out + *n_out, cap - *n_out, &got);
        *n_out += got;
        ASSERT(used <= n - at && *n_out <= cap);
    }
    return r;
}

static void chunks(char *text, size_t n, size_t step, size_t cap)
{
    char *a = malloc(cap + 1), *b = malloc(cap + 1);
    size_t na, nb;
    int r = decode(text, n, n, a, cap, &na);
    ASSERT(decode(text, n, step, b, cap, &nb) == r);
    ASSERT(r != HTTP_DONE || (na == nb && memcmp(a, b, na) == 0));
    ASSERT(r != HTTP_DONE || (decode(text, n, n, text, cap, &nb) == r && memcmp(a, text, na) == 0));
    free(a);
    free(b);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    if (n < 2)
        return 0;
    size_t step = data[0] ? data[0] : 1;
    char *text = malloc(n - 2 + !n); /* of exact size: reads behind it are seen */
    memcpy(text, data + 2, n - 2);
    if (data[1] & 1)
        chunks(text, n - 2, step, data[1] & 2 ? (n - 2) / 4 : n - 2);
    else
        head(text, n - 2, step);
    free(text);
    return 0;
}
