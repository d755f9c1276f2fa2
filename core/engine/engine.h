/* Continuous batching over one device: requests wait in a bounded queue, get a slot and all the KV
 * pages they can ever need, are prefilled in chunks, decode together, and leave.
 *
 * The caller drives it from one thread: engine_submit and engine_cancel at any time, then
 * engine_step to start work and engine_poll to collect it; events come through one callback inside
 * engine_poll. A request's pages are reserved when it is admitted, or taken as it grows, but never
 * those without which somebody admitted before it could not end: nothing is preempted or
 * recomputed. Output text is handed out as whole characters, and never a byte that could still
 * become part of a stop string.
 *
 * All memory (queue, prompts, page tables, text) is taken in engine_open from planned memory.
 */
#ifndef ZIGCUDA_ENGINE_H
#define ZIGCUDA_ENGINE_H

#include "core/base/clock.h"
#include "core/engine/device.h"
#include "core/engine/grammar.h"
#include "core/engine/kv.h"
#include "core/model/tokenizer.h"

struct request {
    const u32 *prompt; /* copied; at least one token */
    u32 n_prompt;
    u32 max_tokens;           /* 0: up to the context or the engine's default */
    struct sampling sampling; /* its stop ids are added to the model's end-of-sequence ids */
    bool grows; /* max_tokens is a bound that nobody asked for: KV pages are taken as it goes on,
                   and it may wait for some between two tokens */
    bool ignore_eos;
    bool no_answer; /* the prompt is all that counts, and may fill the context: one token is made
                       all the same, and like the last of any answer it needs no position */
    bool embeds;    /* instead of an answer the last event, FINISH_STOP, has an embedding */
    u32 prompt_logprobs; /* tokens a step, at most; 0: none. An event for each prompt token but the
                            first, before the output's;
                            sampling.top_logprobs says how many others. No prefix is reused */
    bool special_text;   /* special tokens in the output are written as text */
    bool continues;      /* the output goes on in the prompt's text: the blank it may begin with is
                            one between words. Else it is a text of its own */
    u32 n_stop;
    struct str stop[LIMIT_STOP_STRINGS]; /* copied */
    i32 priority;                        /* higher first; equal ones in order of arrival */
    u64 deadline_ns;                     /* 0: none; on the engine's clock */
    const struct grammar *grammar; /* the output's, or NULL; valid until the last event. Its tokens
                                      are sampled of those that fit; it ends when nothing may
                                      follow; FINISH_LENGTH: it is not complete. No min_tokens, no
                                      prompt_logprobs */
    const u32 *likely; /* [n_likely] what the output may well be, copied; only its speed depends on
                          it. What is longer than the context has room for is left out */
    u32 n_likely;
    u64 after; /* id of a request with the same prompt: wait until that one has read it, so that
                  its pages are found (as long as it is there); 0: none */
    void *user;
};

enum finish {
    FINISH_NONE,
    FINISH_STOP,   /* an end-of-sequence id, a stop id or a stop string */
    FINISH_LENGTH, /* max_tokens or the context */
    FINISH_CANCELLED,
    FINISH_DEADLINE,
    FINISH_ERROR /* the device failed */
};

/* One token, or the end, or both. Valid during the callback. */
struct event {
    u64 id;
    void *user;
    bool has_token;
    bool has_prompt_token; /* `result` is of prompt token prompt_at; nothing else is new */
    u32 prompt_at;
    const struct step_result *result; /* token, logprobs; when has_token or has_prompt_token */
    struct str text;                  /* new text, possibly empty */
    enum finish finish;               /* FINISH_NONE: more to come */
    struct str stop;                  /* the stop string that has ended it; n 0: none has */
    const float *embedding; /* [hidden] of its last token, behind the final norm; or NULL */
    u32 prompt_tokens, cached_tokens, output_tokens;
    u64 waited_ns; /* from submit until it got its slot; 0: it never did */
};

typedef void engine_on_event(void *arg, const struct event *event);

struct engine_config {
    u32 queue;          /* requests that may wait */
    u32 max_tokens;     /* when a request gives none; 0: up to the context */
    u32 prefill_beside; /* prefill tokens of a step in which others decode */
    bool even_steps;    /* none takes longer because a prompt is long: others may come meanwhile */
    bool prefix_cache;
    u32 drafts;    /* guessed tokens a step; 0: none */
    bool grammars; /* requests may have one */
};

struct engine_stats {
    u64 steps, prompt_tokens, cached_tokens, output_tokens, finished, cancelled;
    u64 drafts, drafts_stayed; /* guessed tokens, and those that were right */
    u64 kv_lookups, kv_hits;   /* pages */
    u64 waiting_tokens;        /* of the prompts that wait; one that several share counts once */
    u32 waiting, running, pages_free, pages;
    bool blocked;               /* who waits found no slot or too few KV pages in the newest step */
    u32 step_rows, step_tokens; /* of the newest step */
    u64 done_ns;                /* when the newest finished step was finished; 0: not known */
};

struct engine;

void engine_plan(const struct device *d, const struct engine_config *c, struct plan *p);
/* `t` may be NULL: events then carry no text. */
MUST enum err engine_open(struct arena *a, struct device *d, const struct tokenizer *t,
                          const struct engine_config *c, struct clock clock,
                          engine_on_event *on_event, void *arg, struct engine **out,
                          struct err_text *e);

/* Queues a request. ERR_REQUEST: it can never run (the text says why, with both numbers);
 * ERR_BUSY: the queue is full. *id names it from now on. */
MUST enum err engine_submit(struct engine *g, const struct request *r, u64 *id, struct err_text *e);

/* The request gets a FINISH_CANCELLED event in the next engine_poll and is not part of any step
 * submitted after this call. Unknown ids are ignored. */
void engine_cancel(struct engine *g, u64 id);

/* Admits, plans and submits a step when none is in flight. True when a step is in flight. */
bool engine_step(struct engine *g);

/* Delivers events of a finished step (waits for it when `wait`). A device error ends every
 * sequence with FINISH_ERROR and is returned. */
MUST enum err engine_poll(struct engine *g, bool wait, struct err_text *e);

/* When engine_poll has something to do although the device's descriptor does not say so: a
 * request's deadline, or the device's own; on the engine's clock, UINT64_MAX: never. May be too
 * early. */
u64 engine_next_ns(const struct engine *g);

bool engine_idle(const struct engine *g); /* nothing waits or runs */
struct engine_stats engine_stats(const struct engine *g);

/* As device_ops.report; false when the device tells nothing. */
bool engine_report(const struct engine *g, struct device_report *out);

#endif
