#include "core/engine/stops.h"

enum err stops_check(const struct str *of, u32 n, struct err_text *e)
{
    if (n > LIMIT_STOP_STRINGS)
        return err_set(e, ERR_REQUEST, "stop has %u strings; the limit is %u", n,
                       LIMIT_STOP_STRINGS);
    for (u32 i = 0; i < n; i++)
        if (of[i].n == 0 || of[i].n > LIMIT_STOP_STRING_BYTES)
            return err_set(e, ERR_REQUEST, "stop string %u has %zu bytes; allowed are 1 to %u", i,
                           of[i].n, LIMIT_STOP_STRING_BYTES);
    return ERR_OK;
}

void stops_set(struct stops *s, const struct str *of, u32 n)
{
    s->n = n;
    s->found = (struct str){0};
    for (u32 i = 0; i < n; i++) {
        memcpy(s->bytes[i], of[i].p, of[i].n);
        s->of[i] = (struct str){s->bytes[i], of[i].n};
    }
}

u32 stops_release(struct stops *s, char *text)
{
    u32 n = s->held_n;
    memcpy(text, s->held, n);
    s->held_n = 0;
    return n;
}

u32 stops_find(struct stops *s, const char *text, u32 n)
{
    for (size_t end = 1; end <= n; end++)
        for (u32 i = 0; i < s->n; i++) {
            struct str stop = s->of[i];
            if (stop.n > end || memcmp(text + end - stop.n, stop.p, stop.n) != 0)
                continue;
            s->found = stop;
            return (u32)(end - stop.n);
        }
    return n;
}

u32 stops_hold(struct stops *s, const char *text, u32 n)
{
    u32 longest = 0;
    for (u32 i = 0; i < s->n; i++)
        for (u32 k = (u32)MIN(n, s->of[i].n - 1); k > longest; k--)
            if (memcmp(text + n - k, s->of[i].p, k) == 0)
                longest = k;
    memcpy(s->held, text + n - longest, longest);
    s->held_n = longest;
    return n - longest;
}
