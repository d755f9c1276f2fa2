#include "net/store.h"

size_t store_bytes(u32 blocks)
{
    return (size_t)blocks * (STORE_BLOCK_BYTES + sizeof(u32)) + 128;
}

bool store_open(struct store *s, struct arena *a, u32 blocks)
{
    s->blocks = arena_alloc(a, (size_t)blocks * STORE_BLOCK_BYTES, 64);
    s->next = ARENA_NEW(a, u32, blocks);
    if (!s->blocks || !s->next)
        return false;
    s->n = s->free = blocks;
    s->first_free = 0;
    for (u32 i = 0; i < blocks; i++)
        s->next[i] = i + 1;
    return true;
}

size_t store_need(size_t bytes)
{
    return MAX(CEIL_DIV(bytes, (size_t)STORE_BLOCK_BYTES), (size_t)1);
}

void store_take(struct store *s, struct chain *c, size_t bytes)
{
    size_t need = store_need(bytes);
    ASSERT(need <= s->free);
    *c = (struct chain){.first = s->first_free, .last = s->first_free, .blocks = (u32)need};
    for (size_t i = 0; i < need; i++)
        s->first_free = s->next[s->first_free];
    s->free -= (u32)need;
}

static u32 end_of(const struct store *s, const struct chain *c)
{
    u32 end = c->first;
    for (u32 i = 1; i < c->blocks; i++)
        end = s->next[end];
    return end;
}

size_t store_lacks(const struct chain *c, size_t bytes)
{
    size_t need = store_need(c->n + bytes);
    return need > c->blocks ? need - c->blocks : 0;
}

void store_grow(struct store *s, struct chain *c, size_t bytes)
{
    size_t lacks = store_lacks(c, bytes);
    struct chain more;
    if (lacks == 0)
        return;
    store_take(s, &more, lacks * STORE_BLOCK_BYTES);
    if (c->blocks) {
        s->next[end_of(s, c)] = more.first;
        c->blocks += more.blocks;
    } else {
        *c = more;
    }
}

void store_give(struct store *s, struct chain *c)
{
    if (c->blocks == 0)
        return;
    s->next[end_of(s, c)] = s->first_free;
    s->first_free = c->first;
    s->free += c->blocks;
    *c = (struct chain){0};
}

void store_put(struct store *s, struct chain *c, const void *p, size_t n)
{
    const u8 *from = p;
    ASSERT(n <= (size_t)c->blocks * STORE_BLOCK_BYTES - c->n);
    while (n > 0) {
        size_t at = c->n % STORE_BLOCK_BYTES;
        if (at == 0 && c->n > 0)
            c->last = s->next[c->last];
        size_t part = MIN(n, STORE_BLOCK_BYTES - at);
        memcpy(s->blocks + (size_t)c->last * STORE_BLOCK_BYTES + at, from, part);
        c->n += part;
        from += part;
        n -= part;
    }
}

void store_set(struct store *s, struct chain *c, size_t at, const void *p, size_t n)
{
    const u8 *from = p;
    u32 block = c->first;
    ASSERT(at + n <= (size_t)c->blocks * STORE_BLOCK_BYTES);
    for (size_t i = 0; i < at / STORE_BLOCK_BYTES; i++)
        block = s->next[block];
    c->n = MAX(c->n, at + n);
    while (n > 0) {
        size_t part = MIN(n, STORE_BLOCK_BYTES - at % STORE_BLOCK_BYTES);
        memcpy(s->blocks + (size_t)block * STORE_BLOCK_BYTES + at % STORE_BLOCK_BYTES, from, part);
        block = s->next[block];
        at += part;
        from += part;
        n -= part;
    }
}

struct chain_reader store_from(const struct chain *c)
{
    return (struct chain_reader){.block = c->first};
}

bool store_get(const struct store *s, const struct chain *c, struct chain_reader *r, void *p,
               size_t n)
{
    u8 *to = p;
    if (n > c->n - r->at)
        return false;
    while (n > 0) {
        size_t at = r->at % STORE_BLOCK_BYTES;
        if (at == 0 && r->at > 0)
            r->block = s->next[r->block];
        size_t part = MIN(n, STORE_BLOCK_BYTES - at);
        memcpy(to, s->blocks + (size_t)r->block * STORE_BLOCK_BYTES + at, part);
        r->at += part;
        to += part;
        n -= part;
    }
    return true;
}
