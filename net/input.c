/* The input of a response: a string, or a list of items, brought into the messages that chat
 * templates expect. Of reasoning the text counts, where the chat template reads it: what is
 * encrypted, or a summary, comes from other models. */
#include "net/fields.h"

#include "net/messages.h"
#include "net/turns.h"

#include <stdio.h>

/* One item, for refusals and the turns that come of it. */
struct item {
    struct reading *r;
    struct turns *turns;
    const char *list; /* the field that it is in, and its place there */
    u32 at;
};

static bool bad(const struct item *it, const char *where, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "%s[%u]%s", it->list, it->at, where);
    return refuse(it->r->f, 400, "invalid_value", param, "%s: %s", param, what);
}

static bool members(const struct item *it, const char *where, const struct json *v,
                    const char *const *known)
{
    char at[64];
    snprintf(at, sizeof at, "%s[%u]%s", it->list, it->at, where);
    return field_members(it->r, at, v, known);
}

/* A member that has to be a string. */
static bool string(const struct item *it, const struct json *v, const char *key, struct str *out)
{
    const struct json *m = json_get(v, key);
    char where[32];
    snprintf(where, sizeof where, ".%s", key);
    if (!m || m->type != JSON_STRING)
        return bad(it, where, "must be a string");
    *out = m->text;
    return true;
}

static bool is_text_part(const struct item *it, const char *where, const struct json *part)
{
    /* An answer of ours comes back with its log probabilities. */
    static const char *const known[] = {"type", "text", "logprobs", NULL};
    const struct json *type = json_get(part, "type"), *text = json_get(part, "text");
    if (!field_is_str(type, "input_text") && !field_is_str(type, "output_text"))
        return bad(it, where,
                   "this model reads text only: parts of type \"input_text\" or \"output_text\"");
    if (!text || text->type != JSON_STRING)
        return bad(it, where, "a part is {\"type\": \"input_text\", \"text\": \"...\"}");
    return members(it, where, part, known);
}

/* A string, or parts of text, which are joined by newlines as chat's are. */
static bool content(const struct item *it, const char *where, const struct json *v, struct str *out)
{
    if (v && v->type == JSON_STRING) {
        *out = v->text;
        return true;
    }
    if (!v || v->type != JSON_ARRAY)
        return bad(it, where, "must be a string or a list of parts");
    for (const struct json *p = v->child; p; p = p->next)
        if (!is_text_part(it, where, p))
            return false;
    return turns_join(it->r->work, STR(""), v->child, NULL, out) || field_no_room(it->r, "input");
}

static bool message(const struct item *it, const struct json *v)
{
    static const char *const known[] = {"type", "role", "content", "id", "status", NULL};
    static const char *const roles[] = {"system", "developer", "user", "assistant"};
    const struct json *role = json_get(v, "role");
    struct str text;
    u32 i = 0;
    while (i < COUNTOF(roles) && !field_is_str(role, roles[i]))
        i++;
    if (i == COUNTOF(roles))
        return bad(it, ".role", "must be system, developer, user or assistant");
    if (!content(it, ".content", json_get(v, "content"), &text) || !members(it, "", v, known))
        return false;
    turns_say(it->turns, str_of(i == 1 ? roles[0] : roles[i]), text);
    return true;
}

static bool call(const struct item *it, const struct json *v)
{
    static const char *const known[] = {"type", "call_id", "name", "arguments",
                                        "id",   "status",  NULL};
    struct str id, name, text;
    if (!string(it, v, "call_id", &id) || !string(it, v, "name", &name) ||
        !string(it, v, "arguments", &text) || !members(it, "", v, known))
        return false;
    const struct json *arguments = messages_arguments(it->r->work, text);
    if (!arguments)
        return field_no_room(it->r, "input");
    turns_call(it->turns, id, name, arguments);
    return true;
}

static bool call_output(const struct item *it, const struct json *v)
{
    static const char *const known[] = {"type", "call_id", "output", "id", "status", NULL};
    struct str id, text;
    if (!string(it, v, "call_id", &id) || !content(it, ".output", json_get(v, "output"), &text) ||
        !members(it, "", v, known))
        return false;
    turns_result(it->turns, id, text);
    return true;
}

static bool reasoning(const struct item *it, const struct json *v)
{
    static const char *const known[] = {"type",   "content",           "summary", "id",
                                        "status", "encrypted_content", NULL};
    const struct json *parts = json_get(v, "content");
    struct str text;
    if (!members(it, "", v, known))
        return false;
    if (!parts || field_is_empty(parts))
        return true;
    if (parts->type != JSON_ARRAY)
        return bad(it, ".content", "must be a list of parts");
    for (const struct json *p = parts->child; p; p = p->next)
        if (!field_is_str(json_get(p, "type"), "reasoning_text") || !json_get(p, "text") ||
            json_get(p, "text")->type != JSON_STRING)
            return bad(it, ".content",
                       "a part is {\"type\": \"reasoning_text\", \"text\": \"...\"}");
    if (!turns_join(it->r->work, STR(""), parts->child, NULL, &text))
        return field_no_room(it->r, "input");
    turns_think(it->turns, text);
    return true;
}

static bool item(const struct item *it, const struct json *v)
{
    const struct json *type = json_get(v, "type");
    if (v->type != JSON_OBJECT)
        return bad(it, "", "must be an object");
    if (!type || field_is_str(type, "message"))
        return message(it, v);
    if (field_is_str(type, "function_call"))
        return call(it, v);
    if (field_is_str(type, "function_call_output"))
        return call_output(it, v);
    if (field_is_str(type, "reasoning"))
        return reasoning(it, v);
    if (field_is_str(type, "item_reference"))
        return bad(it, ".type", "nothing is kept here between requests: send the item itself");
    return bad(it, ".type", "must be message, function_call, function_call_output or reasoning");
}

bool field_input(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_STRING && (v->type != JSON_ARRAY || (v->n == 0 && !r->earlier)))
        return field_wrong_type(r, field->name, "a string or a list of at least one item", v);
    r->input = v;
    return true;
}

bool field_instructions(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_STRING)
        return field_wrong_type(r, field->name, "a string", v);
    r->instructions = v->text;
    return true;
}

static bool list(struct item *it, const char *name, const struct json *items)
{
    it->list = name;
    it->at = 0;
    for (const struct json *v = items ? items->child : NULL; v; v = v->next, it->at++)
        if (!item(it, v))
            return false;
    return true;
}

static bool items(struct reading *r)
{
    struct turns turns = turns_begin(r->work);
    struct item it = {.r = r, .turns = &turns};
    if (r->instructions.n)
        turns_say(&turns, STR("system"), r->instructions);
    if (!list(&it, "previous_response_id", r->earlier) || !list(&it, "input", r->input))
        return false;
    if (r->input && r->input->type == JSON_STRING)
        turns_say(&turns, STR("user"), r->input->text);
    r->p->messages = turns_end(&turns);
    if (!r->p->messages)
        return field_no_room(r, "input");
    return r->p->messages->n || bad(&it, "", "there is no message, only reasoning");
}

bool input_read(struct reading *r)
{
    if (!r->input && !r->earlier)
        return true;
    return r->kind & PARAMS_RESPONSES ? items(r) : blocks_read(r);
}
