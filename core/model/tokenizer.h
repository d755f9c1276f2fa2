/* tokenizer.json (Hugging Face tokenizers, version "1.0") as the models of this project use it:
 * byte-level BPE with split patterns (core/model/split.h), and Metaspace / byte-fallback BPE.
 * Unicode is that of the library, not the newest: core/model/unicode.h.
 *
 * The tokenizer is read-only after loading and lives in the `keep` arena. Encoding works in memory
 * that the caller sized with tokenizer_work_bytes, so that it goes on after memory_seal. Encoding
 * is O(n log n) for any text, but for split patterns that make their matcher search; that ends at
 * LIMIT_SPLIT_STEPS, with ERR_REQUEST. Limits: LIMIT_VOCAB, LIMIT_MERGES, LIMIT_ADDED_TOKENS,
 * LIMIT_TOKEN_BYTES.
 */
#ifndef ZIGCUDA_TOKENIZER_H
#define ZIGCUDA_TOKENIZER_H

#include "config/limits.h"
#include "core/base/arena.h"
#include "core/base/base.h"
#include "core/base/err.h"

struct tokenizer;

enum {
    ENCODE_ADD_SPECIAL = 1,    /* run the post-processor (BOS ...) */
    ENCODE_NO_SPECIAL_TEXT = 2 /* special tokens spelled out in the text are plain text */
};

/* dir/tokenizer.json and, when there, dir/tokenizer_config.json: the tokens that it adds, its
 * bos/eos/unk/pad tokens; and where its tokenizer_class reads add_bos_token and add_eos_token these
 * replace the post-processor, as in transformers (one that is missing: bos true, eos false). Where
 * it has no added_tokens_decoder, which older versions did not write, dir/special_tokens_map.json
 * has the last word on bos_token and the like. truncation and padding of tokenizer.json are
 * ignored, as transformers does on every call. Refusals are ERR_MODEL and name file and key. */
MUST enum err tokenizer_load(struct arena *keep, struct arena *scratch, const char *dir,
                             struct tokenizer **out, struct err_text *e);

/* The same from texts in memory; the names are for messages. text.p NULL: there is no such file. */
enum tokenizer_file { TOKENIZER_JSON, TOKENIZER_CONFIG, TOKENIZER_MAP, TOKENIZER_FILES };
struct tokenizer_source {
    const char *name;
    struct str text;
};
MUST enum err tokenizer_parse(struct arena *keep, struct arena *scratch,
                              const struct tokenizer_source from[TOKENIZER_FILES],
                              struct tokenizer **out, struct err_text *e);

u32 tokenizer_vocab(const struct tokenizer *t); /* 1 + highest id */

/* 1 + the highest id that any text may have. Added tokens beyond (a pad token, mostly) take their
 * own text to be named. */
u32 tokenizer_pieces(const struct tokenizer *t);

/* Bytes of work memory with which any text of at most text_bytes can be encoded. t is NULL: by
 * byte-level BPE without a normalizer, as most models have it. */
size_t tokenizer_work_bytes(const struct tokenizer *t, size_t text_bytes);

/* Encodes text (invalid UTF-8 is refused with ERR_REQUEST) into ids[cap]; *n is how many there
 * are. More than cap is ERR_LIMIT. Same result as tokenizers' Tokenizer.encode. work is aligned to
 * 16 and has tokenizer_work_bytes(t, text.n); it need not be zeroed. */
MUST enum err tokenizer_encode(const struct tokenizer *t, struct str text, u32 flags, void *work,
                               size_t work_bytes, u32 *ids, u32 cap, u32 *n, struct err_text *e);

/* The id of a token by its content ("<|im_end|>"), or -1. */
i64 tokenizer_id(const struct tokenizer *t, struct str content);
bool tokenizer_is_special(const struct tokenizer *t, u32 id);
struct str tokenizer_content(const struct tokenizer *t, u32 id); /* as in the vocabulary */

/* The bytes one token stands for on its own (for logprobs), possibly not valid UTF-8, into
 * out[LIMIT_TOKEN_BYTES]; 0 for ids without a token. */
u32 tokenizer_bytes(const struct tokenizer *t, u32 id, char *out);

/* How many tokens ENCODE_ADD_SPECIAL puts before those of the text. */
u32 tokenizer_before(const struct tokenizer *t);

/* Special tokens as text for templates; empty when the model has none. */
struct str tokenizer_bos(const struct tokenizer *t);
struct str tokenizer_eos(const struct tokenizer *t);
struct str tokenizer_unk(const struct tokenizer *t);
struct str tokenizer_pad(const struct tokenizer *t);

/* --- decoding ---------------------------------------------------------------------------------
 * Text of a growing list of ids; every piece handed out is valid UTF-8. A character is handed out
 * as soon as it is complete, and broken bytes become U+FFFD as soon as they are known to be
 * broken. The concatenation equals Tokenizer.decode(ids, skip_special_tokens), with one exception
 * that no stream can avoid: a run of byte-fallback tokens that goes wrong after a complete
 * character. There the library takes the whole run back, and only tokenizer_decode can. */
struct decode_stream {
    const struct tokenizer *t;
    bool skip_special;
    bool started;    /* a token was decoded */
    bool run_broken; /* this run of byte tokens is not UTF-8: each gives U+FFFD */
    u32 strip_left;  /* characters that the Strip decoder may still take from the start */
    u32 pending_n;
    char pending[4]; /* bytes of a character that is not complete */
};
#define DECODE_PIECE_BYTES (3 * LIMIT_TOKEN_BYTES + 16) /* most that one call can write */

struct decode_stream decode_start(const struct tokenizer *t, bool skip_special);
/* The same for what follows the text of ids[n]: a blank that no text may begin with stays. */
struct decode_stream decode_behind(const struct tokenizer *t, bool skip_special, const u32 *ids,
                                   u32 n);
/* Appends what became certain to out[DECODE_PIECE_BYTES]; returns its bytes. Ids without a token
 * give nothing. */
u32 decode_push(struct decode_stream *d, u32 id, char *out);
u32 decode_end(struct decode_stream *d, char *out);

/* Tokenizer.decode of a whole list into out[cap]; ERR_LIMIT when the text is longer. */
MUST enum err tokenizer_decode(const struct tokenizer *t, const u32 *ids, size_t n,
                               bool skip_special, char *out, size_t cap, size_t *bytes,
                               struct err_text *e);

#endif
