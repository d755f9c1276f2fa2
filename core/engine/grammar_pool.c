#include "core/engine/grammar_pool.h"

#include <stddef.h>
#include <string.h>

size_t grammar_pool_bytes(u32 requests)
{
    return (requests + 1) * sizeof(struct grammar_place) + 64;
}

bool grammar_pool_open(struct grammar_pool *p, struct arena *a, u32 requests)
{
    *p = (struct grammar_pool){.n = requests + 1};
    p->places = ARENA_NEW(a, struct grammar_place, p->n);
    for (u32 i = 0; p->places && i < p->n; i++)
        p->places[i].users = p->places[i].used = 0;
    return p->places != NULL;
}

static struct grammar_place *place_of(const struct grammar_pool *p, const struct grammar *g)
{
    for (u32 i = 0; i < p->n; i++)
        if (g == &p->places[i].grammar)
            return &p->places[i];
    ASSERT(!"a grammar of the pool");
    return NULL;
}

struct grammar *grammar_pool_spare(struct grammar_pool *p)
{
    struct grammar_place *oldest = NULL;
    for (u32 i = 0; i < p->n; i++)
        if (!p->places[i].users && (!oldest || p->places[i].used < oldest->used))
            oldest = &p->places[i];
    ASSERT(oldest);
    oldest->used = 0; /* what it was is lost, though it may be refused what it becomes */
    return &oldest->grammar;
}

/* But for the serial, which comes first. Unused parts are zero in both. */
static bool same(const struct grammar *a, const struct grammar *b)
{
    const size_t from = offsetof(struct grammar, root);
    return memcmp((const u8 *)a + from, (const u8 *)b + from, sizeof *a - from) == 0;
}

const struct grammar *grammar_pool_take(struct grammar_pool *p, const struct grammar *spare)
{
    struct grammar_place *to = place_of(p, spare);
    for (u32 i = 0; i < p->n; i++)
        if (p->places[i].used && same(&p->places[i].grammar, spare))
            to = &p->places[i];
    to->users++;
    to->used = ++p->taken;
    return &to->grammar;
}

void grammar_pool_give(struct grammar_pool *p, const struct grammar *g)
{
    struct grammar_place *place = place_of(p, g);
    ASSERT(place->users > 0);
    place->users--;
}
