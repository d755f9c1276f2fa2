/* Byte pair encoding as the tokenizers library does it: a word becomes one symbol a character (or
 * a byte, with byte fallback), then the pair of lowest rank is merged, leftmost first, until none
 * is left. A heap of (rank, position) makes that O(n log n) for words of any length: without a
 * pre-tokenizer a whole prompt is one word.
 */
#ifndef ZIGCUDA_BPE_H
#define ZIGCUDA_BPE_H

#include "core/base/arena.h"
#include "core/model/vocab.h"

enum { BPE_NONE = UINT32_MAX, BPE_DIRECT = 0x200 };

struct bpe_merge {
    u32 left, right; /* ids; left BPE_NONE: free */
    u32 rank;        /* its index in the file */
    u32 merged;      /* the id of both together */
};

struct bpe {
    struct vocab vocab;       /* all ids; the model's own come first */
    u32 model_n;              /* ids the model itself knows: added tokens behind them never match */
    struct bpe_merge *merges; /* open addressing */
    u32 merges_mask;
    u32 unk; /* or BPE_NONE */
    bool fuse_unk, ignore_merges, byte_fallback;
    u32 bytes[256];         /* id of <0xHH>, or BPE_NONE */
    u32 direct[BPE_DIRECT]; /* id of a character below BPE_DIRECT, or BPE_NONE */
};

/* What is left to do once vocab, model_n and the flags are set: the tables of single characters. */
void bpe_index(struct bpe *b);

/* An empty merge table with room for n rules; false when the arena is full. */
MUST bool bpe_merges_open(struct bpe *b, struct arena *a, u32 n);

/* Adds a rule; false when the pair has one already. */
MUST bool bpe_merges_add(struct bpe *b, u32 left, u32 right, u32 rank, u32 merged);

/* Symbols that a word of `bytes` bytes can have, and the work memory which encoding it takes. */
size_t bpe_symbols_max(const struct bpe *b, size_t bytes, size_t chars);
size_t bpe_work_bytes(size_t symbols);

/* Encodes a word of valid UTF-8 into ids[cap]. Returns how many ids there are; more than cap are
 * counted but not written. work is aligned to 8. */
size_t bpe_encode(const struct bpe *b, struct str word, void *work, u32 *ids, size_t cap);

#endif
