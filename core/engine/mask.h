/* Which tokens a grammar lets through, a bit a token: samplers leave the others out. Found by
 * letting the grammar read them, but few to their end: those that begin alike are read together,
 * and what they are in a string is known (mask_words.h). Masks are kept, as an answer comes back to
 * the same state with most of its tokens. One thread; its memory is taken once.
 */
#ifndef ZIGCUDA_MASK_H
#define ZIGCUDA_MASK_H

#include "core/engine/device.h"
#include "core/engine/grammar.h"
#include "core/engine/mask_words.h"

enum { MASK_LEVELS = 16 };

struct mask { /* of a state of a grammar */
    u64 serial, used;
    bool rest; /* only of tokens with a quote, of what is behind it */
    struct grammar_state state;
    u64 *bits; /* [MASK_WORDS(vocab)] */
};

/* Behind so many bytes of a token: a state, and what of the token's rest can be told at once. */
struct mask_level {
    struct grammar_state at;
    struct grammar_text text;
    bool in_text; /* whichever characters, as many as `text` says, */
    u32 room;     /* or at least so many that are plain */
};

struct masker {
    struct mask_words words;
    struct mask_level levels[MASK_LEVELS];
    u64 used;
    struct mask *masks; /* [kept] */
    u32 kept;
};

/* kept: how many masks; two for each sequence at once, of what it says and of what ends a string,
 * and some that come again, are enough. */
size_t mask_bytes(u32 vocab, u32 kept);
/* False: no room. */
MUST bool mask_lay_out(struct masker *c, struct arena *a, const struct tokenizer *t, u32 vocab,
                       u32 kept);

/* bits[MASK_WORDS(vocab)]: tokens that may follow; a stop id of p where the text may end, and only
 * there. False: there is none. */
bool mask_put(struct masker *c, const struct grammar *g, const struct grammar_state *s,
              const struct sampling *p, u64 *bits);

#endif
