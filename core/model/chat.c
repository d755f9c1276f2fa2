#include "core/model/chat.h"

#include "core/model/tool_literal.h"

/* Stands behind the content of the message that goes on; the rendered text is cut there. The blank
 * at its end shows whether the template strips contents (transformers' continue_final_message). */
static const char marker[] = "\x02zigcuda goes on here\x03 ";

void chat_message(struct json_tree *messages, struct arena *a, struct str role, struct str content)
{
    struct json_tree m = json_grow(json_make(a, JSON_OBJECT, (struct str){0}));
    json_append(&m, STR("role"), json_make(a, JSON_STRING, role));
    json_append(&m, STR("content"), json_make(a, JSON_STRING, content));
    json_append(messages, (struct str){0}, m.full ? NULL : m.v);
}

static struct json *copy(struct arena *a, const struct json *v)
{
    struct json *c = ARENA_NEW(a, struct json, 1);
    if (c)
        *c = *v;
    return c;
}

/* Some templates read thoughts from a member of another name, and where answers are messages beside
 * calls no text then: what was said before these goes with the thoughts. */
static struct json *renamed(struct arena *a, const struct json *message,
                            const struct thought_format *f)
{
    const char *member = f ? f->member : NULL;
    const struct json *thought = json_get(message, "reasoning_content"),
                      *said = json_get(message, "content");
    if (!member || !thought || thought->type != JSON_STRING)
        return copy(a, message);
    bool joins = f->next && json_get(message, "tool_calls") && said && said->type == JSON_STRING &&
                 said->text.n;
    struct str text = thought->text;
    struct json_tree m = json_grow(json_make(a, JSON_OBJECT, (struct str){0}));
    if (joins) {
        char *to = arena_alloc(a, text.n + 2 + said->text.n, 1);
        if (!to)
            return NULL;
        memcpy(to, text.p, text.n);
        memcpy(to + text.n, "\n\n", 2);
        memcpy(to + text.n + 2, said->text.p, said->text.n);
        text = (struct str){to, text.n + 2 + said->text.n};
    }
    for (const struct json *v = message->child; v; v = v->next)
        if (v != thought && (!joins || v != said))
            json_append(&m, v->key, copy(a, v));
    json_append(&m, str_of(member), json_make(a, JSON_STRING, text));
    return m.full ? NULL : m.v;
}

/* The same message with its calls behind its content. */
static struct json *with_calls(struct arena *a, const struct json *message)
{
    const struct json *calls = json_get(message, "tool_calls");
    struct json_tree m = json_grow(json_make(a, JSON_OBJECT, (struct str){0}));
    for (const struct json *v = message->child; v; v = v->next) {
        struct json *c = copy(a, v);
        if (c && str_is(v->key, "content") && v->type == JSON_STRING) {
            char *to = (char *)a->base + a->used_bytes;
            struct json_out o = json_out_over(to, a->cap_bytes - a->used_bytes);
            json_put_number(&o, v->text); /* as it is */
            tool_literal_write(&o, calls);
            if (o.full || !arena_take(a, o.n, 1))
                return NULL;
            c->text = (struct str){to, o.n};
        }
        json_append(&m, v->key, c);
    }
    return m.full ? NULL : m.v;
}

/* The same message with the marker behind its content. */
static struct json *marked(struct arena *a, const struct json *message)
{
    struct json_tree m = json_grow(json_make(a, JSON_OBJECT, (struct str){0}));
    for (const struct json *v = message->child; v; v = v->next) {
        struct json *c = copy(a, v);
        if (c && str_is(v->key, "content") && v->type == JSON_STRING) {
            size_t n = v->text.n + sizeof marker - 1;
            char *text = arena_alloc(a, n, 1);
            if (!text)
                return NULL;
            memcpy(text, v->text.p, v->text.n);
            memcpy(text + v->text.n, marker, sizeof marker - 1);
            c->text = (struct str){text, n};
        }
        json_append(&m, v->key, c);
    }
    return m.full ? NULL : m.v;
}

static struct json *messages_of(const struct template *t, struct arena *a, const struct chat *chat)
{
    const struct thought_format *f = template_thoughts(t);
    const bool leaves = template_leaves_calls(t);
    struct json_tree list = json_grow(json_make(a, JSON_ARRAY, (struct str){0}));
    for (const struct json *v = chat->messages->child; v; v = v->next) {
        struct json *one = renamed(a, v, f);
        if (one && leaves && json_get(one, "tool_calls"))
            one = with_calls(a, one);
        json_append(&list, (struct str){0},
                    one && chat->continue_final && !v->next ? marked(a, one) : one);
    }
    return list.full ? NULL : list.v;
}

static struct json *described(struct arena *a, const struct json *tool)
{
    struct json_tree m = json_grow(json_make(a, JSON_OBJECT, (struct str){0}));
    struct json_tree own = json_grow(json_make(a, JSON_OBJECT, (struct str){0}));
    const struct json *function = json_get(tool, "function");
    if (!function || json_get(function, "description"))
        return copy(a, tool);
    for (const struct json *v = function->child; v; v = v->next)
        json_append(&own, v->key, copy(a, v));
    json_append(&own, STR("description"), json_make(a, JSON_STRING, STR("")));
    for (const struct json *v = tool->child; v; v = v->next)
        json_append(&m, v->key, v != function ? copy(a, v) : own.full ? NULL : own.v);
    return m.full ? NULL : m.v;
}

/* gpt-oss's template fails where a function has no description, which is optional. */
static struct json *tools_of(const struct template *t, struct arena *a, const struct json *tools)
{
    struct json_tree list = json_grow(json_make(a, JSON_ARRAY, (struct str){0}));
    const struct thought_format *f = template_thoughts(t);
    if (!f || !f->next)
        return copy(a, tools);
    for (const struct json *v = tools->child; v; v = v->next)
        json_append(&list, (struct str){0}, described(a, v));
    return list.full ? NULL : list.v;
}

static const struct json *variables(const struct template *template, const struct tokenizer *t,
                                    const struct chat *chat, struct arena *a)
{
    /* A special token the model has not stays undefined, as in transformers. */
    const struct {
        const char *name;
        struct str token;
    } specials[] = {{"bos_token", tokenizer_bos(t)},
                    {"eos_token", tokenizer_eos(t)},
                    {"unk_token", tokenizer_unk(t)},
                    {"pad_token", tokenizer_pad(t)}};
    struct json_tree vars = json_grow(json_make(a, JSON_OBJECT, (struct str){0}));
    json_append(&vars, STR("messages"), messages_of(template, a, chat));
    json_append(
        &vars, STR("add_generation_prompt"),
        json_make(a, chat->add_generation_prompt ? JSON_TRUE : JSON_FALSE, (struct str){0}));
    if (chat->tools)
        json_append(&vars, STR("tools"), tools_of(template, a, chat->tools));
    for (u32 i = 0; i < COUNTOF(specials); i++)
        if (specials[i].token.n && !json_get(chat->variables, specials[i].name))
            json_append(&vars, str_of(specials[i].name),
                        json_make(a, JSON_STRING, specials[i].token));
    if (chat->effort.p)
        json_append(&vars, STR("reasoning_effort"), json_make(a, JSON_STRING, chat->effort));
    if (chat->thinking && !json_get(chat->variables, chat->thinking))
        json_append(&vars, str_of(chat->thinking),
                    json_make(a, chat->thinks ? JSON_TRUE : JSON_FALSE, (struct str){0}));
    if (chat->variables)
        for (const struct json *v = chat->variables->child; v; v = v->next)
            json_append(&vars, v->key, copy(a, v));
    return vars.full ? NULL : vars.v;
}

static enum err cut_at_marker(struct str *text, struct err_text *e)
{
    size_t n = sizeof marker - 2, at = text->n; /* without the blank */
    while (at + 1 > n && memcmp(text->p + at - n, marker, n) != 0)
        at--;
    if (at < n)
        return err_set(e, ERR_REQUEST,
                       "the chat template leaves out the last message, so it cannot be continued");
    bool keeps = at < text->n && text->p[at] == ' ';
    at -= n;
    while (!keeps && at > 0 && json_is_blank(text->p[at - 1]))
        at--;
    text->n = at;
    return ERR_OK;
}

enum err chat_render(const struct template *template, const struct tokenizer *t,
                     const struct chat *chat, struct arena *work, size_t cap, struct str *out,
                     struct err_text *e)
{
    const struct json *vars = variables(template, t, chat, work);
    char *text = arena_take(work, cap, 1);
    if (!vars || !text)
        return arena_full(work, "messages", e);
    out->p = text;
    TRY(template_render(template, vars, chat->now_s, work, text, cap, &out->n, e));
    return chat->continue_final ? cut_at_marker(out, e) : ERR_OK;
}
