#include "core/base/utf8.h"
#include "net/ws.h"
#include "tests/unit/unit.h"

static const u8 mask[4] = {0x37, 0xfa, 0x21, 0x3d};

/* Appends a client's frame; returns the new length. */
static size_t frame(u8 *out, size_t at, u8 first, const char *payload, size_t n)
{
    out[at++] = first;
    if (n < 126) {
        out[at++] = (u8)(0x80 | n);
    } else if (n < 65536) {
        out[at++] = 0x80 | 126;
        out[at++] = (u8)(n >> 8);
        out[at++] = (u8)n;
    } else {
        out[at++] = 0x80 | 127;
        for (int i = 7; i >= 0; i--)
            out[at++] = (u8)((u64)n >> 8 * i);
    }
    memcpy(out + at, mask, 4);
    at += 4;
    for (size_t i = 0; i < n; i++)
        out[at++] = (u8)payload[i] ^ mask[i & 3];
    return at;
}

struct seen {
    char text[70000];
    size_t n;
    u32 messages, controls;
    char control[126];
    int result; /* the close code that ended it, or 0 */
};

/* Runs the parser over in[0..n) in pieces: up to `cut`, then `step` at a time. */
static void run(struct seen *s, const u8 *in, size_t n, size_t cut, size_t step)
{
    static struct ws w;
    static u8 copy[80000];
    struct ws_part part;
    w = (struct ws){0};
    s->n = s->messages = s->controls = 0;
    s->result = 0;
    for (size_t at = 0, end = cut; at < n; end = MIN(end + step, n)) {
        memcpy(copy + at, in + at, end - at);
        while (at < end || end == n) {
            size_t used;
            int r = ws_next(&w, copy + at, end - at, &used, &part);
            at += used;
            if (r == WS_MORE)
                break;
            if (r == WS_PART) {
                memcpy(s->text + s->n, part.bytes.p, part.bytes.n);
                s->n += part.bytes.n;
                s->messages += part.last;
            } else if (r == WS_CONTROL) {
                s->controls++;
                memcpy(s->control, part.bytes.p, part.bytes.n);
                s->control[part.bytes.n] = 0;
            } else {
                s->result = r;
                return;
            }
        }
        if (end == n)
            return;
    }
}

/* The same at every split. */
static bool always(const u8 *in, size_t n, int result, u32 messages, const char *text, u32 controls)
{
    static struct seen s;
    for (size_t cut = 0; cut <= n; cut++) {
        run(&s, in, n, cut, cut == 0 ? 1 : n);
        if (s.result != result)
            return false;
        if (result == 0 && (s.messages != messages || s.controls != controls ||
                            s.n != strlen(text) || memcmp(s.text, text, s.n) != 0))
            return false;
    }
    return true;
}

void ws_frames(void)
{
    static u8 b[80000];
    static char long_text[70000];
    size_t n = frame(b, 0, 0x81, "Hello", 5);
    CHECK(always(b, n, 0, 1, "Hello", 0));
    n = frame(b, n, 0x81, "", 0);
    CHECK(always(b, n, 0, 2, "Hello", 0));
    n = frame(b, 0, 0x01, "He", 2); /* RFC 6455 section 5.4: fragments, a ping between them */
    n = frame(b, n, 0x89, "ping", 4);
    n = frame(b, n, 0x00, "l", 1);
    n = frame(b, n, 0x80, "lo", 2);
    CHECK(always(b, n, 0, 1, "Hello", 1));
    n = frame(b, 0, 0x01, "", 0);
    n = frame(b, n, 0x80, "", 0);
    CHECK(always(b, n, 0, 1, "", 0));
    memset(long_text, 'x', sizeof long_text - 1);
    static const size_t lengths[] = {125, 126, 127, 65535, 65536, 69999};
    static struct seen s;
    for (size_t i = 0; i < COUNTOF(lengths); i++) {
        n = frame(b, 0, 0x81, long_text, lengths[i]);
        run(&s, b, n, n, 1);
        CHECK(s.result == 0 && s.messages == 1 && s.n == lengths[i] && s.text[s.n - 1] == 'x');
        run(&s, b, n, 3, 1001);
        CHECK(s.result == 0 && s.messages == 1 && s.n == lengths[i] && s.text[s.n - 1] == 'x');
    }
}

void ws_refuses(void)
{
    u8 b[512];
    char many[126] = {0};
    size_t n = frame(b, 0, 0x81, "Hello", 5);
    b[1] &= 0x7f; /* not masked */
    CHECK(always(b, n, WS_PROTOCOL, 0, "", 0));
    static const u8 wrong[] = {0xc1, 0xa1, 0x91, 0x83, 0x87, 0x8b, 0x8f, 0x80, 0x00, 0x08, 0x09};
    for (size_t i = 0; i < COUNTOF(wrong); i++) { /* bits, opcodes, nothing to continue, pieces */
        n = frame(b, 0, wrong[i], "", 0);
        CHECK(always(b, n, WS_PROTOCOL, 0, "", 0));
    }
    n = frame(b, 0, 0x89, many, 126);
    CHECK(always(b, n, WS_PROTOCOL, 0, "", 0));
    n = frame(b, 0, 0x01, "a", 1); /* a new message inside one */
    n = frame(b, n, 0x81, "b", 1);
    CHECK(always(b, n, WS_PROTOCOL, 0, "", 0));
    static const u8 not_shortest[] = {0x81, 0xfe, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    CHECK(always(not_shortest, sizeof not_shortest, WS_PROTOCOL, 0, "", 0));
    static const u8 negative[] = {0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0};
    CHECK(always(negative, sizeof negative, WS_PROTOCOL, 0, "", 0));
}

void ws_text_is_utf8(void)
{
    static const struct {
        const char *text;
        bool good;
    } cases[] = {
        {"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5", true},
        {"\xf0\x9f\x98\x80", true},
        {"\xf4\x8f\xbf\xbf", true},
        {"\xf4\x90\x80\x80", false},
        {"\xed\xa0\x80", false},
        {"\xc0\xaf", false},
        {"\xe2\x82", false},
        {"a\x80", false},
        {"\xf8\x88\x80\x80\x80", false},
    };
    u8 b[256];
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        size_t k = strlen(cases[i].text);
        for (size_t cut = 0; cut <= k; cut++) { /* in two fragments */
            size_t n = frame(b, 0, 0x01, cases[i].text, cut);
            n = frame(b, n, 0x80, cases[i].text + cut, k - cut);
            int want = cases[i].good ? 0 : WS_INVALID_TEXT;
            CHECK(always(b, n, want, 1, cases[i].text, 0));
        }
    }
    size_t n = frame(b, 0, 0x82, "\xff\xfe", 2); /* bytes may be anything */
    CHECK(always(b, n, 0, 1, "\xff\xfe", 0));
}

void ws_handshake(void)
{
    char out[WS_ACCEPT_BYTES];
    CHECK(ws_accept(STR("dGhlIHNhbXBsZSBub25jZQ=="), out)); /* RFC 6455 section 1.3 */
    CHECK(strcmp(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") == 0);
    CHECK(!ws_accept(STR("dGhlIHNhbXBsZSBub25jZQ="), out));
    CHECK(!ws_accept(STR("dGhlIHNhbXBsZSBub25j!Q=="), out) && !ws_accept((struct str){0}, out));
    CHECK(ws_close_code((struct str){0}) == WS_NO_CODE);
    CHECK(ws_close_code(STR("\x03")) == WS_PROTOCOL);
    CHECK(ws_close_code(STR("\x03\xe8")) == WS_NORMAL && ws_close_code(STR("\x03\xe8ok")) == 1000);
    CHECK(ws_close_code(STR("\x03\xe8\xff")) == WS_INVALID_TEXT);
    static const u16 bad[] = {0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535};
    for (size_t i = 0; i < COUNTOF(bad); i++) {
        char code[2] = {(char)(bad[i] >> 8), (char)bad[i]};
        CHECK(ws_close_code((struct str){code, 2}) == WS_PROTOCOL);
    }
    u8 head[WS_HEAD_MAX];
    CHECK(ws_head(head, WS_TEXT, 125) == 2 && head[0] == 0x81 && head[1] == 125);
    CHECK(ws_head(head, WS_TEXT, 126) == 4 && head[1] == 126 && head[3] == 126);
    CHECK(ws_head(head, WS_TEXT, 65536) == 10 && head[1] == 127 && head[7] == 1 && head[9] == 0);
}
