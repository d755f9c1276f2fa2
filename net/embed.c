#include "net/parts.h"

#include "core/engine/embed.h"

/* /v1/embeddings. Each input is a sequence that the engine reads and answers with a vector. Of the
 * inputs so many are with the engine that its slots stay busy; when one ends, the next takes its
 * place, behind whoever waits by then. What waits and what is done lies in the store, all of which
 * is taken before the first begins. */

enum {
    REPLY_BYTES = 4096, /* what stands around the vectors, and the head */
    VECTOR_BYTES = 64,  /* what stands around one of them */
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

static size_t reply_bytes(const struct embeds *e)
{
    size_t text = e->base64 ? BASE64_BYTES(e->size * sizeof(float)) : e->size * JSON_F32_BYTES;
    return REPLY_BYTES + e->n * (VECTOR_BYTES + text);
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
    if (!check_size(api, p, &e->size, f))
        return false;
    return reply_bytes(e) <= api->g.body_bytes ||
           refuse(f, 400, "request_too_large", "input",
                  "the reply to %u inputs can take %zu bytes, the limit is %zu (server.body_max): "
                  "send fewer at a time%s",
                  e->n, reply_bytes(e), api->g.body_bytes,
                  e->base64 ? "" : ", or ask for encoding_format base64");
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

static void put_vector(struct json_out *o, const struct api *api, const struct embeds *e,
                       struct chain_reader *r)
{
    enum { PIECE = 768 }; /* whole floats, and whole letters of base64 */
    u8 piece[PIECE];
    char letters[BASE64_BYTES(PIECE) + 1];
    if (e->base64)
        json_open_str(o);
    else
        json_open(o, '[');
    for (size_t left = e->size * sizeof(float), n; left > 0; left -= n) {
        n = MIN(left, sizeof piece);
        bool there = store_get(&api->store, &e->vectors, r, piece, n);
        ASSERT(there);
        if (e->base64) {
            base64(letters, piece, n);
            json_put_piece(o, str_of(letters));
        } else {
            put_floats(o, piece, n);
        }
    }
    if (e->base64)
        json_close_str(o);
    else
        json_close(o, ']');
}

static void whole(struct json_out *o, const struct api *api, struct job *job)
{
    const struct embeds *e = &job->embeds;
    struct chain_reader r = store_from(&e->vectors);
    json_open(o, '{');
    json_key(o, "object");
    json_put_str(o, STR("list"));
    json_key(o, "data");
    json_open(o, '[');
    for (u32 i = 0; i < e->n; i++) {
        json_open(o, '{');
        json_key(o, "object");
        json_put_str(o, STR("embedding"));
        json_key(o, "index");
        json_put_u64(o, i);
        json_key(o, "embedding");
        put_vector(o, api, e, &r);
        json_close(o, '}');
    }
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

const struct dialect embedding_dialect = {
    .kind = PARAMS_EMBEDDING, .prefix = "embd-", .whole = whole};
