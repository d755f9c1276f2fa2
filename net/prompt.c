#include "net/parts.h"

#include "core/model/chat.h"

#include <stdio.h>

/* By these words programs know that they have to ask with less: Anthropic's and OpenAI's own
 * (litellm and LangChain look for them). */
#define TOO_LONG "prompt is too long: "
#define CONTEXT_IS "this model's maximum context length is %u tokens (%s)"

bool prompt_fits(const struct api *api, const struct params *p, u32 n, struct refusal *f)
{
    const struct device_limits *l = &api->g.limits;
    const u32 most = l->context - !p->no_answer;
    return n <= most ||
           refuse(f, 400, "context_length_exceeded", p->prompt_field,
                  TOO_LONG "%u tokens > %u maximum; " CONTEXT_IS "%s", n, most, l->context,
                  l->context_by, p->no_answer ? "" : " and one must be left for the answer");
}

/* Text to ids; the work memory beyond the ids is free again afterwards. */
static bool encode(struct api *api, struct str text, u32 flags, struct prompt *p, const char *param,
                   struct refusal *f)
{
    struct arena *work = api->g.work;
    const struct device_limits *l = &api->g.limits;
    struct err_text e = {0};
    if (text.n > api->g.prompt_bytes)
        return refuse(f, 400, "context_length_exceeded", param,
                      TOO_LONG "%zu bytes > %zu maximum; " CONTEXT_IS, text.n, api->g.prompt_bytes,
                      l->context, l->context_by);
    u32 cap = (u32)text.n + 64;
    p->ids = ARENA_NEW(work, u32, cap);
    size_t start = p->ids ? (size_t)((u8 *)p->ids - work->base) : 0;
    size_t bytes = tokenizer_work_bytes(api->g.tokenizer, text.n);
    void *memory = arena_take(work, bytes, 16);
    if (!p->ids || !memory)
        return refuse(f, 413, "request_too_large", param,
                      "the prompts take more work memory than was planned for one request");
    enum err r =
        tokenizer_encode(api->g.tokenizer, text, flags, memory, bytes, p->ids, cap, &p->n, &e);
    if (r == ERR_LIMIT) /* more tokens than bytes: far beyond any context that is full of text */
        return refuse(f, 400, "context_length_exceeded", param,
                      TOO_LONG "more than %u tokens; " CONTEXT_IS, cap, l->context, l->context_by);
    if (r != ERR_OK)
        return refuse_err(f, &e, "invalid_value", param);
    arena_reset(work, start + p->n * sizeof *p->ids);
    p->text = text;
    p->n_before = flags & ENCODE_ADD_SPECIAL ? tokenizer_before(api->g.tokenizer) : 0;
    return true;
}

/* What is asked about thinking becomes variables of the template. */
static bool ask_to_think(const struct api *api, const struct params *p, struct chat *chat,
                         struct refusal *f)
{
    const struct template *t = api->g.template;
    const char *by = template_switch(t);
    bool off = p->thinks_not;
    if (p->effort.p && template_reads(t, "reasoning_effort"))
        chat->effort = p->effort;
    else if (p->effort.p && str_is(p->effort, "none") && (by || !template_thoughts(t)))
        off = true; /* or it never does */
    else if (p->effort.p)
        return refuse(f, 400, "unsupported_parameter", p->effort_field,
                      "this model's chat template does not read %s: leave it out%s",
                      p->effort_field, by ? ", or say \"none\", and it will not think" : "");
    if (p->thinks && !template_thoughts(t))
        return refuse(f, 400, "unsupported_value", "thinking",
                      "this model's chat template knows of no thoughts: leave thinking out");
    chat->thinking = p->thinks || off ? by : NULL;
    chat->thinks = p->thinks;
    return true;
}

/* What answers behind this prompt begin with. */
static enum thoughts thoughts_of(const struct api *api, const struct params *p, struct str prompt)
{
    const struct thought_format *f = template_thoughts(api->g.template);
    const struct json *last = p->messages->child;
    while (p->continue_final && last->next)
        last = last->next;
    enum thoughts within =
        p->continue_final ? thoughts_within(f, json_get(last, "content")->text) : THOUGHTS_MAY;
    return within == THOUGHTS_MAY ? thoughts_behind(f, prompt) : within;
}

static bool chat_prompt(struct api *api, const struct params *p, struct prompt *out,
                        struct refusal *f)
{
    const struct device_limits *l = &api->g.limits;
    const char *at = p->prompt_field;
    struct err_text e = {0};
    struct str text;
    struct chat chat = {.messages = p->messages,
                        .tools = p->tools,
                        .variables = p->variables,
                        .add_generation_prompt = p->add_generation_prompt,
                        .continue_final = p->continue_final,
                        .now_s = api->g.clock.wall_s(api->g.clock.arg)};
    if (api->g.template_error)
        return refuse(f, 400, "no_chat_template", at,
                      "this model's chat template is not supported; use /v1/completions. %s",
                      api->g.template_error);
    if (!api->g.template)
        return refuse(f, 400, "no_chat_template", at,
                      "this model has no chat template; use /v1/completions");
    if (p->tools && !template_calls(api->g.template))
        return refuse(f, 400, "unsupported_value", "tools",
                      "this model's chat template teaches no way to call tools that is known here");
    if (!ask_to_think(api, p, &chat, f))
        return false;
    if (chat_render(api->g.template, api->g.tokenizer, &chat, api->g.work, api->g.prompt_bytes,
                    &text, &e) == ERR_TOO_LONG)
        return refuse(f, 400, "context_length_exceeded", at,
                      TOO_LONG "the messages make more than %zu bytes; " CONTEXT_IS,
                      api->g.prompt_bytes, l->context, l->context_by);
    if (e.code == ERR_LIMIT) /* of the template's work */
        return refuse(f, 400, "context_length_exceeded", at, "%s", e.text);
    if (e.code != ERR_OK)
        return refuse_err(f, &e, "invalid_value", at);
    out->thoughts = thoughts_of(api, p, text);
    return encode(api, text, p->add_special ? ENCODE_ADD_SPECIAL : 0, out, at, f);
}

/* A list of ids as the client gives it. */
static bool given_ids(struct api *api, const struct params *params, const struct json *list,
                      struct prompt *p, struct refusal *f)
{
    u64 id;
    if (!prompt_fits(api, params, list->n, f))
        return false;
    p->as_ids = true;
    p->ids = ARENA_NEW(api->g.work, u32, list->n);
    if (!p->ids)
        return refuse(f, 413, "request_too_large", params->prompt_field,
                      "the prompts take more work memory than was planned for one request");
    for (const struct json *v = list->child; v; v = v->next) {
        if (!json_u64(v, &id) || id >= api->g.model->vocab)
            return refuse(f, 400, "invalid_value", params->prompt_field,
                          "entry %u of a token list is no token id below %u", p->n,
                          api->g.model->vocab);
        p->ids[p->n++] = (u32)id;
    }
    return true;
}

/* What echo gives back for a list of ids. */
static bool text_of_ids(struct api *api, struct prompt *p, struct refusal *f)
{
    struct decode_stream d = decode_start(api->g.tokenizer, true);
    size_t room = api->g.prompt_bytes + DECODE_PIECE_BYTES, n = 0;
    char *text = arena_take(api->g.work, room, 1);
    for (u32 i = 0; text && i < p->n && n < api->g.prompt_bytes; i++)
        n += decode_push(&d, p->ids[i], text + n);
    if (!text || n >= api->g.prompt_bytes)
        return refuse(f, 413, "request_too_large", "prompt",
                      "the text of the prompt is longer than %zu bytes (%s)", api->g.prompt_bytes,
                      api->g.limits.context_by);
    n += decode_end(&d, text + n);
    p->text = (struct str){text, n};
    arena_reset(api->g.work, (size_t)((u8 *)text - api->g.work->base) + n);
    return true;
}

/* Before what is wrong with one of many inputs. */
static bool refuse_nth(struct refusal *f, u32 nth)
{
    struct refusal why = *f;
    snprintf(f->text, sizeof f->text, "input %u: %.900s", nth, why.text);
    return false;
}

static bool one_prompt(struct api *api, const struct params *p, const struct json *v,
                       struct prompts *all, struct refusal *f)
{
    struct prompt *to = &all->at[all->n];
    const char *at = p->prompt_field;
    const u32 most = p->embeds ? LIMIT_INPUTS : LIMIT_CHOICES;
    if (all->n == most)
        return refuse(f, 400, "invalid_value", at, "more than %u %ss", most, at);
    *to = (struct prompt){0};
    if (v->type == JSON_STRING) {
        if (!encode(api, v->text, p->add_special ? ENCODE_ADD_SPECIAL : 0, to, at, f))
            return false;
        to->n = p->embeds && v->text.n == 0 ? 0 : to->n; /* though special tokens were added */
    } else if (v->type != JSON_ARRAY) {
        return refuse(f, 400, "invalid_type", at,
                      "%s must be a string, a list of strings, a list of token ids or a list of "
                      "such lists",
                      at);
    } else if (!given_ids(api, p, v, to, f) || (p->echo && !text_of_ids(api, to, f))) {
        return false;
    }
    if (p->embeds && to->n == 0)
        return refuse(f, 400, "invalid_value", at, "it is empty");
    if (p->embeds && !prompt_fits(api, p, to->n, f))
        return false;
    all->n++;
    return true;
}

static bool text_prompts(struct api *api, const struct params *p, struct prompts *all,
                         struct refusal *f)
{
    const struct json *v = p->prompt;
    if (v->type != JSON_ARRAY || (v->child && v->child->type == JSON_NUMBER))
        return one_prompt(api, p, v, all, f) || (p->embeds && refuse_nth(f, 0));
    for (const struct json *one = v->child; one; one = one->next)
        if (!one_prompt(api, p, one, all, f))
            return p->embeds && refuse_nth(f, all->n);
    return all->n ||
           refuse(f, 400, "invalid_value", p->prompt_field, "%s is an empty list", p->prompt_field);
}

/* What is longer than a prompt may be has no room behind one. */
static bool read_prediction(struct api *api, struct str text, struct prompts *all,
                            struct refusal *f)
{
    struct str said = {text.p, MIN(text.n, api->g.prompt_bytes)};
    while (said.n < text.n &&
           ((u8)said.p[said.n] & 0xc0) == 0x80) /* in the middle of a character */
        said.n--;
    return !said.n || encode(api, said, 0, &all->prediction, "prediction", f);
}

bool prompts_read(struct api *api, const struct params *p, struct prompts *all, struct refusal *f)
{
    all->n = 0;
    all->tokens = 0;
    all->prediction = (struct prompt){0};
    if (p->messages) {
        all->n = 1;
        all->at[0] = (struct prompt){0};
        if (!chat_prompt(api, p, &all->at[0], f))
            return false;
    } else if (!text_prompts(api, p, all, f)) {
        return false;
    }
    for (u32 i = 0; i < all->n; i++)
        all->tokens += all->at[i].n;
    return read_prediction(api, p->prediction, all, f);
}
