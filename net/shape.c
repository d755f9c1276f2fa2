#include "net/parts.h"

#include "core/base/utf8.h"

#include <math.h>

const char *shape_finish(const struct choice *c, enum finish finish)
{
    static const char *const names[] = {NULL, "stop", "length", "cancelled", "deadline", "error"};
    bool calls = c->reader.calls.calls && !c->job->named_call;
    return finish == FINISH_STOP && calls ? "tool_calls" : names[finish];
}

void shape_call_id(const struct api *api, const struct choice *c, u32 i, char id[SHAPE_CALL_ID])
{
    char hex[API_ID_BYTES];
    api_id(api, c->job->caller.number << 16 ^ c->index << 8 ^ i, "", hex);
    memcpy(id, hex, SHAPE_CALL_ID - 1);
    id[SHAPE_CALL_ID - 1] = 0;
}

void shape_head(struct json_out *o, const struct api *api, const struct job *job)
{
    const char *object = job->stream ? job->dialect->chunk : job->dialect->object;
    json_open(o, '{');
    json_key(o, "id");
    json_put_str(o, str_of(job->id));
    json_key(o, "object");
    json_put_str(o, str_of(object));
    json_key(o, "created");
    json_put_i64(o, job->created_s);
    json_key(o, "model");
    json_put_str(o, str_of(api->g.name));
    json_key(o, "system_fingerprint");
    json_put_str(o, str_of(api->g.fingerprint));
}

static void count(struct json_out *o, const char *key, u64 n)
{
    json_key(o, key);
    json_put_u64(o, n);
}

/* Each prompt counts once, every token that was computed counts. */
void shape_usage(struct json_out *o, const struct job *job)
{
    u64 prompt = 0, output = 0, cached = 0, thoughts = 0;
    u32 seen = 0;
    for (const struct choice *c = job->choices; c; c = c->next) {
        output += c->outputs;
        thoughts += c->thoughts;
        if (c->prompt < seen)
            continue;
        seen = c->prompt + 1;
        prompt += c->n_prompt;
        cached += c->cached;
    }
    json_key(o, "usage");
    json_open(o, '{');
    count(o, "prompt_tokens", prompt);
    count(o, "completion_tokens", output);
    count(o, "total_tokens", prompt + output);
    json_key(o, "prompt_tokens_details");
    json_open(o, '{');
    count(o, "cached_tokens", cached);
    json_close(o, '}');
    json_key(o, "completion_tokens_details");
    json_open(o, '{');
    count(o, "reasoning_tokens", thoughts);
    json_close(o, '}');
    json_close(o, '}');
}

/* --- logprobs ----------------------------------------------------------------------------------
 */

float shape_logprob(float logprob)
{
    return isfinite(logprob) && logprob > -9999.0f ? logprob : -9999.0f;
}

void shape_token(struct json_out *o, const struct api *api, u32 id)
{
    char bytes[LIMIT_TOKEN_BYTES];
    json_put_str(o, (struct str){bytes, tokenizer_bytes(api->g.tokenizer, id, bytes)});
}

static void token_entry(struct json_out *o, const struct api *api, u32 id, float logprob)
{
    char bytes[LIMIT_TOKEN_BYTES];
    u32 n = tokenizer_bytes(api->g.tokenizer, id, bytes);
    json_open(o, '{');
    json_key(o, "token");
    json_put_str(o, (struct str){bytes, n});
    json_key(o, "logprob");
    json_put_f32(o, shape_logprob(logprob));
    json_key(o, "bytes");
    json_open(o, '[');
    for (u32 i = 0; i < n; i++)
        json_put_u64(o, (u8)bytes[i]);
    json_close(o, ']');
}

void shape_chat_logprob(struct json_out *o, const struct api *api, const struct step_result *r,
                        u32 tops)
{
    token_entry(o, api, r->token, r->logprob);
    json_key(o, "top_logprobs");
    json_open(o, '[');
    for (u32 i = 0; i < MIN(tops, r->n_top); i++) {
        token_entry(o, api, r->top[i].id, r->top[i].logprob);
        json_close(o, '}');
    }
    json_close(o, ']');
    json_close(o, '}');
}

/* True when an earlier entry has the same text: a JSON object may not have a key twice. */
static bool repeated(const struct api *api, const u32 *ids, u32 n)
{
    char mine[LIMIT_TOKEN_BYTES], other[LIMIT_TOKEN_BYTES];
    struct str a = {mine, tokenizer_bytes(api->g.tokenizer, ids[n], mine)};
    for (u32 i = 0; i < n; i++) {
        struct str b = {other, tokenizer_bytes(api->g.tokenizer, ids[i], other)};
        if (str_eq(a, b) || (!utf8_valid(a) && !utf8_valid(b)))
            return true;
    }
    return false;
}

void shape_text_tops(struct json_out *o, const struct api *api, const struct step_result *r,
                     u32 tops)
{
    char bytes[LIMIT_TOKEN_BYTES + 1];
    u32 ids[LIMIT_LOGPROBS + 1] = {r->token}, n = 1;
    float logprobs[LIMIT_LOGPROBS + 1] = {r->logprob};
    for (u32 i = 0; i < MIN(tops, r->n_top); i++) {
        ids[n] = r->top[i].id;
        logprobs[n] = r->top[i].logprob;
        n += !repeated(api, ids, n);
    }
    json_open(o, '{');
    for (u32 i = 0; i < n; i++) {
        u32 k = tokenizer_bytes(api->g.tokenizer, ids[i], bytes);
        json_key_str(o, (struct str){bytes, k});
        json_put_f32(o, shape_logprob(logprobs[i]));
    }
    json_close(o, '}');
}

u32 shape_chars(struct str s)
{
    u32 n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((u8)s.p[i] & 0xc0) != 0x80;
    return n;
}

/* The output begins where the text of the prompt ends, also where a normalizer made the text of its
 * tokens a different one. */
u32 shape_echoed(const struct choice *c, struct decode_stream *d, u32 i, u32 token, u32 chars)
{
    char text[DECODE_PIECE_BYTES];
    if (i + 1 == c->n_prompt)
        return c->echo_chars;
    if (i < c->n_before)
        return chars;
    chars += shape_chars((struct str){text, decode_push(d, token, text)});
    return MIN(chars, c->echo_chars);
}
