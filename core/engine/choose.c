#include "core/engine/choose.h"

#include "core/base/utf8.h"

#include <math.h>
#include <string.h>

/* What a token is in a JSON string, at the beginning of a character. */
enum {
    WORD_NONE,
    WORD_SPECIAL, /* no text, but where a mark is */
    WORD_ANY,     /* it has more characters than are counted */
    WORD_OUTSIDE, /* it fits in none */
    WORD_END,     /* characters, a quote, and anything or nothing */
    WORD_END_PLAIN,
    WORD_INSIDE, /* characters, of which the last one may be a beginning */
    WORD_PLAIN   /* whole ones that are written as they are */
};
enum { CHARS_MAX = 255 };

static size_t words(u32 vocab)
{
    return CEIL_DIV(vocab, 64u);
}

size_t choose_bytes(u32 vocab, u32 rows)
{
    size_t a_token = 4 * (rows + 4) + sizeof(u16) + 6;
    return vocab * a_token + CHOOSE_MASKS * words(vocab) * sizeof(u64) + 1024;
}

bool choose_lay_out(struct chooser *c, struct arena *a, const struct tokenizer *t, u32 vocab,
                    u32 rows)
{
    *c = (struct chooser){.tokenizer = t, .vocab = vocab, .rows = rows};
    if (rows == 0)
        return true;
    c->logits = ARENA_NEW(a, float, (size_t)rows *vocab);
    c->masked = ARENA_NEW(a, float, vocab);
    c->scratch.z = ARENA_NEW(a, float, vocab);
    c->scratch.key = ARENA_NEW(a, float, vocab);
    c->scratch.index = ARENA_NEW(a, u32, vocab);
    c->counts.output = ARENA_NEW(a, u16, vocab);
    c->counts.prompt = ARENA_NEW(a, u8, vocab);
    c->first = ARENA_NEW(a, u8, vocab);
    c->second = ARENA_NEW(a, u8, vocab);
    c->kind = ARENA_NEW(a, u8, vocab);
    c->chars = ARENA_NEW(a, u8, vocab);
    c->end = ARENA_NEW(a, u8, vocab);
    bool room = c->logits && c->masked && c->scratch.z && c->scratch.key && c->scratch.index &&
                c->counts.output && c->counts.prompt && c->first && c->second && c->kind &&
                c->chars && c->end;
    for (u32 i = 0; i < CHOOSE_MASKS; i++) {
        c->masks[i].bits = ARENA_NEW(a, u64, words(vocab));
        room = room && c->masks[i].bits;
    }
    return room;
}

float *choose_row(const struct chooser *c, u32 i)
{
    ASSERT(i < c->rows);
    return c->logits + (size_t)i * c->vocab;
}

/* --- words ------------------------------------------------------------------------------------ */

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

/* What it is, how many characters of it are in the string, and where these end. */
static u8 kind_of(struct str s, u8 *chars, u8 *end)
{
    size_t i = 0;
    u32 n = 0, cp;
    bool plain = true;
    *chars = *end = 0;
    for (; i < s.n && s.p[i] != '"'; n++) {
        struct str rest = {s.p + i, s.n - i};
        u32 bytes = s.p[i] == '\\' ? escape(rest) : utf8_decode(rest.p, rest.n, &cp);
        plain = plain && bytes && s.p[i] != '\\';
        if (!bytes && utf8_incomplete(rest.p, rest.n))
            bytes = (u32)rest.n;
        if (!bytes || (u8)s.p[i] < ' ')
            return WORD_OUTSIDE;
        i += bytes;
    }
    if (i > CHARS_MAX)
        return WORD_ANY;
    *chars = (u8)n;
    *end = (u8)i;
    return i < s.n ? (plain ? WORD_END_PLAIN : WORD_END) : plain ? WORD_PLAIN : WORD_INSIDE;
}

static void read_words(struct chooser *c)
{
    char bytes[LIMIT_TOKEN_BYTES];
    for (u32 id = 0; id < c->vocab; id++) {
        u32 n = tokenizer_bytes(c->tokenizer, id, bytes);
        u8 kind = kind_of((struct str){bytes, n}, &c->chars[id], &c->end[id]);
        c->first[id] = n ? (u8)bytes[0] : 0;
        c->second[id] = n > 1 ? (u8)bytes[1] : 0;
        c->kind[id] = !n ? WORD_NONE : tokenizer_is_special(c->tokenizer, id) ? WORD_SPECIAL : kind;
    }
    c->ready = true;
}

/* --- masks ------------------------------------------------------------------------------------ */

/* Does a token fit, from its byte `from` on? */
static bool fits(const struct chooser *c, const struct grammar *g, const struct grammar_state *s,
                 u32 id, u32 from)
{
    char bytes[LIMIT_TOKEN_BYTES];
    u32 n = tokenizer_bytes(c->tokenizer, id, bytes), i = from;
    struct grammar_state at;
    grammar_copy(&at, s);
    while (i < n && grammar_step(g, &at, (u8)bytes[i]))
        i++;
    return i == n;
}

static void set(struct mask *m, u32 id, bool fits)
{
    m->bits[id / 64] |= (u64)fits << id % 64;
}

static void next_bytes(const struct grammar *g, const struct grammar_state *s, bool fits[256])
{
    struct grammar_state at;
    for (u32 byte = 0; byte < 256; byte++) {
        grammar_copy(&at, s);
        fits[byte] = grammar_step(g, &at, (u8)byte);
    }
}

/* Many tokens begin with a blank, and between values blanks fit: there it is seen by the second
 * byte that most of them do not. */
static void fill(struct chooser *c, const struct grammar *g, const struct grammar_state *s,
                 struct mask *m)
{
    bool first[256], second[256] = {false};
    u32 room = grammar_text_room(g, s), least = grammar_in_mark(s) ? WORD_SPECIAL : WORD_ANY;
    struct grammar_state blank;
    next_bytes(g, s, first);
    grammar_copy(&blank, s);
    if (grammar_step(g, &blank, ' '))
        next_bytes(g, &blank, second);
    for (u32 id = 0; id < c->vocab; id++) {
        if (c->kind[id] < least || !first[c->first[id]] ||
            (c->first[id] == ' ' && c->second[id] && !second[c->second[id]]))
            continue;
        set(m, id, (c->kind[id] == WORD_PLAIN && c->chars[id] <= room) || fits(c, g, s, id, 0));
    }
}

static struct mask *mask_of(struct chooser *c, const struct grammar *g,
                            const struct grammar_state *s, bool rest);

static bool ends(u8 kind)
{
    return kind == WORD_END || kind == WORD_END_PLAIN;
}

/* What is behind the quote that ends a string is the same wherever in the string that comes. */
static void fill_rest(struct chooser *c, const struct grammar *g, const struct grammar_state *s,
                      struct mask *m)
{
    for (u32 id = 0; id < c->vocab; id++)
        if (ends(c->kind[id]))
            set(m, id, fits(c, g, s, id, c->end[id] + 1u));
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
static bool matches(const struct chooser *c, const struct text *t, u32 id)
{
    struct regex_room room = t->is.room;
    char bytes[LIMIT_TOKEN_BYTES];
    u32 chars = c->chars[id];
    tokenizer_bytes(c->tokenizer, id, bytes);
    u16 state = regex_read_text(&t->pattern, t->is.state, (struct str){bytes, c->end[id]});
    if (state == REGEX_DEAD)
        return false;
    room.most -= room.most == UINT32_MAX ? 0 : chars;
    room.least -= MIN(room.least, chars);
    struct regex_state to = regex_state_of(&t->g->patterns, t->is.pattern, state);
    return ends(c->kind[id]) ? to.least == 0 : regex_fits(to, room);
}

/* In a string, whose state may be new with each character: the grammar reads few tokens or none. */
static void fill_text(struct chooser *c, const struct grammar_state *s, struct text *t,
                      struct mask *m)
{
    struct grammar_state behind;
    struct regex_room room = t->is.room;
    bool pattern = t->is.pattern != GRAMMAR_NONE;
    grammar_end_text(&behind, s);
    const struct mask *rest = mask_of(c, t->g, &behind, true);
    if (pattern)
        open_text(t);
    for (u32 id = 0; id < c->vocab; id++) {
        u8 kind = c->kind[id];
        bool end = ends(kind);
        if (kind < WORD_ANY || kind == WORD_OUTSIDE || c->chars[id] > room.most ||
            (pattern && t->dead[c->first[id]]) ||
            (end && (c->chars[id] < room.least || !(rest->bits[id / 64] >> id % 64 & 1))))
            continue;
        if (pattern && (kind == WORD_PLAIN || kind == WORD_END_PLAIN))
            set(m, id, matches(c, t, id));
        else
            set(m, id, (!pattern && kind != WORD_ANY) || fits(c, t->g, s, id, 0));
    }
}

/* The one that was not used for longest makes room for a new one. */
static struct mask *mask_of(struct chooser *c, const struct grammar *g,
                            const struct grammar_state *s, bool rest)
{
    struct mask *oldest = c->masks;
    struct text text = {.g = g};
    c->used++;
    for (u32 i = 0; i < CHOOSE_MASKS; i++) {
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
    memset(oldest->bits, 0, words(c->vocab) * sizeof *oldest->bits);
    if (rest)
        fill_rest(c, g, s, oldest);
    else if (grammar_in_text(g, s, &text.is))
        fill_text(c, s, &text, oldest);
    else
        fill(c, g, s, oldest);
    return oldest;
}

/* --- tokens ------------------------------------------------------------------------------------
 */

static void count(struct chooser *c, const struct choosing *what)
{
    const struct sampling *s = what->sampling;
    if (s->repetition_penalty == 1 && s->presence_penalty == 0 && s->frequency_penalty == 0)
        return;
    memset(c->counts.output, 0, c->vocab * sizeof *c->counts.output);
    memset(c->counts.prompt, 0, c->vocab);
    for (u32 i = 0; i < what->n_prompt; i++)
        c->counts.prompt[what->tokens[i]] = 1;
    for (u32 i = what->n_prompt; i < what->n_tokens; i++)
        sample_count(&c->counts, what->tokens[i]);
}

bool choose_token(struct chooser *c, const struct choosing *what, struct step_result *out)
{
    const struct sampling *s = what->sampling;
    bool complete = grammar_complete(what->grammar, what->state);
    if (!c->ready)
        read_words(c);
    const struct mask *m = mask_of(c, what->grammar, what->state, false);
    for (u32 id = 0; id < c->vocab; id++)
        c->masked[id] = m->bits[id / 64] >> id % 64 & 1 ? what->logits[id] : -INFINITY;
    for (u32 i = 0; i < s->n_stop; i++)
        if (s->stop[i] < c->vocab)
            c->masked[s->stop[i]] = complete ? what->logits[s->stop[i]] : -INFINITY;
    u32 any = 0;
    while (any < c->vocab && c->masked[any] == -INFINITY)
        any++;
    if (any == c->vocab)
        return false;
    count(c, what);
    sample_token(s, c->masked, c->vocab, what->n_tokens - 1, what->n_tokens - what->n_prompt,
                 &c->counts, &c->scratch, out);
    if (s->logprobs) /* of the raw logits */
        sample_logprobs(s, what->logits, c->vocab, out);
    return true;
}
