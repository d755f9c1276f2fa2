#include "core/engine/mask.h"

#include <string.h>

size_t mask_bytes(u32 vocab, u32 kept)
{
    return mask_words_bytes(vocab) +
           kept * (sizeof(struct mask) + MASK_WORDS(vocab) * sizeof(u64) + 16);
}

bool mask_lay_out(struct masker *c, struct arena *a, const struct tokenizer *t, u32 vocab, u32 kept)
{
    bool room = mask_words_lay_out(&c->words, a, t, vocab);
    c->used = 0;
    c->kept = kept;
    c->masks = ARENA_NEW(a, struct mask, kept);
    if (!room || !c->masks)
        return false;
    for (u32 i = 0; i < kept; i++) {
        c->masks[i] = (struct mask){.bits = ARENA_NEW(a, u64, MASK_WORDS(vocab))};
        room = room && c->masks[i].bits;
    }
    return room;
}

/* --- masks ------------------------------------------------------------------------------------ */

static void set(struct mask *m, u32 id, bool fits)
{
    m->bits[id / 64] |= (u64)fits << id % 64;
}

static bool has(const struct mask *m, u32 id)
{
    return m->bits[id / 64] >> id % 64 & 1;
}

static bool reads(const struct grammar *g, const struct grammar_state *s, struct str text)
{
    struct grammar_state at;
    size_t i = 0;
    grammar_copy(&at, s);
    while (i < text.n && grammar_step(g, &at, (u8)text.p[i]))
        i++;
    return i == text.n;
}

/* Does a token fit, from its byte `from` on? */
static bool fits(const struct masker *c, const struct grammar *g, const struct grammar_state *s,
                 u32 id, u32 from)
{
    char bytes[LIMIT_TOKEN_BYTES];
    u32 n = tokenizer_bytes(c->words.tokenizer, id, bytes);
    return reads(g, s, (struct str){bytes + from, n - from});
}

static bool steps(const struct grammar *g, const struct grammar_state *s, u8 byte)
{
    struct grammar_state at;
    grammar_copy(&at, s);
    return grammar_step(g, &at, byte);
}

static void enter(const struct grammar *g, struct mask_level *l)
{
    l->in_text = grammar_in_text(g, &l->at, &l->text) && l->text.pattern == GRAMMAR_NONE;
    l->room = l->in_text ? 0 : grammar_text_room(g, &l->at);
}

/* In a string of whichever characters. */
static bool text_fits(const struct grammar *g, const struct mask_level *l, struct str rest)
{
    struct grammar_state behind;
    struct word word = word_of(rest);
    if (word.kind == WORD_ANY)
        return reads(g, &l->at, rest);
    if (word.kind == WORD_OUTSIDE || word.chars > l->text.room.most)
        return false;
    if (word_is_inside(word.kind))
        return true;
    grammar_end_text(&behind, &l->at);
    return word.chars >= l->text.room.least &&
           reads(g, &behind, (struct str){rest.p + word.end + 1, rest.n - word.end - 1u});
}

/* Tokens that begin alike, one after another: levels[known] stands behind what this one has in
 * common with those before it, and none that begins with more than `dead` bytes of it fits. */
struct walk {
    const struct grammar *g;
    struct mask_level *levels;
    u32 known, dead;
};

static bool walk_fits(struct walk *w, struct str s)
{
    while (w->known < s.n) {
        struct mask_level *l = &w->levels[w->known];
        struct str rest = {s.p + w->known, s.n - w->known};
        if (l->in_text)
            return text_fits(w->g, l, rest);
        if (l->room) {
            struct word word = word_of(rest);
            if (word.kind == WORD_PLAIN && word.chars <= l->room)
                return true;
        }
        if (w->known == MASK_LEVELS - 1)
            return reads(w->g, &l->at, rest);
        grammar_copy(&l[1].at, &l->at);
        if (!grammar_step(w->g, &l[1].at, (u8)*rest.p)) {
            w->dead = w->known;
            return false;
        }
        enter(w->g, &l[1]);
        w->known++;
    }
    return true;
}

/* Tokens of one first byte. */
static void fill_byte(struct masker *c, const struct grammar *g, u32 byte, u8 least, struct mask *m)
{
    const struct mask_words *words = &c->words;
    struct walk w = {g, c->levels, 0, UINT32_MAX};
    char bytes[LIMIT_TOKEN_BYTES];
    for (u32 i = words->first[byte]; i < words->first[byte + 1]; i++) {
        u32 id = words->order[i], shared = i == words->first[byte] ? 0 : words->shared[i];
        if (shared > w.dead)
            continue;
        w.known = MIN(w.known, shared);
        w.dead = UINT32_MAX;
        if (words->words[id].kind < least)
            continue;
        /* Such as stand in a string from their second character on, of which most are plain. */
        if (w.known == 1 && c->levels[1].in_text && words->words[id].kind == WORD_PLAIN &&
            byte < 0x80) {
            set(m, id, words->words[id].chars - 1u <= c->levels[1].text.room.most);
            continue;
        }
        u32 n = tokenizer_bytes(words->tokenizer, id, bytes);
        set(m, id, walk_fits(&w, (struct str){bytes, n}));
    }
}

/* In prose and thoughts all tokens fit by which no mark can begin or go on. */
static bool fill_prose(struct masker *c, const struct grammar *g, const struct grammar_state *s,
                       struct mask *m)
{
    const struct mask_words *words = &c->words;
    struct grammar_prose is;
    u32 k = 0;
    if (!grammar_in_mark(g, s) || !grammar_in_prose(g, s, &is))
        return false;
    while (is.begin && k < COUNTOF(word_marks) && (u8)word_marks[k] != is.begin)
        k++;
    if (k == COUNTOF(word_marks))
        return false;
    memcpy(m->bits, words->all, MASK_WORDS(words->vocab) * sizeof *m->bits);
    for (u32 i = 0; is.begin && i < MASK_WORDS(words->vocab); i++)
        for (u64 with = words->with[k][i]; with; with &= with - 1) {
            u32 bit = (u32)__builtin_ctzll(with);
            m->bits[i] ^= (u64)!fits(c, g, s, i * 64 + bit, 0) << bit;
        }
    for (u32 i = words->first[is.next]; is.next && i < words->first[is.next + 1]; i++) {
        u32 id = words->order[i];
        bool has = m->bits[id / 64] >> id % 64 & 1;
        m->bits[id / 64] ^= (u64)(has && !fits(c, g, s, id, 0)) << id % 64;
    }
    return true;
}

static void fill(struct masker *c, const struct grammar *g, const struct grammar_state *s,
                 struct mask *m)
{
    if (fill_prose(c, g, s, m))
        return;
    u8 least = grammar_in_mark(g, s) ? WORD_SPECIAL : WORD_ANY;
    grammar_copy(&c->levels[0].at, s);
    enter(g, &c->levels[0]);
    for (u32 byte = 0; byte < 256; byte++)
        if (c->words.first[byte] < c->words.first[byte + 1] && steps(g, s, (u8)byte))
            fill_byte(c, g, byte, least, m);
}

static struct mask *mask_of(struct masker *c, const struct grammar *g,
                            const struct grammar_state *s, bool rest);

/* What is behind the quote that ends a string is the same wherever in the string that comes. They
 * are in order of that. */
static void fill_rest(struct masker *c, const struct grammar *g, const struct grammar_state *s,
                      struct mask *m)
{
    u8 behind = 0;
    bool open = true, fit = false;
    for (u32 i = c->words.inside[WORD_CHARS + 1]; i < c->words.n_ends; i++) {
        u32 id = c->words.texts[i];
        const struct word *word = &c->words.words[id];
        if (word->behind != behind)
            open = word->behind == 0 || steps(g, s, word->behind);
        behind = word->behind;
        if (!word->alike)
            fit = open && fits(c, g, s, id, word->end + 1u);
        set(m, id, fit);
    }
}

/* A string with a pattern that is read by tokens. */
struct text {
    const struct grammar *g;
    struct grammar_text is;
    struct regex_reader pattern;
    bool dead[256]; /* first bytes that do not fit */
};

static void open_text(struct text *t)
{
    regex_open(&t->pattern, &t->g->patterns, t->is.pattern);
    memset(t->dead, 0, sizeof t->dead);
    for (u32 i = ' '; i < COUNTOF(t->pattern.ascii); i++)
        t->dead[i] = i != '"' && i != '\\' &&
                     t->pattern.cells[t->is.state * t->pattern.n_classes + t->pattern.ascii[i]] ==
                         REGEX_DEAD;
}

/* Do a token's characters, which are plain, fit the pattern, and if it has a quote that, too? */
static bool matches(const struct masker *c, const struct text *t, u32 id)
{
    struct regex_room room = t->is.room;
    char bytes[LIMIT_TOKEN_BYTES];
    const struct word *word = &c->words.words[id];
    tokenizer_bytes(c->words.tokenizer, id, bytes);
    u16 state = regex_read_text(&t->pattern, t->is.state, (struct str){bytes, word->end});
    if (state == REGEX_DEAD)
        return false;
    room.most -= room.most == UINT32_MAX ? 0 : word->chars;
    room.least -= MIN(room.least, word->chars);
    struct regex_state to = regex_state_of(&t->g->patterns, t->is.pattern, state);
    return word_ends(word->kind) ? to.least == 0 : regex_fits(to, room);
}

/* Of tokens without a quote those that have room. */
static void fill_inside(const struct masker *c, u32 most, struct mask *m)
{
    u32 n = most < WORD_CHARS ? c->words.inside[most + 1] : c->words.inside[WORD_CHARS + 1];
    if (n < c->words.inside[WORD_CHARS + 1] / 2) {
        for (u32 i = 0; i < n; i++)
            set(m, c->words.texts[i], true);
        return;
    }
    memcpy(m->bits, c->words.all_inside, MASK_WORDS(c->words.vocab) * sizeof *m->bits);
    for (u32 i = n; i < c->words.inside[WORD_CHARS + 1]; i++)
        m->bits[c->words.texts[i] / 64] &= ~((u64)1 << c->words.texts[i] % 64);
}

static void fill_any_text(struct masker *c, const struct grammar_state *s, const struct text *t,
                          const struct mask *rest, struct mask *m)
{
    struct regex_room room = t->is.room;
    fill_inside(c, room.most, m);
    for (u32 i = c->words.inside[WORD_CHARS + 1]; i < c->words.n_ends; i++) {
        u32 id = c->words.texts[i];
        u32 chars = c->words.words[id].chars;
        set(m, id, chars <= room.most && chars >= room.least && has(rest, id));
    }
    for (u32 i = c->words.n_ends; i < c->words.n_texts; i++)
        set(m, c->words.texts[i], fits(c, t->g, s, c->words.texts[i], 0));
}

static bool pattern_fits(const struct masker *c, const struct grammar_state *s,
                         const struct text *t, const struct mask *rest, u32 id)
{
    u8 kind = c->words.words[id].kind, chars = c->words.words[id].chars;
    if (kind < WORD_ANY || kind == WORD_OUTSIDE || chars > t->is.room.most ||
        (word_ends(kind) && (chars < t->is.room.least || !has(rest, id))))
        return false;
    if (kind == WORD_PLAIN || kind == WORD_END_PLAIN)
        return matches(c, t, id);
    return fits(c, t->g, s, id, 0);
}

/* In a string, whose state may be new with each character: the grammar reads few tokens or none. */
static void fill_text(struct masker *c, const struct grammar_state *s, struct text *t,
                      struct mask *m)
{
    struct grammar_state behind;
    grammar_end_text(&behind, s);
    const struct mask *rest = mask_of(c, t->g, &behind, true);
    if (t->is.pattern == GRAMMAR_NONE) {
        fill_any_text(c, s, t, rest, m);
        return;
    }
    open_text(t);
    grammar_copy(&c->levels[0].at, s);
    enter(t->g, &c->levels[0]);
    fill_byte(c, t->g, '\\', WORD_ANY, m); /* escapes: the grammar reads them */
    t->dead['\\'] = true;
    for (u32 byte = 0; byte < 256; byte++)
        for (u32 i = c->words.first[byte]; !t->dead[byte] && i < c->words.first[byte + 1]; i++)
            set(m, c->words.order[i], pattern_fits(c, s, t, rest, c->words.order[i]));
}

/* The one that was not used for longest makes room for a new one. */
static struct mask *mask_of(struct masker *c, const struct grammar *g,
                            const struct grammar_state *s, bool rest)
{
    struct mask *oldest = c->masks;
    struct text text = {.g = g};
    c->used++;
    for (u32 i = 0; i < c->kept; i++) {
        struct mask *m = &c->masks[i];
        if (m->serial == g->serial && m->rest == rest && grammar_same(&m->state, s)) {
            m->used = c->used;
            return m;
        }
        if (m->used < oldest->used)
            oldest = m;
    }
    oldest->serial = g->serial;
    oldest->used = c->used;
    oldest->rest = rest;
    grammar_copy(&oldest->state, s);
    memset(oldest->bits, 0, MASK_WORDS(c->words.vocab) * sizeof *oldest->bits);
    if (rest)
        fill_rest(c, g, s, oldest);
    else if (grammar_in_text(g, s, &text.is))
        fill_text(c, s, &text, oldest);
    else
        fill(c, g, s, oldest);
    return oldest;
}

bool mask_put(struct masker *c, const struct grammar *g, const struct grammar_state *s,
              const struct sampling *p, u64 *bits)
{
    const u64 complete = grammar_complete(g, s);
    u64 any = 0;
    if (!c->words.ready)
        mask_words_read(&c->words);
    memcpy(bits, mask_of(c, g, s, false)->bits, MASK_WORDS(c->words.vocab) * sizeof *bits);
    for (u32 i = 0; i < p->n_stop; i++) {
        u32 id = p->stop[i];
        if (id < c->words.vocab)
            bits[id / 64] = (bits[id / 64] & ~((u64)1 << id % 64)) | complete << id % 64;
    }
    for (u32 i = 0; i < MASK_WORDS(c->words.vocab); i++)
        any |= bits[i];
    return any != 0;
}
