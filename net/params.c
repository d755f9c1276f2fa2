#include "net/params.h"

#include "core/engine/sample.h"
#include "net/messages.h"

#include <stdio.h>

struct field;

/* One reading: where it goes, and what it may look at. */
struct reading {
    struct params *p;
    const struct model *m;
    struct arena *work;
    struct refusal *f;
    u32 kind;
    bool no_tools; /* tool_choice */
};

struct field {
    const char *name;
    u32 kinds;
    bool (*read)(struct reading *r, const struct field *field, const struct json *v);
    size_t at; /* of a plain field in struct params */
    double min, max;
};

static bool wrong_type(struct reading *r, const char *name, const char *wanted,
                       const struct json *v)
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

/* --- plain fields ------------------------------------------------------------------------------
 */

static bool read_float(struct reading *r, const struct field *field, const struct json *v)
{
    double x;
    if (v->type != JSON_NUMBER)
        return wrong_type(r, field->name, "a number", v);
    if (!json_f64(v, &x) || x < field->min || x > field->max)
        return out_of_range(r, field, v);
    *(float *)((char *)r->p + field->at) = (float)x;
    return true;
}

/* 0 is out: it would mean the opposite of "off". Also what a float has no number above 0 for. */
static bool read_positive(struct reading *r, const struct field *field, const struct json *v)
{
    double x;
    if (v->type != JSON_NUMBER)
        return wrong_type(r, field->name, "a number", v);
    float *to = (float *)((char *)r->p + field->at);
    *to = json_f64(v, &x) && x <= field->max ? (float)x : 0;
    return *to > 0 || refuse(r->f, 400, "invalid_value", field->name,
                             "%s is %.*s; it must be more than 0 and at most %.10g", field->name,
                             (int)MIN(v->text.n, (size_t)40), v->text.p, field->max);
}

static bool read_whole(struct reading *r, const struct field *field, const struct json *v, i64 *x)
{
    if (v->type != JSON_NUMBER)
        return wrong_type(r, field->name, "a whole number", v);
    for (size_t i = 0; i < v->text.n; i++)
        if (memchr(".eE", v->text.p[i], 3))
            return wrong_type(r, field->name, "a whole number", v);
    if (!json_i64(v, x) || (double)*x < field->min || (double)*x > field->max)
        return out_of_range(r, field, v);
    return true;
}

static bool read_u32(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    if (!read_whole(r, field, v, &x))
        return false;
    *(u32 *)((char *)r->p + field->at) = (u32)x;
    return true;
}

/* Of a completion 0, too: one token is made, and nobody hears of it. -1 is how clients of llama.cpp
 * and LM Studio say that they name no number. */
static bool read_max_tokens(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    struct field most = *field;
    most.min = r->kind == PARAMS_COMPLETION ? 0 : 1;
    if (json_i64(v, &x) && x == -1)
        return true;
    if (!read_u32(r, &most, v))
        return false;
    r->p->no_answer = r->p->max_tokens == 0;
    r->p->max_tokens += r->p->no_answer;
    return true;
}

static bool read_u64(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    if (!read_whole(r, field, v, &x))
        return false;
    *(u64 *)((char *)r->p + field->at) = (u64)x;
    return true;
}

static bool read_i32(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    if (!read_whole(r, field, v, &x))
        return false;
    *(i32 *)((char *)r->p + field->at) = (i32)x;
    return true;
}

static bool read_bool(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_TRUE && v->type != JSON_FALSE)
        return wrong_type(r, field->name, "true or false", v);
    *(bool *)((char *)r->p + field->at) = v->type == JSON_TRUE;
    return true;
}

static bool read_str(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_STRING)
        return wrong_type(r, field->name, "a string", v);
    *(struct str *)((char *)r->p + field->at) = v->text;
    return true;
}

static bool read_tree(struct reading *r, const struct field *field, const struct json *v)
{
    *(const struct json **)((char *)r->p + field->at) = v;
    return true;
}

static bool ignored(struct reading *r, const struct field *field, const struct json *v)
{
    (void)r, (void)field, (void)v;
    return true;
}

/* --- fields of their own ------------------------------------------------------------------------
 */

static bool read_seed(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    if (v->type != JSON_NUMBER || !json_i64(v, &x))
        return wrong_type(r, field->name,
                          "a whole number from -9223372036854775808 to 9223372036854775807", v);
    r->p->sampling.seed = (u64)x;
    r->p->seeded = true;
    return true;
}

static bool read_top_k(struct reading *r, const struct field *field, const struct json *v)
{
    i64 x;
    if (!read_whole(r, field, v, &x))
        return false;
    r->p->sampling.top_k = x < 0 ? 0 : (u32)x;
    return true;
}

static bool one_stop(struct reading *r, const struct json *v)
{
    struct params *p = r->p;
    if (v->type != JSON_STRING)
        return wrong_type(r, "stop", "a string or a list of strings", v);
    if (v->text.n > LIMIT_STOP_STRING_BYTES)
        return refuse(r->f, 400, "invalid_value", "stop",
                      "a stop string has %zu bytes; the limit is %u", v->text.n,
                      LIMIT_STOP_STRING_BYTES);
    if (v->text.n) /* an input field that was left empty asks for no stop */
        p->stop[p->n_stop++] = v->text;
    return true;
}

static bool read_stop(struct reading *r, const struct field *field, const struct json *v)
{
    (void)field;
    if (v->type != JSON_ARRAY)
        return one_stop(r, v);
    if (v->n > LIMIT_STOP_STRINGS)
        return refuse(r->f, 400, "invalid_value", "stop", "stop has %u strings; the limit is %u",
                      v->n, LIMIT_STOP_STRINGS);
    for (const struct json *s = v->child; s; s = s->next)
        if (!one_stop(r, s))
            return false;
    return true;
}

static bool read_stop_ids(struct reading *r, const struct field *field, const struct json *v)
{
    struct sampling *s = &r->p->sampling;
    if (v->type != JSON_ARRAY)
        return wrong_type(r, field->name, "a list of token ids", v);
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

static bool read_bias(struct reading *r, const struct field *field, const struct json *v)
{
    struct sampling *s = &r->p->sampling;
    if (v->type != JSON_OBJECT)
        return wrong_type(r, field->name, "an object of token id and bias", v);
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
static bool read_logprobs(struct reading *r, const struct field *field, const struct json *v)
{
    struct params *p = r->p;
    if (r->kind == PARAMS_CHAT)
        return read_bool(r, field, v);
    struct field count = *field;
    if (v->type == JSON_FALSE)
        return true;
    count.at = offsetof(struct params, sampling.top_logprobs);
    p->logprobs = true;
    return read_u32(r, &count, v);
}

static bool read_stream_options(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_OBJECT)
        return wrong_type(r, field->name, "an object", v);
    for (const struct json *m = v->child; m; m = m->next) {
        bool on = m->type == JSON_TRUE;
        if (!on && m->type != JSON_FALSE && m->type != JSON_NULL)
            return refuse(r->f, 400, "invalid_type", field->name,
                          "stream_options: every member is true or false");
        if (str_is(m->key, "include_usage"))
            r->p->include_usage = on;
        else if (!str_is(m->key, "include_obfuscation") || on)
            return refuse(r->f, 400, "unknown_parameter", field->name,
                          "stream_options.%.*s is not supported; include_usage is",
                          (int)MIN(m->key.n, (size_t)40), m->key.p);
    }
    return true;
}

static bool read_format(struct reading *r, const struct field *field, const struct json *v)
{
    const struct json *type = json_get(v, "type"), *own = json_get(v, "json_schema");
    struct str name = type && type->type == JSON_STRING ? type->text : STR("");
    bool by_schema = str_is(name, "json_schema");
    if (by_schema && (!own || own->type != JSON_OBJECT || !json_get(own, "schema")))
        return refuse(r->f, 400, "invalid_value", "response_format.json_schema",
                      "response_format.json_schema must be {\"name\", \"schema\"}");
    for (const struct json *m = own ? own->child : NULL; m; m = m->next)
        if (!str_is(m->key, "name") && !str_is(m->key, "schema") && !str_is(m->key, "strict") &&
            !str_is(m->key, "description"))
            return refuse(r->f, 400, "unknown_parameter", "response_format.json_schema",
                          "response_format.json_schema has a member '%.*s', which is not known",
                          (int)MIN(m->key.n, (size_t)40), m->key.p);
    if (v->n != 1 + (u32)by_schema ||
        !(by_schema || str_is(name, "json_object") || str_is(name, "text")))
        return refuse(
            r->f, 400, "unsupported_value", field->name,
            "response_format must be {\"type\": \"text\"}, {\"type\": \"json_object\"} or "
            "{\"type\": \"json_schema\", \"json_schema\": {\"name\", \"schema\"}}");
    r->p->json = !str_is(name, "text");
    r->p->schema = by_schema ? json_get(own, "schema") : NULL;
    return true;
}

static bool read_modalities(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type == JSON_ARRAY && v->n == 1 && v->child->type == JSON_STRING &&
        str_is(v->child->text, "text"))
        return true;
    return refuse(r->f, 400, "unsupported_value", field->name, "modalities: only [\"text\"]");
}

static bool bad_tool(struct reading *r, u32 i, const char *where, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "tools[%u]%s", i, where);
    return refuse(r->f, 400, "invalid_value", param, "%s %s", param, what);
}

/* What has no quote or backslash stands in calls as it is. */
static bool is_tool_name(const struct json *v)
{
    bool plain = v && v->type == JSON_STRING && v->text.n > 0 && v->text.n <= TOOL_NAME_BYTES;
    for (size_t i = 0; plain && i < v->text.n; i++)
        plain = (u8)v->text.p[i] > ' ' && v->text.p[i] != '"' && v->text.p[i] != '\\';
    return plain;
}

/* The members that count here; the template gets all there are. */
static bool check_tool(struct reading *r, u32 i, const struct json *tool)
{
    const struct json *type = json_get(tool, "type"), *f = json_get(tool, "function");
    const struct json *text = json_get(f, "description"), *schema = json_get(f, "parameters"),
                      *strict = json_get(f, "strict");
    if (!type || type->type != JSON_STRING || !str_is(type->text, "function"))
        return bad_tool(r, i, ".type", "must be \"function\"");
    if (!f || f->type != JSON_OBJECT)
        return bad_tool(r, i, ".function", "must be {\"name\", \"description\", \"parameters\"}");
    if (!is_tool_name(json_get(f, "name")))
        return bad_tool(r, i, ".function.name",
                        "must be a string of 1 to 64 bytes without blanks, quotes and backslashes");
    if (text && text->type != JSON_STRING && text->type != JSON_NULL)
        return bad_tool(r, i, ".function.description", "must be a string");
    if (schema && schema->type != JSON_OBJECT && schema->type != JSON_NULL)
        return bad_tool(r, i, ".function.parameters", "must be an object: a JSON Schema");
    r->p->strict = r->p->strict || (strict && strict->type == JSON_TRUE);
    return !strict || strict->type == JSON_NULL || strict->type == JSON_FALSE ||
           strict->type == JSON_TRUE || bad_tool(r, i, ".function.strict", "must be true or false");
}

static bool read_tools(struct reading *r, const struct field *field, const struct json *v)
{
    u32 i = 0;
    if (v->type != JSON_ARRAY)
        return wrong_type(r, field->name, "a list", v);
    for (const struct json *tool = v->child; tool; tool = tool->next)
        if (!check_tool(r, i++, tool))
            return false;
    r->p->tools = v->n ? v : NULL;
    return true;
}

static bool read_tool_choice(struct reading *r, const struct field *field, const struct json *v)
{
    const struct json *type = json_get(v, "type"),
                      *name = json_get(json_get(v, "function"), "name");
    bool word = v->type == JSON_STRING;
    r->no_tools = word && str_is(v->text, "none");
    r->p->must_call = word && str_is(v->text, "required");
    if (r->no_tools || r->p->must_call || (word && str_is(v->text, "auto")))
        return true;
    if (!type || type->type != JSON_STRING || !str_is(type->text, "function") || !name ||
        name->type != JSON_STRING)
        return refuse(r->f, 400, "unsupported_value", field->name,
                      "tool_choice must be \"auto\", \"none\", \"required\" or {\"type\": "
                      "\"function\", \"function\": {\"name\": ...}}");
    r->p->must_call = true;
    r->p->call = name->text;
    return true;
}

static bool read_parallel(struct reading *r, const struct field *field, const struct json *v)
{
    if (!read_bool(r, field, v))
        return false;
    r->p->one_call = v->type == JSON_FALSE;
    return true;
}

/* Of before there were tools. */
static bool read_functions(struct reading *r, const struct field *field, const struct json *v)
{
    if ((v->type == JSON_ARRAY && v->n == 0) || (v->type == JSON_STRING && str_is(v->text, "none")))
        return true;
    return refuse(r->f, 400, "unsupported_value", field->name, "%s is not supported: use %s",
                  field->name, str_is(str_of(field->name), "functions") ? "tools" : "tool_choice");
}

static bool read_store(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type == JSON_FALSE)
        return true;
    return refuse(r->f, 400, "unsupported_value", field->name,
                  "store must be false: nothing is stored here");
}

static bool read_messages(struct reading *r, const struct field *field, const struct json *v)
{
    (void)field;
    return messages_read(v, r->work, &r->p->messages, r->f);
}

static bool read_variables(struct reading *r, const struct field *field, const struct json *v)
{
    static const char *const ours[] = {"messages", "tools", "documents", "add_generation_prompt",
                                       "continue_final_message"};
    if (v->type != JSON_OBJECT)
        return wrong_type(r, field->name, "an object", v);
    for (u32 i = 0; i < COUNTOF(ours); i++)
        if (json_get(v, ours[i]))
            return refuse(r->f, 400, "invalid_value", field->name,
                          "chat_template_kwargs may not have '%s'", ours[i]);
    r->p->variables = v;
    return true;
}

static bool read_generation_prompt(struct reading *r, const struct field *field,
                                   const struct json *v)
{
    r->p->has_add_generation_prompt = true;
    return read_bool(r, field, v);
}

static bool read_add_special(struct reading *r, const struct field *field, const struct json *v)
{
    r->p->has_add_special = true;
    return read_bool(r, field, v);
}

static bool unsupported(struct reading *r, const struct field *field, const struct json *v)
{
    (void)v;
    return refuse(r->f, 400, "unsupported_parameter", field->name,
                  "%s is not supported: leave it out", field->name);
}

/* Without text there is nothing to end before. */
static bool read_suffix(struct reading *r, const struct field *field, const struct json *v)
{
    return (v->type == JSON_STRING && v->text.n == 0) || unsupported(r, field, v);
}

/* The Python client puts the members of its argument beside the other fields; some who write
 * bodies by hand send the argument itself. */
static bool read_extra_body(struct reading *r, const struct field *field, const struct json *v)
{
    return (v->type == JSON_OBJECT && v->n == 0) ||
           refuse(r->f, 400, "unsupported_parameter", field->name,
                  "extra_body is an argument of the Python client; in a body its members stand "
                  "beside the other fields");
}

/* --- the table ------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct params, member)
enum {
    CHAT = PARAMS_CHAT,
    TEXT = PARAMS_COMPLETION,
    BOTH = CHAT | TEXT,
    TOKENS = PARAMS_TOKENIZE,
    DETOK = PARAMS_DETOKENIZE
};

static const struct field fields[] = {
    {"model", BOTH | TOKENS | DETOK, read_str, AT(model), 0, 0},
    {"messages", CHAT | TOKENS, read_messages, 0, 0, 0},
    {"prompt", TEXT | TOKENS, read_tree, AT(prompt), 0, 0},
    {"tokens", DETOK, read_tree, AT(tokens), 0, 0},
    {"temperature", BOTH, read_float, AT(sampling.temperature), 0, 2},
    {"top_p", BOTH, read_positive, AT(sampling.top_p), 0, 1},
    {"n", BOTH, read_u32, AT(n), 1, LIMIT_CHOICES},
    {"best_of", TEXT, read_u32, AT(best_of), 1, LIMIT_CHOICES},
    {"stop", BOTH, read_stop, 0, 0, 0},
    {"stream", BOTH, read_bool, AT(stream), 0, 0},
    {"stream_options", BOTH, read_stream_options, 0, 0, 0},
    {"max_tokens", BOTH, read_max_tokens, AT(max_tokens), 1, LIMIT_CONTEXT},
    {"max_completion_tokens", CHAT, read_max_tokens, AT(max_tokens), 1, LIMIT_CONTEXT},
    {"presence_penalty", BOTH, read_float, AT(sampling.presence_penalty), -2, 2},
    {"frequency_penalty", BOTH, read_float, AT(sampling.frequency_penalty), -2, 2},
    {"logit_bias", BOTH, read_bias, 0, 0, 0},
    {"logprobs", BOTH, read_logprobs, AT(logprobs), 0, 5},
    {"top_logprobs", CHAT, read_u32, AT(sampling.top_logprobs), 0, LIMIT_LOGPROBS},
    {"seed", BOTH, read_seed, 0, 0, 0},
    {"echo", TEXT, read_bool, AT(echo), 0, 0},
    {"response_format", CHAT, read_format, 0, 0, 0},
    {"modalities", CHAT, read_modalities, 0, 0, 0},
    {"tools", CHAT | TOKENS, read_tools, 0, 0, 0},
    {"functions", CHAT, read_functions, 0, 0, 0},
    {"reasoning_effort", CHAT, read_str, AT(effort), 0, 0},
    {"tool_choice", CHAT, read_tool_choice, 0, 0, 0},
    {"parallel_tool_calls", CHAT, read_parallel, AT(one_call), 0, 0},
    {"function_call", CHAT, read_functions, 0, 0, 0},
    /* extensions, named as in vLLM where it has them */
    {"min_tokens", BOTH, read_u32, AT(sampling.min_tokens), 0, LIMIT_CONTEXT},
    {"top_k", BOTH, read_top_k, 0, -1, LIMIT_VOCAB},
    {"min_p", BOTH, read_float, AT(sampling.min_p), 0, 1},
    {"typical_p", BOTH, read_positive, AT(sampling.typical_p), 0, 1},
    {"repetition_penalty", BOTH, read_positive, AT(sampling.repetition_penalty), 0, 100},
    {"stop_token_ids", BOTH, read_stop_ids, 0, 0, 0},
    {"ignore_eos", BOTH, read_bool, AT(ignore_eos), 0, 0},
    {"skip_special_tokens", BOTH, read_bool, AT(skip_special), 0, 0},
    {"add_special_tokens", BOTH | TOKENS, read_add_special, AT(add_special), 0, 0},
    {"add_generation_prompt", CHAT | TOKENS, read_generation_prompt, AT(add_generation_prompt), 0,
     0},
    {"continue_final_message", CHAT | TOKENS, read_bool, AT(continue_final), 0, 0},
    {"chat_template_kwargs", CHAT | TOKENS, read_variables, 0, 0, 0},
    {"return_token_strs", TOKENS, read_bool, AT(token_strings), 0, 0},
    {"deadline_ms", BOTH, read_u64, AT(deadline_ms), 1, 86400e3},
    {"priority", BOTH, read_i32, AT(priority), -1000, 1000},
    /* change no answer here */
    {"user", BOTH, ignored, 0, 0, 0},
    {"metadata", BOTH, ignored, 0, 0, 0},
    {"service_tier", BOTH, ignored, 0, 0, 0},
    {"safety_identifier", BOTH, ignored, 0, 0, 0},
    {"prompt_cache_key", BOTH, ignored, 0, 0, 0},
    {"prompt_cache_retention", BOTH, ignored, 0, 0, 0},
    {"store", CHAT, read_store, 0, 0, 0},
    /* of the reference, not honoured */
    {"audio", CHAT, unsupported, 0, 0, 0},
    {"prediction", CHAT, unsupported, 0, 0, 0},
    {"verbosity", CHAT, unsupported, 0, 0, 0},
    {"web_search_options", CHAT, unsupported, 0, 0, 0},
    {"suffix", TEXT, read_suffix, 0, 0, 0},
    {"extra_body", BOTH, read_extra_body, 0, 0, 0},
};

const char *params_field(u32 i, u32 *kinds)
{
    if (i >= COUNTOF(fields))
        return NULL;
    *kinds = fields[i].kinds;
    return fields[i].name;
}

static const struct field *field_of(struct str name)
{
    for (u32 i = 0; i < COUNTOF(fields); i++)
        if (str_is(name, fields[i].name))
            return &fields[i];
    return NULL;
}

/* The known field that was meant, for the message. */
static const char *nearest(struct str name, u32 kind)
{
    const char *best = NULL;
    u32 least = 3;
    for (u32 i = 0; i < COUNTOF(fields); i++) {
        u32 d = str_distance(name, str_of(fields[i].name));
        if ((fields[i].kinds & kind) && d < least) {
            least = d;
            best = fields[i].name;
        }
    }
    return best;
}

/* What other servers call it, too far from our names to be found by letters. */
static const char *elsewhere(struct str name)
{
    static const struct {
        const char *name, *hint;
    } known[] = {
        {"repeat_penalty", "; repetition_penalty counts over prompt and answer"},
        {"n_predict", "; max_tokens is the longest answer"},
        {"num_predict", "; max_tokens is the longest answer"},
        {"num_ctx", "; the server's option model.context has the context"},
        {"enable_thinking", "; chat_template_kwargs takes {\"enable_thinking\": ...}"},
        {"think", "; chat_template_kwargs takes {\"enable_thinking\": ...}"},
    };
    for (u32 i = 0; i < COUNTOF(known); i++)
        if (str_is(name, known[i].name))
            return known[i].hint;
    return NULL;
}

static bool unknown(struct reading *r, struct str name)
{
    char text[64];
    const char *hint = elsewhere(name);
    snprintf(text, sizeof text, "%.*s", (int)MIN(name.n, (size_t)60), name.p);
    const char *meant = hint ? NULL : nearest(name, r->kind);
    return refuse(r->f, 400, "unknown_parameter", text, "there is no field '%s' here%s%s%s", text,
                  hint    ? hint
                  : meant ? "; did you mean '"
                          : "",
                  meant ? meant : "", meant ? "'?" : "");
}

static bool read_all(struct reading *r, const struct json *body)
{
    const struct json *newer = json_get(body, "max_completion_tokens");
    if (newer && newer->type != JSON_NULL)
        r->p->max_field = "max_completion_tokens";
    for (const struct json *v = body->child; v; v = v->next) {
        const struct field *field = field_of(v->key);
        if (v->type == JSON_NULL) /* as if it were not there: it asks for nothing */
            continue;
        if (!field || !(field->kinds & r->kind))
            return unknown(r, v->key);
        if (newer && newer->type != JSON_NULL && str_is(v->key, "max_tokens"))
            continue; /* superseded */
        if (!field->read(r, field, v))
            return false;
    }
    return true;
}

/* What no single field shows. */
static bool check_together(struct reading *r)
{
    struct params *p = r->p;
    if (r->kind == PARAMS_CHAT && !p->messages)
        return refuse(r->f, 400, "missing_required_parameter", "messages",
                      "messages is missing: a list of {\"role\", \"content\"}");
    if (r->kind == PARAMS_COMPLETION && !p->prompt)
        return refuse(r->f, 400, "missing_required_parameter", "prompt", "prompt is missing");
    if (r->kind == PARAMS_CHAT && p->sampling.top_logprobs && !p->logprobs)
        return refuse(r->f, 400, "invalid_value", "top_logprobs",
                      "top_logprobs needs \"logprobs\": true");
    if (p->effort.p && json_get(p->variables, "reasoning_effort"))
        return refuse(r->f, 400, "invalid_value", "reasoning_effort",
                      "reasoning_effort stands in chat_template_kwargs, too; give one of them");
    if (p->no_answer && p->sampling.min_tokens)
        return refuse(r->f, 400, "invalid_value", "min_tokens", "min_tokens is %u and %s is 0",
                      p->sampling.min_tokens, p->max_field);
    if (r->no_tools) /* the model does not hear of them */
        p->tools = NULL;
    p->strict = p->strict && p->tools;
    if (p->must_call && !p->tools)
        return refuse(r->f, 400, "invalid_value", "tool_choice",
                      "tool_choice demands a call, and there are no tools");
    if (p->json && p->tools)
        return refuse(r->f, 400, "invalid_value", "response_format",
                      "response_format and tools exclude each other: an answer is JSON, or calls");
    if (p->sampling.min_tokens && (p->json || p->must_call || p->strict))
        return refuse(
            r->f, 400, "invalid_value", "min_tokens",
            "min_tokens is not for answers of a given form (%s): they end where that does",
            p->json        ? "response_format"
            : p->must_call ? "tool_choice"
                           : "strict");
    if (p->max_tokens && p->sampling.min_tokens > p->max_tokens)
        return refuse(r->f, 400, "invalid_value", "min_tokens", "min_tokens is %u and %s is %u",
                      p->sampling.min_tokens, p->max_field, p->max_tokens);
    if (p->best_of && p->best_of < p->n)
        return refuse(r->f, 400, "invalid_value", "best_of", "best_of is %u, less than n (%u)",
                      p->best_of, p->n);
    if (p->best_of > p->n && p->stream)
        return refuse(r->f, 400, "invalid_value", "best_of",
                      "best_of more than n cannot be streamed: the best is known at the end");
    if (p->continue_final && p->has_add_generation_prompt && p->add_generation_prompt)
        return refuse(r->f, 400, "invalid_value", "continue_final_message",
                      "continue_final_message and add_generation_prompt exclude each other");
    return true;
}

struct sampling params_default_sampling(const struct model *m)
{
    struct sampling s = sampling_neutral();
    if (m->gen_temperature >= 0)
        s.temperature = m->gen_temperature;
    if (m->gen_top_p >= 0)
        s.top_p = m->gen_top_p;
    if (m->gen_min_p >= 0)
        s.min_p = m->gen_min_p;
    if (m->gen_repetition_penalty >= 0)
        s.repetition_penalty = m->gen_repetition_penalty;
    if (m->gen_top_k >= 0)
        s.top_k = (u32)m->gen_top_k;
    return s;
}

bool params_read(struct params *p, u32 kind, const struct json *body, const struct model *m,
                 struct arena *work, struct refusal *f)
{
    struct reading r = {.p = p, .m = m, .work = work, .f = f, .kind = kind};
    if (body->type != JSON_OBJECT)
        return refuse(f, 400, "invalid_type", NULL, "the body must be a JSON object, not %s",
                      json_type_name(body));
    *p = (struct params){.sampling = params_default_sampling(m),
                         .n = 1,
                         .max_field = "max_tokens",
                         .skip_special = true,
                         .add_generation_prompt = true,
                         .add_special = kind != PARAMS_CHAT};
    if (!read_all(&r, body) || !check_together(&r))
        return false;
    if (p->continue_final)
        p->add_generation_prompt = false;
    p->sampling.logprobs = p->logprobs || p->best_of > p->n;
    return true;
}
