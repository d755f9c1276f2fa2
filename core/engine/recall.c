#include "core/engine/recall.h"

u32 recall_hash(const u32 *end)
{
    u32 h = 0;
    for (u32 i = RECALL_GRAM; i > 0; i--)
        h = (h ^ *(end - i)) * 0x9e3779b1u;
    return h;
}

size_t recall_bytes(void)
{
    return 2 * RECALL_TOKENS * sizeof(u32) + 128;
}

bool recall_open(struct recall *r, struct arena *a)
{
    *r = (struct recall){.tokens = ARENA_NEW(a, u32, RECALL_TOKENS),
                         .places = ARENA_NEW(a, u32, RECALL_TOKENS)};
    return r->tokens && r->places;
}

void recall_add(struct recall *r, const u32 *tokens, u32 n)
{
    n = MIN(n, (u32)RECALL_TOKENS);
    if (r->n + n > RECALL_TOKENS)
        r->n = 0;
    memcpy(r->tokens + r->n, tokens, n * sizeof *tokens);
    for (u32 i = RECALL_GRAM; i < n; i++) /* behind the last there is nothing */
        r->places[recall_hash(tokens + i) >> (32 - RECALL_BITS)] = r->n + i;
    r->n += n;
}
