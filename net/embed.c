#include "net/parts.h"

#include "core/engine/embed.h"

/* /v1/embeddings. Each input is a sequence that the engine reads and answers with a vector. Of the
 * inputs so many are with the engine that its slots stay busy; when one ends, the next takes its
 * place, behind whoever waits by then. What waits and what is done lies in the store, all of which
 * is taken before the first begins. */

enum {
    REPLY_BYTES = 4096, /* what stands around the vectors, and the head */
    VECTOR_BYTES = 64,  /* what stands around one of them */
    PIECE_BYTES = 768,  /* of a vector: whole floats, and whole letters of base64 */
    PIECE_ROOM = VECTOR_BYTES + PIECE_BYTES / 4 * JSON_F32_BYTES,
    SEND_ROOM = REPLY_BYTES + PIECE_ROOM, /* less than the least server.output */
};

static u32 window(const struct api *api, u32 inputs)
{
    const u32 slots = api->g.limits.slots;
    return MIN(inputs, slots + MIN(api->g.queue, slots));
}

/* --- beginning -------------------------------------------------------------------------------- */

static bool check_size(const struct api *api, const struct params *p, u32 *size, struct refusal *f)
{
    const struct model *m = api->g.model;
    const struct embedding *e = &m->embedding;
    *size = p->dimensions ? p->dimensions : m->hidden;
    if (*size > m->hidden)
        return refuse(f, 400, "invalid_value", "dimensions",
                      "dimensions is %u; the embeddings of this model have %u", *size, m->hidden);
    for (u32 i = 0; i < e->n_sizes; i++)
        if (e->sizes[i] == *size)
            return true;
    return e->n_sizes == 0 || *size == m->hidden ||
           refuse(f, 400, "invalid_value", "dimensions",
                  "dimensions is %u; the model's config.json has a list of those that it was made "
                  "for (matryoshka_dimensions)",
                  *size);
}

bool embed_check(const struct api *api, struct job *job, const struct params *p,
                 const struct prompts *all, struct refusal *f)
{
    struct embeds *e = &job->embeds;
    if (api->g.model->embedding.refused)
        return refuse(f, 400, "no_embeddings", "model", "this model makes no embeddings here: %s",
                      api->g.model->embedding.refused);
    *e = (struct embeds){
        .n = all->n, .base64 = p->base64, .tokens = all->tokens, .priority = p->priority};
    if (p->deadline_ms)
        e->deadline_ns = job->caller.start_ns + p->deadline_ms * 1000000;
    job->n_choices = window(api, e->n);
    return check_size(api, p, &e->size, f);
}

static void take_choices(struct api *api, struct job *job, const struct prompts *all)
{
    struct choice **link = &job->choices;
    for (u32 i = 0; i < job->n_choices; i++) {
        struct choice *c = job_take_choice(api);
        *link = c;
        link = &c->next;
        c->job = job;
        c->prompt = c->index = i;
        c->n_prompt = all->at[i].n;
    }
}

bool embed_take(struct api *api, struct job *job, const struct prompts *all, struct refusal *f)
{
    struct embeds *e = &job->embeds;
    struct store *store = &api->store;
    size_t vectors = (size_t)e->n * e->size * sizeof(float), ids = 0;
    for (u32 i = job->n_choices; i < e->n; i++)
        ids += (1 + all->at[i].n) * sizeof(u32);
    u64 need = store_need(vectors) + (ids ? store_need(ids) : 0);
    if (need > store->n)
        return refuse(f, 400, "request_too_large", "input",
                      "the inputs and their embeddings take %llu bytes; there are %llu "
                      "(server.reply_memory): send fewer at a time",
                      (unsigned long long)need * STORE_BLOCK_BYTES,
                      (unsigned long long)store->n * STORE_BLOCK_BYTES);
    if (need > store->free) {
        refuse(f, 429, "queue_full", NULL,
               "the memory for replies is in use (server.reply_memory): try again, or send fewer "
               "inputs at a time");
        f->retry_s = 1;
        return false;
    }
    store_take(store, &e->vectors, vectors);
    if (ids)
        store_take(store, &e->ids, ids);
    for (u32 i = job->n_choices; i < e->n; i++) {
        const struct prompt *prompt = &all->at[i];
        store_put(store, &e->ids, &prompt->n, sizeof prompt->n);
        store_put(store, &e->ids, prompt->ids, prompt->n * sizeof *prompt->ids);
    }
    e->at = store_from(&e->ids);
    take_choices(api, job, all);
    return true;
}

static bool submit(struct api *api, struct choice *c, const u32 *ids, struct refusal *f)
{
    struct embeds *e = &c->job->embeds;
    struct err_text why = {0};
    struct request r = {.prompt = ids,
                        .n_prompt = c->n_prompt,
                        .sampling = params_default_sampling(api->g.model),
                        .no_answer = true,
                        .embeds = true,
                        .priority = e->priority,
                        .deadline_ns = e->deadline_ns,
                        .user = c};
    c->slot_ns = api_now(api); /* until it has one */
    if (engine_submit(api->g.engine, &r, &c->id, &why) != ERR_OK) {
        c->id = 0;
        return refuse_err(f, &why, "invalid_value", "input");
    }
    e->begun++;
    return true;
}

bool embed_submit(struct api *api, struct job *job, const struct prompts *all, struct refusal *f)
{
    for (struct choice *c = job->choices; c; c = c->next) {
        if (!submit(api, c, all->at[c->prompt].ids, f))
            return false;
        job->open++;
    }
    return true;
}

/* --- going on --------------------------------------------------------------------------------- */

static void measure(struct api *api, const struct choice *c, const struct event *event)
{
    double service_s = (double)(api_now(api) - c->slot_ns - event->waited_ns) / 1e9;
    metrics_add_s(&api->metrics.queue_s, (double)event->waited_ns / 1e9);
    admission_measured(&api->admission, service_s, service_s);
}

/* The next input that waits; ids are free again with the work arena. */
static bool next(struct api *api, struct choice *c, struct refusal *f)
{
    struct embeds *e = &c->job->embeds;
    size_t mark = api->g.work->used_bytes;
    bool there = store_get(&api->store, &e->ids, &e->at, &c->n_prompt, sizeof c->n_prompt);
    u32 *ids = arena_take(api->g.work, c->n_prompt * sizeof *ids, sizeof *ids);
    ASSERT(there && ids); /* the body it came in took more of that memory */
    there = store_get(&api->store, &e->ids, &e->at, ids, c->n_prompt * sizeof *ids);
    ASSERT(there);
    c->prompt = c->index = e->begun;
    c->finish = FINISH_NONE;
    bool ok = submit(api, c, ids, f);
    arena_reset(api->g.work, mark);
    return ok;
}

bool embed_event(struct api *api, struct choice *c, const struct event *event, struct refusal *f)
{
    static float v[LIMIT_HIDDEN];
    struct embeds *e = &c->job->embeds;
    size_t bytes = e->size * sizeof *v;
    if (!event->embedding)
        return false;
    measure(api, c, event);
    memcpy(v, event->embedding, bytes);
    if (!embed_finish(v, e->size, api->g.model->embedding.raw))
        return refuse(f, 500, "not_finite", "input",
                      "the embedding of input %u is not finite: the model or the kernels compute "
                      "nonsense",
                      c->index);
    store_set(&api->store, &e->vectors, c->index * bytes, v, bytes);
    return e->begun < e->n && next(api, c, f);
}

/* --- the reply -------------------------------------------------------------------------------- */

static void put_floats(struct json_out *o, const void *p, size_t bytes)
{
    float v;
    for (size_t at = 0; at < bytes; at += sizeof v) {
        memcpy(&v, (const u8 *)p + at, sizeof v);
        json_put_f32(o, v);
    }
}

static void put_head(struct json_out *o)
{
    json_open(o, '{');
    json_key(o, "object");
    json_put_str(o, STR("list"));
    json_key(o, "data");
    json_open(o, '[');
}

static void open_vector(struct json_out *o, const struct embeds *e, u32 i)
{
    o->comma = i > 0;
    json_open(o, '{');
    json_key(o, "object");
    json_put_str(o, STR("embedding"));
    json_key(o, "index");
    json_put_u64(o, i);
    json_key(o, "embedding");
    if (e->base64)
        json_open_str(o);
    else
        json_open(o, '[');
}

static void close_vector(struct json_out *o, const struct embeds *e)
{
    if (e->base64)
        json_close_str(o);
    else
        json_close(o, ']');
    json_close(o, '}');
}

/* From e->at_byte on, as long as there is room. */
static void put_vectors(struct json_out *o, const struct api *api, struct embeds *e)
{
    const size_t bytes = e->size * sizeof(float);
    u8 piece[PIECE_BYTES];
    char letters[BASE64_BYTES(PIECE_BYTES) + 1];
    while (e->at_byte < e->n * bytes && o->cap - o->n >= SEND_ROOM) {
        size_t at = e->at_byte % bytes, n = MIN(bytes - at, sizeof piece);
        bool there = store_get(&api->store, &e->vectors, &e->from, piece, n);
        ASSERT(there);
        o->comma = true;
        if (at == 0)
            open_vector(o, e, (u32)(e->at_byte / bytes));
        if (e->base64) {
            base64(letters, piece, n);
            json_put_piece(o, str_of(letters));
        } else {
            put_floats(o, piece, n);
        }
        if (at + n == bytes)
            close_vector(o, e);
        e->at_byte += n;
    }
}

static void put_tail(struct json_out *o, const struct api *api, const struct embeds *e)
{
    json_close(o, ']');
    json_key(o, "model");
    json_put_str(o, str_of(api->g.name));
    json_key(o, "usage");
    json_open(o, '{');
    json_key(o, "prompt_tokens");
    json_put_u64(o, e->tokens);
    json_key(o, "total_tokens");
    json_put_u64(o, e->tokens);
    json_close(o, '}');
    json_close(o, '}');
}

static bool is_whole(const struct embeds *e)
{
    return e->at_byte == e->n * e->size * sizeof(float);
}

static void whole(struct json_out *o, const struct api *api, struct job *job)
{
    put_head(o);
    put_vectors(o, api, &job->embeds);
    ASSERT(is_whole(&job->embeds));
    put_tail(o, api, &job->embeds);
}

bool embed_begin_reply(struct api *api, struct job *job)
{
    struct embeds *e = &job->embeds;
    size_t text = e->base64 ? BASE64_BYTES(e->size * sizeof(float)) : e->size * JSON_F32_BYTES;
    e->from = store_from(&e->vectors);
    e->told = REPLY_BYTES + SEND_ROOM + e->n * (VECTOR_BYTES + text) > api->g.body_bytes;
    if (!e->told)
        return false;
    job_give_choices(api, job); /* others may have them, however slowly this peer reads */
    if (!conn_begin(api->conns, job->caller.conn, job->status, "application/json",
                    api_extra(api, &job->caller, NULL)))
        job_lost(api, job);
    return true;
}

bool embed_waits(const struct api *api, const struct job *job)
{
    return job->embeds.told &&
           (!job->caller.conn || conn_room(api->conns, job->caller.conn) >= SEND_ROOM);
}

bool embed_send(struct api *api, struct job *job)
{
    struct embeds *e = &job->embeds;
    conn_id *conn = &job->caller.conn;
    if (!*conn || !embed_waits(api, job))
        return *conn != 0;
    struct json_out o =
        json_out_over(api->text, MIN(conn_room(api->conns, *conn), api->text_bytes));
    if (e->at_byte == 0)
        put_head(&o);
    put_vectors(&o, api, e);
    bool end = is_whole(e);
    if (end)
        put_tail(&o, api, e);
    ASSERT(!o.full);
    if (!conn_write(api->conns, *conn, (struct str){o.p, o.n}) ||
        (end && !conn_end(api->conns, *conn)))
        job_lost(api, job);
    else if (end)
        *conn = 0;
    return *conn != 0;
}

const struct dialect embedding_dialect = {
    .kind = PARAMS_EMBEDDING, .prefix = "embd-", .whole = whole};
