/* The device seam: what the engine asks of a backend (CPU now, CUDA next, a fake in tests).
 *
 * The engine owns the decisions (which sequence, which tokens, which pages); the device owns the
 * weights, the KV pages' bytes, the sampling state of each slot, and the arithmetic. Up to
 * device.depth steps are in flight, and finish in order. Everything handed over in device_submit
 * stays unchanged until the step is polled; only page tables and masks may change under a device of
 * depth 2, which has copied them by the time submit (or masks) returns. Same request, same bits: a
 * row's result may depend on nothing but that row's tokens, positions and sampling; never on other
 * rows, chunking or thread count.
 */
#ifndef ZIGCUDA_DEVICE_H
#define ZIGCUDA_DEVICE_H

#include "config/limits.h"
#include "core/base/arena.h"
#include "core/engine/sched.h"
#include "core/model/model.h"

/* How a sequence's next token is chosen. Order of operations: logprobs are taken from the raw
 * logits; then masks, that of min_tokens and logit_bias; repetition, frequency, presence penalties;
 * temperature; top_k; typical_p; top_p; min_p; draw. */
struct sampling {
    float temperature;                         /* 0: greedy; ties go to the lowest id */
    u32 top_k;                                 /* 0: off; ties with the k-th stay */
    float top_p, min_p, typical_p;             /* 1, 0, 1: off */
    float repetition_penalty;                  /* 1: off; over prompt and output */
    float presence_penalty, frequency_penalty; /* 0: off; over output */
    u64 seed;                                  /* Philox key; the counter is the position */
    u32 min_tokens; /* before this many outputs the stop ids are masked */
    u32 n_stop;
    u32 stop[2 * LIMIT_STOP_IDS]; /* the caller's and the model's */
    u32 n_bias;
    u32 bias_id[LIMIT_LOGIT_BIAS];
    float bias[LIMIT_LOGIT_BIAS];
    bool logprobs;
    u32 top_logprobs; /* 0..LIMIT_LOGPROBS */
};

/* One sequence's share of a step. */
struct step_row {
    u32 slot;  /* sequence slot, < device limits.slots */
    u32 first; /* its tokens are step.tokens[first .. first + n) */
    u32 n;
    u32 pos;        /* position of the first of them */
    bool follows;   /* n is 1, and the token is the one that the slot's step in flight is about
                       to sample: tokens[first] is not read. Needs device.depth > 1 */
    bool rope_long; /* rotate by model.rope_long */
    bool scores;    /* the others each yield what the logits say of the token behind them */
    u32 next;       /* scores and no samples: what is behind the last one */
    u32 samples;    /* the last so many of them each yield a new token; more than one: those behind
                       the first are guesses, and the sampling counts nothing (sampling_counts) */
    u32 outputs;    /* tokens this sequence has produced before the first of these */
    const u32 *pages;  /* page table: position p lies in pages[p / LIMIT_PAGE_TOKENS] */
    u32 n_pages;       /* its length: what the positions need, or more; of the context at most */
    u32 pages_version; /* changes with any of them, and with nothing else */
    const struct sampling *sampling;
    u32 keep; /* of models with states: 1 + the checkpoint that receives the slot's state
                 behind the last token; 0: none does */
    /* NULL, or for each sample MASK_WORDS(vocab) words, whose bits say which tokens may come. Where
     * the step has late masks they are there when device_ops.masks is called. */
    const u64 *masks;
    float *logits; /* NULL, or [n][vocab]: receives the raw logits of every token */
    float *hidden; /* NULL, or [hidden]: receives what the layers make of the last token, before the
                      final norm */
};

struct step {
    u32 n_rows, n_tokens;
    const struct step_row *rows;
    const u32 *tokens; /* [n_tokens] */
    bool late_masks;   /* nothing is sampled before device_ops.masks */
};

#define MASK_WORDS(vocab) CEIL_DIV(vocab, 64u)

struct top_logprob {
    u32 id;
    float logprob;
};

struct step_result { /* one a sample or score, in the order of rows and tokens */
    u32 slot, token;
    float logprob; /* of the raw logits; of samples only when asked for */
    u32 n_top;
    struct top_logprob top[LIMIT_LOGPROBS]; /* best first; ties: lowest id first */
};

struct device_limits {
    u32 slots;              /* sequences at once */
    u32 samples;            /* new tokens of one step: one a sequence, and one a guess */
    u32 scores;             /* tokens of one step of which it is asked what the logits say */
    u32 pages;              /* KV pages of LIMIT_PAGE_TOKENS positions, all layers */
    u32 step_tokens;        /* tokens of one step */
    u32 checkpoints;        /* states that are kept beside those of the slots */
    u32 context;            /* positions of one sequence */
    const char *context_by; /* what bounds them: "model.context" or other words for messages */
};

/* What a device tells of itself while it works. A value that it does not tell is NAN. */
struct device_report {
    u64 steps; /* that it timed by its own clock, from the first operation to the results */
    double steps_s, step_min_s, step_max_s, step_last_s; /* of these: all, fewest, most, newest */
    u64 step_bytes;                                      /* of weights, that a step reads */
    double power_w, temperature_c, sm_hz, memory_hz;
    double memory_bytes, memory_used_bytes; /* by all processes */
    const char *const *throttle; /* reasons to lower the clocks, up to a NULL; NULL: not told */
    u32 throttled;               /* bit i: reason i does now */
};

struct device;

struct device_ops {
    const char *name;
    /* Adds the needs to the plan; nothing is taken yet. */
    enum err (*plan)(struct device *d, struct plan *p, struct err_text *e);
    /* Takes memory from the arena (host places) or the card, prepares the weights. `progress` may
     * be NULL; it is called with done and total bytes, first when all else has been taken. */
    enum err (*load)(struct device *d, struct arena *host,
                     void (*progress)(void *arg, size_t done, size_t total), void *arg,
                     struct err_text *e);
    /* A slot starts a new sequence: its sampling state is cleared and the prompt is counted, which
     * must stay unchanged until the slot's first step is submitted. With 1 + a
     * checkpoint that a submitted step keeps, its state is that; with 0 the sequence begins at
     * position 0, and there is none yet. */
    void (*slot_begin)(struct device *d, u32 slot, const u32 *prompt, u32 n, u32 checkpoint);
    /* Starts one step; it is an error to submit while device.depth steps are in flight. */
    enum err (*submit)(struct device *d, const struct step *s, struct err_text *e);
    /* The late masks of the step that was submitted last are there; until then it is an error to
     * submit another. May be NULL if depth is 1. */
    enum err (*masks)(struct device *d, struct err_text *e);
    /* 1: the oldest step in flight has finished, results in *out (as many as rows have samples
     * and scores; valid until the next submit); 0: still running; when `wait` is true it
     * blocks until finished. A lost device sets *err. */
    int (*poll)(struct device *d, bool wait, const struct step_result **out, u32 *n, enum err *err,
                struct err_text *e);
    /* An eventfd that is written when a step has finished: watch it for edges (EPOLLET), as nobody
     * reads it. -1: the backend was told that its user spins. */
    int (*fd)(struct device *d);
    /* One line for `zigcuda info`: what computes, and why. */
    void (*describe)(struct device *d, char *out, size_t cap);
    /* Bytes a second at which all the device's compute reads its weights and does nothing else:
     * the roof of decode, for benchmarks. Blocks; no step may be in flight. */
    double (*read_bandwidth)(struct device *d);
    /* Fills *out with what is at most a second old. May be called while steps are in flight; the
     * first call takes some 25 ms and belongs to the boot, others up to 0.1 ms, once a second.
     * NULL: the device tells nothing. */
    void (*report)(struct device *d, struct device_report *out);
    void (*close)(struct device *d);
};

/* A backend embeds this first in its own struct. */
struct device {
    const struct device_ops *ops;
    const struct model *model;
    struct device_limits limits;
    u64 done_ns; /* when the newest finished step was finished, on CLOCK_MONOTONIC, set by poll; 0:
                    the backend does not know */
    u64 look_ns; /* poll wants to be called by then though the descriptor says nothing, to see a
                    step that fails or hangs; set by submit and poll; 0: it need not */
    u32 depth;   /* steps that may be in flight: 1, or 2 */
    u32 tile;    /* tokens that take no longer than one, in a step of more; 0: there are no such */
    struct sched_part part[SCHED_PARTS]; /* of a tile, see there */
    u32 deep; /* tokens of a prompt of which fewer take next to as long, deep in a context; at
                 least 1 */
    size_t kv_page_bytes;    /* of all layers */
    const char *kernels;     /* what decides the bits of an answer, for system_fingerprint */
    bool shares_host_memory; /* PLACE_DEVICE is memory of the box */
};

/* Results of a row that come before those of its samples. */
static inline u32 step_row_scores(const struct step_row *row)
{
    return row->scores ? row->n - row->samples : 0;
}

/* What follows its token i, of which a score is wanted. */
static inline u32 step_row_behind(const struct step *s, const struct step_row *row, u32 i)
{
    return i + 1 < row->n ? s->tokens[row->first + i + 1] : row->next;
}

/* Does it count tokens from step to step? Then what is guessed must not be sampled. */
static inline bool sampling_counts(const struct sampling *s)
{
    return s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
}

static inline bool sampling_stops(const struct sampling *s, u32 token)
{
    for (u32 i = 0; i < s->n_stop; i++)
        if (s->stop[i] == token)
            return true;
    return false;
}

/* For backends: a step that the engine should not have built is a bug, not an error. */
void device_check_step(const struct device *d, const struct step *s);

#endif
