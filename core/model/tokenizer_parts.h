/* What a loaded tokenizer consists of: filled by tokenizer_load.c, read by tokenizer.c (encoding)
 * and tokenizer_decode.c. Nobody else includes this. All memory is the `keep` arena's.
 */
#ifndef ZIGCUDA_TOKENIZER_PARTS_H
#define ZIGCUDA_TOKENIZER_PARTS_H

#include "core/model/bpe.h"
#include "core/model/split.h"
#include "core/model/tokenizer.h"

enum { STEPS_MAX = 8, FRAME_MAX = 16 };

struct added {
    struct str content;
    struct str pattern; /* what is looked for in the text: normalized content where `normalized` */
    u32 id;
    bool special, single_word, lstrip, rstrip, normalized;
    bool skipped; /* dropped by skip_special_tokens: the library compares by pattern */
};

/* Added tokens in the order of their patterns' bytes, so that those with a common beginning stand
 * together; first[b] .. first[b + 1] begin with byte b. */
struct added_set {
    const struct added **at;
    u32 n;
    u32 first[257];
};

enum normal_kind { NORMAL_NFC, NORMAL_PREPEND, NORMAL_REPLACE };
struct normal_step {
    enum normal_kind kind;
    struct str pattern, content; /* prepend: content */
};

/* Digits and Punctuation are splits too. */
enum pre_kind { PRE_SPLIT, PRE_METASPACE, PRE_BYTES };
enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };
/* What becomes of a match: removed, a piece, one piece with matches beside it, or with what stands
 * before or behind it. */
enum behavior { ISOLATED, REMOVED, CONTIGUOUS, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT };
struct pre_step {
    enum pre_kind kind;
    struct split *split; /* bytes: NULL when there is no regex */
    enum behavior behavior;
    bool invert;          /* split: a match is what does not match */
    enum prepend prepend; /* metaspace; bytes: add_prefix_space is PREPEND_ALWAYS */
    bool each;            /* metaspace: split */
    struct str mark;      /* metaspace: the replacement of a space */
};

enum decode_kind { DECODE_JOIN, DECODE_BYTES, DECODE_CHAIN };
struct token_step { /* Replace, or Metaspace */
    struct str pattern, content;
    bool not_in_first; /* in the first token the pattern vanishes */
};

struct tokenizer {
    struct bpe bpe;
    u8 *is_added;        /* [vocab.n] */
    struct added *added; /* [added_n], by id */
    u32 added_n;
    struct added_set raw, normalized; /* looked for before and after normalization */
    struct normal_step normal[STEPS_MAX];
    struct pre_step pre[STEPS_MAX];
    u32 normal_n, pre_n;
    u32 before[FRAME_MAX], behind[FRAME_MAX]; /* the post-processor's ids around a text */
    u32 before_n, behind_n;
    enum decode_kind decode;
    struct token_step tokens[STEPS_MAX]; /* of a chain */
    u32 tokens_n;
    bool byte_fallback;     /* the chain's */
    char strip[4];          /* character that the chain takes from the start of the text */
    u32 strip_n, strip_max; /* its bytes; how often */
    struct str bos, eos, unk, pad;
};

/* The added token with this id, or NULL. */
const struct added *tokenizer_added(const struct tokenizer *t, u32 id);

/* Runs the normalizers over text; the result lies in work or is text itself. work is aligned to 16
 * and has tokenizer_normal_bytes; *used is how much of it is taken afterwards. */
struct str tokenizer_normalize(const struct tokenizer *t, struct str text, u8 *work, size_t *used);
size_t tokenizer_normal_bytes(const struct tokenizer *t, size_t text_bytes, size_t *result_bytes);

/* The byte-level alphabet: byte -> code point, and back (-1: none). */
u32 byte_char(u8 byte);
int char_byte(u32 cp);

#endif
