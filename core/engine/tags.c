#include "core/engine/tags.h"

#include <string.h>

static const char too_many[] = "as XML the schema has too many properties and texts";

/* What a reader takes for one value at most, until it knows what that is. */
enum { WORD_BYTES = 64 };

/* Of the leaves of a value. */
struct leaves {
    bool any, text, limited, json;
    u32 texts, nulls;
    u64 seen[LIMIT_SCHEMA_VALUES / 64];
};

static struct str text_at(const struct grammar *g, struct grammar_piece p)
{
    return (struct str){g->bytes + p.at, p.n};
}

static bool put(struct grammar *g, struct grammar_piece *to, struct str s)
{
    if (s.n > (size_t)LIMIT_SCHEMA_BYTES - g->n_bytes)
        return false;
    memcpy(g->bytes + g->n_bytes, s.p, s.n);
    g->n_bytes += (u16)s.n;
    to->n += (u16)s.n;
    return true;
}

static struct grammar_piece *add_text(struct grammar *g)
{
    if (g->n_texts == LIMIT_SCHEMA_VALUES)
        return NULL;
    g->texts[g->n_texts] = (struct grammar_piece){g->n_bytes, 0};
    return &g->texts[g->n_texts++];
}

static bool add(struct grammar *g, struct str s)
{
    struct grammar_piece *to = add_text(g);
    return to && put(g, to, s);
}

static bool add_node(struct grammar *g, u8 kind, u16 *at)
{
    if (g->n_nodes == LIMIT_SCHEMA_VALUES)
        return false;
    *at = g->n_nodes++;
    g->nodes[*at] = (struct grammar_node){.items = GRAMMAR_NONE, .max = GRAMMAR_NONE, .kind = kind};
    return true;
}

/* What a string in JSON says, as json_put_str writes it. */
static bool put_said(struct grammar *g, struct grammar_piece *to, struct str quoted)
{
    static const char signs[] = "bfnrt", said[] = "\b\f\n\r\t";
    for (size_t i = 1; i + 1 < quoted.n; i++) {
        char c = quoted.p[i];
        if (c == '\\') {
            c = quoted.p[++i];
            const char *at = strchr(signs, c);
            if (c == 'u') { /* 00XX */
                char high = quoted.p[i + 3], low = quoted.p[i + 4];
                c = (char)((high - '0') << 4 | (low <= '9' ? low - '0' : (low | 0x20) - 'a' + 10));
                i += 4;
            } else if (at) {
                c = said[at - signs];
            }
        }
        if (!put(g, to, (struct str){&c, 1}))
            return false;
    }
    return true;
}

/* --- values ----------------------------------------------------------------------------------- */

static void look(const struct grammar *g, u16 node, struct leaves *l)
{
    const struct grammar_node *n = &g->nodes[node];
    if (l->seen[node / 64] >> node % 64 & 1)
        return;
    l->seen[node / 64] |= (u64)1 << node % 64;
    l->any = l->any || node == 0; /* the first one is that of any value */
    for (u32 i = 0; n->kind == GRAMMAR_UNION && i < n->n; i++)
        look(g, g->links[n->first + i], l);
    if (n->kind == GRAMMAR_STRING) {
        bool free = n->min == 0 && n->max == GRAMMAR_NONE && n->items == GRAMMAR_NONE;
        l->text = l->text || free;
        l->limited = l->limited || !free;
    }
    for (u32 i = 0; n->kind == GRAMMAR_LITERAL && i < n->n; i++) {
        struct str text = text_at(g, g->texts[n->first + i]);
        bool word = text.n <= WORD_BYTES || *text.p == '{' || *text.p == '[';
        l->texts += *text.p == '"';
        l->nulls += str_is(text, "null");
        l->limited = l->limited || (*text.p != '"' && !word);
        l->json = l->json || (*text.p != '"' && !str_is(text, "null"));
    }
    l->json = l->json || n->kind == GRAMMAR_OBJECT || n->kind == GRAMMAR_ARRAY ||
              n->kind == GRAMMAR_NUMBER;
}

/* A text that a reader gives back as it is. */
static bool is_plain(const struct grammar_tags *tags, struct str s)
{
    bool lines = s.n && tags->lines && (s.p[0] == '\n' || s.p[s.n - 1] == '\n');
    return s.n && !lines && !memmem(s.p, s.n, tags->value_end.p, tags->value_end.n);
}

/* The texts of literals: those of strings as they are. */
static const char *make_literal(struct grammar *g, const struct leaves *l,
                                const struct grammar_tags *tags, u16 *node)
{
    struct grammar_node *to;
    if (!add_node(g, GRAMMAR_LITERAL, node))
        return too_many;
    to = &g->nodes[*node];
    to->raw = true;
    to->first = g->n_texts;
    for (u32 i = 0; i < *node; i++) {
        const struct grammar_node *n = &g->nodes[i];
        if (n->kind != GRAMMAR_LITERAL || !(l->seen[i / 64] >> i % 64 & 1))
            continue;
        for (u32 k = 0; k < n->n; k++) {
            struct str text = text_at(g, g->texts[n->first + k]);
            struct grammar_piece *said = add_text(g);
            if (!said || !(*text.p == '"' ? put_said(g, said, text) : put(g, said, text)))
                return too_many;
            if (!is_plain(tags, text_at(g, *said)))
                return "XML calls can not write one of its texts";
            to->n++;
        }
    }
    return NULL;
}

static const char *make_value(struct grammar *g, const struct grammar_tags *tags, u16 *node)
{
    struct leaves l = {0};
    look(g, *node, &l);
    if (l.any)
        return add_node(g, GRAMMAR_RAW, node) ? NULL : too_many;
    if (l.limited)
        return "minLength, maxLength, pattern and format of a parameter are not kept to in XML "
               "calls, nor literals beyond 64 bytes";
    if (!l.text && !l.texts)
        return NULL; /* as in JSON */
    if (l.json)
        return "XML calls do not tell its strings from its other values";
    if (l.text)
        return add_node(g, GRAMMAR_RAW, node) ? NULL : too_many;
    return make_literal(g, &l, tags, node);
}

/* --- tags ------------------------------------------------------------------------------------- */

static const char *make_member(struct grammar *g, const struct grammar_member *of,
                               const struct grammar_tags *tags, struct grammar_member *to)
{
    *to = (struct grammar_member){.node = of->node, .required = of->required};
    const char *why = make_value(g, tags, &to->node);
    if (why)
        return why;
    to->key.at = g->n_bytes;
    if (!put(g, &to->key, tags->key))
        return too_many;
    size_t name = g->n_bytes;
    if (!put_said(g, &to->key, text_at(g, of->key)))
        return too_many;
    if (memchr(g->bytes + name, '<', g->n_bytes - name) ||
        memchr(g->bytes + name, '>', g->n_bytes - name) ||
        memchr(g->bytes + name, *tags->key_end.p, g->n_bytes - name))
        return "XML calls can not have < or > in a name, nor \" where that ends it";
    return put(g, &to->key, tags->key_end) && put(g, &to->key, tags->value) ? NULL : too_many;
}

static bool make_mark(struct grammar *g, struct str mark, bool required, struct grammar_member *to)
{
    *to =
        (struct grammar_member){.key = {g->n_bytes, 0}, .node = GRAMMAR_NONE, .required = required};
    return put(g, &to->key, mark);
}

const char *tags_make(struct grammar *g, u16 object, const struct grammar_tags *tags,
                      struct str close, u16 *node, u32 *at)
{
    const struct grammar_node of = g->nodes[object];
    bool any = of.items != GRAMMAR_NONE;
    u32 n = any ? 1 : of.n;
    struct leaves l = {0};
    *at = UINT32_MAX;
    if (any)
        look(g, of.items, &l);
    if (any && !l.any)
        return "additionalProperties of a kind are not kept to in XML calls";
    if (n + 1 > (u32)LIMIT_SCHEMA_VALUES - g->n_members || !add_node(g, GRAMMAR_TAGS, node))
        return too_many;
    struct grammar_member *to = &g->members[g->n_members];
    g->nodes[*node].first = g->n_members;
    g->nodes[*node].n = (u16)(n + 1);
    g->nodes[*node].items = g->n_texts;
    g->nodes[*node].lines = tags->lines;
    g->n_members += (u16)(n + 1);
    if (!add(g, tags->key_end) || !add(g, tags->value) || !add(g, tags->value_end))
        return too_many;
    for (u32 i = 0; !any && i < n; i++) {
        const char *why = make_member(g, &g->members[of.first + i], tags, &to[i]);
        *at = i;
        if (why)
            return why;
    }
    *at = UINT32_MAX;
    return (!any || make_mark(g, tags->key, false, to)) && make_mark(g, close, true, &to[n])
               ? NULL
               : too_many;
}
