/* What a text of a grammar goes on with as long as there is nothing to choose but blanks: brackets,
 * the keys that have to come, texts of which there is one. For guesses: whoever is asked may write
 * other blanks.
 */
#ifndef ZIGCUDA_FORESEE_H
#define ZIGCUDA_FORESEE_H

#include "core/engine/grammar.h"

struct foresee_blanks { /* behind signs, as this answer has them */
    struct str colon, comma;
};

/* By the end of what was said so far; of an answer that has none yet, one blank behind each. */
struct foresee_blanks foresee_blanks(struct str said);

/* So many bytes in out[room]; 0: that is open. */
u32 foresee(const struct grammar *g, const struct grammar_state *s, struct foresee_blanks blanks,
            char *out, u32 room);

#endif
