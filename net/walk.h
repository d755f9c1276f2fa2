/* What an answer says, read back from the records of its tokens: token by token, as pieces of text
 * and calls, and as items. Items are what newer dialects make an answer of, texts and calls in the
 * order in which they came; streams count theirs by the same rules. Inside the API only.
 */
#ifndef ZIGCUDA_WALK_H
#define ZIGCUDA_WALK_H

#include "net/parts.h"

/* Over the tokens of the prompt, where their logprobs were asked for, and of the output. */
struct walk {
    const struct api *api;
    const struct choice *c;
    struct chain_reader reader;
    struct decode_stream decode;
    u32 i, left; /* tokens behind us; bytes of the output's text to come */
    u32 chars;   /* before this token, for text_offset */
    u32 behind;  /* and behind it: text of a stop string counts, as in a stream */
    bool given;  /* this token is one of the prompt */
    bool silent; /* this token is a stop id: its text is only what others left */
    struct step_result r;
    struct str text;
    char piece[2 * DECODE_PIECE_BYTES];
};

void walk_from(struct walk *w, const struct api *api, const struct choice *c);
/* The next token, with the text it brought to the output; false behind the last. */
bool walk_next(struct walk *w);

/* The pieces of the output. */
struct telling {
    struct walk walk;
    struct answer_reader reader;
    struct str text; /* of the walk's token, what is left of it */
    u32 thoughts;    /* tokens so far that were thought */
    bool thought;    /* so was what came before the newest token */
    bool over;
};

void tell_from(struct telling *t, const struct api *api, const struct choice *c);
bool tell_next(struct telling *t, struct piece *piece); /* false behind the last */

/* What an event of a stream brings, piece by piece. */
void stream_pieces(struct api *api, struct choice *c, const struct event *event,
                   void (*tell)(struct api *api, struct choice *c, const struct piece *piece));

/* What the next piece is to the items; calls: how many have begun with it. */
enum item_step item_step(struct items *s, const struct job *job, enum part part, u32 calls);

/* Log probabilities of the tokens before `end` that have not been told yet, as entries of a list;
 * o NULL: they are left out. A stop id has none. */
void item_logprobs(struct json_out *o, const struct api *api, const struct choice *c,
                   struct told *told, u32 end);

/* The pieces of an answer by items, without those that are left out. */
struct item_walk {
    struct telling t;
    struct items items;
    struct piece piece;
    bool begins; /* the piece begins item items.n - 1 */
    struct told told;
};

void item_from(struct item_walk *w, const struct api *api, const struct choice *c);
bool item_next(struct item_walk *w);

/* Text or arguments of item `n` as a JSON string, and the list of its log probabilities. */
void item_put_text(struct json_out *o, const struct api *api, const struct choice *c, u32 n);
void item_put_logprobs(struct json_out *o, const struct api *api, const struct choice *c, u32 n);

#endif
