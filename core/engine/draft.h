/* Guesses of a sequence's next tokens, for speculative decoding (Leviathan et al., "Fast inference
 * from transformers via speculative decoding", 2022) by prompt lookup: where the newest tokens have
 * stood before, in the same sequence, in a text that the client predicts or in another answer, what
 * followed them may follow again. The device computes a draft in one step and samples behind each
 * of its tokens; those that are what was sampled stay. So answers are the same, bit for bit, only
 * sooner where a text repeats its prompt, its prediction, itself or another answer.
 *
 * What was found is followed as long as it is right, and again behind a word that differs: the same
 * tokens often stand in several places (indentation, brackets), of which the newest is seldom the
 * one that goes on in the same way. Whoever drafts badly is left alone for a while, longer each
 * time.
 */
#ifndef ZIGCUDA_DRAFT_H
#define ZIGCUDA_DRAFT_H

#include "core/engine/recall.h"

/* Tokens that have to be the same: fewer are found where nothing follows. */
enum { DRAFT_GRAM = RECALL_GRAM };

struct draft {
    u32 *places; /* [1 << bits] by hash of DRAFT_GRAM tokens: where their newest place ends; 0: none
                  */
    u32 bits;
    const struct recall *recall;
    u32 known;       /* places that end before this are in; 0: none is */
    u32 likely, end; /* the prediction is tokens[likely .. end), where no output is yet */
    u32 source, at;  /* tokens[at] and on may be tokens[source] and on, */
    bool recalls;    /* or the recall's */
    u32 length;      /* tokens that the next draft may have */
    u32 rest;        /* outputs until it drafts again */
    u32 misses;      /* drafts in a row of which nothing stayed */
};

/* Places for sequences of a context; of a long one the older places are forgotten. `recall`: other
 * answers, or NULL. False: the arena has no room for draft_bytes. */
bool draft_open(struct draft *d, struct arena *a, u32 context, const struct recall *recall);
size_t draft_bytes(u32 context);

/* A new sequence, of a prompt of so many tokens; what draft_open made stays. Its prediction, of
 * n_likely tokens or none, is in the same array up to tokens[end], DRAFT_GRAM or more behind the
 * prompt: the output may grow into it. */
void draft_begin(struct draft *d, u32 n_prompt, u32 n_likely, u32 end);

/* What may follow tokens[n]: out[most], guesses first to last. Returns how many, 0: no idea, or it
 * is at rest. The same tokens, or more of them, in each call, and at least one of them output. */
u32 draft_find(struct draft *d, const u32 *tokens, u32 n, u32 most, u32 *out);

/* `stayed` of n > 0 guesses were right. */
void draft_judge(struct draft *d, u32 n, u32 stayed);

/* One more output without a draft. */
void draft_pass(struct draft *d);

#endif
