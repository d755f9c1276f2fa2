/* Split patterns of byte-level tokenizers. A tokenizer.json carries a regular expression; the ones
 * in use are a handful, so each is recognised by its text and run by one scanner with the meaning
 * Oniguruma gives it (ordered alternatives with backtracking). Nothing is compiled from a file,
 * every scan is linear.
 */
#ifndef ZIGCUDA_SPLIT_H
#define ZIGCUDA_SPLIT_H

#include "core/base/base.h"

struct split_rule;

/* The rule of a known pattern, or NULL. */
const struct split_rule *split_find(struct str regex);

/* GPT-2's pattern, which ByteLevel applies when use_regex is set. */
const struct split_rule *split_gpt2(void);

/* What the Punctuation pre-tokenizer cuts at. */
const struct split_rule *split_punctuation(void);

/* Does the pattern match every text without a gap? */
bool split_covers(const struct split_rule *r);

/* End of the match that starts at `at` (< text.n), or of the text up to the next one where none
 * starts there; text is valid UTF-8, at a character. */
size_t split_next(const struct split_rule *r, struct str text, size_t at);

#endif
