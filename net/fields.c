#include "net/fields.h"

#include "net/messages.h"

#include <stdio.h>

bool field_wrong_type(struct reading *r, const char *name, const char *wanted, const struct json *v)
{
    if (v->type == JSON_NUMBER) /* 1.0 is a number, and no whole one here */
        return refuse(r->f, 400, "invalid_type", name, "%s must be %s, not %.*s", name, wanted,
                      (int)MIN(v->text.n, (size_t)40), v->text.p);
    return refuse(r->f, 400, "invalid_type", name, "%s must be %s, not %s", name, wanted,
                  json_type_name(v));
}

static bool out_of_range(struct reading *r, const struct field *field, const struct json *v)
{
    return refuse(r->f, 400, "invalid_value", field->name, "%s is %.*s; allowed are %.10g to %.10g",
                  field->name, (int)MIN(v->text.n, (size_t)40), v->text.p, field->min, field->max);
}

bool field_is_empty(const struct json *v)
{
    bool list = v->type == JSON_ARRAY || v->type == JSON_OBJECT;
    return v->type == JSON_NULL || v->type == JSON_FALSE ||
           (v->type == JSON_STRING && v->text.n == 0) || (list && v->n == 0);
}

bool field_no_room(struct reading *r, const char *name)
{
    return refuse(r->f, 413, "request_too_large", name,
                  "%s takes more work memory than was planned for one request", name);
}

bool field_members(struct reading *r, const char *name, const struct json *v,
                   const char *const *known)
{
    char param[64];
    for (const struct json *m = v->child; m; m = m->next) {
        u32 i = 0;
        while (known[i] && !str_is(m->key, known[i]))
            i++;
        if (known[i] || field_is_empty(m))
            continue;
        snprintf(param, sizeof param, "%s.%.*s", name, (int)MIN(m->key.n, sizeof param), m->key.p);
        return refuse(r->f, 400, "unsupported_parameter", param,
                      "%s is not supported: leave it out", param);
    }
    return true;
}

bool field_is_str(const struct json *v, const char *text)
{
    return v && v->type == JSON_STRING && str_is(v->text, text);
}

/* --- plain fields ------------------------------------------------------------------------------
 */

bool field_float(struct reading *r, const struct field *field, const struct json *v)
{
    double x;
    if (v->type != JSON_NUMBER)
        return field_wrong_type(r, field->name, "a number", v);
    if (!json_f64(v, &x) || x < field->min || x > field->max)
        return out_of_range(r, field, v);
    *(float *)((char *)r->p + field->at) = (float)x;
    return true;
}

/* 0 is out: it would mean the opposite of "off". Also what a float has no number above 0 for. */
bool field_positive(struct reading *r, const struct field *field, const struct json *v)
{
    double x;
    if (v->type != JSON_NUMBER)
        return field_wrong_type(r, field->name, "a number", v);
    float *to = (float *)((char *)r->p + field->at);
    *to = json_f64(v, &x) && x <= field->max ? (float)x : 0;
    return *to > 0 || refuse(r->f, 400, "invalid_value", field->name,
                             "%s is %.*s; it must be more than 0 and at most %.10g", field->name,
                             (int)MIN(v->text.n, (size_t)40), v->text.p, field->max);
}

static bool field_whole(struct reading *r, const struct field *field, const struct json *v, i64 *x)
{
    if (v->type != JSON_NUMBER)
        return field_wrong_type(r, field->name, "a whole number", v);
    for (size_t i = 0; i < v->text.n; i++)
        if (memchr(".eE", v->text.p[i], 3))
            return field_wrong_type(r, field->name, "a whole number", v);
    if (!json_i64(v, x) || (double)*x < field->min || (double)*x > field->max)
        return out_of_range(r, field, v);
    return true;
}

bool field_u32(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    if (!field_whole(r, field, v, &x))
        return false;
    *(u32 *)((char *)r->p + field->at) = (u32)x;
    return true;
}

/* Of a completion 0, too: one token is made, and nobody hears of it. -1 is how clients of llama.cpp
 * and LM Studio say that they name no number. */
bool field_max_tokens(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    struct field most = *field;
    most.min = r->kind == PARAMS_COMPLETION ? 0 : 1;
    if (json_i64(v, &x) && x == -1)
        return true;
    if (!field_u32(r, &most, v))
        return false;
    r->p->no_answer = r->p->max_tokens == 0;
    r->p->max_tokens += r->p->no_answer;
    return true;
}

bool field_u64(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    if (!field_whole(r, field, v, &x))
        return false;
    *(u64 *)((char *)r->p + field->at) = (u64)x;
    return true;
}

bool field_i32(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    if (!field_whole(r, field, v, &x))
        return false;
    *(i32 *)((char *)r->p + field->at) = (i32)x;
    return true;
}

bool field_bool(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_TRUE && v->type != JSON_FALSE)
        return field_wrong_type(r, field->name, "true or false", v);
    *(bool *)((char *)r->p + field->at) = v->type == JSON_TRUE;
    return true;
}

bool field_unless(struct reading *r, const struct field *field, const struct json *v)
{
    if (!field_bool(r, field, v))
        return false;
    *(bool *)((char *)r->p + field->at) = v->type == JSON_FALSE;
    return true;
}

bool field_str(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_STRING)
        return field_wrong_type(r, field->name, "a string", v);
    *(struct str *)((char *)r->p + field->at) = v->text;
    return true;
}

bool field_tree(struct reading *r, const struct field *field, const struct json *v)
{
    *(const struct json **)((char *)r->p + field->at) = v;
    return true;
}

bool field_ignored(struct reading *r, const struct field *field, const struct json *v)
{
    (void)r, (void)field, (void)v;
    return true;
}

/* --- fields of their own ------------------------------------------------------------------------
 */

bool field_seed(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    if (v->type != JSON_NUMBER || !json_i64(v, &x))
        return field_wrong_type(
            r, field->name, "a whole number from -9223372036854775808 to 9223372036854775807", v);
    r->p->sampling.seed = (u64)x;
    r->p->seeded = true;
    return true;
}

bool field_top_k(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    if (!field_whole(r, field, v, &x))
        return false;
    r->p->sampling.top_k = x < 0 ? 0 : (u32)x;
    return true;
}

static bool one_stop(struct reading *r, const char *name, const struct json *v)
{
    struct params *p = r->p;
    if (v->type != JSON_STRING)
        return field_wrong_type(r, name, "a string or a list of strings", v);
    if (v->text.n > LIMIT_STOP_STRING_BYTES)
        return refuse(r->f, 400, "invalid_value", name,
                      "a %s string has %zu bytes; the limit is %u", name, v->text.n,
                      LIMIT_STOP_STRING_BYTES);
    if (v->text.n) /* an input field that was left empty asks for no stop */
        p->stop[p->n_stop++] = v->text;
    return true;
}

bool field_stop(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_ARRAY)
        return one_stop(r, field->name, v);
    if (v->n > LIMIT_STOP_STRINGS)
        return refuse(r->f, 400, "invalid_value", field->name, "%s has %u strings; the limit is %u",
                      field->name, v->n, LIMIT_STOP_STRINGS);
    for (const struct json *s = v->child; s; s = s->next)
        if (!one_stop(r, field->name, s))
            return false;
    return true;
}

bool field_stop_sequences(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_ARRAY)
        return field_wrong_type(r, field->name, "a list of strings", v);
    return field_stop(r, field, v);
}

bool field_stop_ids(struct reading *r, const struct field *field, const struct json *v)
{
    struct sampling *s = &r->p->sampling;
    if (v->type != JSON_ARRAY)
        return field_wrong_type(r, field->name, "a list of token ids", v);
    if (v->n > LIMIT_STOP_IDS)
        return refuse(r->f, 400, "invalid_value", field->name,
                      "stop_token_ids has %u ids; the limit is %u", v->n, LIMIT_STOP_IDS);
    for (const struct json *id = v->child; id; id = id->next) {
        u64 x;
        if (!json_u64(id, &x) || x >= r->m->vocab)
            return refuse(r->f, 400, "invalid_value", field->name,
                          "an entry of stop_token_ids is no token id below %u", r->m->vocab);
        s->stop[s->n_stop++] = (u32)x;
    }
    return true;
}

static bool bias_id(struct str key, u32 vocab, u32 *id)
{
    struct json number = {.type = JSON_NUMBER, .text = key};
    u64 x;
    if (key.n == 0 || !json_u64(&number, &x) || x >= vocab)
        return false;
    *id = (u32)x;
    return true;
}

bool field_bias(struct reading *r, const struct field *field, const struct json *v)
{
    struct sampling *s = &r->p->sampling;
    if (v->type != JSON_OBJECT)
        return field_wrong_type(r, field->name, "an object of token id and bias", v);
    if (v->n > LIMIT_LOGIT_BIAS)
        return refuse(r->f, 400, "invalid_value", field->name,
                      "logit_bias has %u entries; the limit is %u", v->n, LIMIT_LOGIT_BIAS);
    for (const struct json *b = v->child; b; b = b->next) {
        double x;
        u32 id;
        if (!bias_id(b->key, r->m->vocab, &id))
            return refuse(r->f, 400, "invalid_value", field->name,
                          "logit_bias names '%.*s', which is no token id below %u",
                          (int)MIN(b->key.n, (size_t)40), b->key.p, r->m->vocab);
        for (u32 i = 0; i < s->n_bias; i++)
            if (s->bias_id[i] == id)
                return refuse(r->f, 400, "invalid_value", field->name,
                              "logit_bias names token %u twice", id);
        if (!json_f64(b, &x) || x < -100 || x > 100)
            return refuse(r->f, 400, "invalid_value", field->name,
                          "logit_bias of token %u must be a number from -100 to 100", id);
        s->bias_id[s->n_bias] = id;
        s->bias[s->n_bias++] = (float)x;
    }
    return true;
}

/* Chat: true or false. Completions: how many alternatives, 0 to 5; false is none at all. */
bool field_logprobs(struct reading *r, const struct field *field, const struct json *v)
{
    struct params *p = r->p;
    if (r->kind == PARAMS_CHAT)
        return field_bool(r, field, v);
    struct field count = *field;
    if (v->type == JSON_FALSE)
        return true;
    count.at = offsetof(struct params, sampling.top_logprobs);
    p->logprobs = true;
    return field_u32(r, &count, v);
}

bool field_stream_options(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_OBJECT)
        return field_wrong_type(r, field->name, "an object", v);
    for (const struct json *m = v->child; m; m = m->next) {
        bool on = m->type == JSON_TRUE;
        if (!on && m->type != JSON_FALSE && m->type != JSON_NULL)
            return refuse(r->f, 400, "invalid_type", field->name,
                          "stream_options: every member is true or false");
        if (str_is(m->key, "include_usage") && !(r->kind & PARAMS_RESPONSES))
            r->p->include_usage = on;
        else if (str_is(m->key, "continuous_usage_stats") && !(r->kind & PARAMS_RESPONSES))
            r->p->usage_so_far = on;
        else if (!str_is(m->key, "include_obfuscation") || on)
            return refuse(r->f, 400, "unknown_parameter", field->name,
                          "stream_options.%.*s is not supported%s", (int)MIN(m->key.n, (size_t)40),
                          m->key.p, r->kind & PARAMS_RESPONSES ? "" : "; include_usage is");
    }
    r->p->usage_so_far &= r->p->include_usage;
    return true;
}

bool field_modalities(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type == JSON_ARRAY && v->n == 1 && v->child->type == JSON_STRING &&
        str_is(v->child->text, "text"))
        return true;
    return refuse(r->f, 400, "unsupported_value", field->name, "modalities: only [\"text\"]");
}

bool field_prediction(struct reading *r, const struct field *field, const struct json *v)
{
    static const char *const known[] = {"type", "content", NULL};
    const struct json *content = json_get(v, "content");
    if (v->type != JSON_OBJECT || !field_is_str(json_get(v, "type"), "content") || !content)
        return refuse(r->f, 400, "invalid_value", field->name,
                      "prediction must be {\"type\": \"content\", \"content\": \"...\"}");
    return field_members(r, field->name, v, known) &&
           field_text_of(r, "prediction.content", STR(""), content, &r->p->prediction);
}

bool field_store(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type == JSON_FALSE)
        return true;
    return refuse(r->f, 400, "unsupported_value", field->name,
                  "store must be false: nothing is stored here%s",
                  r->kind & PARAMS_RESPONSES ? "; send the earlier items in input" : "");
}

bool field_messages(struct reading *r, const struct field *field, const struct json *v)
{
    (void)field;
    return messages_read(v, r->work, &r->p->messages, r->f);
}

bool field_variables(struct reading *r, const struct field *field, const struct json *v)
{
    static const char *const ours[] = {"messages", "tools", "documents", "add_generation_prompt",
                                       "continue_final_message"};
    if (v->type != JSON_OBJECT)
        return field_wrong_type(r, field->name, "an object", v);
    for (u32 i = 0; i < COUNTOF(ours); i++)
        if (json_get(v, ours[i]))
            return refuse(r->f, 400, "invalid_value", field->name,
                          "chat_template_kwargs may not have '%s'", ours[i]);
    r->p->variables = v;
    return true;
}

bool field_generation_prompt(struct reading *r, const struct field *field, const struct json *v)
{
    r->p->has_add_generation_prompt = true;
    return field_bool(r, field, v);
}

bool field_add_special(struct reading *r, const struct field *field, const struct json *v)
{
    r->p->has_add_special = true;
    return field_bool(r, field, v);
}

bool field_encoding(struct reading *r, const struct field *field, const struct json *v)
{
    r->p->base64 = field_is_str(v, "base64");
    return r->p->base64 || field_is_str(v, "float") ||
           refuse(r->f, 400, "invalid_value", field->name, "%s must be \"float\" or \"base64\"",
                  field->name);
}

bool field_unsupported(struct reading *r, const struct field *field, const struct json *v)
{
    (void)v;
    return refuse(r->f, 400, "unsupported_parameter", field->name,
                  "%s is not supported: leave it out", field->name);
}

/* Without text there is nothing to end before. */
bool field_suffix(struct reading *r, const struct field *field, const struct json *v)
{
    return (v->type == JSON_STRING && v->text.n == 0) || field_unsupported(r, field, v);
}

/* The Python client puts the members of its argument beside the other fields; some who write
 * bodies by hand send the argument itself. */
bool field_extra_body(struct reading *r, const struct field *field, const struct json *v)
{
    return (v->type == JSON_OBJECT && v->n == 0) ||
           refuse(r->f, 400, "unsupported_parameter", field->name,
                  "extra_body is an argument of the Python client; in a body its members stand "
                  "beside the other fields");
}

/* --- of responses ------------------------------------------------------------------------------
 */

bool field_include(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_ARRAY)
        return field_wrong_type(r, field->name, "a list of strings", v);
    for (const struct json *one = v->child; one; one = one->next) {
        bool logprobs = field_is_str(one, "message.output_text.logprobs");
        /* Thoughts come as text here: there is nothing that would have to be encrypted. */
        if (!logprobs && !field_is_str(one, "reasoning.encrypted_content"))
            return refuse(r->f, 400, "unsupported_value", field->name,
                          "include may have \"message.output_text.logprobs\", and not '%.*s'",
                          (int)MIN(one->text.n, (size_t)60), one->text.p ? one->text.p : "");
        r->p->logprobs |= logprobs;
    }
    return true;
}

/* The member "effort" of an object. */
bool field_reasoning_effort(struct reading *r, const struct field *field, const struct json *v)
{
    const struct json *effort = json_get(v, "effort");
    if (v->type != JSON_OBJECT)
        return field_wrong_type(r, field->name, "an object", v);
    if (!effort || effort->type == JSON_NULL)
        return true;
    if (effort->type != JSON_STRING)
        return field_wrong_type(r, r->p->effort_field, "a string", effort);
    r->p->effort = effort->text;
    return true;
}

bool field_reasoning(struct reading *r, const struct field *field, const struct json *v)
{
    static const char *const known[] = {"effort", "summary", NULL};
    const struct json *summary = json_get(v, "summary"); /* "auto" leaves it to us: none is made */
    if (summary && !field_is_empty(summary) && !field_is_str(summary, "auto"))
        return refuse(r->f, 400, "unsupported_value", "reasoning.summary",
                      "reasoning.summary must be \"auto\": thoughts come as they are, and no "
                      "summary of them");
    return field_members(r, field->name, v, known) && field_reasoning_effort(r, field, v);
}

/* llama-server's name for it, and its values. */
bool field_reasoning_format(struct reading *r, const struct field *field, const struct json *v)
{
    static const char *const apart[] = {"auto", "deepseek"};
    r->p->raw_thoughts = field_is_str(v, "none");
    bool known = r->p->raw_thoughts;
    for (u32 i = 0; i < COUNTOF(apart); i++)
        known = known || field_is_str(v, apart[i]);
    return known || refuse(r->f, 400, "unsupported_value", field->name,
                           "reasoning_format must be \"auto\" or \"deepseek\", thoughts as "
                           "reasoning_content, or \"none\", as they are written");
}

/* It comes back in the response. */
bool field_metadata(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_OBJECT)
        return field_wrong_type(r, field->name, "an object of strings", v);
    for (const struct json *m = v->child; m; m = m->next)
        if (m->type != JSON_STRING)
            return field_wrong_type(r, field->name, "an object of strings", m);
    return true;
}

/* What fits is the same for both; what does not is refused, as nothing is left out here. */
bool field_truncation(struct reading *r, const struct field *field, const struct json *v)
{
    return field_is_str(v, "disabled") || field_is_str(v, "auto") ||
           refuse(r->f, 400, "invalid_value", field->name,
                  "truncation must be \"auto\" or \"disabled\"");
}

bool field_verbosity(struct reading *r, const struct field *field, const struct json *v)
{
    return field_is_str(v, "medium") ||
           refuse(r->f, 400, "unsupported_value", field->name,
                  "%s must be \"medium\", as models here answer: ask for another length in words",
                  field->name);
}

bool field_stateful(struct reading *r, const struct field *field, const struct json *v)
{
    return field_is_empty(v) ||
           refuse(r->f, 400, "unsupported_parameter", field->name,
                  "%s is not supported, as nothing is kept here between requests: %s", field->name,
                  str_is(str_of(field->name), "background")
                      ? "wait for the response, or stream it"
                      : "leave it out, and send the earlier items in input");
}

/* --- of messages -------------------------------------------------------------------------------
 */

/* Who asks, for statistics that nobody makes here. */
bool field_user_id(struct reading *r, const struct field *field, const struct json *v)
{
    static const char *const known[] = {"user_id", NULL};
    if (v->type != JSON_OBJECT)
        return field_wrong_type(r, field->name, "an object", v);
    return field_members(r, field->name, v, known);
}

bool field_thinking(struct reading *r, const struct field *field, const struct json *v)
{
    static const char *const known[] = {"type", "budget_tokens", NULL};
    const struct json *type = json_get(v, "type"), *budget = json_get(v, "budget_tokens");
    r->p->thinks = field_is_str(type, "enabled");
    r->p->thinks_not = field_is_str(type, "disabled");
    if (v->type != JSON_OBJECT ||
        !(r->p->thinks || r->p->thinks_not || field_is_str(type, "adaptive")))
        return refuse(r->f, 400, "invalid_value", field->name,
                      "thinking must be {\"type\": \"enabled\"}, \"disabled\" or \"adaptive\"");
    if (budget && budget->type != JSON_NULL) {
        u64 n;
        if (!json_u64(budget, &n) || n > LIMIT_CONTEXT)
            return refuse(r->f, 400, "invalid_value", "thinking.budget_tokens",
                          "thinking.budget_tokens must be a whole number of tokens, at most %u",
                          LIMIT_CONTEXT);
        r->p->thought_tokens = (u32)n;
    }
    return field_members(r, field->name, v, known);
}

/* Prefixes are found again without being marked. */
bool field_cache_control(struct reading *r, const struct field *field, const struct json *v)
{
    return v->type == JSON_OBJECT || field_wrong_type(r, field->name, "an object", v);
}
