#include "core/engine/mask_words.h"

#include "core/base/utf8.h"
#include "core/engine/device.h"

#include <string.h>

size_t mask_words_bytes(u32 vocab)
{
    return vocab * (sizeof(struct word) + sizeof(u8) + 3 * sizeof(u32)) +
           (2 + COUNTOF(word_marks)) * MASK_WORDS(vocab) * sizeof(u64) + 512;
}

bool mask_words_lay_out(struct mask_words *w, struct arena *a, const struct tokenizer *t, u32 vocab)
{
    *w = (struct mask_words){.tokenizer = t, .vocab = vocab};
    w->words = ARENA_NEW(a, struct word, vocab);
    w->order = ARENA_NEW(a, u32, vocab);
    w->shared = ARENA_NEW(a, u8, vocab);
    w->texts = ARENA_NEW(a, u32, vocab);
    w->space = ARENA_NEW(a, u32, vocab);
    w->all_inside = ARENA_NEW(a, u64, MASK_WORDS(vocab));
    w->all = ARENA_NEW(a, u64, MASK_WORDS(vocab));
    for (u32 i = 0; i < COUNTOF(w->with); i++)
        w->with[i] = ARENA_NEW(a, u64, MASK_WORDS(vocab));
    return w->words && w->order && w->shared && w->texts && w->space && w->all_inside && w->all &&
           w->with[0] && w->with[1];
}

/* --- strings ---------------------------------------------------------------------------------- */

/* Bytes of an escape, or of the beginning of one that is all there is; 0: it is none. */
static u32 escape(struct str s)
{
    static const char hex[] = "0123456789abcdefABCDEF";
    if (s.n == 1 || (s.p[1] != 'u' && memchr("\"\\/bfnrt", s.p[1], 8)))
        return (u32)MIN(s.n, (size_t)2);
    for (u32 i = 2; s.p[1] == 'u' && i < 6; i++) {
        if (i == s.n)
            return i;
        bool surrogate = i == 3 && (s.p[2] | 0x20) == 'd' && s.p[3] > '7';
        if (surrogate || !memchr(hex, s.p[i], sizeof hex - 1))
            return 0;
    }
    return s.p[1] == 'u' ? 6 : 0;
}

struct word word_of(struct str s)
{
    size_t i = 0;
    u32 n = 0, cp;
    bool plain = true;
    for (; i < s.n && s.p[i] != '"'; n++) {
        struct str rest = {s.p + i, s.n - i};
        u32 bytes = s.p[i] == '\\' ? escape(rest) : utf8_decode(rest.p, rest.n, &cp);
        plain = plain && bytes && s.p[i] != '\\';
        if (!bytes && utf8_incomplete(rest.p, rest.n))
            bytes = (u32)rest.n;
        if (!bytes || (u8)s.p[i] < ' ')
            return (struct word){.kind = WORD_OUTSIDE};
        i += bytes;
    }
    if (i > WORD_CHARS)
        return (struct word){.kind = WORD_ANY};
    u8 behind = i + 1 < s.n ? (u8)s.p[i + 1] : 0;
    u8 kind = i < s.n ? (plain ? WORD_END_PLAIN : WORD_END) : plain ? WORD_PLAIN : WORD_INSIDE;
    return (struct word){.kind = kind, .chars = (u8)n, .end = (u8)i, .behind = behind};
}

/* --- order ------------------------------------------------------------------------------------ */

/* Sizes of parts, each at the index behind its own, to where they begin; returns where all end. */
static u32 to_places(u32 *parts, u32 n)
{
    for (u32 i = 1; i < n; i++)
        parts[i] += parts[i - 1];
    return parts[n - 1];
}

/* A token as it is written in the vocabulary: there it begins like another where its text does.
 * rest: only what is behind its first quote. */
static struct str written(const struct mask_words *w, u32 id, bool rest)
{
    struct str s = tokenizer_content(w->tokenizer, id);
    const char *quote = rest ? memchr(s.p, '"', s.n) : NULL;
    return quote ? (struct str){quote + 1, s.n - (size_t)(quote + 1 - s.p)} : s;
}

static u8 byte_at(struct str s, u32 at)
{
    return at < s.n ? (u8)s.p[at] : 0;
}

static int compare(struct str a, struct str b)
{
    int order = memcmp(a.p, b.p, MIN(a.n, b.n));
    return order ? order : (int)a.n - (int)b.n;
}

static void sort_few(const struct mask_words *w, u32 *ids, u32 n, bool rest)
{
    for (u32 i = 1; i < n; i++) {
        u32 id = ids[i], at = i;
        struct str s = written(w, id, rest);
        for (; at > 0 && compare(written(w, ids[at - 1], rest), s) > 0; at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

/* ids[n], which are written alike up to byte `at`; what is alike for longer than DEEPEST is left as
 * it is. */
static void sort(const struct mask_words *w, u32 *ids, u32 n, bool rest, u32 at)
{
    enum { FEW = 12, DEEPEST = 48 };
    u32 next[257] = {0}, end = 0;
    if (n <= FEW || at == DEEPEST) {
        sort_few(w, ids, n <= FEW ? n : 0, rest);
        return;
    }
    for (u32 i = 0; i < n; i++)
        next[byte_at(written(w, ids[i], rest), at) + 1]++;
    to_places(next, COUNTOF(next));
    for (u32 i = 0; i < n; i++)
        w->space[next[byte_at(written(w, ids[i], rest), at)]++] = ids[i];
    memcpy(ids, w->space, n * sizeof *ids);
    for (u32 byte = 0, begin = 0; byte < 256; byte++, begin = end) {
        end = next[byte];
        if (byte > 0 && end - begin > 1) /* 0: these have ended */
            sort(w, ids + begin, end - begin, rest, at + 1);
    }
}

/* Their first bytes are in texts for a while, and how many have each in first. */
static void put_in_order(struct mask_words *w)
{
    char bytes[2][LIMIT_TOKEN_BYTES];
    u32 n[2] = {0}, next[256];
    to_places(w->first, COUNTOF(w->first));
    memcpy(next, w->first, sizeof next);
    for (u32 id = 0; id < w->vocab; id++)
        if (w->words[id].kind != WORD_NONE)
            w->order[next[w->texts[id]]++] = id;
    for (u32 byte = 0; byte < 256; byte++)
        sort(w, w->order + w->first[byte], w->first[byte + 1] - w->first[byte], false, 0);
    for (u32 i = 0; i < w->first[256]; i++) {
        u32 now = i % 2, k = 0;
        n[now] = tokenizer_bytes(w->tokenizer, w->order[i], bytes[now]);
        while (k < MIN(MIN(n[0], n[1]), 255u) && bytes[0][k] == bytes[1][k])
            k++;
        w->shared[i] = (u8)k;
    }
}

/* Those that are alike behind the quote side by side. */
static void sort_ends(struct mask_words *w, u32 *ids, u32 n)
{
    char bytes[2][LIMIT_TOKEN_BYTES];
    struct str rest[2] = {0};
    sort(w, ids, n, true, 0);
    for (u32 i = 0; i < n; i++) {
        struct word *word = &w->words[ids[i]];
        u32 now = i % 2, length = tokenizer_bytes(w->tokenizer, ids[i], bytes[now]);
        rest[now] = (struct str){bytes[now] + word->end + 1, length - word->end - 1u};
        word->alike = i > 0 && str_eq(rest[0], rest[1]);
    }
}

static void list_texts(struct mask_words *w)
{
    u32 next[WORD_CHARS + 1];
    memset(w->inside, 0, sizeof w->inside);
    memset(w->all_inside, 0, MASK_WORDS(w->vocab) * sizeof *w->all_inside);
    for (u32 id = 0; id < w->vocab; id++)
        if (word_is_inside(w->words[id].kind)) {
            w->all_inside[id / 64] |= (u64)1 << id % 64;
            w->inside[w->words[id].chars + 1]++;
        }
    w->n_ends = to_places(w->inside, COUNTOF(w->inside));
    memcpy(next, w->inside, sizeof next);
    for (u32 id = 0; id < w->vocab; id++)
        if (word_is_inside(w->words[id].kind))
            w->texts[next[w->words[id].chars]++] = id;
        else if (word_ends(w->words[id].kind))
            w->texts[w->n_ends++] = id;
    sort_ends(w, w->texts + w->inside[WORD_CHARS + 1], w->n_ends - w->inside[WORD_CHARS + 1]);
    w->n_texts = w->n_ends;
    for (u32 id = 0; id < w->vocab; id++)
        if (w->words[id].kind == WORD_ANY)
            w->texts[w->n_texts++] = id;
}

static void set_bit(u64 *bits, u32 id, bool is)
{
    bits[id / 64] = (bits[id / 64] & ~((u64)1 << id % 64)) | (u64)is << id % 64;
}

void mask_words_read(struct mask_words *w)
{
    char bytes[LIMIT_TOKEN_BYTES];
    memset(w->first, 0, sizeof w->first);
    memset(w->all, 0, MASK_WORDS(w->vocab) * sizeof *w->all);
    for (u32 k = 0; k < COUNTOF(w->with); k++)
        memset(w->with[k], 0, MASK_WORDS(w->vocab) * sizeof *w->all);
    for (u32 id = 0; id < w->vocab; id++) {
        u32 n = tokenizer_bytes(w->tokenizer, id, bytes);
        w->words[id] = word_of((struct str){bytes, n});
        if (!n || tokenizer_is_special(w->tokenizer, id))
            w->words[id].kind = n ? WORD_SPECIAL : WORD_NONE;
        set_bit(w->all, id, n > 0);
        for (u32 k = 0; k < COUNTOF(w->with); k++)
            set_bit(w->with[k], id, n && memchr(bytes, word_marks[k], n));
        w->texts[id] = n ? (u8)bytes[0] : 0;
        w->first[w->texts[id] + 1] += n > 0;
    }
    put_in_order(w);
    list_texts(w);
    w->ready = true;
}
