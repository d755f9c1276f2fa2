/* The engine inside: a sequence is a request in work, a flight a step on the device. core/engine/
 * engine has the memory and takes requests, step_plan says what the next step has, step_done what
 * has come of one, to the event that a request ends with.
 */
#ifndef ZIGCUDA_SEQ_H
#define ZIGCUDA_SEQ_H

#include "core/engine/draft.h"
#include "core/engine/engine.h"
#include "core/engine/kv.h"
#include "core/engine/mask.h"
#include "core/engine/sched.h"
#include "core/engine/stops.h"

/* A request from submit to its last event, and until no step in flight has a row of it. `tokens`
 * holds the prompt and then the output. The KV of the first `computed` is there; the first
 * `planned` are in steps that were submitted. `pending` of those steps will each add a token: with
 * device.depth 2 the next one is planned before it is known. Of a row that ends in `guessed` tokens
 * the answer is awaited, as it says where to go on. */
enum seq_state { SEQ_FREE, SEQ_WAITING, SEQ_RUNNING, SEQ_ENDED };

struct seq {
    enum seq_state state;
    u64 id;
    i32 priority;
    void *user;
    u32 slot;
    u32 *tokens; /* [room], the last n_likely of them: maybe the output, until that comes */
    u32 n_prompt, n_likely, n_tokens, computed, planned, pending, cached, outputs, max_tokens;
    u32 positions; /* all that it can ever need */
    bool grows;    /* their pages are taken as it goes on */
    u32 *pages;    /* [pages a sequence can have] */
    u32 n_pages, committed, pages_version;
    u64 turns;      /* tokens it was given a step for, more or less: see sched_seq */
    u64 starved;    /* g->released + 1 when it got none; 0: it has what it needs */
    u32 keep_at[2]; /* where its state is to be kept, ascending, or 0 */
    u32 salt;
    u64 deadline_ns, after, submit_ns, waited_ns;
    bool cancelled, late;
    u32 in_flight; /* steps that have a row of it */
    u32 guessed;
    bool waits;          /* for its newest token, as a draft may go on from there */
    u32 prompt_logprobs; /* tokens a step */
    bool embeds;
    const struct grammar *grammar;
    struct grammar_state grammar_state; /* behind the newest token */
    struct sampling sampling;
    struct decode_stream stream;
    struct stops stops;
};

struct flight { /* a step that was submitted, with all that it points to */
    struct step step;
    struct step_row *rows; /* [slots] */
    struct seq **seqs;     /* [slots] whose row it is */
    u32 *tokens;           /* [step_tokens] */
    float *hidden;         /* [slots][hidden]: of rows that embed */
    u32 *fitting; /* [slots] of a row's samples so many have tokens that fit, from the first
                     on: behind these the text ends */
    u32 masks;    /* that its rows have, */
    bool late;    /* which are not there yet */
};

enum { FLIGHTS = 2 }; /* device.depth at most */

enum { FORESEE_BYTES = 160, FORESEE_WORK_BYTES = 32 << 10 };

enum { TEXT_CAP = LIMIT_STOP_STRING_BYTES + 2 * DECODE_PIECE_BYTES };

struct engine {
    struct device *device;
    const struct tokenizer *tokenizer;
    struct engine_config config;
    struct sched_budget budget; /* of every step */
    struct clock clock;
    engine_on_event *on_event;
    void *arg;
    struct kv kv;
    u32 seqs_n, context, room, pages_a_seq; /* room: behind the context for DRAFT_GRAM, too */
    struct seq *seqs;                       /* [seqs_n]; order[] lists those in use */
    struct seq **order; /* [ordered] those that have not ended, by priority, then arrival */
    u32 ordered, in_use, running;
    bool *slot_used;      /* [slots] */
    struct draft *drafts; /* [slots] */
    struct recall recall; /* for these */
    u32 guess[LIMIT_SLOTS];
    void *encode_work; /* [FORESEE_WORK_BYTES] for guesses by grammars; NULL: none are made */
    u64 turns;         /* the most that one has had */
    u64 blocked;       /* who found no slot or too few pages, until there can be more; 0: nobody */
    u64 released;      /* changes when there can be more pages */
    struct seq **holders; /* [n_holders] of pages, in the order in which they were admitted */
    u32 n_holders;
    u64 next_id;
    u64 deadline_ns; /* no request has an earlier one; UINT64_MAX: none has one */
    bool failed;
    bool cancels;                   /* since the newest sweep began */
    struct flight flights[FLIGHTS]; /* a ring */
    u32 first_flight, n_flights;
    struct sched_seq *plan; /* [slots] */
    struct seq **plan_seqs; /* [slots] */
    u32 *take;              /* [slots] */
    struct masker masker;
    u64 *masks;             /* [samples][MASK_WORDS(vocab)] of the newest flight */
    struct step_result end; /* for events without a token */
    char text[TEXT_CAP];
    struct engine_stats stats;
};

static inline u32 seq_pages(u32 tokens)
{
    return CEIL_DIV(tokens, LIMIT_PAGE_TOKENS);
}

/* NULL: it has ended. */
struct seq *seq_find(struct engine *g, u64 id);
void seq_end_waiting(struct engine *g, struct seq *s, enum seq_state state);

/* Gives a sequence that is admitted, or about to be, pages for so many positions, if those who were
 * admitted before can still get all that they may need, each when those before it have ended
 * (Dijkstra's banker, EWD 108). False: not now. */
bool seq_take_pages(struct engine *g, struct seq *s, u32 positions);

/* There can be more pages than before. */
static inline void seq_pages_released(struct engine *g)
{
    g->blocked = 0;
    g->released++;
}

/* Moves a state of its grammar by a token that fits. */
void seq_read(const struct engine *g, const struct seq *s, struct grammar_state *at, u32 token);

/* Fills the masks of the flight's rows, as its sequences stand now. */
void step_mask(struct engine *g, struct flight *f);

/* Fills the flight's step; false when nothing can go on before a step in flight is done. */
bool step_plan(struct engine *g, struct flight *f);

/* The oldest step in flight has its results. */
void step_done(struct engine *g, const struct step_result *results, u32 n);

/* The device has failed: nobody gets anything more. */
void step_failed(struct engine *g);

/* Ends what was cancelled or is late, once no step in flight has a row of it (the end of that step
 * comes back here); no further step gets one. */
void step_sweep(struct engine *g);

#endif
