/* JSON Schema (draft 2020-12) to a grammar. What is not understood is refused: an answer that is
 * said to fit a schema has to. */
#include "core/engine/apart.h"
#include "core/engine/format.h"
#include "core/engine/tags.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 256, REFS = 128, CHECKS = 64, LOOKS = 1 << 19 };

/* Of a node, when all are there: references may lead into what is being compiled. */
struct check {
    char path[PATH_BYTES];
    u32 types; /* its texts are of these; 0: no text fits two of its alternatives */
    u16 node;
};

struct compiler {
    struct grammar *g;
    const struct json *document;
    struct err_text *e;
    char path[PATH_BYTES];
    u32 depth; /* of the schema */
    u32 n_refs;
    struct {
        const struct json *to;
        u16 node;
    } refs[REFS];
    u32 n_checks;
    struct check checks[CHECKS];
};

static enum err refuse(struct compiler *c, const char *what)
{
    return err_set(c->e, ERR_REQUEST, "%s: %s", c->path, what);
}

/* Appends to the path; what it returns takes that back. */
static size_t enter(struct compiler *c, const char *dot, struct str name)
{
    size_t n = strlen(c->path);
    snprintf(c->path + n, PATH_BYTES - n, "%s%.*s", dot, (int)MIN(name.n, (size_t)60), name.p);
    return n;
}

/* --- pieces of a grammar --------------------------------------------------------------------- */

static enum err too_large(struct compiler *c, const char *what, u32 limit)
{
    return err_set(c->e, ERR_REQUEST, "%s: the schema has more than %u %s", c->path, limit, what);
}

static enum err new_node(struct compiler *c, u16 *at)
{
    if (c->g->n_nodes == LIMIT_SCHEMA_VALUES)
        return too_large(c, "values", LIMIT_SCHEMA_VALUES);
    *at = c->g->n_nodes++;
    c->g->nodes[*at] =
        (struct grammar_node){.items = GRAMMAR_NONE, .max = GRAMMAR_NONE, .kind = GRAMMAR_UNION};
    return ERR_OK;
}

static void put_json(struct json_out *o, const struct json *v)
{
    switch (v->type) {
    case JSON_NULL:
        json_put_null(o);
        return;
    case JSON_FALSE:
    case JSON_TRUE:
        json_put_bool(o, v->type == JSON_TRUE);
        return;
    case JSON_NUMBER:
        json_put_number(o, v->text);
        return;
    case JSON_STRING:
        json_put_str(o, v->text);
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    json_open(o, v->type == JSON_ARRAY ? '[' : '{');
    for (const struct json *m = v->child; m; m = m->next) {
        if (v->type == JSON_OBJECT)
            json_key_str(o, m->key);
        put_json(o, m);
    }
    json_close(o, v->type == JSON_ARRAY ? ']' : '}');
}

static enum err put_text(struct compiler *c, const struct json *v, struct grammar_piece *text)
{
    struct grammar *g = c->g;
    struct json_out o = json_out_over(g->bytes + g->n_bytes, LIMIT_SCHEMA_BYTES - g->n_bytes);
    put_json(&o, v);
    if (o.full)
        return too_large(c, "bytes of keys and texts", LIMIT_SCHEMA_BYTES);
    *text = (struct grammar_piece){g->n_bytes, (u16)o.n};
    g->n_bytes += (u16)o.n;
    return ERR_OK;
}

static enum err add_text(struct compiler *c, u16 node, const struct json *v)
{
    struct grammar *g = c->g;
    if (g->n_texts == LIMIT_SCHEMA_VALUES)
        return too_large(c, "values of enum and const", LIMIT_SCHEMA_VALUES);
    g->nodes[node].n++;
    return put_text(c, v, &g->texts[g->n_texts++]);
}

/* Room for n links, which are filled one by one while others may be added behind them. */
static enum err take_links(struct compiler *c, u16 node, u32 n)
{
    struct grammar *g = c->g;
    if (n > (u32)LIMIT_SCHEMA_VALUES - g->n_links)
        return too_large(c, "alternatives", LIMIT_SCHEMA_VALUES);
    g->nodes[node].kind = GRAMMAR_UNION;
    g->nodes[node].first = g->n_links;
    g->nodes[node].n = (u16)n;
    g->n_links += (u16)n;
    return ERR_OK;
}

/* --- any value ------------------------------------------------------------------------------- */

/* The nodes that every grammar begins with. */
enum { ANY, ANY_OBJECT, ANY_ARRAY, ANY_STRING, ANY_NUMBER, ANY_WORD, FIRST_OWN };

static enum err put_any(struct compiler *c)
{
    static const struct json words[] = {
        {.type = JSON_TRUE}, {.type = JSON_FALSE}, {.type = JSON_NULL}};
    static const u8 kinds[] = {GRAMMAR_UNION,  GRAMMAR_OBJECT, GRAMMAR_ARRAY,
                               GRAMMAR_STRING, GRAMMAR_NUMBER, GRAMMAR_LITERAL};
    struct grammar *g = c->g;
    u16 at;
    for (u32 i = 0; i < FIRST_OWN; i++) {
        TRY(new_node(c, &at));
        g->nodes[at].kind = kinds[i];
    }
    g->nodes[ANY_OBJECT].items = g->nodes[ANY_ARRAY].items = ANY;
    for (u32 i = 0; i < COUNTOF(words); i++)
        TRY(add_text(c, ANY_WORD, &words[i]));
    TRY(take_links(c, ANY, FIRST_OWN - 1));
    for (u16 i = 1; i < FIRST_OWN; i++)
        g->links[i - 1] = i;
    return ERR_OK;
}

static enum err compile_any(struct compiler *c, u16 node)
{
    TRY(take_links(c, node, 1));
    c->g->links[c->g->nodes[node].first] = ANY;
    return ERR_OK;
}

/* --- a schema ----------------------------------------------------------------------------------
 */

static enum err compile(struct compiler *c, const struct json *v, u16 node);

static enum err compile_new(struct compiler *c, const struct json *v, u16 *node)
{
    TRY(new_node(c, node));
    return compile(c, v, *node);
}

static enum err compile_member(struct compiler *c, const char *dot, struct str name,
                               const struct json *v, u16 *node)
{
    size_t n = enter(c, dot, name);
    TRY(compile_new(c, v, node));
    c->path[n] = 0;
    return ERR_OK;
}

/* 0 to 65534: 65535 is none. */
static enum err limit(struct compiler *c, const struct json *v, const char *name, u16 *to)
{
    const struct json *m = json_get(v, name);
    u64 n;
    if (!m)
        return ERR_OK;
    if (!json_u64(m, &n) || n >= GRAMMAR_NONE) {
        enter(c, ".", str_of(name));
        return refuse(c, "must be a whole number from 0 to 65534");
    }
    *to = (u16)n;
    return ERR_OK;
}

static enum err limits(struct compiler *c, const struct json *v, u16 node, const char *min,
                       const char *max)
{
    struct grammar_node *n = &c->g->nodes[node];
    TRY(limit(c, v, min, &n->min));
    TRY(limit(c, v, max, &n->max));
    return n->min <= n->max ? ERR_OK : refuse(c, "no value can be so long and so short");
}

static bool is_required(const struct json *v, struct str name)
{
    const struct json *list = json_get(v, "required");
    for (const struct json *r = list ? list->child : NULL; r; r = r->next)
        if (str_eq(r->text, name))
            return true;
    return false;
}

static enum err check_required(struct compiler *c, const struct json *v,
                               const struct json *properties)
{
    const struct json *list = json_get(v, "required");
    if (list && (list->type != JSON_ARRAY || list->n > (properties ? properties->n : 0)))
        return refuse(c, "required must be a list of names, each one of properties");
    for (const struct json *r = list ? list->child : NULL; r; r = r->next) {
        bool known = false;
        if (r->type != JSON_STRING)
            return refuse(c, "required must be a list of names, each one of properties");
        for (const struct json *p = properties ? properties->child : NULL; p; p = p->next)
            known = known || str_eq(p->key, r->text);
        if (!known)
            return refuse(c, "required has a name that is not one of properties");
    }
    return ERR_OK;
}

static enum err compile_object(struct compiler *c, const struct json *v, u16 node)
{
    struct grammar *g = c->g;
    const struct json *properties = json_get(v, "properties"),
                      *more = json_get(v, "additionalProperties");
    u32 n = properties ? properties->n : 0;
    if (properties && properties->type != JSON_OBJECT)
        return refuse(c, "properties must be an object");
    if (more && more->type == JSON_OBJECT && n)
        return refuse(c, "additionalProperties beside properties must be false");
    if (n > (u32)LIMIT_SCHEMA_VALUES - g->n_members)
        return too_large(c, "properties", LIMIT_SCHEMA_VALUES);
    TRY(check_required(c, v, properties));
    g->nodes[node].kind = GRAMMAR_OBJECT;
    g->nodes[node].closed = more && more->type == JSON_FALSE;
    if (!n && !g->nodes[node].closed) {
        g->nodes[node].items = ANY;
        if (more && more->type != JSON_TRUE)
            TRY(compile_member(c, ".", STR("additionalProperties"), more, &g->nodes[node].items));
        return ERR_OK;
    }
    struct grammar_member *to = &g->members[g->n_members];
    g->nodes[node].first = g->n_members;
    g->nodes[node].n = (u16)n;
    g->n_members += (u16)n;
    for (const struct json *p = properties ? properties->child : NULL; p; p = p->next, to++) {
        struct json key = {.type = JSON_STRING, .text = p->key};
        to->required = is_required(v, p->key);
        TRY(put_text(c, &key, &to->key));
        TRY(compile_member(c, ".properties.", p->key, p, &to->node));
    }
    return ERR_OK;
}

static enum err compile_array(struct compiler *c, const struct json *v, u16 node)
{
    const struct json *items = json_get(v, "items");
    c->g->nodes[node].kind = GRAMMAR_ARRAY;
    c->g->nodes[node].items = ANY;
    TRY(limits(c, v, node, "minItems", "maxItems"));
    return items ? compile_member(c, ".", STR("items"), items, &c->g->nodes[node].items) : ERR_OK;
}

/* minimum or maximum, or exclusive; NULL into *to: neither. */
static enum err bound(struct compiler *c, const struct json *v, const char *name,
                      const char *exclusive, struct range_end *end, const struct range_end **to)
{
    const struct json *in = json_get(v, name), *out = json_get(v, exclusive), *m = in ? in : out;
    *to = m ? end : NULL;
    if (!m)
        return ERR_OK;
    enter(c, ".", m->key);
    if (in && out)
        return refuse(c, "exclusive or not: one of them");
    if (m->type != JSON_NUMBER)
        return refuse(c, "must be a number");
    if (!range_end_of(m->text, out != NULL, end))
        return err_set(c->e, ERR_REQUEST,
                       "%s: a bound has at most %d digits before and behind the point together%s, "
                       "so that it can be kept to exactly",
                       c->path, RANGE_DIGITS - (out != NULL), out ? " where it is exclusive" : "");
    return ERR_OK;
}

/* m: multipleOf, or NULL, where *step stays what it is. */
static enum err multiple(struct compiler *c, const struct json *m, struct range_step *step)
{
    if (!m)
        return ERR_OK;
    enter(c, ".", m->key);
    if (m->type == JSON_NUMBER && !range_step_of(m->text, step))
        return err_set(c->e, ERR_REQUEST,
                       "%s: %.*s has more than %d digits before and behind the point together, so "
                       "that it could not be kept to exactly",
                       c->path, (int)MIN(m->text.n, (size_t)40), m->text.p, RANGE_STEP_DIGITS);
    if (m->type != JSON_NUMBER || step->size == 0)
        return refuse(c, "must be a number above 0");
    return ERR_OK;
}

/* Those that are the same are kept once. */
static enum err add_range(struct compiler *c, const struct range *r, u16 *at)
{
    struct grammar *g = c->g;
    u16 i = 0;
    while (i < g->n_ranges && !range_same(&g->ranges[i], r))
        i++;
    if (i == LIMIT_SCHEMA_RANGES)
        return too_large(c, "different bounds and steps of numbers", LIMIT_SCHEMA_RANGES);
    if (i == g->n_ranges)
        g->ranges[g->n_ranges++] = *r;
    *at = i;
    return ERR_OK;
}

static enum err compile_number(struct compiler *c, const struct json *v, u16 node)
{
    struct grammar_node *n = &c->g->nodes[node];
    struct range_step step = {1, RANGE_DIGITS - 1};
    struct range_end ends[2];
    const struct range_end *low, *high;
    struct range r;
    const struct json *of = json_get(v, "multipleOf");
    size_t path = strlen(c->path);
    n->kind = GRAMMAR_NUMBER;
    TRY(bound(c, v, "minimum", "exclusiveMinimum", &ends[0], &low));
    c->path[path] = 0;
    TRY(bound(c, v, "maximum", "exclusiveMaximum", &ends[1], &high));
    c->path[path] = 0;
    TRY(multiple(c, of, &step));
    c->path[path] = 0;
    if (!low && !high && !of)
        return ERR_OK;
    if (!range_of(low, high, n->whole ? range_step_whole(step) : step, &r))
        return refuse(c, of ? "no multiple of at most 15 digits is between the bounds"
                            : "no number of at most 15 digits is between the bounds");
    return add_range(c, &r, &n->items);
}

static enum err refuse_pattern(struct compiler *c, struct str pattern,
                               const struct regex_fault *fault)
{
    struct str rest = {pattern.p + fault->at, MIN(pattern.n - fault->at, (size_t)24)};
    while (rest.n && rest.p + rest.n < pattern.p + pattern.n && (rest.p[rest.n] & 0xc0) == 0x80)
        rest.n--;
    if (fault->limit)
        return err_set(c->e, ERR_REQUEST, "%s: more than %u %s", c->path, fault->limit,
                       fault->what);
    return err_set(c->e, ERR_REQUEST, "%s: byte %zu (\"%.*s\"): %s", c->path, fault->at,
                   (int)rest.n, rest.p, fault->what);
}

static enum err compile_string(struct compiler *c, const struct json *v, u16 node)
{
    struct grammar_node *n = &c->g->nodes[node];
    const struct json *pattern = json_get(v, "pattern"), *format = json_get(v, "format");
    struct str text =
        format && format->type == JSON_STRING ? format_pattern(format->text) : (struct str){0};
    struct regex_fault fault = {0};
    n->kind = GRAMMAR_STRING;
    TRY(limits(c, v, node, "minLength", "maxLength"));
    if (pattern && text.p)
        return refuse(c, "pattern and format exclude each other here");
    if (!pattern && !text.p)
        return ERR_OK;
    size_t path = enter(c, ".", pattern ? STR("pattern") : STR("format"));
    if (pattern && pattern->type != JSON_STRING)
        return refuse(c, "must be a string");
    text = pattern ? pattern->text : text;
    if (!regex_add(&c->g->patterns, text, &n->items, &fault))
        return refuse_pattern(c, text, &fault);
    struct regex_room room = {.most = n->max == GRAMMAR_NONE ? UINT32_MAX : n->max,
                              .least = n->min};
    if (!regex_fits(regex_state_of(&c->g->patterns, n->items, 0), room))
        return refuse(c, "no text of that length matches it");
    c->path[path] = 0;
    return ERR_OK;
}

static enum err compile_type(struct compiler *c, const struct json *v, struct str type, u16 node)
{
    static const struct json words[] = {
        {.type = JSON_TRUE}, {.type = JSON_FALSE}, {.type = JSON_NULL}};
    struct grammar_node *n = &c->g->nodes[node];
    if (str_is(type, "object"))
        return compile_object(c, v, node);
    if (str_is(type, "array"))
        return compile_array(c, v, node);
    if (str_is(type, "string"))
        return compile_string(c, v, node);
    if (str_is(type, "number") || str_is(type, "integer")) {
        n->whole = str_is(type, "integer");
        return compile_number(c, v, node);
    }
    n->kind = GRAMMAR_LITERAL;
    n->first = c->g->n_texts;
    if (str_is(type, "null"))
        return add_text(c, node, &words[2]);
    if (!str_is(type, "boolean"))
        return refuse(c,
                      "type must be one of object, array, string, number, integer, boolean, null");
    TRY(add_text(c, node, &words[0]));
    return add_text(c, node, &words[1]);
}

static enum err compile_types(struct compiler *c, const struct json *v, const struct json *types,
                              u16 node)
{
    u32 i = 0;
    if (types->type == JSON_STRING)
        return compile_type(c, v, types->text, node);
    if (types->type != JSON_ARRAY || types->n == 0)
        return refuse(c, "type must be a name or a list of names");
    TRY(take_links(c, node, types->n));
    u16 first = c->g->nodes[node].first;
    for (const struct json *t = types->child; t; t = t->next, i++) {
        u16 to;
        if (t->type != JSON_STRING)
            return refuse(c, "type must be a name or a list of names");
        TRY(new_node(c, &to));
        c->g->links[first + i] = to;
        TRY(compile_type(c, v, t->text, to));
    }
    return ERR_OK;
}

static enum err add_check(struct compiler *c, u16 node, u32 types)
{
    if (c->n_checks == CHECKS)
        return too_large(c, "places with oneOf, or with type beside alternatives", CHECKS);
    struct check *to = &c->checks[c->n_checks++];
    *to = (struct check){.node = node, .types = types};
    memcpy(to->path, c->path, PATH_BYTES);
    return ERR_OK;
}

static enum err compile_any_of(struct compiler *c, const struct json *list, const char *name,
                               u16 node)
{
    u32 i = 0;
    if (list->type != JSON_ARRAY || list->n == 0)
        return refuse(c, "anyOf, oneOf and allOf must be lists of schemas");
    TRY(take_links(c, node, list->n));
    u16 first = c->g->nodes[node].first;
    for (const struct json *one = list->child; one; one = one->next, i++) {
        char number[48];
        snprintf(number, sizeof number, "%s[%u]", name, i);
        TRY(compile_member(c, ".", str_of(number), one, &c->g->links[first + i]));
    }
    return ERR_OK;
}

static enum err compile_texts(struct compiler *c, const struct json *v, u16 node)
{
    const struct json *list = json_get(v, "enum"), *one = json_get(v, "const");
    c->g->nodes[node].kind = GRAMMAR_LITERAL;
    c->g->nodes[node].first = c->g->n_texts;
    if (one && list)
        return refuse(c, "enum and const exclude each other");
    if (one)
        return add_text(c, node, one);
    if (list->type != JSON_ARRAY || list->n == 0)
        return refuse(c, "enum must be a list of values");
    for (const struct json *m = list->child; m; m = m->next)
        TRY(add_text(c, node, m));
    return ERR_OK;
}

/* --- references ------------------------------------------------------------------------------ */

static enum err ref_node(struct compiler *c, const struct json *to, u16 *node)
{
    for (u32 i = 0; i < c->n_refs; i++)
        if (c->refs[i].to == to) {
            *node = c->refs[i].node;
            return ERR_OK;
        }
    if (c->n_refs == REFS)
        return too_large(c, "definitions", REFS);
    TRY(new_node(c, node));
    c->refs[c->n_refs].to = to;
    c->refs[c->n_refs++].node = *node;
    return compile(c, to, *node);
}

static enum err compile_ref(struct compiler *c, const struct json *ref, u16 node)
{
    if (ref->type != JSON_STRING || ref->text.n == 0 || ref->text.p[0] != '#')
        return refuse(c, "$ref must lead into this schema: \"#/$defs/...\"");
    const struct json *to = json_find(c->document, (struct str){ref->text.p + 1, ref->text.n - 1});
    if (!to)
        return refuse(c, "$ref leads to nothing");
    TRY(take_links(c, node, 1));
    u16 link = c->g->nodes[node].first;
    return ref_node(c, to, &c->g->links[link]);
}

/* --- what all of it must keep to -------------------------------------------------------------- */

static u32 types_named(struct str name)
{
    static const struct {
        char name[8];
        u8 types;
    } known[] = {{"null", TYPE_NULL},       {"boolean", TYPE_BOOLEAN},
                 {"integer", TYPE_INTEGER}, {"number", TYPE_INTEGER | TYPE_FRACTION},
                 {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (u32 i = 0; i < COUNTOF(known); i++)
        if (str_is(name, known[i].name))
            return known[i].types;
    return 0;
}

/* A type beside alternatives or texts takes nothing away: all of them are of it, or are refused. */
static enum err check_types(struct compiler *c, const struct json *type, u16 node)
{
    u32 types = type->type == JSON_STRING ? types_named(type->text) : 0;
    for (const struct json *t = type->type == JSON_ARRAY ? type->child : NULL; t; t = t->next)
        types |= t->type == JSON_STRING ? types_named(t->text) : 0;
    if (types == 0)
        return refuse(c, "type must be a name of a type or a list of these");
    return add_check(c, node, types);
}

static enum err check_apart(struct compiler *c, u16 node, u32 *looks)
{
    const struct grammar_node *n = &c->g->nodes[node];
    const u16 *links = c->g->links + n->first;
    for (u32 i = 0; i < n->n; i++)
        for (u32 k = 0; k < n->n; k++) {
            if (i == k || grammar_apart(c->g, links[i], links[k], looks))
                continue;
            if (*looks == 0)
                return refuse(c, "too large to tell the alternatives of oneOf apart");
            return err_set(c->e, ERR_REQUEST,
                           "%s: an answer might fit both oneOf[%u] and oneOf[%u]; they are told "
                           "apart by type, or by the values of a required property; or use anyOf",
                           c->path, MIN(i, k), MAX(i, k));
        }
    return ERR_OK;
}

static enum err check_all(struct compiler *c)
{
    u32 looks = LOOKS;
    for (u32 i = 0; i < c->n_checks; i++) {
        const struct check *to = &c->checks[i];
        memcpy(c->path, to->path, PATH_BYTES);
        if (to->types == 0)
            TRY(check_apart(c, to->node, &looks));
        else if (grammar_types(c->g, to->node) & ~to->types)
            return refuse(c, "some of it is not of the type that stands beside it");
    }
    return ERR_OK;
}

/* --- which it is -------------------------------------------------------------------------------
 */

/* What a word is about. Those of a type stand for it where none is named. */
enum about { OBJECTS, ARRAYS, STRINGS, NUMBERS, ALL, NOTHING, UNKNOWN };

static enum about about(struct str word)
{
    static const struct {
        char word[23];
        u8 about;
    } words[] = {{"anyOf", ALL},
                 {"oneOf", ALL},
                 {"allOf", ALL},
                 {"$ref", ALL},
                 {"enum", ALL},
                 {"const", ALL},
                 {"properties", OBJECTS},
                 {"required", OBJECTS},
                 {"additionalProperties", OBJECTS},
                 {"items", ARRAYS},
                 {"minItems", ARRAYS},
                 {"maxItems", ARRAYS},
                 {"minLength", STRINGS},
                 {"maxLength", STRINGS},
                 {"pattern", STRINGS},
                 {"minimum", NUMBERS},
                 {"maximum", NUMBERS},
                 {"exclusiveMinimum", NUMBERS},
                 {"exclusiveMaximum", NUMBERS},
                 {"multipleOf", NUMBERS},
                 {"type", NOTHING},
                 {"$defs", NOTHING},
                 {"definitions", NOTHING},
                 {"title", NOTHING},
                 {"description", NOTHING},
                 {"default", NOTHING},
                 {"examples", NOTHING},
                 {"format", NOTHING},
                 {"$schema", NOTHING},
                 {"$id", NOTHING},
                 {"$comment", NOTHING},
                 {"deprecated", NOTHING},
                 {"readOnly", NOTHING},
                 {"writeOnly", NOTHING},
                 {"discriminator", NOTHING}};
    u32 i = 0;
    while (i < COUNTOF(words) && !str_is(word, words[i].word))
        i++;
    return i < COUNTOF(words) ? words[i].about : UNKNOWN;
}

/* One of the words that say all. */
static enum err compile_whole(struct compiler *c, const struct json *v, u16 node)
{
    static const char names[][8] = {"anyOf", "oneOf", "allOf"};
    const struct json *ref = json_get(v, "$ref"), *all = json_get(v, "allOf"),
                      *type = json_get(v, "type");
    if (type)
        TRY(check_types(c, type, node));
    if (json_get(v, "oneOf"))
        TRY(add_check(c, node, 0));
    if (all && all->type == JSON_ARRAY && all->n > 1)
        return refuse(c, "allOf of more than one schema is not supported");
    for (u32 i = 0; i < COUNTOF(names); i++)
        if (json_get(v, names[i]))
            return compile_any_of(c, json_get(v, names[i]), names[i], node);
    return ref ? compile_ref(c, ref, node) : compile_texts(c, v, node);
}

static enum err compile_words(struct compiler *c, const struct json *v, u16 node)
{
    static const char types[][8] = {"object", "array", "string", "number"};
    const struct json *type = json_get(v, "type");
    u32 words[UNKNOWN] = {0}, first = 0;
    for (const struct json *m = v->child; m; m = m->next) {
        enum about of = about(m->key);
        if (of == UNKNOWN) {
            enter(c, ".", m->key);
            return refuse(c, "this keyword is not supported, so that it could not be kept to");
        }
        words[of]++;
    }
    while (first < ALL && !words[first])
        first++;
    if (words[ALL] > 1 || (words[ALL] && first < ALL))
        return refuse(c,
                      "$ref, anyOf, oneOf, allOf, enum and const stand alone here, or with type");
    if (words[ALL])
        return compile_whole(c, v, node);
    if (type)
        return compile_types(c, v, type, node);
    if (first == ALL)
        return compile_any(c, node);
    c->g->nodes[node].loose = true;
    return compile_type(c, v, str_of(types[first]), node);
}

static enum err compile(struct compiler *c, const struct json *v, u16 node)
{
    if (v->type != JSON_OBJECT && v->type != JSON_TRUE)
        return refuse(c, "a schema must be an object");
    if (c->depth == LIMIT_JSON_DEPTH)
        return refuse(c, "the schema is nested too deeply");
    if (v->type == JSON_TRUE)
        return compile_any(c, node);
    c->depth++;
    TRY(compile_words(c, v, node));
    c->depth--;
    return ERR_OK;
}

static struct compiler *compiler(struct grammar *g, const struct json *schema, struct err_text *e)
{
    static struct compiler c; /* one at a time */
    c = (struct compiler){.g = g, .document = schema, .e = e};
    return &c;
}

static struct compiler *begin(struct grammar *g, const struct json *schema, struct err_text *e)
{
    static u64 serial;
    memset(g, 0, sizeof *g);
    g->serial = ++serial;
    g->thought_begin = g->thought_end = GRAMMAR_NONE;
    return compiler(g, schema, e);
}

enum err grammar_compile(struct grammar *g, const struct json *schema, struct err_text *e)
{
    struct compiler *c = begin(g, schema, e);
    snprintf(c->path, sizeof c->path, "schema");
    TRY(put_any(c));
    g->root = ANY_OBJECT;
    if (schema)
        TRY(ref_node(c, schema, &g->root));
    return check_all(c);
}

void grammar_compile_text(struct grammar *g)
{
    begin(g, NULL, NULL);
    g->n_nodes = 1;
    g->nodes[0] = (struct grammar_node){.kind = GRAMMAR_TEXT, .items = GRAMMAR_NONE};
}

/* --- calls -------------------------------------------------------------------------------------
 */

static enum err put_bytes(struct compiler *c, struct str s, struct grammar_piece *text)
{
    struct grammar *g = c->g;
    if (s.n > (size_t)LIMIT_SCHEMA_BYTES - g->n_bytes)
        return too_large(c, "bytes of keys and texts", LIMIT_SCHEMA_BYTES);
    memcpy(g->bytes + g->n_bytes, s.p, s.n);
    g->n_bytes += (u16)s.n;
    text->n += (u16)s.n;
    return ERR_OK;
}

static enum err compile_tags(struct compiler *c, const struct grammar_call *call, struct str close,
                             u16 *node)
{
    const u16 first = c->g->nodes[*node].first;
    u32 at;
    if (memchr(call->name.p, '<', call->name.n) || memchr(call->name.p, '>', call->name.n))
        return refuse(c, "XML calls can not have < or > in a function's name");
    const char *why = tags_make(c->g, *node, call->tags, close, node, &at);
    if (why && at != UINT32_MAX) {
        struct grammar_piece key = c->g->members[first + at].key;
        enter(c, ".properties.", (struct str){c->g->bytes + key.at + 1, key.n - 2u});
    }
    return why ? refuse(c, why) : ERR_OK;
}

static enum err compile_call(struct compiler *c, const struct grammar_call *call, struct str close,
                             struct grammar_member *m)
{
    snprintf(c->path, sizeof c->path, "tools[%u].%s", call->number,
             call->where ? call->where : "function.parameters");
    m->required = true;
    m->key = (struct grammar_piece){c->g->n_bytes, 0};
    TRY(put_bytes(c, call->open, &m->key));
    TRY(put_bytes(c, call->name, &m->key));
    TRY(put_bytes(c, call->middle, &m->key));
    m->node = call->text ? GRAMMAR_NONE : ANY_OBJECT;
    if (call->parameters && call->parameters->n) {
        c->document = call->parameters;
        TRY(ref_node(c, call->parameters, &m->node));
        if (c->g->nodes[m->node].kind != GRAMMAR_OBJECT)
            return refuse(c, "must be of type object");
    }
    return call->tags ? compile_tags(c, call, close, &m->node) : ERR_OK;
}

static enum err add_bytes(struct compiler *c, struct str s, u16 *text)
{
    if (c->g->n_texts == LIMIT_SCHEMA_VALUES)
        return too_large(c, "values of enum and const", LIMIT_SCHEMA_VALUES);
    *text = c->g->n_texts++;
    c->g->texts[*text] = (struct grammar_piece){c->g->n_bytes, 0};
    return put_bytes(c, s, &c->g->texts[*text]);
}

enum err grammar_compile_calls(struct grammar *g, const struct grammar_call *calls, u32 n,
                               struct str close, struct str mark, struct err_text *e)
{
    struct compiler *c = begin(g, NULL, e);
    u16 node;
    snprintf(c->path, sizeof c->path, "tools");
    TRY(put_any(c));
    TRY(new_node(c, &node));
    if (n > LIMIT_SCHEMA_VALUES)
        return too_large(c, "functions", LIMIT_SCHEMA_VALUES);
    g->root = node;
    g->nodes[node].kind = GRAMMAR_CALL;
    g->nodes[node].n = g->n_members = (u16)n;
    TRY(add_bytes(c, n && calls->tags ? STR("") : close, &g->nodes[node].items));
    for (u32 i = 0; i < n; i++)
        TRY(compile_call(c, &calls[i], close, &g->members[i]));
    TRY(check_all(c));
    if (mark.n == 0)
        return ERR_OK;
    TRY(new_node(c, &g->root));
    g->nodes[g->root].kind = GRAMMAR_PROSE;
    g->nodes[g->root].items = node;
    return add_bytes(c, mark, &g->nodes[g->root].first);
}

enum err grammar_or_json(struct grammar *g, const struct json *schema, struct err_text *e)
{
    struct compiler *c = compiler(g, schema, e);
    const u16 call = g->root;
    u16 value = ANY_OBJECT, *text = &g->members[g->nodes[call].first].node;
    snprintf(c->path, sizeof c->path, "schema");
    if (schema)
        TRY(ref_node(c, schema, &value));
    TRY(check_all(c));
    if (grammar_types(g, value) != TYPE_OBJECT) {
        snprintf(c->path, sizeof c->path, "schema");
        return refuse(c, "must be of type object beside tools");
    }
    if (*text == GRAMMAR_NONE) {
        *text = value;
        return ERR_OK;
    }
    TRY(new_node(c, &g->root));
    TRY(take_links(c, g->root, 2));
    g->links[g->nodes[g->root].first] = call;
    g->links[g->nodes[g->root].first + 1] = value;
    return ERR_OK;
}

enum err grammar_think(struct grammar *g, struct str begin, struct str end, bool begun, u32 tokens,
                       struct err_text *e)
{
    struct compiler *c = compiler(g, NULL, e);
    snprintf(c->path, sizeof c->path, "thoughts");
    g->thinks = begun;
    g->thought_tokens = tokens;
    g->thought_sure = (u16)end.n;
    TRY(add_bytes(c, begin, &g->thought_begin));
    return add_bytes(c, end, &g->thought_end);
}

enum err grammar_think_on(struct grammar *g, struct str next, struct err_text *e)
{
    return put_bytes(compiler(g, NULL, e), next, &g->texts[g->thought_end]);
}

/* --- messages ----------------------------------------------------------------------------------
 */

enum err grammar_head(struct grammar *g, struct str head, struct err_text *e)
{
    struct compiler *c = compiler(g, NULL, e);
    struct grammar_member *m = &g->members[g->n_members];
    const u16 value = g->root;
    snprintf(c->path, sizeof c->path, "schema");
    if (g->n_members == LIMIT_SCHEMA_VALUES)
        return too_large(c, "properties", LIMIT_SCHEMA_VALUES);
    TRY(new_node(c, &g->root));
    *m = (struct grammar_member){.key = {g->n_bytes, 0}, .node = value, .required = true};
    TRY(put_bytes(c, head, &m->key));
    struct grammar_node *n = &g->nodes[g->root];
    n->kind = GRAMMAR_CALL;
    n->ends = true;
    n->first = g->n_members++;
    n->n = 1;
    return add_bytes(c, STR(""), &n->items);
}

void grammar_messages(struct grammar *g, u32 begun)
{
    const struct grammar_node *root = &g->nodes[g->root];
    g->begun = (u16)begun;
    g->nodes[root->kind == GRAMMAR_PROSE ? root->items : g->root].ends = true;
}
