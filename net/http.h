/* HTTP/1.1 requests by RFC 9110 and RFC 9112, read where they lie: a parser that is fed a growing
 * buffer, a decoder for chunked bodies, and the head of a reply. Strict where leniency has been
 * used for smuggling: lines end in CRLF, no folded headers, no list of lengths, never a length
 * beside a transfer coding. Limits: LIMIT_HTTP_*. Owns nothing: every slice points into the
 * caller's buffer.
 */
#ifndef ZIGCUDA_HTTP_H
#define ZIGCUDA_HTTP_H

#include "config/limits.h"
#include "core/base/base.h"

/* What no RFC 9110 names is refused with 501. */
enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_OPTIONS,
    HTTP_PUT,
    HTTP_PATCH,
    HTTP_DELETE,
    HTTP_TRACE
};
const char *http_method_name(enum http_method method);

struct http_header {
    struct str name, value; /* name as sent; http_header compares without case */
};

/* One request as the layers above see it. */
struct http_request {
    enum http_method method;
    struct str path, query; /* still percent-encoded; query without '?' */
    struct str host;        /* of an absolute target, else the Host field; with its port */
    bool https;             /* an absolute target said https: */
    struct str body;
    const struct http_header *headers;
    u32 n_headers;
    bool loopback;      /* came by a loopback address, not by a Unix socket */
    const char *peer;   /* its address without port, "-" on a Unix socket */
    u64 request_number; /* for the request id in header and log */
    u64 read_ns;        /* before the last of its bytes was read, on the clock */
};

/* The value of a header by its lower-case name; p is NULL when there is none. The first, if many.
 */
struct str http_header(const struct http_request *r, const char *name);

/* True when a comma-separated list holds the token, compared without case. */
bool http_list_has(struct str list, const char *token);

/* What a parser answers; anything else is the status to refuse with (400 and up). */
enum { HTTP_MORE = 0, HTTP_DONE = 1 };

struct http_parser {
    struct http_request
        r;           /* complete when HTTP_DONE; loopback, peer, number and body are not set here */
    const char *why; /* of a refusal, for the person who sent it */
    size_t at;       /* bytes consumed: whole lines; the length of the head when HTTP_DONE */
    size_t scanned;  /* no LF before this */
    u64 length_bytes; /* Content-Length */
    bool started;     /* the request line has been read */
    bool http10, keep_alive, expect_continue;
    bool has_length, has_coding; /* never both */
    bool chunked, other_coding;  /* chunked: always, and alone, where there is a coding */
    bool connection_close, connection_keep, connection_upgrade;
    struct http_header headers[LIMIT_HTTP_HEADERS];
};

void http_begin(struct http_parser *p);

/* Looks at buf[0..n). While it answers HTTP_MORE the same bytes must stay where they are, with more
 * behind them. Once a request is refused the connection cannot be used for another one. */
int http_parse(struct http_parser *p, const char *buf, size_t n);

struct http_chunked {
    u64 left;        /* bytes of data to come in this chunk */
    u32 line, extra; /* bytes of this size line; of all extensions and trailers */
    u8 stage, digits;
};

/* Decodes a chunked body (RFC 9112 section 7.1) from in[0..n): data goes to out[0..cap), which may
 * be `in` itself. *used and *got say how much was read and written. HTTP_DONE behind the trailers,
 * which are checked and dropped; 413 when the data does not fit cap. Zero `c` to begin. */
int http_chunk(struct http_chunked *c, const char *in, size_t n, size_t *used, char *out,
               size_t cap, size_t *got);

const char *http_status_text(int status);

/* IMF-fixdate (RFC 9110 section 5.6.7) of seconds since 1970. */
enum { HTTP_DATE_BYTES = 30 };
void http_date(i64 wall_s, char out[HTTP_DATE_BYTES]);

#endif
