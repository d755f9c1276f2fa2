#include "core/engine/choose.h"

#include "core/base/utf8.h"

#include <math.h>
#include <string.h>

/* What a token's text is made of. */
enum {
    WORD_NONE,
    WORD_SPECIAL, /* no text, but where a mark is */
    WORD_ANY,
    WORD_PLAIN, /* and further: so many characters, which may stand in a JSON string as they are */
    WORD_MOST = 255 /* longer ones are any */
};

static size_t words(u32 vocab)
{
    return CEIL_DIV(vocab, 64u);
}

size_t choose_bytes(u32 vocab, u32 rows)
{
    size_t a_token = 4 * (rows + 4) + sizeof(u16) + 3;
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
    c->kind = ARENA_NEW(a, u8, vocab);
    bool room = c->logits && c->masked && c->scratch.z && c->scratch.key && c->scratch.index &&
                c->counts.output && c->counts.prompt && c->first && c->kind;
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

static u8 kind_of(struct str s)
{
    u32 n = 0;
    if (!utf8_valid(s))
        return WORD_ANY;
    for (size_t i = 0; i < s.n; i++) {
        if ((u8)s.p[i] < ' ' || s.p[i] == '"' || s.p[i] == '\\')
            return WORD_ANY;
        n += ((u8)s.p[i] & 0xc0) != 0x80;
    }
    return n <= WORD_MOST - WORD_PLAIN ? (u8)(WORD_PLAIN + n) : WORD_ANY;
}

static void read_words(struct chooser *c)
{
    char bytes[LIMIT_TOKEN_BYTES];
    for (u32 id = 0; id < c->vocab; id++) {
        u32 n = tokenizer_bytes(c->tokenizer, id, bytes);
        c->first[id] = n ? (u8)bytes[0] : 0;
        c->kind[id] = !n                                       ? WORD_NONE
                      : tokenizer_is_special(c->tokenizer, id) ? WORD_SPECIAL
                                                               : kind_of((struct str){bytes, n});
    }
    c->ready = true;
}

/* --- masks ------------------------------------------------------------------------------------ */

static bool fits(const struct chooser *c, const struct grammar *g, const struct grammar_state *s,
                 u32 id)
{
    char bytes[LIMIT_TOKEN_BYTES];
    u32 n = tokenizer_bytes(c->tokenizer, id, bytes), i = 0;
    struct grammar_state at;
    grammar_copy(&at, s);
    while (i < n && grammar_step(g, &at, (u8)bytes[i]))
        i++;
    return i == n;
}

static void fill(struct chooser *c, const struct grammar *g, const struct grammar_state *s,
                 struct mask *m)
{
    bool first[256];
    u32 room = grammar_text_room(g, s), least = grammar_in_mark(s) ? WORD_SPECIAL : WORD_ANY;
    struct grammar_state at;
    for (u32 byte = 0; byte < 256; byte++) {
        grammar_copy(&at, s);
        first[byte] = grammar_step(g, &at, (u8)byte);
    }
    memset(m->bits, 0, words(c->vocab) * sizeof *m->bits);
    for (u32 id = 0; id < c->vocab; id++) {
        u32 kind = c->kind[id];
        if (kind < least || !first[c->first[id]])
            continue;
        if (!(kind > WORD_PLAIN && kind - WORD_PLAIN <= room) && !fits(c, g, s, id))
            continue;
        m->bits[id / 64] |= (u64)1 << id % 64;
    }
}

/* The one that was not used for longest makes room for a new one. */
static const struct mask *mask_of(struct chooser *c, const struct grammar *g,
                                  const struct grammar_state *s)
{
    struct mask *oldest = c->masks;
    c->used++;
    for (u32 i = 0; i < CHOOSE_MASKS; i++) {
        struct mask *m = &c->masks[i];
        if (m->serial == g->serial && grammar_same(&m->state, s)) {
            m->used = c->used;
            return m;
        }
        if (m->used < oldest->used)
            oldest = m;
    }
    oldest->serial = g->serial;
    oldest->used = c->used;
    grammar_copy(&oldest->state, s);
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
    const struct mask *m = mask_of(c, what->grammar, what->state);
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
