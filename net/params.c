#include "net/params.h"

#include "core/engine/sample.h"
#include "net/fields.h"

#include <stdio.h>

/* --- the table ------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct params, member)
enum {
    CHAT = PARAMS_CHAT,
    TEXT = PARAMS_COMPLETION,
    BOTH = CHAT | TEXT,
    TOKENS = PARAMS_TOKENIZE,
    DETOK = PARAMS_DETOKENIZE,
    TURN = PARAMS_TURN,
    RESP = PARAMS_RESPONSES,
    OPENAI = BOTH | RESP,
    MSG = PARAMS_MESSAGE,
    COUNT = MSG | PARAMS_COUNT,
    EMB = PARAMS_EMBEDDING,
    ANY = OPENAI | MSG
};

static const struct field fields[] = {
    {"model", OPENAI | TOKENS | DETOK | COUNT | EMB, field_str, AT(model), 0, 0},
    {"messages", CHAT | TOKENS, field_messages, 0, 0, 0},
    {"prompt", TEXT | TOKENS, field_tree, AT(prompt), 0, 0},
    {"tokens", DETOK, field_tree, AT(tokens), 0, 0},
    {"temperature", ANY, field_float, AT(sampling.temperature), 0, 2},
    {"top_p", ANY, field_positive, AT(sampling.top_p), 0, 1},
    {"n", BOTH, field_u32, AT(n), 1, LIMIT_CHOICES},
    {"best_of", TEXT, field_u32, AT(best_of), 1, LIMIT_CHOICES},
    {"stop", OPENAI, field_stop, 0, 0, 0},
    {"stream", ANY, field_bool, AT(stream), 0, 0},
    {"stream_options", BOTH, field_stream_options, 0, 0, 0},
    {"max_tokens", BOTH | MSG, field_max_tokens, AT(max_tokens), 1, LIMIT_CONTEXT},
    {"max_completion_tokens", CHAT, field_max_tokens, AT(max_tokens), 1, LIMIT_CONTEXT},
    {"presence_penalty", ANY, field_float, AT(sampling.presence_penalty), -2, 2},
    {"frequency_penalty", ANY, field_float, AT(sampling.frequency_penalty), -2, 2},
    {"logit_bias", ANY, field_bias, 0, 0, 0},
    {"logprobs", BOTH, field_logprobs, AT(logprobs), 0, 5},
    {"top_logprobs", CHAT | RESP, field_u32, AT(sampling.top_logprobs), 0, LIMIT_LOGPROBS},
    {"seed", ANY, field_seed, 0, 0, 0},
    {"echo", TEXT, field_bool, AT(echo), 0, 0},
    {"response_format", CHAT, field_format, 0, 0, 0},
    {"modalities", CHAT, field_modalities, 0, 0, 0},
    {"prediction", BOTH, field_prediction, 0, 0, 0},
    {"tools", CHAT | TOKENS, field_tools, 0, 0, 0},
    {"tools", RESP, field_flat_tools, 0, 0, 0},
    {"functions", CHAT, field_functions, 0, 0, 0},
    {"reasoning_effort", CHAT, field_str, AT(effort), 0, 0},
    {"thinking_token_budget", CHAT | RESP | MSG, field_u32, AT(thought_tokens), 0, LIMIT_CONTEXT},
    {"include_reasoning", CHAT, field_unless, AT(no_thoughts), 0, 0},
    {"reasoning_format", CHAT, field_reasoning_format, 0, 0, 0},
    {"tool_choice", CHAT | RESP, field_tool_choice, 0, 0, 0},
    {"parallel_tool_calls", CHAT | RESP, field_unless, AT(one_call), 0, 0},
    {"function_call", CHAT, field_functions, 0, 0, 0},
    /* of embeddings */
    {"input", EMB, field_tree, AT(prompt), 0, 0},
    {"dimensions", EMB, field_u32, AT(dimensions), 1, LIMIT_HIDDEN},
    {"encoding_format", EMB, field_encoding, AT(base64), 0, 0},
    /* of responses alone */
    {"input", RESP, field_input, 0, 0, 0},
    {"instructions", RESP, field_instructions, 0, 0, 0},
    {"max_output_tokens", RESP, field_max_tokens, AT(max_tokens), 1, LIMIT_CONTEXT},
    {"include", RESP, field_include, 0, 0, 0},
    {"text", RESP, field_text, 0, 0, 0},
    {"reasoning", RESP, field_reasoning, 0, 0, 0},
    {"metadata", RESP, field_metadata, 0, 0, 0},
    {"truncation", RESP, field_truncation, 0, 0, 0},
    {"stream_options", RESP, field_stream_options, 0, 0, 0},
    {"background", RESP, field_stateful, 0, 0, 0},
    {"previous_response_id", TURN, field_str, AT(previous), 0, 0},
    {"previous_response_id", PARAMS_RESPONSE, field_stateful, 0, 0, 0},
    {"conversation", RESP, field_stateful, 0, 0, 0},
    {"prompt", RESP, field_stateful, 0, 0, 0},
    /* of what a WebSocket puts around a response */
    {"type", TURN, field_ignored, 0, 0, 0}, /* it was looked at before */
    {"generate", TURN, field_unless, AT(prepare), 0, 0},
    {"stream_id", TURN, field_unsupported, 0, 0, 0},
    /* of messages, and of what counts their tokens */
    {"messages", COUNT, field_blocks, 0, 0, 0},
    {"system", COUNT, field_system, 0, 0, 0},
    {"stop_sequences", MSG, field_stop_sequences, 0, 0, 0},
    {"metadata", MSG, field_user_id, 0, 0, 0},
    {"tools", COUNT, field_flat_tools, 0, 0, 0},
    {"tool_choice", COUNT, field_tool_use, 0, 0, 0},
    {"thinking", COUNT, field_thinking, 0, 0, 0},
    {"output_config", COUNT, field_output_config, 0, 0, 0},
    {"cache_control", COUNT, field_cache_control, 0, 0, 0},
    /* extensions, named as in vLLM where it has them */
    {"min_tokens", ANY, field_u32, AT(sampling.min_tokens), 0, LIMIT_CONTEXT},
    {"top_k", ANY, field_top_k, 0, -1, LIMIT_VOCAB},
    {"min_p", ANY, field_float, AT(sampling.min_p), 0, 1},
    {"typical_p", ANY, field_positive, AT(sampling.typical_p), 0, 1},
    {"repetition_penalty", ANY, field_positive, AT(sampling.repetition_penalty), 0, 100},
    {"stop_token_ids", ANY, field_stop_ids, 0, 0, 0},
    {"ignore_eos", ANY, field_bool, AT(ignore_eos), 0, 0},
    {"skip_special_tokens", ANY, field_bool, AT(skip_special), 0, 0},
    {"add_special_tokens", BOTH | TOKENS | EMB, field_add_special, AT(add_special), 0, 0},
    {"add_generation_prompt", CHAT | TOKENS, field_generation_prompt, AT(add_generation_prompt), 0,
     0},
    {"continue_final_message", CHAT | TOKENS, field_bool, AT(continue_final), 0, 0},
    {"chat_template_kwargs", CHAT | TOKENS | RESP | COUNT, field_variables, 0, 0, 0},
    {"return_token_strs", TOKENS, field_bool, AT(token_strings), 0, 0},
    {"deadline_ms", ANY | EMB, field_u64, AT(deadline_ms), 1, 86400e3},
    {"priority", ANY | EMB, field_i32, AT(priority), -1000, 1000},
    /* change no answer here */
    {"user", OPENAI | EMB, field_ignored, 0, 0, 0},
    {"metadata", BOTH, field_ignored, 0, 0, 0},
    {"service_tier", ANY, field_ignored, 0, 0, 0},
    {"verbosity", CHAT, field_verbosity, 0, 0, 0},
    {"safety_identifier", OPENAI, field_ignored, 0, 0, 0},
    {"prompt_cache_key", OPENAI, field_ignored, 0, 0, 0},
    {"prompt_cache_retention", OPENAI, field_ignored, 0, 0, 0},
    {"client_metadata", RESP, field_ignored, 0, 0, 0}, /* Codex */
    {"store", CHAT | RESP, field_store, 0, 0, 0},
    /* of the reference, not honoured */
    {"audio", CHAT, field_unsupported, 0, 0, 0},
    {"web_search_options", CHAT, field_unsupported, 0, 0, 0},
    {"max_tool_calls", RESP, field_unsupported, 0, 0, 0},
    {"moderation", RESP, field_unsupported, 0, 0, 0},
    {"prompt_cache_options", RESP, field_unsupported, 0, 0, 0},
    {"container", MSG, field_unsupported, 0, 0, 0},
    {"context_management", RESP | COUNT, field_unsupported, 0, 0, 0},
    {"inference_geo", MSG, field_unsupported, 0, 0, 0},
    {"mcp_servers", COUNT, field_unsupported, 0, 0, 0},
    {"speed", COUNT, field_unsupported, 0, 0, 0},
    {"suffix", TEXT, field_suffix, 0, 0, 0},
    {"extra_body", ANY | EMB, field_extra_body, 0, 0, 0},
};

const char *params_field(u32 i, u32 *kinds)
{
    if (i >= COUNTOF(fields))
        return NULL;
    *kinds = fields[i].kinds;
    return fields[i].name;
}

static const struct field *field_of(struct str name, u32 kind)
{
    for (u32 i = 0; i < COUNTOF(fields); i++)
        if ((fields[i].kinds & kind) && str_is(name, fields[i].name))
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
        {"truncate_prompt_tokens", "; a text that is too long is an error, never cut"},
        {"n_predict", "; max_tokens is the longest answer"},
        {"num_predict", "; max_tokens is the longest answer"},
        {"num_ctx", "; the server's option model.context has the context"},
        {"enable_thinking", "; chat_template_kwargs takes {\"enable_thinking\": ...}"},
        {"thinking_budget_tokens", "; thinking_token_budget bounds thoughts"},
        {"thinking_budget", "; thinking_token_budget bounds thoughts"},
        {"reasoning_budget", "; thinking_token_budget bounds thoughts"},
        {"separate_reasoning", "; reasoning_format is \"none\", or thoughts are told apart"},
        {"think", "; chat_template_kwargs takes {\"enable_thinking\": ...}"},
        {"thinking", "; chat_template_kwargs takes {\"enable_thinking\": ...}"},
        {"structured_outputs",
         "; response_format of a chat takes {\"type\": \"json_schema\", ...}"},
        {"guided_json", "; response_format of a chat takes {\"type\": \"json_schema\", ...}"},
        {"guided_choice", "; a schema in response_format of a chat may have an enum"},
        {"guided_regex", "; a schema in response_format of a chat may have a pattern"},
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
    const struct json *newer =
        r->kind == PARAMS_CHAT ? json_get(body, "max_completion_tokens") : NULL;
    if (newer && newer->type != JSON_NULL)
        r->p->max_field = "max_completion_tokens";
    for (const struct json *v = body->child; v; v = v->next) {
        const struct field *field = field_of(v->key, r->kind);
        if (v->type == JSON_NULL) /* as if it were not there: it asks for nothing */
            continue;
        if (!field)
            return unknown(r, v->key);
        if (newer && newer->type != JSON_NULL && str_is(v->key, "max_tokens"))
            continue; /* superseded */
        if (!field->read(r, field, v))
            return false;
    }
    return true;
}

/* --- what no single field shows --------------------------------------------------------------- */

static bool check_there(struct reading *r)
{
    struct params *p = r->p;
    if (r->kind == PARAMS_CHAT && !p->messages)
        return refuse(r->f, 400, "missing_required_parameter", "messages",
                      "messages is missing: a list of {\"role\", \"content\"}");
    if (r->kind == PARAMS_COMPLETION && !p->prompt)
        return refuse(r->f, 400, "missing_required_parameter", "prompt", "prompt is missing");
    if ((r->kind & COUNT) && !p->messages)
        return refuse(r->f, 400, "missing_required_parameter", "messages",
                      "messages is missing: a list of {\"role\", \"content\"}");
    if (r->kind == PARAMS_MESSAGE && !p->max_tokens)
        return refuse(r->f, 400, "missing_required_parameter", "max_tokens",
                      "max_tokens is missing: the longest answer");
    if (p->embeds && !p->prompt)
        return refuse(r->f, 400, "missing_required_parameter", "input",
                      "input is missing: a string, or a list of strings or of token ids");
    if ((r->kind & RESP) && !p->messages)
        return refuse(r->f, 400, "missing_required_parameter", "input",
                      "input is missing: a string, or a list of items");
    return true;
}

static bool check_form(struct reading *r)
{
    struct params *p = r->p;
    if (p->must_call && !p->tools)
        return refuse(r->f, 400, "invalid_value", "tool_choice",
                      "tool_choice demands a call, and there are no tools");
    p->json = p->json && !p->must_call; /* then there is no other text */
    bool budget = p->thought_tokens != UINT32_MAX;
    if (p->sampling.min_tokens && (p->json || p->must_call || p->strict || budget))
        return refuse(
            r->f, 400, "invalid_value", "min_tokens",
            "min_tokens is not for answers of a given form (%s): they end where that does",
            p->json        ? p->format_field
            : p->must_call ? "tool_choice"
            : p->strict    ? "strict"
                           : "a budget of thoughts");
    return true;
}

static bool check_numbers(struct reading *r)
{
    struct params *p = r->p;
    if (p->sampling.top_logprobs && !p->logprobs && r->kind != PARAMS_COMPLETION)
        return refuse(r->f, 400, "invalid_value", "top_logprobs", "top_logprobs needs %s",
                      r->kind == PARAMS_CHAT ? "\"logprobs\": true"
                                             : "\"include\": [\"message.output_text.logprobs\"]");
    if (p->no_answer && p->sampling.min_tokens)
        return refuse(r->f, 400, "invalid_value", "min_tokens", "min_tokens is %u and %s is 0",
                      p->sampling.min_tokens, p->max_field);
    if (p->max_tokens && p->sampling.min_tokens > p->max_tokens)
        return refuse(r->f, 400, "invalid_value", "min_tokens", "min_tokens is %u and %s is %u",
                      p->sampling.min_tokens, p->max_field, p->max_tokens);
    if (p->best_of && p->best_of < p->n)
        return refuse(r->f, 400, "invalid_value", "best_of", "best_of is %u, less than n (%u)",
                      p->best_of, p->n);
    if (p->best_of > p->n && p->stream)
        return refuse(r->f, 400, "invalid_value", "best_of",
                      "best_of more than n cannot be streamed: the best is known at the end");
    return true;
}

static bool check_together(struct reading *r)
{
    struct params *p = r->p;
    if (!check_there(r))
        return false;
    if (p->effort.p && json_get(p->variables, "reasoning_effort"))
        return refuse(r->f, 400, "invalid_value", p->effort_field,
                      "%s stands in chat_template_kwargs, too; give one of them", p->effort_field);
    if (r->no_tools) /* the model does not hear of them */
        p->tools = NULL;
    if (r->allowed && !forms_allow(r))
        return false;
    p->strict = p->strict && p->tools;
    if (!check_form(r) || !check_numbers(r))
        return false;
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

/* As the dialect has them, for refusals that are not of one field. */
static void name_fields(struct params *p, u32 kind)
{
    bool response = kind & RESP, message = kind & COUNT;
    p->max_field = response ? "max_output_tokens" : "max_tokens";
    p->prompt_field = response || p->embeds       ? "input"
                      : kind == PARAMS_COMPLETION ? "prompt"
                                                  : "messages";
    p->format_field = response  ? "text.format"
                      : message ? "output_config.format"
                                : "response_format";
    p->schema_field = response || message ? p->format_field : "response_format.json_schema";
    p->effort_field = response  ? "reasoning.effort"
                      : message ? "output_config.effort"
                                : "reasoning_effort";
    p->parameters_field = response  ? "parameters"
                          : message ? "input_schema"
                                    : "function.parameters";
}

/* A prompt that is only to be computed: how long its answer may be does not count. */
static void prepare(struct params *p)
{
    p->no_answer = true;
    p->max_tokens = 1;
    p->sampling.min_tokens = 0;
}

static bool read(struct reading *r, const struct json *body)
{
    struct params *p = r->p;
    u32 kind = r->kind;
    if (body->type != JSON_OBJECT)
        return refuse(r->f, 400, "invalid_type", NULL, "the body must be a JSON object, not %s",
                      json_type_name(body));
    *p = (struct params){.sampling = params_default_sampling(r->m),
                         .n = 1,
                         .body = body,
                         .thought_tokens = UINT32_MAX,
                         .skip_special = true,
                         .embeds = kind == PARAMS_EMBEDDING,
                         .no_answer = kind == PARAMS_EMBEDDING,
                         .add_generation_prompt = true,
                         .add_special = !(kind & (PARAMS_CHAT | RESP | COUNT))};
    name_fields(p, kind);
    if (!read_all(r, body) || !input_read(r) || !check_together(r))
        return false;
    if (kind == PARAMS_TOKENIZE && !p->messages)
        p->prompt_field = "prompt";
    if (p->continue_final)
        p->add_generation_prompt = false;
    if (p->prepare)
        prepare(p);
    p->sampling.logprobs = p->logprobs || p->best_of > p->n;
    return true;
}

bool params_read(struct params *p, u32 kind, const struct json *body, const struct model *m,
                 struct arena *work, struct refusal *f)
{
    struct reading r = {.p = p, .m = m, .work = work, .f = f, .kind = kind};
    return read(&r, body);
}

bool params_read_turn(struct params *p, const struct json *body, const struct json *earlier,
                      const struct model *m, struct arena *work, struct refusal *f)
{
    struct reading r = {
        .p = p, .m = m, .work = work, .f = f, .kind = PARAMS_TURN, .earlier = earlier};
    return read(&r, body);
}
