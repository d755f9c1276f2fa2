/* Split patterns of byte-level tokenizers. A tokenizer.json carries a regular expression; the ones
 * in use are a handful, so each is recognised by its text and run by one scanner with the meaning
 * Oniguruma gives it (ordered alternatives with backtracking). Nothing is compiled from a file,
 * every scan is linear, and together the known patterns match every text without a gap.
 */
#ifndef ZIGCUDA_SPLIT_H
#define ZIGCUDA_SPLIT_H

#include "core/base/base.h"

struct split_rule;

/* The rule of a known pattern, or NULL. */
const struct split_rule *split_find(struct str regex);

/* GPT-2's pattern, which ByteLevel applies when use_regex is set. */
const struct split_rule *split_gpt2(void);

/* End of the match that starts at `at` (< text.n); text is valid UTF-8, at a character. */
size_t split_next(const struct split_rule *r, struct str text, size_t at);

#endif
