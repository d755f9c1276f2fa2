#include "net/turns.h"

static struct json *text_of(struct turns *t, struct str text)
{
    return json_make(t->work, JSON_STRING, text);
}

static struct json_tree grow(struct turns *t, enum json_type type)
{
    return json_grow(json_make(t->work, type, (struct str){0}));
}

/* Only what was appended to before it is complete can grow on: its nodes stay where they are. */
static void append(struct turns *t, struct json_tree *to, struct str key, struct json_tree *child)
{
    t->full |= child->full || !child->v;
    json_append(to, key, child->v);
    t->full |= to->full;
}

struct turns turns_begin(struct arena *work)
{
    struct turns t = {.work = work};
    t.list = grow(&t, JSON_ARRAY);
    return t;
}

void turns_say(struct turns *t, struct str role, struct str text)
{
    struct json_tree m = grow(t, JSON_OBJECT);
    json_append(&m, STR("role"), text_of(t, role));
    json_append(&m, STR("content"), text_of(t, text));
    bool assistant = str_is(role, "assistant");
    if (assistant && t->thought.p)
        json_append(&m, STR("reasoning_content"), text_of(t, t->thought));
    t->thought = (struct str){0};
    append(t, &t->list, (struct str){0}, &m);
    t->last = assistant ? m : (struct json_tree){0};
    t->calls = (struct json_tree){0};
}

void turns_think(struct turns *t, struct str text)
{
    t->thought = text;
    t->last = t->calls = (struct json_tree){0};
}

void turns_call(struct turns *t, struct str id, struct str name, const struct json *arguments)
{
    if (!t->last.v)
        turns_say(t, STR("assistant"), STR(""));
    if (!t->calls.v) {
        t->calls = grow(t, JSON_ARRAY);
        append(t, &t->last, STR("tool_calls"), &t->calls);
    }
    struct json_tree call = grow(t, JSON_OBJECT), function = grow(t, JSON_OBJECT);
    struct json *copy = json_make(t->work, arguments->type, arguments->text);
    if (copy)
        *copy = *arguments;
    json_append(&function, STR("name"), text_of(t, name));
    json_append(&function, STR("arguments"), copy);
    json_append(&call, STR("id"), text_of(t, id));
    json_append(&call, STR("type"), text_of(t, STR("function")));
    append(t, &call, STR("function"), &function);
    append(t, &t->calls, (struct str){0}, &call);
}

void turns_result(struct turns *t, struct str id, struct str text)
{
    struct json_tree m = grow(t, JSON_OBJECT);
    json_append(&m, STR("role"), text_of(t, STR("tool")));
    json_append(&m, STR("content"), text_of(t, text));
    json_append(&m, STR("tool_call_id"), text_of(t, id));
    append(t, &t->list, (struct str){0}, &m);
    t->last = t->calls = (struct json_tree){0};
    t->thought = (struct str){0};
}

bool turns_join(struct arena *work, struct str before, const struct json *first,
                const struct json *end, struct str *out)
{
    size_t n = before.n + 1;
    for (const struct json *p = first; p != end; p = p->next)
        n += json_get(p, "text")->text.n + 1;
    char *to = arena_alloc(work, n, 1);
    if (!to)
        return false;
    *out = (struct str){to, before.n};
    memcpy(to, before.p, before.n);
    for (const struct json *p = first; p != end; p = p->next) {
        struct str text = json_get(p, "text")->text;
        if (p != first)
            to[out->n++] = '\n';
        memcpy(to + out->n, text.p, text.n);
        out->n += text.n;
    }
    return true;
}

const struct json *turns_end(struct turns *t)
{
    return t->full || t->list.full ? NULL : t->list.v;
}
