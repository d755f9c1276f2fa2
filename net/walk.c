#include "net/walk.h"

void walk_from(struct walk *w, const struct api *api, const struct choice *c)
{
    w->api = api;
    w->c = c;
    w->reader = store_from(&c->tokens);
    w->decode = c->given_text;
    w->i = 0;
    w->left = c->text_bytes;
    w->behind = 0;
}

static void read_record(const struct api *api, const struct choice *c, struct chain_reader *from,
                        struct step_result *r)
{
    const struct store *s = &api->store;
    u32 tops = c->job->top_logprobs;
    bool there = store_get(s, &c->tokens, from, &r->token, sizeof r->token) &&
                 store_get(s, &c->tokens, from, &r->logprob, sizeof r->logprob) &&
                 store_get(s, &c->tokens, from, r->top, tops * sizeof r->top[0]);
    ASSERT(there);
    r->n_top = tops;
    while (r->n_top && r->top[r->n_top - 1].logprob <= -9999.0f)
        r->n_top--;
}

bool walk_next(struct walk *w)
{
    const struct choice *c = w->c;
    u32 n = 0, all = c->given + c->outputs;
    if (w->i == all)
        return false;
    read_record(w->api, c, &w->reader, &w->r);
    w->chars = w->behind;
    w->given = w->i < c->given;
    if (w->i == c->given) /* the text of the output begins anew */
        w->decode = c->text;
    bool last = ++w->i == all;
    w->silent = last && c->silent_end;
    if (w->given) {
        w->behind = shape_echoed(c, &w->decode, w->i - 1, w->r.token, w->chars);
        return true;
    }
    if (!w->silent)
        n = decode_push(&w->decode, w->r.token, w->piece);
    if (last)
        n += decode_end(&w->decode, w->piece + n);
    w->behind += shape_chars((struct str){w->piece, n});
    n = MIN(n, w->left);
    w->left -= n;
    w->text = (struct str){w->piece, n};
    return true;
}

/* --- pieces ------------------------------------------------------------------------------------
 */

void tell_from(struct telling *t, const struct api *api, const struct choice *c)
{
    walk_from(&t->walk, api, c);
    t->reader = answer_reader_of(&c->job->form);
    t->text = (struct str){0};
    t->thoughts = 0;
    t->over = false;
}

bool tell_next(struct telling *t, struct piece *piece)
{
    while (!t->over && !answer_next(&t->reader, &t->text, piece)) {
        bool thinks = answer_thinks(&t->reader);
        t->thoughts += t->walk.i > 0 && !t->walk.silent && (t->thought || thinks);
        t->thought = thinks;
        t->over = !walk_next(&t->walk);
        t->text = t->over || t->walk.given ? (struct str){0} : t->walk.text;
    }
    return !t->over || answer_end(&t->reader, piece);
}

/* --- items -------------------------------------------------------------------------------------
 */

enum item_step item_step(struct items *s, const struct job *job, enum part part, u32 calls)
{
    enum item_kind kind = part == PART_TEXT      ? ITEM_TEXT
                          : part == PART_THOUGHT ? ITEM_THOUGHT
                                                 : ITEM_CALL;
    if (kind == ITEM_CALL && job->one_call && calls > 1)
        return ITEM_LEFT_OUT;
    if (part != PART_NAME && kind == s->open)
        return ITEM_GOES_ON;
    s->open = kind;
    s->n++;
    s->calls += kind == ITEM_CALL;
    return ITEM_BEGINS;
}

void item_logprobs(struct json_out *o, const struct api *api, const struct choice *c,
                   struct told *told, u32 end)
{
    struct step_result r;
    if (told->n == 0)
        told->at = store_from(&c->tokens);
    for (; told->n < MIN(end, c->outputs - c->silent_end); told->n++) {
        read_record(api, c, &told->at, &r);
        if (o)
            shape_chat_logprob(o, api, &r, c->job->top_logprobs);
    }
}

void item_from(struct item_walk *w, const struct api *api, const struct choice *c)
{
    tell_from(&w->t, api, c);
    w->items = (struct items){0};
    w->told = (struct told){0};
}

bool item_next(struct item_walk *w)
{
    enum item_step step = ITEM_LEFT_OUT;
    const struct choice *c = w->t.walk.c;
    while (step == ITEM_LEFT_OUT && tell_next(&w->t, &w->piece)) {
        step = item_step(&w->items, c->job, w->piece.part, w->t.reader.calls.calls);
        if (step == ITEM_LEFT_OUT && c->job->logprobs)
            item_logprobs(NULL, w->t.walk.api, c, &w->told, w->t.walk.i);
    }
    w->begins = step == ITEM_BEGINS;
    return step != ITEM_LEFT_OUT;
}

void item_put_text(struct json_out *o, const struct api *api, const struct choice *c, u32 n)
{
    static struct item_walk w;
    item_from(&w, api, c);
    json_open_str(o);
    while (item_next(&w) && w.items.n <= n + 1)
        if (w.items.n == n + 1 && w.piece.part != PART_NAME)
            json_put_piece(o, w.piece.text);
    json_close_str(o);
}

/* A token's goes with the next text, or with the last one; those of calls are left out. */
void item_put_logprobs(struct json_out *o, const struct api *api, const struct choice *c, u32 n)
{
    static struct item_walk w;
    bool more = true;
    item_from(&w, api, c);
    json_open(o, '[');
    while (c->job->logprobs && more && w.items.n <= n + 1) {
        more = item_next(&w);
        bool mine = w.items.n == n + 1 && w.items.open == ITEM_TEXT;
        mine |= !more && w.items.n == 0; /* nothing but tokens without text */
        item_logprobs(mine ? o : NULL, api, c, &w.told, more ? w.t.walk.i : c->outputs);
    }
    json_close(o, ']');
}

/* --- as it comes -------------------------------------------------------------------------------
 */

void stream_pieces(struct api *api, struct choice *c, const struct event *event,
                   void (*tell)(struct api *api, struct choice *c, const struct piece *piece))
{
    struct piece piece;
    struct str left = event->text;
    bool thought = answer_thinks(&c->reader);
    while (answer_next(&c->reader, &left, &piece))
        tell(api, c, &piece);
    c->thoughts += event->has_token && !c->silent_end && (thought || answer_thinks(&c->reader));
    while (event->finish != FINISH_NONE && answer_end(&c->reader, &piece))
        tell(api, c, &piece);
}
