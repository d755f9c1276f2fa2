#include "net/ws.h"

#include "core/base/utf8.h"

#include <bearssl.h>

/* --- text across fragments ------------------------------------------------------------------- */

/* Checks the bytes behind those in w->tail; keeps the beginning of a cut character there. */
static bool text_goes_on(struct ws *w, const char *p, size_t n)
{
    u32 cp;
    while (w->tail_n && n) { /* finish the cut character a byte at a time: at most three */
        w->tail[w->tail_n++] = *p++;
        n--;
        if (utf8_decode(w->tail, w->tail_n, &cp))
            w->tail_n = 0;
        else if (!utf8_incomplete(w->tail, w->tail_n))
            return false;
    }
    for (size_t i = 0; i < n;) {
        u32 k = (u8)p[i] < 0x80 ? 1 : utf8_decode(p + i, n - i, &cp);
        if (k == 0) {
            if (n - i > 3 || !utf8_incomplete(p + i, n - i))
                return false;
            w->tail_n = (u8)(n - i);
            memcpy(w->tail, p + i, n - i);
            return true;
        }
        i += k;
    }
    return true;
}

/* --- frames ---------------------------------------------------------------------------------- */

/* Bytes of the frame's head, as far as its first two bytes tell. */
static u32 head_bytes(const struct ws *w)
{
    if (w->head_n < 2)
        return 2;
    u32 length = w->head[1] & 127;
    return 2 + (length == 126 ? 2 : length == 127 ? 8 : 0) + 4;
}

/* RFC 6455 section 5.2 and 5.4: what the first two bytes may say. */
static bool head_begins_well(const struct ws *w)
{
    u32 opcode = w->head[0] & 15, length = w->head[1] & 127;
    bool fin = w->head[0] & 128, masked = w->head[1] & 128;
    if ((w->head[0] & 0x70) || !masked)
        return false;
    if (opcode >= WS_CLOSE)
        return opcode <= WS_PONG && fin && length <= WS_CONTROL_MAX;
    return opcode == WS_CONTINUATION ? w->message != 0 : opcode <= WS_BINARY && !w->message;
}

static bool head_ends_well(struct ws *w)
{
    u32 length = w->head[1] & 127, bytes = length == 126 ? 2 : length == 127 ? 8 : 0;
    u64 n = bytes ? 0 : length;
    for (u32 i = 0; i < bytes; i++)
        n = n << 8 | w->head[2 + i];
    if ((bytes == 2 && n < 126) || (bytes == 8 && (n < 65536 || n >> 63)))
        return false;                         /* the shortest form is the only one */
    memmove(w->head, w->head + 2 + bytes, 4); /* the mask */
    w->left = n;
    return true;
}

/* Reads the head: WS_MORE, WS_PART when it is complete, or a close code. */
static int read_head(struct ws *w, const u8 *p, size_t n, size_t *used)
{
    while (w->head_n < head_bytes(w)) {
        if (*used == n)
            return WS_MORE;
        w->head[w->head_n++] = p[(*used)++];
        if (w->head_n == 2) {
            if (!head_begins_well(w))
                return WS_PROTOCOL;
            w->fin = w->head[0] & 128;
            w->opcode = w->head[0] & 15;
        }
    }
    if (!head_ends_well(w))
        return WS_PROTOCOL;
    if (w->opcode == WS_TEXT || w->opcode == WS_BINARY) {
        w->message = w->opcode;
        w->begun = false;
        w->tail_n = 0;
    }
    w->in_payload = true;
    w->mask_at = 0;
    w->control_n = 0;
    return WS_PART;
}

static void unmask(struct ws *w, u8 *p, size_t n)
{
    u32 at = w->mask_at;
    u8 turned[8];
    u64 mask, word;
    for (u32 i = 0; i < 8; i++)
        turned[i] = w->head[(at + i) & 3];
    memcpy(&mask, turned, 8);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        memcpy(&word, p + i, 8);
        word ^= mask;
        memcpy(p + i, &word, 8);
    }
    for (; i < n; i++)
        p[i] ^= turned[i & 7];
    w->mask_at = (u32)((at + n) & 3);
}

static void frame_ends(struct ws *w)
{
    w->in_payload = false;
    w->head_n = 0;
}

static int control(struct ws *w, const u8 *p, size_t n, struct ws_part *part)
{
    memcpy(w->control + w->control_n, p, n);
    w->control_n = (u8)(w->control_n + n);
    if (w->left)
        return WS_MORE;
    frame_ends(w);
    *part = (struct ws_part){w->opcode, true, true, {(char *)w->control, w->control_n}, 0};
    return WS_CONTROL;
}

int ws_next(struct ws *w, u8 *p, size_t n, size_t *used, struct ws_part *part)
{
    bool began = !w->in_payload; /* then an empty part says what is to come */
    *used = 0;
    if (began) {
        int r = read_head(w, p, n, used);
        if (r != WS_PART)
            return r;
    }
    size_t take = (size_t)MIN(w->left, (u64)(n - *used));
    u8 *at = p + *used;
    if (take == 0 && w->left && !began)
        return WS_MORE;
    *used += take;
    w->left -= take;
    unmask(w, at, take);
    if (w->opcode >= WS_CLOSE)
        return control(w, at, take, part);
    bool first = !w->begun, last = w->fin && !w->left;
    *part = (struct ws_part){w->message, first, last, {(char *)at, take}, w->left};
    if (w->message == WS_TEXT && !text_goes_on(w, (char *)at, take))
        return WS_INVALID_TEXT;
    if (w->message == WS_TEXT && last && w->tail_n)
        return WS_INVALID_TEXT;
    w->begun = true;
    if (!w->left)
        frame_ends(w);
    if (last)
        w->message = 0;
    return WS_PART;
}

size_t ws_head(u8 out[WS_HEAD_MAX], enum ws_opcode opcode, u64 n)
{
    u32 bytes = n < 126 ? 0 : n < 65536 ? 2 : 8;
    out[0] = (u8)(0x80 | opcode);
    out[1] = (u8)(bytes == 0 ? n : bytes == 2 ? 126 : 127);
    for (u32 i = 0; i < bytes; i++)
        out[2 + i] = (u8)(n >> 8 * (bytes - 1 - i));
    return 2 + bytes;
}

u16 ws_close_code(struct str s)
{
    if (s.n == 0)
        return WS_NO_CODE;
    if (s.n == 1)
        return WS_PROTOCOL;
    u16 code = (u16)((u8)s.p[0] << 8 | (u8)s.p[1]);
    bool registered = code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
    if (!registered && !(code >= 3000 && code <= 4999))
        return WS_PROTOCOL;
    return utf8_valid((struct str){s.p + 2, s.n - 2}) ? code : WS_INVALID_TEXT;
}

/* --- the handshake --------------------------------------------------------------------------- */

static int base64_value(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool ws_accept(struct str key, char out[WS_ACCEPT_BYTES])
{
    br_sha1_context sha;
    u8 digest[br_sha1_SIZE];
    if (key.n != 24 || key.p[22] != '=' || key.p[23] != '=')
        return false;
    for (size_t i = 0; i < 22; i++)
        if (base64_value(key.p[i]) < 0)
            return false;
    br_sha1_init(&sha);
    br_sha1_update(&sha, key.p, key.n);
    br_sha1_update(&sha, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 36);
    br_sha1_out(&sha, digest);
    base64(out, digest, sizeof digest);
    return true;
}
