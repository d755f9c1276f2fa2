#include "core/base/utf8.h"
#include "core/model/tokenizer_parts.h"
#include "core/model/unicode.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* --- one token ------------------------------------------------------------------------------ */

/* What decoding starts from: of a normalized added token the library decodes the pattern. */
static struct str token_str(const struct tokenizer *t, u32 id)
{
    const struct added *a = tokenizer_added(t, id);
    return a ? a->pattern : tokenizer_content(t, id);
}

/* Byte-level: every character stands for a byte; with one that stands for none, the whole token
 * is plain text. */
static u32 bytes_text(struct str s, char *out)
{
    u32 n = 0, cp;
    for (size_t i = 0; i < s.n;) {
        i += unicode_next(s.p + i, &cp);
        int byte = char_byte(cp);
        if (byte < 0) {
            memcpy(out, s.p, s.n);
            return (u32)s.n;
        }
        out[n++] = (char)byte;
    }
    return n;
}

/* Replaces in place; the content is never longer than the pattern (tokenizer_load). */
static u32 replace_in(char *p, u32 n, struct str pattern, struct str content)
{
    u32 out = 0;
    for (u32 i = 0; i < n;) {
        if (n - i >= pattern.n && memcmp(p + i, pattern.p, pattern.n) == 0) {
            memcpy(p + out, content.p, content.n);
            out += (u32)content.n;
            i += (u32)pattern.n;
        } else {
            p[out++] = p[i++];
        }
    }
    return out;
}

/* A token's own text into out[LIMIT_TOKEN_BYTES]. */
static u32 token_text(const struct tokenizer *t, u32 id, bool first, char *out)
{
    struct str s = token_str(t, id);
    if (t->decode == DECODE_BYTES)
        return bytes_text(s, out);
    memcpy(out, s.p, s.n);
    u32 n = (u32)s.n;
    for (u32 i = 0; t->decode == DECODE_CHAIN && i < t->tokens_n; i++) {
        const struct token_step *step = &t->tokens[i];
        bool vanish = first && step->not_in_first;
        n = replace_in(out, n, step->pattern, vanish ? STR("") : step->content);
    }
    return n;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of "<0xHH>", or -1. Rust's parser takes a plus sign for the first digit. */
static int fallback_byte(const char *p, u32 n)
{
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
        return -1;
    int high = p[3] == '+' ? 0 : hex_digit(p[3]), low = hex_digit(p[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

u32 tokenizer_bytes(const struct tokenizer *t, u32 id, char *out)
{
    u32 n = token_text(t, id, false, out);
    int byte = t->byte_fallback ? fallback_byte(out, n) : -1;
    if (byte < 0)
        return n;
    out[0] = (char)byte;
    return 1;
}

/* --- streams -------------------------------------------------------------------------------- */

struct decode_stream decode_start(const struct tokenizer *t, bool skip_special)
{
    return (struct decode_stream){.t = t, .skip_special = skip_special, .strip_left = t->strip_max};
}

/* Hands out text, less what Strip takes from the start. */
static u32 put(struct decode_stream *d, char *out, const char *p, u32 n)
{
    while (d->strip_left && n) {
        u32 len = d->t->strip_n;
        if (n < len || memcmp(p, d->t->strip, len) != 0) {
            d->strip_left = 0;
            break;
        }
        p += len;
        n -= len;
        d->strip_left--;
    }
    memcpy(out, p, n);
    return n;
}

/* Bytes of a byte-level text, decoded as Rust's from_utf8_lossy does: U+FFFD for each maximal part
 * that is not valid. A beginning of a character waits in `pending`. */
static u32 put_bytes(struct decode_stream *d, char *out, const char *p, u32 n)
{
    u32 written = 0;
    for (u32 i = 0; i < n; i++) {
        d->pending[d->pending_n++] = p[i];
        while (d->pending_n) {
            u32 cp, len = utf8_decode(d->pending, d->pending_n, &cp);
            if (len == 0 && utf8_incomplete(d->pending, d->pending_n))
                break;
            written += len ? put(d, out + written, d->pending, len)
                           : put(d, out + written, REPLACEMENT, 3);
            len = len ? len : utf8_bad_length(d->pending, d->pending_n);
            d->pending_n -= len;
            memmove(d->pending, d->pending + len, d->pending_n);
        }
    }
    return written;
}

/* Byte tokens of a run: a character when it is complete; once the run is broken, U+FFFD for each
 * token. */
static u32 put_fallback(struct decode_stream *d, char *out, char byte)
{
    u32 cp, written = 0;
    d->pending[d->pending_n++] = byte;
    u32 len = utf8_decode(d->pending, d->pending_n, &cp);
    if (!d->run_broken && len == 0 && utf8_incomplete(d->pending, d->pending_n))
        return 0;
    if (!d->run_broken && len) {
        written = put(d, out, d->pending, len);
    } else {
        d->run_broken = true;
        for (u32 i = 0; i < d->pending_n; i++)
            written += put(d, out + written, REPLACEMENT, 3);
    }
    d->pending_n = 0;
    return written;
}

/* The run of bytes ends here: what waits will never be complete. */
static u32 flush(struct decode_stream *d, char *out)
{
    u32 written = 0, marks = d->t->decode == DECODE_CHAIN ? d->pending_n : d->pending_n != 0;
    for (u32 i = 0; i < marks; i++)
        written += put(d, out + written, REPLACEMENT, 3);
    d->pending_n = 0;
    d->run_broken = false;
    return written;
}

/* Whether an id takes part in decoding at all. */
static bool counts(const struct tokenizer *t, u32 id, bool skip_special)
{
    const struct added *a = tokenizer_added(t, id);
    return tokenizer_content(t, id).n && !(skip_special && a && a->skipped);
}

u32 decode_push(struct decode_stream *d, u32 id, char *out)
{
    char text[LIMIT_TOKEN_BYTES];
    const struct tokenizer *t = d->t;
    if (!counts(t, id, d->skip_special))
        return 0;
    bool first = !d->started;
    d->started = true;
    u32 n = token_text(t, id, first, text);
    if (t->decode == DECODE_BYTES)
        return put_bytes(d, out, text, n);
    int byte = t->byte_fallback ? fallback_byte(text, n) : -1;
    if (byte >= 0)
        return put_fallback(d, out, (char)byte);
    u32 written = flush(d, out);
    if (t->decode == DECODE_JOIN && !first)
        written += put(d, out + written, " ", 1);
    return written + put(d, out + written, text, n);
}

u32 decode_end(struct decode_stream *d, char *out)
{
    return flush(d, out);
}

/* Only the first of the tokens leave a trace: those up to the first one that is text. */
struct decode_stream decode_behind(const struct tokenizer *t, bool skip_special, const u32 *ids,
                                   u32 n)
{
    struct decode_stream d = decode_start(t, skip_special);
    char text[DECODE_PIECE_BYTES];
    for (u32 i = 0; i < n && (!d.started || d.strip_left); i++)
        decode_push(&d, ids[i], text);
    d.pending_n = 0;
    d.run_broken = false;
    return d;
}

/* Whether the run of byte tokens that starts at ids[0] is UTF-8 as a whole. */
static bool run_valid(const struct decode_stream *d, const u32 *ids, size_t n)
{
    char text[LIMIT_TOKEN_BYTES], part[4];
    u32 part_n = 0, cp;
    bool first = !d->started;
    for (size_t i = 0; i < n; i++) {
        if (!counts(d->t, ids[i], d->skip_special))
            continue;
        u32 len = token_text(d->t, ids[i], first, text);
        int byte = fallback_byte(text, len);
        first = false;
        if (byte < 0)
            break;
        part[part_n++] = (char)byte;
        if (utf8_decode(part, part_n, &cp))
            part_n = 0;
        else if (!utf8_incomplete(part, part_n))
            return false;
    }
    return part_n == 0;
}

/* As decode_push; but a run of byte tokens is looked over before its first one is decoded. */
enum err tokenizer_decode(const struct tokenizer *t, const u32 *ids, size_t n, bool skip_special,
                          char *out, size_t cap, size_t *bytes, struct err_text *e)
{
    struct decode_stream d = decode_start(t, skip_special);
    char text[LIMIT_TOKEN_BYTES], piece[DECODE_PIECE_BYTES];
    bool in_run = false;
    *bytes = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && t->byte_fallback && counts(t, ids[i], skip_special)) {
            bool byte = fallback_byte(text, token_text(t, ids[i], !d.started, text)) >= 0;
            if (byte && !in_run)
                d.run_broken = !run_valid(&d, ids + i, n - i);
            in_run = byte;
        }
        u32 got = i < n ? decode_push(&d, ids[i], piece) : decode_end(&d, piece);
        if (got > cap - *bytes)
            return err_set(e, ERR_LIMIT, "the text of %zu tokens is longer than %zu bytes", n, cap);
        memcpy(out + *bytes, piece, got);
        *bytes += got;
    }
    return ERR_OK;
}
