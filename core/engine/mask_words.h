/* What the tokens of a vocabulary are to a grammar: the bytes of each in an order in which those
 * that begin alike stand together, and what it is within a JSON string.
 */
#ifndef ZIGCUDA_MASK_WORDS_H
#define ZIGCUDA_MASK_WORDS_H

#include "core/base/arena.h"
#include "core/model/tokenizer.h"

/* A text in a JSON string, at the beginning of a character. */
enum word_kind {
    WORD_NONE,
    WORD_SPECIAL, /* no text, but where a mark is */
    WORD_ANY,     /* it has more bytes than are counted */
    WORD_OUTSIDE, /* it fits in none */
    WORD_END,     /* characters, a quote, and anything or nothing */
    WORD_END_PLAIN,
    WORD_INSIDE, /* characters, of which the last one may be a beginning */
    WORD_PLAIN   /* whole ones that are written as they are */
};
enum { WORD_CHARS = 255 };

struct word {
    u8 kind, chars, end; /* so many characters of it are in the string, which end at this byte */
    u8 behind;           /* the byte behind its quote; 0: it has none, or that is all */
    bool alike;          /* it has a quote, and behind that what the one before it in `texts` has */
};

struct word word_of(struct str s);

static const char word_marks[] = {'<', '['}; /* what marks begin with */

static inline bool word_is_inside(u8 kind)
{
    return kind == WORD_INSIDE || kind == WORD_PLAIN;
}

static inline bool word_ends(u8 kind)
{
    return kind == WORD_END || kind == WORD_END_PLAIN;
}

struct mask_words {
    const struct tokenizer *tokenizer;
    u32 vocab;
    struct word *words; /* [vocab] of whole tokens */
    u32 *order;         /* ids of those that have a text: from first[b] on such as begin with b, */
    u32 first[257];
    u8 *shared; /* [vocab] bytes that one has in common with the one before it there, as far as they
                   are counted */
    /* Ids of what may be in a string: characters and no quote, from inside[n] on such as have n;
     * from inside[WORD_CHARS + 1] on with a quote; from n_ends on others. */
    u32 *texts, inside[WORD_CHARS + 2], n_ends, n_texts;
    u64 *all_inside; /* bits of the first of these */
    u64 *all;        /* of those that have bytes, */
    u64 *with[2];    /* and one of word_marks among them */
    u32 *space;      /* [vocab] while they are sorted */
    bool ready;
};

size_t mask_words_bytes(u32 vocab);
/* False: no room. */
MUST bool mask_words_lay_out(struct mask_words *w, struct arena *a, const struct tokenizer *t,
                             u32 vocab);

/* Reads all tokens, once: some 20 ms for 128,000 of them. */
void mask_words_read(struct mask_words *w);

#endif
