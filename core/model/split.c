#include "core/model/split.h"

#include "core/model/unicode.h"

/* Where contractions ('s 't 're 've 'm 'll 'd) are looked for. */
enum contraction {
    CONTRACTION_LEADING,        /* first alternative, lower case only */
    CONTRACTION_LEADING_FOLDED, /* first alternative, (?i:...) */
    CONTRACTION_TRAILING,       /* (?i:...)? behind a word */
    CONTRACTION_NONE,
};

/* Patterns of one run of characters, with or without a \s before it. */
enum run {
    RUN_NONE, /* another pattern: these match everything */
    RUN_LINE_ENDS,
    RUN_LETTERS,
    RUN_PUNCT,
    RUN_MARKS,
    RUN_HAN, /* and whatever else DeepSeek's range holds */
    RUN_ASCII_DIGITS,
};

struct split_rule {
    const char *regex;
    enum contraction contraction;
    bool gpt2;          /* words and numbers take one space before them, and no other rule */
    bool cased;         /* a word is UPPER* LOWER+ or UPPER+ LOWER* */
    u8 digits_max;      /* digits a number, 0: any */
    const char *behind; /* what punctuation swallows behind it */
    enum run run;       /* the others do not count then */
    bool space;
    u32 exactly; /* characters; 0: one and more */
};

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define SPACES "|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define PLAIN LEAD "\\p{L}+"
#define OTHER "| ?[^\\s\\p{L}\\p{N}]+"
#define GPT2_TAIL "| ?\\p{L}+| ?\\p{N}+" OTHER SPACES
#define LINES OTHER "[\\r\\n]*|\\s*[\\r\\n]+" SPACES
#define SLASH_LINES OTHER "[\\r\\n/]*|\\s*[\\r\\n]+" SPACES

static const struct split_rule rules[] = {
    /* GPT-2, and the shorter spelling of it */
    {.regex = CONTRACTIONS GPT2_TAIL, .gpt2 = true, .behind = ""},
    {.regex = "'(?:[sdmt]|ll|ve|re)" GPT2_TAIL, .gpt2 = true, .behind = ""},
    /* Llama-3, SmolLM3, Phi-4; then the spelling of tiktoken's cl100k, which means the same: what
     * its possessive quantifiers keep could not be given back with profit, and \s*[\r\n] ends at
     * the last line feed of a run like \s*[\r\n]+ */
    {.regex = "(?i:" CONTRACTIONS ")|" PLAIN "|\\p{N}{1,3}" LINES,
     .contraction = CONTRACTION_LEADING_FOLDED,
     .digits_max = 3,
     .behind = "\r\n"},
    {.regex = "'(?i:[sdmt]|ll|ve|re)|" LEAD "+\\p{L}+|\\p{N}{1,3}"
              "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]" SPACES,
     .contraction = CONTRACTION_LEADING_FOLDED,
     .digits_max = 3,
     .behind = "\r\n"},
    /* Qwen2, Qwen2.5, Qwen3 */
    {.regex = "(?i:" CONTRACTIONS ")|" PLAIN "|\\p{N}" LINES,
     .contraction = CONTRACTION_LEADING_FOLDED,
     .digits_max = 1,
     .behind = "\r\n"},
    /* Mistral's tekken */
    {.regex = LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*|\\p{N}" SLASH_LINES,
     .contraction = CONTRACTION_NONE,
     .cased = true,
     .digits_max = 1,
     .behind = "\r\n/"},
    /* GPT-4o (o200k) */
    {.regex = LEAD UPPER "*" LOWER "+(?i:" CONTRACTIONS ")?|" LEAD UPPER "+" LOWER
                         "*(?i:" CONTRACTIONS ")?|\\p{N}{1,3}" SLASH_LINES,
     .contraction = CONTRACTION_TRAILING,
     .cased = true,
     .digits_max = 3,
     .behind = "\r\n/"},
    /* DeepSeek-Coder, in this order; the last is for Falcon's numbers */
    {.regex = "[\r\n]", .run = RUN_LINE_ENDS, .exactly = 1},
    {.regex = "[\\r\\n]", .run = RUN_LINE_ENDS, .exactly = 1},
    {.regex = "\\s?\\p{L}+", .run = RUN_LETTERS, .space = true},
    {.regex = "\\s?\\p{P}+", .run = RUN_PUNCT, .space = true},
    {.regex = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", .run = RUN_HAN},
    {.regex = "[0-9][0-9][0-9]", .run = RUN_ASCII_DIGITS, .exactly = 3},
};

static const struct split_rule punctuation = {.run = RUN_MARKS};

const struct split_rule *split_find(struct str regex)
{
    for (size_t i = 0; i < COUNTOF(rules); i++)
        if (str_is(regex, rules[i].regex))
            return &rules[i];
    return NULL;
}

const struct split_rule *split_punctuation(void)
{
    return &punctuation;
}

bool split_covers(const struct split_rule *r)
{
    return r->run == RUN_NONE;
}

const struct split_rule *split_gpt2(void)
{
    return &rules[0];
}

/* Bits of the character at `at`, whose length goes to *len; no bits and length 0 at the end. */
static u32 bits_at(struct str s, size_t at, u32 *len)
{
    u32 cp;
    *len = 0;
    if (at >= s.n)
        return 0;
    *len = unicode_next(s.p + at, &cp);
    return unicode_of(cp).bits;
}

/* End of the run of characters that have a bit of `with` and none of `without`. */
static size_t run(struct str s, size_t at, u32 with, u32 without)
{
    u32 len;
    for (;; at += len) {
        u32 bits = bits_at(s, at, &len);
        if (len == 0 || !(bits & with) || (bits & without))
            return at;
    }
}

static size_t other_run(struct str s, size_t at)
{
    u32 len;
    for (;; at += len) {
        u32 bits = bits_at(s, at, &len);
        if (len == 0 || (bits & (UNICODE_SPACE | UNICODE_LETTER | UNICODE_NUMBER)))
            return at;
    }
}

static bool either(char c, char lower, bool folded)
{
    return c == lower || (folded && c == lower - 32);
}

/* End of a contraction at `at`, or `at`. Under (?i) U+017F (long s) folds to s. */
static size_t contraction(struct str s, size_t at, bool folded)
{
    static const char pairs[][2] = {{'r', 'e'}, {'v', 'e'}, {'l', 'l'}};
    const char *p = s.p + at;
    size_t n = s.n - at;
    if (n < 2 || p[0] != '\'')
        return at;
    for (const char *c = "stmd"; *c; c++)
        if (either(p[1], *c, folded))
            return at + 2;
    if (n < 3)
        return at;
    if (folded && memcmp(p + 1, "\xc5\xbf", 2) == 0)
        return at + 3;
    for (size_t i = 0; i < COUNTOF(pairs); i++)
        if (either(p[1], pairs[i][0], folded) && either(p[2], pairs[i][1], folded))
            return at + 3;
    return at;
}

/* [^\r\n\p{L}\p{N}]?\p{L}+ */
static size_t word_plain(struct str s, size_t at)
{
    u32 len, bits = bits_at(s, at, &len);
    if (bits & UNICODE_LETTER)
        return run(s, at + len, UNICODE_LETTER, 0);
    if ((bits & UNICODE_NUMBER) || s.p[at] == '\r' || s.p[at] == '\n')
        return at;
    size_t letters = at + len, end = run(s, letters, UNICODE_LETTER, 0);
    return end > letters ? end : at;
}

/* LEAD UPPER* LOWER+ | LEAD UPPER+ LOWER*, where UPPER and LOWER share Lm, Lo and M, and a mark
 * can also be the lead. What backtracking finds, in the order in which it finds it:
 * (1) upper run, then at least one LOWER behind it; (2) the last of the upper run that is LOWER
 * too closes the word alone; (3) the lead gives itself back, which helps only if it is a mark
 * (then it is a word of its own); (4) second alternative: the upper run. */
static size_t word_cased(struct str s, size_t at)
{
    u32 len, bits = bits_at(s, at, &len);
    bool mark = (bits & UNICODE_UPPER) && !(bits & UNICODE_LETTER);
    if ((bits & UNICODE_NUMBER) || s.p[at] == '\r' || s.p[at] == '\n')
        return at;
    size_t from = bits & UNICODE_LETTER ? at : at + len;
    size_t upper = run(s, from, UNICODE_UPPER, 0), lower = run(s, upper, UNICODE_LOWER, 0);
    if (lower > upper)
        return lower;
    for (size_t p = upper; p > from;) {
        u32 back = unicode_back(s.p + p), ignored;
        if (bits_at(s, p - back, &ignored) & UNICODE_LOWER)
            return p;
        p -= back;
    }
    return mark ? from : upper > from ? upper : at;
}

/* \s*[\r\n]+ (unless GPT-2), \s+(?!\S), \s+ at a white space. */
static size_t spaces(const struct split_rule *r, struct str s, size_t at)
{
    size_t end = run(s, at, UNICODE_SPACE, 0);
    if (!r->gpt2)
        for (size_t p = end; p > at; p--)
            if (s.p[p - 1] == '\n' || s.p[p - 1] == '\r')
                return p;
    if (end == s.n)
        return end;
    size_t last = end - unicode_back(s.p + end);
    return last > at ? last : end;
}

static size_t number(const struct split_rule *r, struct str s, size_t at)
{
    if (r->digits_max == 0)
        return run(s, at, UNICODE_NUMBER, 0);
    for (u32 i = 0, len; i < r->digits_max; i++) {
        if (!(bits_at(s, at, &len) & UNICODE_NUMBER))
            break;
        at += len;
    }
    return at;
}

/* Words of all patterns but GPT-2's; `at` when none starts here. */
static size_t word(const struct split_rule *r, struct str s, size_t at)
{
    size_t end = r->cased ? word_cased(s, at) : word_plain(s, at);
    if (end > at && r->contraction == CONTRACTION_TRAILING)
        end = contraction(s, end, true);
    return end;
}

/* --- runs ----------------------------------------------------------------------------------- */

static bool in_run(enum run run, u32 cp)
{
    switch (run) {
    case RUN_NONE:
        break;
    case RUN_LINE_ENDS:
        return cp == '\r' || cp == '\n';
    case RUN_LETTERS:
        return unicode_of(cp).bits & UNICODE_LETTER;
    case RUN_PUNCT:
        return unicode_of(cp).bits & UNICODE_PUNCT;
    case RUN_MARKS:
        return unicode_of(cp).bits & UNICODE_MARK;
    case RUN_HAN:
        return (cp >= 0x800 && cp <= 0x9fa5) || (cp >= 0xac00 && cp <= 0xd7ff);
    case RUN_ASCII_DIGITS:
        return cp >= '0' && cp <= '9';
    }
    return false;
}

/* Characters of the run from `at` on, at most `most` of them (0: any). */
static size_t run_of(const struct split_rule *r, struct str s, size_t at, u32 most, u32 *n)
{
    for (*n = 0; at < s.n && (most == 0 || *n < most); ++*n) {
        u32 cp, len = unicode_next(s.p + at, &cp);
        if (!in_run(r->run, cp))
            break;
        at += len;
    }
    return at;
}

/* End of the match that starts at `at`, or `at`. */
static size_t run_match(const struct split_rule *r, struct str s, size_t at)
{
    u32 n, len, bits = bits_at(s, at, &len);
    size_t end = at;
    if (r->space && (bits & UNICODE_SPACE)) {
        end = run_of(r, s, at + len, 0, &n);
        if (n)
            return end;
    }
    end = run_of(r, s, at, r->exactly, &n);
    return n >= MAX(r->exactly, 1u) ? end : at;
}

static size_t run_next(const struct split_rule *r, struct str s, size_t at)
{
    size_t end = run_match(r, s, at);
    if (end > at)
        return end;
    while (end < s.n && run_match(r, s, end) == end) {
        u32 cp;
        end += unicode_next(s.p + end, &cp);
    }
    return end;
}

size_t split_next(const struct split_rule *r, struct str s, size_t at)
{
    u32 len, behind;
    size_t end = at;
    if (r->run != RUN_NONE)
        return run_next(r, s, at);
    if (r->contraction <= CONTRACTION_LEADING_FOLDED)
        end = contraction(s, at, r->contraction == CONTRACTION_LEADING_FOLDED);
    if (end == at && !r->gpt2)
        end = word(r, s, at);
    if (end > at)
        return end;

    u32 bits = bits_at(s, at, &len);
    size_t from = at; /* behind one optional space */
    if (s.p[at] == ' ' && at + 1 < s.n && !(bits_at(s, at + 1, &behind) & UNICODE_SPACE)) {
        u32 next = bits_at(s, at + 1, &behind);
        if (r->gpt2 || !(next & (UNICODE_LETTER | UNICODE_NUMBER))) {
            from = at + 1;
            bits = next;
        }
    }
    if (bits & UNICODE_NUMBER)
        return number(r, s, from);
    if (bits & UNICODE_LETTER)
        return run(s, from, UNICODE_LETTER, 0);
    if (bits & UNICODE_SPACE)
        return spaces(r, s, at);
    end = other_run(s, from);
    while (end < s.n && s.p[end] && strchr(r->behind, s.p[end]))
        end++;
    return end;
}
