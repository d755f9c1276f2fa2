#include "net/kinds.h"

enum { DEPTH = 16, TEXT = TOOL_ANY + 1, KIND_BITS = 2 * TEXT - 1, READ = 64 };

struct reading {
    const struct json *document;
    u32 looks, depth;
};

static u32 kinds_of(struct reading *r, const struct json *schema);

/* --- schemas ---------------------------------------------------------------------------------- */

static u32 kind_named(const struct json *name)
{
    static const struct {
        const char *name;
        u32 kind;
    } kinds[] = {{"null", TOOL_NULL},     {"boolean", TOOL_BOOL}, {"integer", TOOL_NUMBER},
                 {"number", TOOL_NUMBER}, {"array", TOOL_LIST},   {"object", TOOL_OBJECT},
                 {"string", TEXT}};
    for (u32 i = 0; name->type == JSON_STRING && i < COUNTOF(kinds); i++)
        if (str_is(name->text, kinds[i].name))
            return kinds[i].kind;
    return KIND_BITS;
}

static u32 kind_of_value(const struct json *v)
{
    static const u32 kinds[] = {TOOL_NULL, TOOL_BOOL, TOOL_BOOL,  TOOL_NUMBER,
                                TEXT,      TOOL_LIST, TOOL_OBJECT};
    return kinds[v->type];
}

/* What at least one in a list is. */
static u32 any_of(struct reading *r, const struct json *list,
                  u32 (*of)(struct reading *r, const struct json *v))
{
    u32 kinds = 0;
    for (const struct json *v = list->child; v && r->looks <= LIMIT_TOOL_SCHEMAS; v = v->next)
        kinds |= of(r, v);
    return kinds;
}

static u32 of_name(struct reading *r, const struct json *v)
{
    r->looks++;
    return kind_named(v);
}

static u32 of_value(struct reading *r, const struct json *v)
{
    r->looks++;
    return kind_of_value(v);
}

/* By one keyword. */
static u32 by_keyword(struct reading *r, const struct json *v)
{
    bool list = v->type == JSON_ARRAY;
    u32 kinds = KIND_BITS;
    if (str_is(v->key, "type"))
        return list ? any_of(r, v, of_name) : kind_named(v);
    if (str_is(v->key, "const"))
        return kind_of_value(v);
    if (str_is(v->key, "enum") && list)
        return any_of(r, v, of_value);
    if ((str_is(v->key, "anyOf") || str_is(v->key, "oneOf")) && list)
        return any_of(r, v, kinds_of);
    if (str_is(v->key, "$ref") && v->type == JSON_STRING && str_starts(v->text, STR("#"))) {
        const struct json *to = json_find(r->document, (struct str){v->text.p + 1, v->text.n - 1});
        return to ? kinds_of(r, to) : KIND_BITS;
    }
    if (str_is(v->key, "allOf"))
        for (const struct json *one = v->child; one && r->looks <= LIMIT_TOOL_SCHEMAS;
             one = one->next)
            kinds &= kinds_of(r, one);
    return kinds;
}

static u32 kinds_of(struct reading *r, const struct json *schema)
{
    u32 kinds = KIND_BITS;
    r->looks++;
    if (schema->type != JSON_OBJECT || r->depth == DEPTH)
        return kinds;
    r->depth++;
    for (const struct json *v = schema->child; v && r->looks <= LIMIT_TOOL_SCHEMAS; v = v->next)
        kinds &= by_keyword(r, v);
    r->depth--;
    return kinds;
}

/* --- the list --------------------------------------------------------------------------------- */

bool kinds_read(struct arena *work, const struct json *tools, struct str *list, struct refusal *f)
{
    struct reading r = {0};
    u64 *to = ARENA_NEW(work, u64, LIMIT_TOOL_TEXTS);
    u32 n = 0;
    if (!to)
        return refuse(f, 413, "request_too_large", "tools",
                      "the tools take more work memory than was planned for one request");
    for (const struct json *tool = tools->child; tool; tool = tool->next) {
        const struct json *own = json_get(tool, "function"), *name = json_get(own, "name");
        r.document = json_get(own, "parameters");
        const struct json *all = json_get(r.document, "properties");
        for (const struct json *v = all ? all->child : NULL; v; v = v->next) {
            u32 kinds = kinds_of(&r, v);
            if (r.looks > LIMIT_TOOL_SCHEMAS)
                return refuse(f, 400, "invalid_value", "tools",
                              "the schemas of all parameters have more than %u parts",
                              LIMIT_TOOL_SCHEMAS);
            if (!(kinds & TEXT) || kinds == KIND_BITS)
                continue;
            if (n == LIMIT_TOOL_TEXTS)
                return refuse(f, 400, "invalid_value", "tools",
                              "more than %u parameters that may be strings", LIMIT_TOOL_TEXTS);
            kinds &= TOOL_ANY & ~(u32)TOOL_QUOTED;
            to[n++] = (tool_parameter(name->text, v->key) & ~(u64)TOOL_ANY) | kinds;
        }
    }
    *list = (struct str){(const char *)to, n * sizeof *to};
    return true;
}

void kinds_keep(struct kinds *k, struct store *store, struct str list)
{
    k->store = store;
    store_take(store, &k->list, list.n);
    store_put(store, &k->list, list.p, list.n);
}

static u32 kinds_get(const void *of, u64 parameter)
{
    const struct kinds *k = of;
    struct chain_reader at = store_from(&k->list);
    u64 some[READ];
    for (size_t left = k->list.n / sizeof *some, n; left; left -= n) {
        n = MIN(left, (size_t)READ);
        bool there = store_get(k->store, &k->list, &at, some, n * sizeof *some);
        ASSERT(there);
        for (size_t i = 0; i < n; i++)
            if (((some[i] ^ parameter) & ~(u64)TOOL_ANY) == 0)
                return some[i] & TOOL_ANY;
    }
    return TOOL_ANY;
}

struct tool_types kinds_types(const struct kinds *k)
{
    return (struct tool_types){kinds_get, k};
}
