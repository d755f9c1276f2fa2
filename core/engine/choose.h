/* Choosing a token on the host, of those that a grammar lets through: what does not fit is masked,
 * then sampling is what it always is (core/engine/sample.h). Which tokens fit is found by letting
 * the grammar read each of them; masks are kept, as an answer comes back to the same state with
 * most of its tokens. One thread; its memory is taken once.
 */
#ifndef ZIGCUDA_CHOOSE_H
#define ZIGCUDA_CHOOSE_H

#include "core/engine/grammar.h"
#include "core/engine/sample.h"
#include "core/model/tokenizer.h"

enum { CHOOSE_MASKS = 16 };

struct mask { /* of a state of a grammar */
    u64 serial, used;
    bool rest; /* only of tokens with a quote, of what is behind it */
    struct grammar_state state;
    u64 *bits; /* [CEIL_DIV(vocab, 64)] */
};

struct chooser {
    const struct tokenizer *tokenizer;
    u32 vocab, rows;
    float *logits, *masked; /* [rows][vocab], [vocab] */
    struct sample_scratch scratch;
    struct sample_counts counts;
    u8 *first, *second; /* [vocab] of a token's text: its first bytes, or 0, */
    u8 *kind;           /* what it is in a string, */
    u8 *chars, *end;    /* so many characters of it, and where that ends */
    bool ready;         /* these are there: from the first use on */
    u64 used;
    struct mask masks[CHOOSE_MASKS];
};

size_t choose_bytes(u32 vocab, u32 rows);
/* rows: of logits, for those who choose in one step; 0: none, and no memory. False: no room. */
MUST bool choose_lay_out(struct chooser *c, struct arena *a, const struct tokenizer *t, u32 vocab,
                         u32 rows);
float *choose_row(const struct chooser *c, u32 i); /* [vocab] */

struct choosing {
    const struct grammar *grammar;
    const struct grammar_state *state;
    const struct sampling *sampling;
    const u32 *tokens; /* prompt and output so far */
    u32 n_prompt, n_tokens;
    const float *logits; /* [vocab] behind the last of them */
};

/* Token and logprobs; a stop id fits where the text may end. False: no token fits. */
MUST bool choose_token(struct chooser *c, const struct choosing *what, struct step_result *out);

#endif
