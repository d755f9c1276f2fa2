/* KV pages of sequences that grow. */
#include "core/engine/seq.h"

enum { AHEAD = 8 }; /* pages that are taken at once, where they can be had */

/* That it may still take. */
static u32 rest_of(const struct seq *s)
{
    return s->state == SEQ_ENDED ? 0 : seq_pages(s->positions) - s->n_pages;
}

/* Can all end, if s takes so many more? */
static bool is_safe(struct engine *g, const struct seq *s, u32 more)
{
    u32 idle = kv_available(&g->kv);
    u64 rest = 0;
    if (more > idle)
        return false;
    idle -= more;
    for (u32 i = 0; i < g->n_holders; i++)
        rest += rest_of(g->holders[i]) - (g->holders[i] == s ? more : 0);
    if (rest <= idle)
        return true;
    kv_ends_begin(&g->kv);
    for (u32 i = 0; i < g->n_holders; i++) {
        const struct seq *h = g->holders[i];
        u32 own = h == s ? more : 0;
        if (rest_of(h) - own > idle)
            return false;
        idle += kv_ends(&g->kv, h->pages, h->n_pages) + own;
    }
    return true; /* who is about to be admitted comes last: then all pages are there */
}

static bool take(struct engine *g, struct seq *s, u32 more)
{
    if (!is_safe(g, s, more) || !kv_take(&g->kv, more, s->pages + s->n_pages))
        return false;
    s->n_pages += more;
    s->pages_version++;
    s->starved = 0;
    return true;
}

bool seq_take_pages(struct engine *g, struct seq *s, u32 positions)
{
    u32 most = seq_pages(s->positions), want = s->grows ? MIN(seq_pages(positions), most) : most;
    if (want <= s->n_pages)
        return true;
    if (s->starved == g->released + 1)
        return false;
    u32 ahead = s->grows ? MIN(want + AHEAD, most) : most;
    if (take(g, s, ahead - s->n_pages) || (want < ahead && take(g, s, want - s->n_pages)))
        return true;
    s->starved = g->released + 1;
    return false;
}
