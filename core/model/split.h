/* Split patterns of tokenizer.json: regular expressions as Oniguruma reads them (Ruby's syntax,
 * Unicode classes), compiled when a tokenizer is loaded and matched by backtracking, so that the
 * first alternative that fits wins. Understood are characters, escapes, classes with everything in
 * them (ranges, \p{..}, nesting, &&, negation), alternatives, groups (?:..) (..) (?>..) (?i:..),
 * ? * + {m,n} with a lazy ? or a possessive +, look-ahead, ^ and $. The rest is refused with its
 * place. A pattern lives in the `keep` arena; a match takes no memory but the stack.
 */
#ifndef ZIGCUDA_SPLIT_H
#define ZIGCUDA_SPLIT_H

#include "core/base/arena.h"
#include "core/base/err.h"

struct split;

/* Refusals are ERR_MODEL and begin with path. */
MUST enum err split_compile(struct arena *keep, struct str regex, const char *path,
                            struct split **out, struct err_text *e);

/* What ByteLevel applies when use_regex is set. */
#define SPLIT_GPT2 "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* One character that Digits or Punctuation cuts at: no category, and no property of Oniguruma. */
#define SPLIT_DIGIT "\\p{=digit}"
#define SPLIT_PUNCTUATION "\\p{=punctuation}"

/* What is left of the work that one text may take, over all its pieces and patterns. */
struct split_budget {
    i64 steps;        /* characters walked over or taken back */
    const char *over; /* the limit that ended a search, or NULL */
};
i64 split_steps(size_t text_bytes);

/* What the search in one piece of text has found out. */
struct split_scan {
    struct split_budget *budget;
    size_t known_end; /* of what is known */
    u32 known_n;
    struct split_known { /* a run that came to nothing */
        const struct split_step *step;
        size_t from, to; /* one that starts in between would too */
    } known[4];
};

/* The first match that begins at `from` or behind it, an empty one only behind it. Text is valid
 * UTF-8 and `from` at a character. Another piece has another scan. False, too, when the budget
 * is over. */
bool split_next(const struct split *r, struct str text, size_t from, struct split_scan *scan,
                size_t *start, size_t *end);

#endif
