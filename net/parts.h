/* What the files of the API share: its state, one job a request in work, one choice a sequence of a
 * job. net/api owns the state; net/job begins and ends jobs; net/stream and net/whole write
 * replies; net/shape has the JSON both of them are made of.
 */
#ifndef ZIGCUDA_PARTS_H
#define ZIGCUDA_PARTS_H

#include "core/engine/grammar_pool.h"
#include "net/admission.h"
#include "net/api.h"
#include "net/kinds.h"
#include "net/metrics.h"
#include "net/params.h"
#include "net/refusal.h"
#include "net/store.h"

enum { API_ID_BYTES = 32, API_EXTRA_BYTES = 512, API_NOTE_BYTES = 128, SHAPE_CALL_ID = 10 };

/* How a request is answered: what every reply to it carries and what its log line says. */
struct caller {
    conn_id conn; /* 0: gone */
    u64 start_ns;
    u64 number;         /* the request's id is made of it */
    i32 key;            /* index into keys, or -1 */
    i32 origin;         /* index into the list of CORS origins, or -1 */
    u32 route;          /* index into the routes; METRICS_ROUTES - 1: none */
    int ok;             /* what a 200 becomes by the preconditions of the request */
    const char *method; /* static text */
    char peer[LIMIT_PEER_BYTES];
    struct str path; /* its route's; without one, what was asked for: valid as the request is */
};

struct job;
struct choice;

/* A language of requests and replies. Requests are read into the same params (`kind` says which
 * fields there are), and what comes of them is told by these functions: as one JSON object, or as
 * a stream of what happens. */
struct dialect {
    u32 kind;           /* PARAMS_* */
    const char *prefix; /* of the ids of its replies */
    const char *object; /* what a whole reply calls itself, */
    const char *chunk;  /* and a piece of a stream; where shape_head writes them */
    bool keeps;         /* streams keep their tokens, too: their end tells all of it again */
    /* What of the request comes back in its replies: the members of an object; NULL: nothing. */
    void (*echo)(struct json_out *o, const struct params *p);
    void (*whole)(struct json_out *o, const struct api *api, struct job *job);
    void (*begin)(struct api *api, struct job *job); /* of a stream, before any event; or NULL */
    /* logprobs: of the token that the event brings, where they are wanted. */
    void (*event)(struct api *api, struct choice *c, const struct event *event,
                  const struct step_result *logprobs);
    void (*end)(struct api *api, struct job *job);
    void (*failed)(struct api *api, struct job *job, const struct refusal *f);
};

extern const struct dialect chat_dialect, completion_dialect; /* net/stream and net/whole */
extern const struct dialect response_dialect, turn_dialect;   /* net/respond */
extern const struct dialect message_dialect;                  /* net/anthropic */
extern const struct dialect embedding_dialect;                /* net/embed */

/* The items of an answer so far, see net/walk.h. */
/* Tokens of a prompt a step whose log probabilities are streamed: no more than a reader takes. */
enum { STREAMED_PROMPT = 16 };

enum item_kind { ITEM_NONE, ITEM_TEXT, ITEM_CALL, ITEM_THOUGHT };
enum item_step { ITEM_LEFT_OUT, ITEM_GOES_ON, ITEM_BEGINS };
struct items {
    u32 n, calls;
    enum item_kind open; /* what the newest one is */
};
struct told { /* tokens whose logprobs are told, or left out */
    struct chain_reader at;
    u32 n;
};

struct choice {
    struct job *job;
    struct choice *next; /* of the job, or of the free list */
    u64 id;              /* the engine's; 0: not submitted */
    u32 prompt, index;   /* which prompt; index in the reply */
    u32 n_prompt, cached, outputs, max_tokens;
    u32 given;      /* prompt tokens whose logprobs are in `tokens`, or sent */
    u32 text_bytes; /* of its text so far */
    u32 chars;      /* of its tokens so far, for text_offset; a stream's */
    u32 thoughts;   /* tokens that were thought: as far as its pieces are told */
    u32 n_before;   /* prompt tokens that stand before the text of the prompt */
    u32 echo_chars; /* of that text */
    enum finish finish;
    struct str stop; /* the stop string that has ended it: valid in its last event */
    bool silent_end; /* its last token is a stop id, which is no text */
    bool begun;      /* the first event has come */
    double logprob_sum;
    u64 slot_ns, first_ns, last_ns;        /* when it got its slot, its first and its last token */
    struct decode_stream given_text, text; /* of prompt and output; in a stream, as far as it is */
    struct answer_reader reader;           /* a stream's */
    struct items items;                    /* a stream's, where the dialect has them, */
    struct told told;                      /* and of its logprobs */
    struct chain echo;           /* text of the prompt; of a stream, until all of it is sent */
    struct chain_reader echo_at; /* a stream's: so much of it is sent */
    u32 first_id;                /* of the prompt */
    struct chain tokens;         /* records of the tokens, where they are kept */
};

/* Of a job that embeds: inputs take turns in its choices, which are fewer. */
struct embeds {
    u32 n, size, begun; /* inputs; floats of each; those that were given to the engine */
    bool base64;
    u64 tokens; /* of all inputs */
    u64 deadline_ns;
    i32 priority;
    struct chain ids;         /* of the inputs that wait: how many, then these */
    struct chain_reader at;   /* the next of them */
    struct chain vectors;     /* f32 [n][size] */
    bool told;                /* all are there; the reply is on its way in pieces, */
    size_t at_byte;           /* so far, */
    struct chain_reader from; /* which is here */
};

struct job {
    struct caller caller;
    struct choice *choices; /* in order of their index */
    struct job *next;       /* in use, in order of arrival; or of the free list */
    u32 n_choices, open;    /* open: have no last event yet */
    u32 echoes;             /* of a stream: choices whose prompt's text is not sent yet */
    u32 n, best_of, n_prompts;
    const struct dialect *dialect;
    bool stream, ws, include_usage, usage_so_far, echo, logprobs;
    bool kept;                     /* records of the tokens are */
    bool one_call;                 /* further ones are left out */
    bool named_call;               /* the caller knows that it comes */
    const struct grammar *grammar; /* NULL: text, or tools of any form */
    struct answer_format form;     /* how an answer is read */
    struct kinds kinds;            /* of the values in calls, where they are XML */
    struct embeds embeds;          /* n 0: it does not */
    bool failed;                   /* an error was sent; the rest is silence */
    bool cancelled;
    bool silent;               /* no log line: the refusal has one */
    bool overflow;             /* an event of its stream is longer than what can be built */
    bool at_once;              /* came while no step was in flight, and is to be in the next one */
    bool over;                 /* its reply is complete; job_end follows when that is sent */
    int status;                /* for the log line */
    char note[API_NOTE_BYTES]; /* for it, too: why it failed */
    size_t least_bytes;        /* of a whole reply, from what is known of it by now */
    u32 top_logprobs;
    u32 n_stop, stop_ids[LIMIT_STOP_IDS];
    bool ignore_eos, prompt_logprobs, no_answer;
    char id[API_ID_BYTES]; /* "chatcmpl-..." */
    i64 created_s;
    struct chain request; /* what of it comes back: dialect->echo */
    u32 sequence;         /* numbers the events of a stream */
    u64 sent_ns;          /* last bytes of a stream, for heartbeats */
};

/* An open WebSocket. At /v1/responses it has a conversation: the items of its newest response, what
 * was asked and what was answered, as JSON with commas between them. */
struct socket {
    struct caller caller; /* of the upgrade; its conn is the WebSocket's name */
    const struct dialect *dialect;
    char newest[API_ID_BYTES]; /* response; "": none that can be gone on from */
    struct chain items;
    const char *lost;           /* why they are not there; NULL: they are */
    bool busy;                  /* a response is in work */
    u64 used;                   /* number of the request that last asked for them */
    const struct json *earlier; /* the items, while a request is read that goes on from them */
};

struct api {
    struct api_config g;
    struct conns *conns;
    struct metrics metrics;
    struct admission admission;
    struct store store;
    struct job *jobs, *free_jobs, *first_job, *last_job; /* [n_jobs] */
    struct choice *choices, *free_choices;               /* [n_jobs] */
    struct grammar_pool grammars;                        /* where api_config has them */
    u32 n_jobs, n_free_choices;
    struct socket *sockets; /* [connections] open WebSockets */
    u32 n_sockets;
    struct store conversations; /* what they keep of theirs, net/converse */
    struct str origins[LIMIT_ORIGINS], hosts[LIMIT_HOSTS];
    u32 n_origins, n_hosts;
    char error_text[2 * ERR_TEXT_MAX]; /* body of a refusal by the connection */
    char *text;                        /* [text_bytes] JSON is built here, one piece at a time */
    size_t text_bytes;
    char extra[API_EXTRA_BYTES]; /* header lines of the reply being made */
    struct params params;        /* of the request being read */
    struct refusal refusal;
    u64 number, open_ns;
    i64 open_s;
    struct choice verify; /* the first token, for nobody: it has no job */
    bool ready, draining, lost, in_flight;
    u64 step_ns; /* when the step in flight was submitted */
    u32 written; /* streamed tokens of this turn */
    u32 n_over;  /* jobs that are over */
};

/* --- net/prompt ------------------------------------------------------------------------------ */

/* One prompt as token ids; `text` is what echo gives back. */
struct prompt {
    u32 *ids;
    u32 n;
    struct str text;
    u32 n_before; /* ids that stand before those of the text */
    bool as_ids;  /* the text is theirs, without special tokens; else they are those of the text */
    enum thoughts thoughts; /* what answers begin with */
};

struct prompts {
    struct prompt at[LIMIT_INPUTS];
    u32 n;
    u64 tokens;
    struct prompt prediction; /* of all their answers; n 0: there is none */
};

/* All prompts of a request as token ids in the work arena; or why not. */
MUST bool prompts_read(struct api *api, const struct params *p, struct prompts *all,
                       struct refusal *f);

/* Does a prompt of n tokens fit the context? The engine's rule, refused in OpenAI's form. */
MUST bool prompt_fits(const struct api *api, const struct params *p, u32 n, struct refusal *f);

/* --- net/job -----------------------------------------------------------------------------------
 */

/* Begins the job of a request: all its choices, or false with the reason. ws: NULL for HTTP's. */
MUST bool job_begin(struct api *api, const struct caller *caller, const struct dialect *dialect,
                    const struct socket *ws, const struct json *body, struct refusal *f);

/* The prompt of a body as token ids in the work arena: /tokenize. */
MUST bool job_prompt_ids(struct api *api, const struct params *p, u32 **ids, u32 *n,
                         struct refusal *f);

struct choice *job_take_choice(struct api *api);
void job_give_choices(struct api *api, struct job *job);

/* Whether it is asked for the one model there is. */
MUST bool job_check_model(const struct api *api, const struct params *p, bool needed,
                          struct refusal *f);

void job_cancel(struct api *api, struct job *job);
/* Its client has left, or was dropped: nothing more is sent, its work ends. */
void job_lost(struct api *api, struct job *job);
struct job *job_of(const struct api *api, conn_id id);

/* When the last choice has ended: the log line, the metrics, and its memory is free. */
void job_end(struct api *api, struct job *job);

/* --- net/embed --------------------------------------------------------------------------------
 */

/* Can these prompts be embedded as is asked for? Then job->n_choices are needed for it. */
MUST bool embed_check(const struct api *api, struct job *job, const struct params *p,
                      const struct prompts *all, struct refusal *f);
/* Takes the memory for it; for job->choices, too. */
MUST bool embed_take(struct api *api, struct job *job, const struct prompts *all,
                     struct refusal *f);
MUST bool embed_submit(struct api *api, struct job *job, const struct prompts *all,
                       struct refusal *f);
/* The end of a choice's input. True: it goes on with another one; false: nothing is left for it,
 * or f says why the job fails. */
MUST bool embed_event(struct api *api, struct choice *c, const struct event *event,
                      struct refusal *f);
/* All vectors are there. True: the reply is longer than what is sent whole, and goes out in pieces
 * by embed_send, which sends what the connection takes now: true as long as there is more, which
 * embed_waits says it could send by now. */
MUST bool embed_begin_reply(struct api *api, struct job *job);
MUST bool embed_send(struct api *api, struct job *job);
bool embed_waits(const struct api *api, const struct job *job);

/* --- net/stream and net/whole --------------------------------------------------------------- */

void stream_begin(struct api *api, struct job *job);
void stream_event(struct api *api, struct choice *c, const struct event *event);
/* Sends of the prompts' texts what the connection takes now; _waits: it would take more. */
void stream_echo(struct api *api, struct job *job);
bool stream_echo_waits(const struct api *api, const struct job *job);
void stream_prompt_token(struct api *api, struct choice *c, const struct step_result *r);
void stream_end(struct api *api, struct job *job);
void stream_heartbeat(struct api *api, struct job *job);
void stream_failed(struct api *api, struct job *job, const struct refusal *f);
/* For dialects: an event of a stream, `name` its type or NULL; wide: it may be longer than what a
 * slow reader has room for, and borrows a buffer. Behind the last one the stream is closed. */
struct json_out stream_open(struct api *api, const char *name);
void stream_send(struct api *api, struct job *job, struct json_out *o, bool wide);
void stream_close(struct api *api, struct job *job);

/* A whole reply is server.body_max at most, and so is what a stream keeps. These say false where it
 * is longer: as soon as that is certain, with nothing sent; whole_end where it can not be kept for
 * a slow reader, too. */
bool whole_fits(const struct api *api, const struct job *job);
MUST bool whole_event(struct api *api, struct choice *c, const struct event *event);
MUST bool whole_end(struct api *api, struct job *job, struct refusal *f);
void whole_completion(struct json_out *o, const struct api *api, struct job *job);
void whole_prompt_token(struct api *api, struct choice *c, const struct step_result *r);
/* The least that a choice takes with an echo of so many bytes and tokens. */
size_t whole_choice_bytes(const struct job *job, size_t echo, u32 tokens);

/* --- net/shape ------------------------------------------------------------------------------- */

/* Who stops behind a call waits for its result; not, as OpenAI has it, if its name was demanded. */
const char *shape_finish(const struct choice *c, enum finish finish);
/* An id for call `i` of a choice: 9 letters and digits, as Mistral's templates demand them. */
void shape_call_id(const struct api *api, const struct choice *c, u32 i, char id[SHAPE_CALL_ID]);
/* id, object, created, model, system_fingerprint of a reply or chunk: the object stays open. */
void shape_head(struct json_out *o, const struct api *api, const struct job *job);
void shape_usage(struct json_out *o, const struct job *job);
/* One entry of chat logprobs.content. */
void shape_chat_logprob(struct json_out *o, const struct api *api, const struct step_result *r,
                        u32 tops);
/* A token as text for logprobs: its bytes, broken ones replaced. */
void shape_token(struct json_out *o, const struct api *api, u32 id);
/* {token: logprob, ...} of completions: the tops and the token itself. */
void shape_text_tops(struct json_out *o, const struct api *api, const struct step_result *r,
                     u32 tops);
float shape_logprob(float logprob);
/* text_offset behind prompt token `i`, when it was `chars` before it. */
u32 shape_echoed(const struct choice *c, struct decode_stream *d, u32 i, u32 token, u32 chars);
u32 shape_chars(struct str s);

/* --- net/api -----------------------------------------------------------------------------------
 */

/* Header lines for every reply to this caller. */
const char *api_extra(struct api *api, const struct caller *c, const char *more);
/* For what is sent at once: with its head it fits a buffer of the connections. */
struct json_out api_out(struct api *api);
/* A whole reply with its log line and counter; content_type NULL: no body; more: header lines. */
void api_reply(struct api *api, const struct caller *c, int status, const char *content_type,
               struct str body, const char *more);
void api_reply_json(struct api *api, const struct caller *c, int status, struct json_out *o);
/* Before a whole reply is sent: false where a slow reader could not get all of it. */
MUST bool api_takes(struct api *api, const struct caller *c, struct str body, struct refusal *f);
bool api_too_large(const struct api *api, const struct job *job, struct refusal *f); /* false */
void api_refuse(struct api *api, const struct caller *c, const struct refusal *f);
void api_id(const struct api *api, u64 number, const char *prefix, char out[API_ID_BYTES]);
/* What the log line of a refused request says more than that of another: " code=... param=...". */
void api_note(const struct refusal *f, char out[API_NOTE_BYTES]);
/* The reply is out: log line and counter. */
void api_done(struct api *api, const struct caller *c, int status, u32 tokens_in, u32 tokens_out,
              const char *note);
u64 api_now(const struct api *api);

/* --- net/status ------------------------------------------------------------------------------ */

void status_json(struct json_out *o, const struct api *api);

#endif
