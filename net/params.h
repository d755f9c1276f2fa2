/* The body of a request for an answer, in any dialect: every field of its reference and our
 * extensions, read by one table into struct params. Each field is honoured, or named in a 400; a
 * few that change no answer are accepted and ignored (marked in the table). Limits: LIMIT_STOP_*,
 * LIMIT_LOGIT_BIAS, LIMIT_LOGPROBS, LIMIT_CHOICES. Strings and trees stay in the arena of the
 * parsed body.
 */
#ifndef ZIGCUDA_PARAMS_H
#define ZIGCUDA_PARAMS_H

#include "core/engine/engine.h"
#include "core/model/answer.h"
#include "net/refusal.h"

enum {
    PARAMS_CHAT = 1,
    PARAMS_COMPLETION = 2,
    PARAMS_TOKENIZE = 4,
    PARAMS_DETOKENIZE = 8,
    PARAMS_RESPONSE = 16,
    PARAMS_MESSAGE = 32,
    PARAMS_COUNT = 64, /* of the tokens of a message's prompt */
    PARAMS_EMBEDDING = 128,
    PARAMS_TURN = 256, /* a response over a WebSocket, which may go on in a conversation */
    PARAMS_RESPONSES = PARAMS_RESPONSE | PARAMS_TURN
};

struct params {
    struct sampling sampling; /* stop holds the caller's stop_token_ids */
    struct str model;         /* p NULL: not given */
    u32 n, best_of;           /* best_of 0: n */
    u32 max_tokens;           /* 0: not given */
    bool no_answer;           /* one token is made and nobody hears of it: the prompt is wanted */
    const char *max_field;    /* how this request calls it, for refusals; and these: */
    const char *prompt_field, *format_field, *schema_field, *effort_field;
    const char *parameters_field; /* of a function in tools */
    const struct json *body;      /* all of it */
    u32 n_stop;
    struct str stop[LIMIT_STOP_STRINGS];
    bool stream, include_usage, echo, ignore_eos;
    bool usage_so_far; /* in each chunk of a stream */
    bool logprobs;     /* wanted in the reply; how many others: sampling.top_logprobs */
    bool seeded, skip_special;
    bool add_generation_prompt, continue_final, add_special;
    bool has_add_generation_prompt, has_add_special;
    bool token_strings;
    i32 priority;
    u64 deadline_ms;              /* 0: none */
    const struct json *messages;  /* checked and flattened, see net/messages.h */
    const struct json *variables; /* chat_template_kwargs, or NULL */
    const struct json *tools;     /* that may be called, checked, or NULL */
    bool one_call;                /* at most */
    bool strict;                  /* arguments of some have to follow their schema */
    bool must_call;               /* one of them, or the one of this name: */
    struct str call;              /* p NULL: any */
    bool json;                    /* an answer that is no call is an object, or fits: */
    const struct json *schema;    /* JSON Schema, not checked yet, or NULL */
    struct str effort;            /* reasoning_effort, for the chat template; p NULL: not given */
    bool thinks, thinks_not;      /* it is asked for, and that it does not; neither: as it likes */
    u32 thought_tokens;           /* at most; UINT32_MAX: any */
    bool no_thoughts;             /* they are left out of the reply */
    bool raw_thoughts;            /* they are text, as they were written */
    struct str prediction;        /* what the answer may well be; empty: nobody knows */
    const struct json *prompt;    /* string, strings, tokens or lists of tokens; not checked yet */
    bool embeds, base64;          /* the prompts, and how the floats are written */
    u32 dimensions;               /* of embeddings; 0: all */
    const struct json *tokens;    /* of /detokenize */
    struct str previous;          /* previous_response_id of a turn; p NULL: not given */
    bool prepare;                 /* "generate": false */
};

/* What a request that names nothing gets: the model's generation_config.json, else OpenAI's. */
struct sampling params_default_sampling(const struct model *m);

/* Reads the object `body` of a request of one `kind`; `work` for what has to be rebuilt. */
MUST bool params_read(struct params *p, u32 kind, const struct json *body, const struct model *m,
                      struct arena *work, struct refusal *f);

/* The same of one turn: `earlier` is a list of the items before its input, or NULL. */
MUST bool params_read_turn(struct params *p, const struct json *body, const struct json *earlier,
                           const struct model *m, struct arena *work, struct refusal *f);

/* The i-th known field's name and the kinds it belongs to; NULL behind the last. For the test that
 * holds openapi.json against this table. */
const char *params_field(u32 i, u32 *kinds);

#endif
