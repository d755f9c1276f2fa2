#include "core/engine/kv.h"

struct kv_page {
    u32 holders;
    u32 before, after; /* idle list, when holders == 0 */
    u32 parent, salt;  /* when committed */
    u32 children;      /* committed pages that name this one as parent */
    u32 round, ended;  /* of kv_ends: holders that have ended in this round */
    bool committed;
    u32 checkpoint;
    u32 tokens[LIMIT_PAGE_TOKENS];
};

static u32 table_size(u32 pages)
{
    u32 n = 16;
    while (n < 2 * pages)
        n *= 2;
    return n;
}

size_t kv_bytes(u32 pages, u32 checkpoints)
{
    return pages * sizeof(struct kv_page) + table_size(pages) * sizeof(u32) +
           checkpoints * sizeof(struct kv_checkpoint) + 128;
}

/* --- the idle list ------------------------------------------------------------------------- */

static void idle_add(struct kv *kv, u32 i, bool longest_unused)
{
    struct kv_page *p = &kv->pages[i];
    p->before = longest_unused ? KV_NO_PAGE : kv->last_idle;
    p->after = longest_unused ? kv->first_idle : KV_NO_PAGE;
    *(p->before == KV_NO_PAGE ? &kv->first_idle : &kv->pages[p->before].after) = i;
    *(p->after == KV_NO_PAGE ? &kv->last_idle : &kv->pages[p->after].before) = i;
    kv->idle++;
}

static void idle_remove(struct kv *kv, u32 i)
{
    struct kv_page *p = &kv->pages[i];
    *(p->before == KV_NO_PAGE ? &kv->first_idle : &kv->pages[p->before].after) = p->after;
    *(p->after == KV_NO_PAGE ? &kv->last_idle : &kv->pages[p->after].before) = p->before;
    kv->idle--;
}

static void hold(struct kv *kv, u32 i)
{
    if (kv->pages[i].holders++ == 0)
        idle_remove(kv, i);
}

/* --- finding blocks ------------------------------------------------------------------------ */

static u32 home(const struct kv *kv, u32 parent, u32 salt, const u32 *tokens)
{
    u64 h = (u64)parent << 32 | salt;
    for (u32 i = 0; i < LIMIT_PAGE_TOKENS; i++) {
        h = (h ^ tokens[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return (u32)(h >> 8) & (kv->table_n - 1);
}

static u32 find(const struct kv *kv, u32 parent, u32 salt, const u32 *tokens)
{
    for (u32 at = home(kv, parent, salt, tokens);; at = (at + 1) & (kv->table_n - 1)) {
        u32 i = kv->table[at];
        if (i == KV_NO_PAGE)
            return KV_NO_PAGE;
        const struct kv_page *p = &kv->pages[i];
        if (p->parent == parent && p->salt == salt &&
            memcmp(p->tokens, tokens, sizeof p->tokens) == 0)
            return i;
    }
}

static void table_add(struct kv *kv, u32 i)
{
    const struct kv_page *p = &kv->pages[i];
    u32 at = home(kv, p->parent, p->salt, p->tokens);
    while (kv->table[at] != KV_NO_PAGE)
        at = (at + 1) & (kv->table_n - 1);
    kv->table[at] = i;
}

/* Removes without a tombstone: whatever follows in the run moves up when its home allows it. */
static void table_remove(struct kv *kv, u32 i)
{
    u32 mask = kv->table_n - 1;
    const struct kv_page *p = &kv->pages[i];
    u32 at = home(kv, p->parent, p->salt, p->tokens);
    while (kv->table[at] != i)
        at = (at + 1) & mask;
    for (u32 next = (at + 1) & mask; kv->table[next] != KV_NO_PAGE; next = (next + 1) & mask) {
        const struct kv_page *q = &kv->pages[kv->table[next]];
        u32 want = home(kv, q->parent, q->salt, q->tokens);
        if (((next - want) & mask) >= ((next - at) & mask)) {
            kv->table[at] = kv->table[next];
            at = next;
        }
    }
    kv->table[at] = KV_NO_PAGE;
}

static void forget(struct kv *kv, u32 i)
{
    struct kv_page *p = &kv->pages[i];
    if (!p->committed)
        return;
    if (p->checkpoint != KV_NO_CHECKPOINT)
        kv_checkpoint_give(kv, p->checkpoint, KV_NO_PAGE);
    ASSERT(p->children == 0); /* children are released first, so they are evicted first */
    table_remove(kv, i);
    if (p->parent != KV_NO_PAGE)
        kv->pages[p->parent].children--;
    p->committed = false;
}

/* --- the interface --------------------------------------------------------------------------- */

enum err kv_open(struct kv *kv, struct arena *a, u32 pages, u32 checkpoints, bool keep,
                 struct err_text *e)
{
    *kv = (struct kv){
        .n = pages, .table_n = table_size(pages), .keep = keep, .n_checkpoints = checkpoints};
    kv->pages = ARENA_NEW(a, struct kv_page, pages);
    kv->table = ARENA_NEW(a, u32, kv->table_n);
    kv->checkpoints = ARENA_NEW(a, struct kv_checkpoint, MAX(checkpoints, 1u));
    if (!kv->pages || !kv->table || !kv->checkpoints)
        return arena_full(a, "KV page table", e);
    memset(kv->table, 0xff, kv->table_n * sizeof *kv->table);
    kv->first_idle = kv->last_idle = KV_NO_PAGE;
    for (u32 i = 0; i < pages; i++)
        idle_add(kv, i, false);
    return ERR_OK;
}

u32 kv_available(const struct kv *kv)
{
    return kv->idle;
}

/* Does not count. */
static u32 match(struct kv *kv, u32 salt, const u32 *tokens, u32 blocks, u32 *pages)
{
    u32 found = 0, parent = KV_NO_PAGE;
    while (found < blocks && kv->keep) {
        u32 i = find(kv, parent, salt, tokens + found * LIMIT_PAGE_TOKENS);
        if (i == KV_NO_PAGE)
            break;
        hold(kv, i);
        pages[found++] = parent = i;
    }
    return found;
}

u32 kv_match(struct kv *kv, u32 salt, const u32 *tokens, u32 n, u32 *pages, u32 cap)
{
    u32 blocks = MIN(n / LIMIT_PAGE_TOKENS, cap), found = match(kv, salt, tokens, blocks, pages);
    kv->lookups += kv->keep ? blocks : 0;
    kv->hits += found;
    return found;
}

u32 kv_match_checkpoint(struct kv *kv, u32 salt, const u32 *tokens, u32 n, u32 *pages, u32 cap,
                        u32 *checkpoint, u32 *seen)
{
    u32 blocks = MIN(n / LIMIT_PAGE_TOKENS, cap),
        found = *seen = match(kv, salt, tokens, blocks, pages);
    while (found && kv->pages[pages[found - 1]].checkpoint == KV_NO_CHECKPOINT)
        kv_release(kv, &pages[--found], 1);
    kv->lookups += kv->keep ? blocks : 0;
    kv->hits += found;
    *checkpoint = found ? kv->pages[pages[found - 1]].checkpoint : KV_NO_CHECKPOINT;
    if (found)
        kv->checkpoints[*checkpoint].used = ++kv->uses;
    return found;
}

u32 kv_checkpoint_take(struct kv *kv)
{
    u32 best = KV_NO_CHECKPOINT;
    for (u32 i = 0; i < kv->n_checkpoints; i++) {
        const struct kv_checkpoint *c = &kv->checkpoints[i];
        if (c->taken && c->page == KV_NO_PAGE) /* being written */
            continue;
        if (best == KV_NO_CHECKPOINT || c->used < kv->checkpoints[best].used)
            best = i;
    }
    if (best == KV_NO_CHECKPOINT)
        return best;
    struct kv_checkpoint *c = &kv->checkpoints[best];
    if (c->taken)
        kv->pages[c->page].checkpoint = KV_NO_CHECKPOINT;
    *c = (struct kv_checkpoint){.page = KV_NO_PAGE, .taken = true, .used = ++kv->uses};
    return best;
}

void kv_checkpoint_give(struct kv *kv, u32 checkpoint, u32 page)
{
    struct kv_checkpoint *c = &kv->checkpoints[checkpoint];
    ASSERT(checkpoint < kv->n_checkpoints && c->taken);
    if (c->page != KV_NO_PAGE)
        kv->pages[c->page].checkpoint = KV_NO_CHECKPOINT;
    const bool wanted = page != KV_NO_PAGE && kv->pages[page].committed &&
                        kv->pages[page].checkpoint == KV_NO_CHECKPOINT;
    *c = wanted ? (struct kv_checkpoint){page, true, ++kv->uses}
                : (struct kv_checkpoint){.page = KV_NO_PAGE};
    if (wanted)
        kv->pages[page].checkpoint = checkpoint;
}

bool kv_take(struct kv *kv, u32 n, u32 *pages)
{
    if (n > kv->idle)
        return false;
    for (u32 k = 0; k < n; k++) {
        u32 i = kv->first_idle;
        hold(kv, i);
        forget(kv, i);
        pages[k] = i;
    }
    return true;
}

u32 kv_commit(struct kv *kv, u32 page, u32 parent, u32 salt, const u32 *tokens)
{
    struct kv_page *p = &kv->pages[page];
    ASSERT(p->holders == 1 && !p->committed);
    if (!kv->keep)
        return page;
    ASSERT(parent == KV_NO_PAGE || (kv->pages[parent].holders && kv->pages[parent].committed));
    u32 same = find(kv, parent, salt, tokens);
    if (same != KV_NO_PAGE) {
        hold(kv, same);
        kv_release(kv, &page, 1);
        return same;
    }
    memcpy(p->tokens, tokens, sizeof p->tokens);
    p->parent = parent;
    p->salt = salt;
    p->committed = true;
    p->checkpoint = KV_NO_CHECKPOINT;
    if (parent != KV_NO_PAGE)
        kv->pages[parent].children++;
    table_add(kv, page);
    return page;
}

void kv_release(struct kv *kv, const u32 *pages, u32 n)
{
    while (n-- > 0) { /* the tail first: a child is idle longer than its parent */
        u32 i = pages[n];
        ASSERT(kv->pages[i].holders > 0);
        if (--kv->pages[i].holders == 0)
            idle_add(kv, i, !kv->pages[i].committed);
    }
}

void kv_ends_begin(struct kv *kv)
{
    kv->round++;
}

u32 kv_ends(struct kv *kv, const u32 *pages, u32 n)
{
    u32 idle = 0;
    for (u32 k = 0; k < n; k++) {
        struct kv_page *p = &kv->pages[pages[k]];
        p->ended = p->round == kv->round ? p->ended + 1 : 1;
        p->round = kv->round;
        idle += p->ended == p->holders;
    }
    return idle;
}

bool kv_consistent(const struct kv *kv)
{
    u32 idle = 0, held = 0, last = KV_NO_PAGE;
    for (u32 i = kv->first_idle; i != KV_NO_PAGE; i = kv->pages[i].after) {
        if (kv->pages[i].holders || kv->pages[i].before != last || ++idle > kv->n)
            return false;
        last = i;
    }
    for (u32 i = 0; i < kv->n; i++) {
        const struct kv_page *p = &kv->pages[i];
        held += p->holders != 0;
        if (!p->committed)
            continue;
        if (find(kv, p->parent, p->salt, p->tokens) != i)
            return false;
        if (p->parent != KV_NO_PAGE) {
            const struct kv_page *parent = &kv->pages[p->parent];
            if (!parent->committed || parent->children == 0 || (p->holders && !parent->holders))
                return false;
        }
    }
    for (u32 i = 0; i < kv->n_checkpoints; i++) {
        const struct kv_checkpoint *c = &kv->checkpoints[i];
        if (c->taken && c->page != KV_NO_PAGE &&
            (!kv->pages[c->page].committed || kv->pages[c->page].checkpoint != i))
            return false;
    }
    return last == kv->last_idle && idle == kv->idle && idle + held == kv->n;
}
