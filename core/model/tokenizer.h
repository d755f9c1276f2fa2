/* tokenizer.json (Hugging Face tokenizers, version "1.0") as the models of this project use it:
 * byte-level BPE with the known split patterns, and Metaspace / byte-fallback BPE. No regular
 * expression is compiled from a file: known patterns are recognised, others refused with a quote.
 *
 * The tokenizer is read-only after loading and lives in the `keep` arena. Encoding needs a scratch
 * that the caller sized with tokenizer_scratch_bytes. Encoding is O(n log n) for any text.
 */
#ifndef ZIGCUDA_TOKENIZER_H
#define ZIGCUDA_TOKENIZER_H

#include "core/base/arena.h"
#include "core/base/base.h"
#include "core/base/err.h"

struct tokenizer;

enum {
    ENCODE_ADD_SPECIAL = 1,    /* run the post-processor (BOS ...) */
    ENCODE_NO_SPECIAL_TEXT = 2 /* special tokens spelled out in the text are plain text */
};

/* dir/tokenizer.json and, when there, dir/tokenizer_config.json (add_bos_token and add_eos_token
 * of the Llama classes override the post-processor as transformers does). */
MUST enum err tokenizer_load(struct arena *keep, struct arena *scratch, const char *dir,
                             struct tokenizer **out, struct err_text *e);

u32 tokenizer_vocab(const struct tokenizer *t); /* 1 + highest id */

/* Bytes of scratch with which any text of at most text_bytes can be encoded. */
size_t tokenizer_scratch_bytes(const struct tokenizer *t, size_t text_bytes);

/* Encodes text (invalid UTF-8 is refused with ERR_REQUEST) into ids[cap]; *n is how many there
 * are. More than cap is ERR_LIMIT. Same result as tokenizers' Tokenizer.encode. */
MUST enum err tokenizer_encode(const struct tokenizer *t, struct str text, u32 flags,
                               struct arena *scratch, u32 *ids, u32 cap, u32 *n,
                               struct err_text *e);

/* The id of a token by its content ("<|im_end|>"), or -1. */
i64 tokenizer_id(const struct tokenizer *t, struct str content);
bool tokenizer_is_special(const struct tokenizer *t, u32 id);
struct str tokenizer_content(const struct tokenizer *t, u32 id); /* as in the vocabulary */

/* The bytes one token stands for on its own (for logprobs), possibly not valid UTF-8, into
 * out[LIMIT_TOKEN_BYTES]; 0 for ids without a token. */
u32 tokenizer_bytes(const struct tokenizer *t, u32 id, char *out);

/* Special tokens as text for templates; empty when the model has none. */
struct str tokenizer_bos(const struct tokenizer *t);
struct str tokenizer_eos(const struct tokenizer *t);
struct str tokenizer_unk(const struct tokenizer *t);
struct str tokenizer_pad(const struct tokenizer *t);

/* --- streaming decode ------------------------------------------------------------------------
 * Text of a growing list of ids; never emits half a character; the concatenation (with the rest
 * from decode_end) equals Tokenizer.decode(ids, skip_special_tokens). */
struct decode_stream {
    const struct tokenizer *t;
    bool skip_special;
    bool started;
    u32 pending_n;      /* bytes held back: an incomplete character or a byte-fallback run */
    u32 pending_tokens; /* byte-fallback tokens among them */
    u8 pending[64];
};
struct decode_stream decode_start(const struct tokenizer *t, bool skip_special);
/* Appends what became certain to out[cap] (cap >= LIMIT_TOKEN_BYTES + 256); returns bytes. */
u32 decode_push(struct decode_stream *d, u32 id, char *out, u32 cap);
u32 decode_end(struct decode_stream *d, char *out, u32 cap);

#endif
