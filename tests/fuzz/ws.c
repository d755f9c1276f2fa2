/* libFuzzer: the WebSocket parser says the same however the bytes are cut. The first byte chooses
 * the cuts. What a text message holds is UTF-8.
 */
#include "core/base/utf8.h"
#include "net/ws.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

struct seen {
    int end; /* the close code, or 0 */
    u64 messages, controls, hash;
};

static void add(struct seen *s, struct str bytes)
{
    for (size_t i = 0; i < bytes.n; i++)
        s->hash = (s->hash ^ (u8)bytes.p[i]) * 1099511628211u;
}

static struct seen run(const u8 *data, size_t n, size_t step)
{
    static struct ws w;
    struct seen s = {0};
    struct ws_part part;
    char *message = malloc(n + 1);
    size_t length = 0;
    w = (struct ws){0};
    for (size_t at = 0; at < n && !s.end;) {
        size_t piece = MIN(step, n - at), used;
        u8 *copy = malloc(piece);
        memcpy(copy, data + at, piece);
        for (size_t done = 0; !s.end;) {
            int r = ws_next(&w, copy + done, piece - done, &used, &part);
            done += used;
            ASSERT(done <= piece);
            if (r == WS_MORE)
                break;
            if (r == WS_CONTROL) {
                ASSERT(part.bytes.n <= WS_CONTROL_MAX);
                s.controls++;
                add(&s, part.bytes);
            } else if (r == WS_PART) {
                length = part.first ? 0 : length;
                memcpy(message + length, part.bytes.p, part.bytes.n);
                length += part.bytes.n;
                ASSERT(!part.last || part.opcode != WS_TEXT ||
                       utf8_valid((struct str){message, length}));
                if (part.last)
                    add(&s, (struct str){message, length});
                s.messages += part.last;
            } else {
                ASSERT(r == WS_PROTOCOL || r == WS_INVALID_TEXT);
                s.end = r;
            }
        }
        at += piece;
        free(copy);
    }
    free(message);
    return s;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    if (n < 2)
        return 0;
    struct seen a = run(data + 1, n - 1, n - 1), b = run(data + 1, n - 1, data[0] ? data[0] : 1);
    ASSERT(a.end == b.end && a.messages == b.messages && a.controls == b.controls);
    ASSERT(a.hash == b.hash);
    return 0;
}
