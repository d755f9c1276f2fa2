/* Conversations in blocks: a system prompt beside messages, whose contents are texts, thoughts,
 * uses of tools and results of these. They are brought into the messages that chat templates
 * expect. An answer goes on in a last message that is the assistant's. */
#include "net/fields.h"

#include "net/turns.h"

#include <stdio.h>

/* One message, for refusals and the turns that come of it. */
struct message {
    struct reading *r;
    struct turns *turns;
    u32 at, block;
    bool assistant;
};

static bool bad(const struct message *m, const char *where, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "messages[%u]%s", m->at, where);
    return refuse(m->r->f, 400, "invalid_value", param, "%s: %s", param, what);
}

static bool bad_block(const struct message *m, const char *where, const char *what)
{
    char at[64];
    snprintf(at, sizeof at, ".content[%u]%s", m->block, where);
    return bad(m, at, what);
}

/* --- texts -------------------------------------------------------------------------------------
 */

/* at: its place, for refusals. What may be cached is ours to decide: a mark of that asks nothing.
 */
static bool is_text(struct reading *r, const char *at, const struct json *v)
{
    static const char *const known[] = {"type", "text", "cache_control", NULL};
    const struct json *text = json_get(v, "text");
    if (!field_is_str(json_get(v, "type"), "text") || !text || text->type != JSON_STRING)
        return refuse(
            r->f, 400, "invalid_value", at,
            "%s must be {\"type\": \"text\", \"text\": \"...\"}: this model reads text only", at);
    return field_members(r, at, v, known);
}

bool field_text_of(struct reading *r, const char *at, struct str before, const struct json *v,
                   struct str *out)
{
    char part[64];
    u32 i = 0;
    if (v->type == JSON_STRING && !before.n) {
        *out = v->text;
        return true;
    }
    struct json one = {.type = JSON_OBJECT, .n = 1};
    struct json text = {.type = JSON_STRING, .key = STR("text"), .text = v->text};
    one.child = &text;
    if (v->type == JSON_STRING)
        return turns_join(r->work, before, &one, NULL, out) || field_no_room(r, at);
    if (v->type != JSON_ARRAY)
        return field_wrong_type(r, at, "a string or a list of blocks of text", v);
    for (const struct json *b = v->child; b; b = b->next) {
        snprintf(part, sizeof part, "%s[%u]", at, i++);
        if (!is_text(r, part, b))
            return false;
    }
    return turns_join(r->work, before, v->child, NULL, out) || field_no_room(r, at);
}

bool field_system(struct reading *r, const struct field *field, const struct json *v)
{
    return field_text_of(r, field->name, STR(""), v, &r->instructions);
}

/* --- blocks ------------------------------------------------------------------------------------
 */

/* A text and those behind it; *block is left at the last. */
static bool texts(struct message *m, const struct json **block)
{
    char at[64];
    const struct json *end = *block;
    struct str text;
    for (; end && field_is_str(json_get(end, "type"), "text"); end = end->next, m->block++) {
        snprintf(at, sizeof at, "messages[%u].content[%u]", m->at, m->block);
        if (!is_text(m->r, at, end))
            return false;
    }
    if (!turns_join(m->r->work, STR(""), *block, end, &text))
        return field_no_room(m->r, "messages");
    turns_say(m->turns, m->assistant ? STR("assistant") : STR("user"), text);
    while ((*block)->next != end)
        *block = (*block)->next;
    m->block--;
    return true;
}

static bool members(const struct message *m, const struct json *v, const char *const *known)
{
    char at[64];
    snprintf(at, sizeof at, "messages[%u].content[%u]", m->at, m->block);
    return field_members(m->r, at, v, known);
}

static bool tool_use(struct message *m, const struct json *v)
{
    static const char *const known[] = {"type", "id", "name", "input", "cache_control", NULL};
    const struct json *id = json_get(v, "id"), *name = json_get(v, "name"),
                      *input = json_get(v, "input");
    if (!m->assistant)
        return bad_block(m, ".type", "a tool_use is the assistant's");
    if (!id || id->type != JSON_STRING)
        return bad_block(m, ".id", "must be a string");
    if (!name || name->type != JSON_STRING)
        return bad_block(m, ".name", "must be a string");
    if (!input || input->type != JSON_OBJECT)
        return bad_block(m, ".input", "must be an object");
    turns_call(m->turns, id->text, name->text, input);
    return members(m, v, known);
}

/* Templates know results that are errors by their text alone. */
static bool tool_result(struct message *m, const struct json *v)
{
    static const char *const known[] = {"type",     "tool_use_id",   "content",
                                        "is_error", "cache_control", NULL};
    const struct json *id = json_get(v, "tool_use_id"), *content = json_get(v, "content"),
                      *failed = json_get(v, "is_error");
    char at[64];
    struct str text = STR("");
    bool error = failed && failed->type == JSON_TRUE;
    if (m->assistant)
        return bad_block(m, ".type", "a tool_result is the user's");
    if (!id || id->type != JSON_STRING)
        return bad_block(m, ".tool_use_id", "must be a string");
    if (failed && failed->type > JSON_TRUE)
        return bad_block(m, ".is_error", "must be true or false");
    snprintf(at, sizeof at, "messages[%u].content[%u].content", m->at, m->block);
    struct json none = {.type = JSON_STRING, .text = STR("")};
    if (!field_text_of(m->r, at, error ? STR("Error: ") : STR(""),
                       content && content->type != JSON_NULL ? content : &none, &text))
        return false;
    turns_result(m->turns, id->text, text);
    return members(m, v, known);
}

/* Whose they are is not checked: nothing is signed here. */
static bool thinking(struct message *m, const struct json *v)
{
    static const char *const known[] = {"type", "thinking", "signature", "cache_control", NULL};
    const struct json *text = json_get(v, "thinking");
    if (!m->assistant)
        return bad_block(m, ".type", "thoughts are the assistant's");
    if (!text || text->type != JSON_STRING)
        return bad_block(m, ".thinking", "must be a string");
    turns_think(m->turns, text->text);
    return members(m, v, known);
}

static bool block(struct message *m, const struct json **v)
{
    const struct json *type = json_get(*v, "type");
    if (field_is_str(type, "text"))
        return texts(m, v);
    if (field_is_str(type, "tool_use"))
        return tool_use(m, *v);
    if (field_is_str(type, "tool_result"))
        return tool_result(m, *v);
    if (field_is_str(type, "thinking"))
        return thinking(m, *v);
    if (field_is_str(type, "redacted_thinking")) /* of another model: nobody here can read it */
        return true;
    return bad_block(m, ".type",
                     "must be text, thinking, tool_use or tool_result: this model reads text only");
}

static bool message(struct message *m, const struct json *v)
{
    static const char *const known[] = {"role", "content", NULL};
    const struct json *role = json_get(v, "role"), *content = json_get(v, "content");
    char at[64];
    struct str text;
    bool system = field_is_str(role, "system");
    m->assistant = field_is_str(role, "assistant");
    m->block = 0;
    if (v->type != JSON_OBJECT || (!m->assistant && !system && !field_is_str(role, "user")))
        return bad(m, ".role", "must be user, assistant or system");
    if (!content || (content->type != JSON_STRING && content->type != JSON_ARRAY))
        return bad(m, ".content", "must be a string or a list of blocks");
    snprintf(at, sizeof at, "messages[%u]", m->at);
    if (!field_members(m->r, at, v, known))
        return false;
    snprintf(at, sizeof at, "messages[%u].content", m->at);
    if (system || content->type == JSON_STRING || content->n == 0) {
        if (!field_text_of(m->r, at, STR(""), content, &text))
            return false;
        turns_say(m->turns, role->text, text);
        return true;
    }
    for (const struct json *b = content->child; b; b = b->next, m->block++)
        if (!block(m, &b))
            return false;
    return true;
}

bool field_blocks(struct reading *r, const struct field *field, const struct json *v)
{
    if (v->type != JSON_ARRAY || v->n == 0)
        return field_wrong_type(r, field->name, "a list of at least one message", v);
    r->input = v;
    return true;
}

bool blocks_read(struct reading *r)
{
    struct turns turns = turns_begin(r->work);
    struct message m = {.r = r, .turns = &turns};
    if (r->instructions.n)
        turns_say(&turns, STR("system"), r->instructions);
    for (const struct json *v = r->input->child; v; v = v->next, m.at++)
        if (!message(&m, v))
            return false;
    r->p->messages = turns_end(&turns);
    if (!r->p->messages)
        return field_no_room(r, "messages");
    m.at--;
    if (turns.calls.v)
        return bad(&m, ".content", "a tool_use needs its tool_result in the message behind it");
    r->p->continue_final = turns.last.v != NULL;
    return true;
}
