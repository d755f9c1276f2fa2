#include "core/model/chat.h"

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

static struct json *messages_of(struct arena *a, const struct chat *chat)
{
    struct json_tree list = json_grow(json_make(a, JSON_ARRAY, (struct str){0}));
    for (const struct json *v = chat->messages->child; v; v = v->next)
        json_append(&list, (struct str){0},
                    chat->continue_final && !v->next ? marked(a, v) : copy(a, v));
    return list.full ? NULL : list.v;
}

static const struct json *variables(const struct tokenizer *t, const struct chat *chat,
                                    struct arena *a)
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
    json_append(&vars, STR("messages"), messages_of(a, chat));
    json_append(
        &vars, STR("add_generation_prompt"),
        json_make(a, chat->add_generation_prompt ? JSON_TRUE : JSON_FALSE, (struct str){0}));
    if (chat->tools)
        json_append(&vars, STR("tools"), copy(a, chat->tools));
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
    const struct json *vars = variables(t, chat, work);
    char *text = arena_take(work, cap, 1);
    if (!vars || !text)
        return arena_full(work, "messages", e);
    out->p = text;
    TRY(template_render(template, vars, chat->now_s, work, text, cap, &out->n, e));
    return chat->continue_final ? cut_at_marker(out, e) : ERR_OK;
}
