/* A vocabulary in which all stands that makes a difference to a grammar, for unit tests and
 * fuzzing.
 */
#ifndef ZIGCUDA_WORDS_H
#define ZIGCUDA_WORDS_H

#include "core/base/arena.h"
#include "core/engine/grammar.h"
#include "core/model/tokenizer.h"

enum { WORDS = 78 };
extern const char *const all_words[WORDS];

/* Byte-level BPE without merges: token i is list[i], of at most 24 bytes. NULL: it was refused. */
struct tokenizer *words_tokenizer(struct arena *a, const char *const *list, u32 n);

/* Calls in XML of functions a and ab, of which the first has these parameters. */
MUST enum err words_calls(struct grammar *g, const struct json *schema, bool mark,
                          struct err_text *e);

/* Does the grammar read it there? */
bool words_fit(const struct grammar *g, const struct grammar_state *s, const char *word);

#endif
