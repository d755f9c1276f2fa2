#include "net/messages.h"

#include <stdio.h>

struct reading {
    struct arena *work;
    struct refusal *f;
    u32 at; /* message */
};

static bool bad(struct reading *r, const char *where, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "messages[%u]%s", r->at, where);
    return refuse(r->f, 400, "invalid_value", param, "%s: %s", param, what);
}

static struct json *make(struct reading *r, enum json_type type, struct str text)
{
    return json_make(r->work, type, text);
}

static bool full(struct reading *r)
{
    return refuse(r->f, 413, "request_too_large", "messages",
                  "messages take more work memory than was planned for one request");
}

/* --- content -----------------------------------------------------------------------------------
 */

/* Answers that a client sends back have "refusal": null, "annotations": [], and from libraries
 * "provider_specific_fields": {"refusal": null}: nothing that could be left out. */
static bool is_empty(const struct json *v)
{
    bool empty = v->type == JSON_OBJECT || (v->type == JSON_ARRAY && v->n == 0);
    for (const struct json *m = v->child; m && empty; m = m->next)
        empty = is_empty(m);
    return empty || v->type == JSON_NULL || (v->type == JSON_STRING && v->text.n == 0);
}

static bool part_text(struct reading *r, const struct json *part, struct str *out)
{
    const struct json *type = json_get(part, "type"), *text = json_get(part, "text");
    if (!type || type->type != JSON_STRING)
        return bad(r, ".content", "every part needs a type");
    if (!str_is(type->text, "text"))
        return bad(r, ".content", "this model reads text only: parts of type \"text\"");
    if (!text || text->type != JSON_STRING)
        return bad(r, ".content", "a text part is {\"type\": \"text\", \"text\": \"...\"}");
    for (const struct json *v = part->child; v; v = v->next)
        if (v != type && v != text && !str_is(v->key, "cache_control") && !is_empty(v))
            return bad(r, ".content", "a text part has a type and a text, and nothing else");
    *out = text->text;
    return true;
}

static bool join_parts(struct reading *r, const struct json *parts, struct str *out)
{
    struct str text;
    size_t n = 0;
    for (const struct json *p = parts->child; p; p = p->next) {
        if (!part_text(r, p, &text))
            return false;
        n += text.n + 1;
    }
    char *to = arena_alloc(r->work, n + 1, 1);
    if (!to)
        return full(r);
    *out = (struct str){to, n ? n - 1 : 0};
    for (const struct json *p = parts->child; p; p = p->next) {
        if (!part_text(r, p, &text))
            return false;
        memcpy(to, text.p, text.n);
        to += text.n;
        *to++ = '\n';
    }
    return true;
}

static bool content(struct reading *r, const struct json *v, struct json_tree *to)
{
    struct str text = v->text;
    if (v->type == JSON_ARRAY && !join_parts(r, v, &text))
        return false;
    if (v->type == JSON_NULL)
        text = STR("");
    else if (v->type != JSON_STRING && v->type != JSON_ARRAY)
        return bad(r, ".content", "must be a string or a list of parts");
    json_append(to, STR("content"), make(r, JSON_STRING, text));
    return true;
}

/* --- earlier tool calls --------------------------------------------------------------------- */

struct json *messages_arguments(struct arena *work, struct str text)
{
    struct err_text e = {0};
    const struct json *tree;
    struct json *made = json_make(work, JSON_OBJECT, (struct str){0});
    if (!made || text.n == 0)
        return made;
    enum err err = json_parse(work, text, "arguments", ERR_REQUEST, &tree, &e);
    if (err == ERR_OK) {
        *made = *tree;
        return made;
    }
    struct json_tree to = json_grow(made);
    json_append(&to, STR("INVALID_JSON"), json_make(work, JSON_STRING, text));
    return err == ERR_REQUEST && !to.full ? made : NULL;
}

static bool has_only(const struct json *v, const char *const *known)
{
    bool only = true;
    for (const struct json *m = v->child; m && only; m = m->next) {
        u32 i = 0;
        while (known[i] && !str_is(m->key, known[i]))
            i++;
        only = known[i] || is_empty(m);
    }
    return only;
}

/* One that was put together from a stream has its index there, too. */
static bool tool_call(struct reading *r, const struct json *v, struct json_tree *calls)
{
    static const char *const known[] = {"id", "type", "function", "index", NULL};
    static const char *const of_function[] = {"name", "arguments", NULL};
    const struct json *function = json_get(v, "function"), *name = json_get(function, "name");
    const struct json *id = json_get(v, "id"), *type = json_get(v, "type");
    const struct json *arguments = json_get(function, "arguments");
    if (!name || name->type != JSON_STRING || !id || id->type != JSON_STRING || !type ||
        type->type != JSON_STRING || !str_is(type->text, "function") || !has_only(v, known) ||
        !has_only(function, of_function))
        return bad(r, ".tool_calls",
                   "an entry is {\"id\", \"type\": \"function\", \"function\": {\"name\", "
                   "\"arguments\"}}");
    struct json_tree call = json_grow(make(r, JSON_OBJECT, (struct str){0}));
    struct json_tree inner = json_grow(make(r, JSON_OBJECT, (struct str){0}));
    if (!arguments || arguments->type != JSON_STRING)
        return bad(r, ".tool_calls", "function.arguments must be a string of JSON");
    json_append(&inner, STR("name"), make(r, JSON_STRING, name->text));
    json_append(&inner, STR("arguments"), messages_arguments(r->work, arguments->text));
    json_append(&call, STR("id"), make(r, JSON_STRING, id->text));
    json_append(&call, STR("type"), make(r, JSON_STRING, STR("function")));
    json_append(&call, STR("function"), inner.full ? NULL : inner.v);
    json_append(calls, (struct str){0}, call.full ? NULL : call.v);
    return true;
}

static bool tool_calls(struct reading *r, const struct json *v, struct json_tree *to)
{
    struct json_tree calls = json_grow(make(r, JSON_ARRAY, (struct str){0}));
    if (v->type != JSON_ARRAY)
        return bad(r, ".tool_calls", "must be a list");
    for (const struct json *c = v->child; c; c = c->next)
        if (!tool_call(r, c, &calls))
            return false;
    json_append(to, STR("tool_calls"), calls.full ? NULL : calls.v);
    return true;
}

/* --- one message -------------------------------------------------------------------------------
 */

static bool role(struct reading *r, const struct json *m, struct str *out)
{
    static const char *const known[] = {"system", "developer", "user", "assistant", "tool"};
    const struct json *v = json_get(m, "role");
    if (!v || v->type != JSON_STRING)
        return bad(r, ".role", "a message needs a role");
    for (u32 i = 0; i < COUNTOF(known); i++)
        if (str_is(v->text, known[i])) {
            *out = i == 1 ? STR("system") : v->text;
            return true;
        }
    return bad(r, ".role", "must be system, developer, user, assistant or tool");
}

/* Some servers call it "reasoning"; who has both says the same twice. */
static bool is_thought(const struct json *v)
{
    return str_is(v->key, "reasoning_content") || str_is(v->key, "reasoning");
}

static bool member(struct reading *r, const struct json *m, const struct json *v, bool assistant,
                   bool tool, struct json_tree *to)
{
    if (str_is(v->key, "role") || str_is(v->key, "content"))
        return true; /* done */
    if (v->type == JSON_NULL)
        return true;
    if (str_is(v->key, "tool_calls") && assistant && !is_empty(v))
        return tool_calls(r, v, to);
    if (str_is(v->key, "name") || (str_is(v->key, "tool_call_id") && tool)) {
        if (v->type != JSON_STRING)
            return bad(r, "", "name and tool_call_id are strings");
        json_append(to, v->key, make(r, JSON_STRING, v->text));
        return true;
    }
    if (is_empty(v))
        return true;
    if (assistant && v->type == JSON_STRING && is_thought(v)) {
        const struct json *own = json_get(m, "reasoning_content");
        if (v == own || !own || is_empty(own))
            json_append(to, STR("reasoning_content"), make(r, JSON_STRING, v->text));
        return true;
    }
    char what[128];
    snprintf(what, sizeof what, "the field '%.*s' is not supported", (int)MIN(v->key.n, (size_t)60),
             v->key.p);
    return bad(r, "", what);
}

static bool message(struct reading *r, const struct json *m, struct json_tree *list)
{
    struct str who;
    const struct json *said = json_get(m, "content"), *calls = json_get(m, "tool_calls");
    struct json_tree to = json_grow(make(r, JSON_OBJECT, (struct str){0}));
    if (m->type != JSON_OBJECT)
        return bad(r, "", "must be an object");
    if (!role(r, m, &who))
        return false;
    bool assistant = str_is(who, "assistant");
    bool may_be_empty = assistant && calls && calls->type == JSON_ARRAY && calls->n;
    may_be_empty |= assistant && said; /* null: an answer without text that comes back */
    if ((!said || said->type == JSON_NULL) && !may_be_empty)
        return bad(r, ".content", "a message needs a content");
    json_append(&to, STR("role"), make(r, JSON_STRING, who));
    struct json none = {.type = JSON_NULL};
    if (!content(r, said ? said : &none, &to))
        return false;
    for (const struct json *v = m->child; v; v = v->next)
        if (!member(r, m, v, assistant, str_is(who, "tool"), &to))
            return false;
    json_append(list, (struct str){0}, to.full ? NULL : to.v);
    return true;
}

bool messages_read(const struct json *v, struct arena *work, const struct json **out,
                   struct refusal *f)
{
    struct reading r = {.work = work, .f = f};
    struct json_tree list = json_grow(make(&r, JSON_ARRAY, (struct str){0}));
    if (v->type != JSON_ARRAY || v->n == 0)
        return refuse(f, 400, "invalid_type", "messages",
                      "messages must be a list of at least one message");
    for (const struct json *m = v->child; m; m = m->next, r.at++)
        if (!message(&r, m, &list))
            return false;
    if (list.full)
        return full(&r);
    *out = list.v;
    return true;
}
