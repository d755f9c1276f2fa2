#include "core/model/bpe.h"

#include "core/base/utf8.h"
#include "core/model/unicode.h"

#include <stdio.h>

struct symbol {
    u32 id;         /* BPE_NONE: merged into the one on its left */
    u32 prev, next; /* BPE_NONE at the ends */
};

/* A binary heap of rank << 32 | position, the least on top. */
struct heap {
    u64 *at;
    size_t n;
};

static void heap_sink(struct heap *h, size_t i)
{
    u64 v = h->at[i];
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->at[child + 1] < h->at[child])
            child++;
        if (v <= h->at[child])
            break;
        h->at[i] = h->at[child];
    }
    h->at[i] = v;
}

static void heap_push(struct heap *h, u64 v)
{
    size_t i = h->n++;
    for (; i > 0 && v < h->at[(i - 1) / 2]; i = (i - 1) / 2)
        h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = v;
}

static u64 heap_pop(struct heap *h)
{
    u64 top = h->at[0];
    h->at[0] = h->at[--h->n];
    if (h->n)
        heap_sink(h, 0);
    return top;
}

static u32 merge_slot(const struct bpe *b, u32 left, u32 right)
{
    u64 h = (((u64)left << 32 | right) ^ b->vocab.seed) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0xff51afd7ed558ccdu;
    return (u32)(h >> 32) & b->merges_mask;
}

static const struct bpe_merge *merge_find(const struct bpe *b, u32 left, u32 right)
{
    for (u32 i = merge_slot(b, left, right);; i = (i + 1) & b->merges_mask) {
        const struct bpe_merge *m = &b->merges[i];
        if (m->left == left && m->right == right)
            return m;
        if (m->left == BPE_NONE)
            return NULL;
    }
}

bool bpe_merges_open(struct bpe *b, struct arena *a, u32 n)
{
    size_t slots = 16;
    while (slots < (size_t)n + n / 2)
        slots *= 2;
    b->merges = ARENA_NEW(a, struct bpe_merge, slots);
    b->merges_mask = (u32)slots - 1;
    for (size_t i = 0; b->merges && i < slots; i++)
        b->merges[i].left = BPE_NONE;
    return b->merges != NULL;
}

bool bpe_merges_add(struct bpe *b, u32 left, u32 right, u32 rank, u32 merged)
{
    u32 i = merge_slot(b, left, right);
    for (; b->merges[i].left != BPE_NONE; i = (i + 1) & b->merges_mask)
        if (b->merges[i].left == left && b->merges[i].right == right)
            return false;
    b->merges[i] = (struct bpe_merge){left, right, rank, merged};
    return true;
}

static u32 model_find(const struct bpe *b, struct str s)
{
    u32 id = vocab_find(&b->vocab, s);
    return id < b->model_n ? id : BPE_NONE;
}

void bpe_index(struct bpe *b)
{
    char text[8];
    for (u32 i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", i);
        b->bytes[i] = model_find(b, (struct str){text, 6});
    }
    for (u32 i = 0; i < BPE_DIRECT; i++)
        b->direct[i] = model_find(b, (struct str){text, utf8_encode(i, text)});
}

size_t bpe_symbols_max(const struct bpe *b, size_t bytes, size_t chars)
{
    return b->byte_fallback ? bytes : chars;
}

size_t bpe_work_bytes(size_t symbols)
{
    return symbols * (2 * sizeof(u64) + sizeof(struct symbol)) + sizeof(u64);
}

static bool fallback_known(const struct bpe *b, const char *p, u32 n)
{
    for (u32 i = 0; i < n; i++)
        if (b->bytes[(u8)p[i]] == BPE_NONE)
            return false;
    return b->byte_fallback;
}

/* The symbols of a word before any merge. The unknown token is held back so that a run of unknown
 * characters can become one; byte fallback does not release it (as in the library). */
static u32 symbols_of(const struct bpe *b, struct str word, struct symbol *s)
{
    u32 n = 0, cp, len;
    bool unk = false;
    for (size_t i = 0; i < word.n; i += len) {
        len = unicode_next(word.p + i, &cp);
        u32 id = cp < BPE_DIRECT ? b->direct[cp] : model_find(b, (struct str){word.p + i, len});
        if (id != BPE_NONE) {
            if (unk)
                s[n++].id = b->unk;
            unk = false;
            s[n++].id = id;
        } else if (fallback_known(b, word.p + i, len)) {
            for (u32 k = 0; k < len; k++)
                s[n++].id = b->bytes[(u8)word.p[i + k]];
        } else if (b->unk != BPE_NONE) {
            if (unk && !b->fuse_unk)
                s[n++].id = b->unk;
            unk = true;
        }
    }
    if (unk)
        s[n++].id = b->unk;
    return n;
}

static void merge_offer(const struct bpe *b, struct heap *h, const struct symbol *s, u32 left)
{
    u32 right = s[left].next;
    const struct bpe_merge *m = right == BPE_NONE ? NULL : merge_find(b, s[left].id, s[right].id);
    if (m)
        heap_push(h, (u64)m->rank << 32 | left);
}

static void merge_all(const struct bpe *b, struct symbol *s, u32 n, struct heap *h)
{
    for (u32 i = 0; i < n; i++) {
        s[i].prev = i ? i - 1 : BPE_NONE;
        s[i].next = i + 1 < n ? i + 1 : BPE_NONE;
    }
    for (u32 i = 0; i + 1 < n; i++) {
        const struct bpe_merge *m = merge_find(b, s[i].id, s[i + 1].id);
        if (m)
            h->at[h->n++] = (u64)m->rank << 32 | i;
    }
    for (size_t i = h->n / 2; i-- > 0;)
        heap_sink(h, i);
    while (h->n) {
        u64 top = heap_pop(h);
        u32 left = (u32)top, right = s[left].next;
        if (s[left].id == BPE_NONE || right == BPE_NONE)
            continue;
        const struct bpe_merge *m = merge_find(b, s[left].id, s[right].id);
        if (!m || m->rank != top >> 32)
            continue; /* queued for a pair that is gone */
        s[left].id = m->merged;
        s[left].next = s[right].next;
        s[right].id = BPE_NONE;
        if (s[left].next != BPE_NONE)
            s[s[left].next].prev = left;
        if (s[left].prev != BPE_NONE)
            merge_offer(b, h, s, s[left].prev);
        merge_offer(b, h, s, left);
    }
}

size_t bpe_encode(const struct bpe *b, struct str word, void *work, u32 *ids, size_t cap)
{
    u32 whole = b->ignore_merges ? model_find(b, word) : BPE_NONE;
    if (whole != BPE_NONE) {
        if (cap)
            ids[0] = whole;
        return 1;
    }
    struct symbol *s = work;
    u32 n = symbols_of(b, word, s);
    /* at most one entry a pair at the start and one more a merge: never more than 2 n */
    struct heap h = {.at = (u64 *)(void *)((u8 *)work + ROUND_UP(n * sizeof *s, sizeof(u64)))};
    size_t out = 0;
    merge_all(b, s, n, &h);
    for (u32 i = 0; i < n; i++)
        if (s[i].id != BPE_NONE) {
            if (out < cap)
                ids[out] = s[i].id;
            out++;
        }
    return out;
}
