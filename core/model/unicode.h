/* What the tokenizers library knows about each code point, in one three-stage table, and the
 * decompositions and compositions of NFC (UAX 15). The data (unicode_table.c) was asked from the
 * library by tests/tokenizer/unicode_gen.py, because its engines follow different Unicode
 * versions. Constant; owns nothing.
 */
#ifndef ZIGCUDA_UNICODE_H
#define ZIGCUDA_UNICODE_H

#include "core/base/base.h"

enum {
    UNICODE_SPACE = 1 << 0,    /* \s of the split patterns (Oniguruma) */
    UNICODE_DIGIT = 1 << 1,    /* numeric for the Digits pre-tokenizer (Rust) */
    UNICODE_WORD = 1 << 2,     /* \w beside an added token (regex crate) */
    UNICODE_BLANK = 1 << 3,    /* \s beside an added token */
    UNICODE_COMBINES = 1 << 4, /* NFC may change it or join it to what stands before */
    UNICODE_MARK = 1 << 5,     /* punctuation for the Punctuation pre-tokenizer (Rust) */
    UNICODE_NAME = 1 << 6,     /* \w of the split patterns */
};

struct unicode_bits {
    u16 bits;
    u8 combining; /* canonical combining class */
    u8 category;  /* of Oniguruma, as number of unicode_categories */
    u8 script;    /* of unicode_scripts; 0: another */
};
/* Code points in these tables are two bytes each: unicode_wide. */
struct unicode_decomposed { /* sorted by cp; Hangul syllables are left to arithmetic */
    u16 cp;
    u16 at; /* in unicode_pool, times UNICODE_DECOMPOSED_MAX, plus how many behind the first */
};
enum { UNICODE_DECOMPOSED_MAX = 4 };
struct unicode_pair { /* sorted by (first, second) */
    u16 first, second, composed;
};

enum { UNICODE_BLOCK_BITS = 4, UNICODE_MIDDLE_BITS = 5 };
extern const u8 unicode_top[];
extern const u16 unicode_middle[];
extern const u8 unicode_kind[];
extern const struct unicode_bits unicode_bits_of[]; /* by kind */
extern const u32 unicode_kind_count;
extern const char unicode_categories[];     /* "CnCc...": two letters each */
extern const char *const unicode_scripts[]; /* NULL behind the last */
extern const struct unicode_decomposed unicode_decomposed[];
extern const u32 unicode_decomposed_count;
extern const u16 unicode_pool[];
extern const struct unicode_pair unicode_pairs[];
extern const u32 unicode_pair_count;
extern const u32 unicode_high[]; /* those that take more than two bytes */

/* Surrogates, which are no characters, number those of unicode_high. */
static inline u32 unicode_wide(u16 cp)
{
    return cp >= 0xd800 && cp < 0xe000 ? unicode_high[cp - 0xd800] : cp;
}

static inline u32 unicode_kind_of(u32 cp)
{
    u32 low = cp & ((1u << UNICODE_BLOCK_BITS) - 1), rest = cp >> UNICODE_BLOCK_BITS;
    u32 middle = rest & ((1u << UNICODE_MIDDLE_BITS) - 1);
    middle |= (u32)unicode_top[rest >> UNICODE_MIDDLE_BITS] << UNICODE_MIDDLE_BITS;
    return unicode_kind[(u32)unicode_middle[middle] << UNICODE_BLOCK_BITS | low];
}

static inline struct unicode_bits unicode_of(u32 cp)
{
    return unicode_bits_of[unicode_kind_of(cp)];
}

/* The character at p of text that is known to be valid UTF-8; returns its length. */
static inline u32 unicode_next(const char *p, u32 *cp)
{
    const u8 *q = (const u8 *)p;
    if (q[0] < 0x80) {
        *cp = q[0];
        return 1;
    }
    if (q[0] < 0xe0) {
        *cp = (q[0] & 0x1fu) << 6 | (q[1] & 0x3fu);
        return 2;
    }
    if (q[0] < 0xf0) {
        *cp = (q[0] & 0x0fu) << 12 | (q[1] & 0x3fu) << 6 | (q[2] & 0x3fu);
        return 3;
    }
    *cp = (q[0] & 0x07u) << 18 | (q[1] & 0x3fu) << 12 | (q[2] & 0x3fu) << 6 | (q[3] & 0x3fu);
    return 4;
}

/* Bytes of the character that ends right before `end` (there is one). */
static inline u32 unicode_back(const char *end)
{
    u32 n = 1;
    while (((u8)end[-(int)n] & 0xc0) == 0x80)
        n++;
    return n;
}

#endif
