#include "core/engine/apart.h"

enum { DEPTH = 16 }; /* unions and tags within each other */

static struct str text_of(const struct grammar *g, struct grammar_piece t)
{
    return (struct str){g->bytes + t.at, t.n};
}

/* Digits alone: of these no other text is the same number. */
static bool is_plain(struct str number)
{
    size_t sign = number.p[0] == '-', i = sign;
    while (i < number.n && number.p[i] >= '0' && number.p[i] <= '9')
        i++;
    return i == number.n && (!sign || number.p[1] != '0');
}

static u32 type_of_text(struct str text)
{
    switch (text.p[0]) {
    case 'n':
        return TYPE_NULL;
    case 't':
    case 'f':
        return TYPE_BOOLEAN;
    case '"':
        return TYPE_STRING;
    case '[':
        return TYPE_ARRAY;
    case '{':
        return TYPE_OBJECT;
    default:
        return is_plain(text) ? TYPE_INTEGER : TYPE_FRACTION;
    }
}

static u32 types_of(const struct grammar *g, u16 node, u64 seen[LIMIT_SCHEMA_VALUES / 64])
{
    const struct grammar_node *n = &g->nodes[node];
    u32 types = 0;
    if (seen[node / 64] >> node % 64 & 1)
        return 0;
    seen[node / 64] |= (u64)1 << node % 64;
    switch ((enum grammar_kind)n->kind) {
    case GRAMMAR_OBJECT:
        return TYPE_OBJECT;
    case GRAMMAR_ARRAY:
        return TYPE_ARRAY;
    case GRAMMAR_STRING:
        return TYPE_STRING;
    case GRAMMAR_NUMBER:
        return TYPE_INTEGER | (n->whole ? 0 : TYPE_FRACTION);
    case GRAMMAR_LITERAL:
        for (u32 i = 0; i < n->n; i++)
            types |= type_of_text(text_of(g, g->texts[n->first + i]));
        return types;
    case GRAMMAR_UNION:
        for (u32 i = 0; i < n->n; i++)
            types |= types_of(g, g->links[n->first + i], seen);
        return types;
    case GRAMMAR_TEXT:
    case GRAMMAR_PROSE:
    case GRAMMAR_CALL:
    case GRAMMAR_TAGS:
    case GRAMMAR_RAW:
        break;
    }
    return 0;
}

u32 grammar_types(const struct grammar *g, u16 node)
{
    u64 seen[LIMIT_SCHEMA_VALUES / 64] = {0};
    return types_of(g, node, seen);
}

/* --- pairs ------------------------------------------------------------------------------------ */

struct pair {
    const struct grammar *g;
    u32 *looks;
};

static bool look(const struct pair *p)
{
    if (*p->looks == 0)
        return false;
    --*p->looks;
    return true;
}

static bool apart(const struct pair *p, u16 a, u16 b, u32 depth);

/* 1.0 is an integer, too. */
static u32 widened(u32 types)
{
    return types & (TYPE_INTEGER | TYPE_FRACTION) ? types | TYPE_INTEGER | TYPE_FRACTION : types;
}

static bool may_equal(struct str a, struct str b)
{
    if (widened(type_of_text(a)) != widened(type_of_text(b)))
        return false;
    bool exact = memchr("\"tfn", a.p[0], 4) || (is_plain(a) && is_plain(b));
    return !exact || str_eq(a, b);
}

static bool texts_apart(const struct pair *p, const struct grammar_node *a,
                        const struct grammar_node *b)
{
    for (u32 i = 0; i < a->n; i++)
        for (u32 k = 0; k < b->n; k++)
            if (!look(p) || may_equal(text_of(p->g, p->g->texts[a->first + i]),
                                      text_of(p->g, p->g->texts[b->first + k])))
                return false;
    return true;
}

static const struct grammar_member *member_of(const struct pair *p, const struct grammar_node *n,
                                              const struct grammar_member *like)
{
    const struct grammar_member *m = p->g->members + n->first;
    for (u32 i = 0; i < n->n && look(p); i++)
        if (str_eq(text_of(p->g, m[i].key), text_of(p->g, like->key)))
            return &m[i];
    return NULL;
}

/* By a member that one has always and the other one never, or with other values: a tag. */
static bool members_apart(const struct pair *p, const struct grammar_node *a,
                          const struct grammar_node *b, u32 depth)
{
    const struct grammar_member *of_a = p->g->members + a->first, *of_b = p->g->members + b->first;
    if (a->items != GRAMMAR_NONE || b->items != GRAMMAR_NONE) /* any name */
        return false;
    for (u32 i = 0; i < b->n; i++) {
        const struct grammar_member *m = member_of(p, a, &of_b[i]);
        if (!m && of_b[i].required && *p->looks)
            return true;
        if (m && (m->required || of_b[i].required) && apart(p, m->node, of_b[i].node, depth))
            return true;
    }
    for (u32 i = 0; b->closed && i < a->n; i++)
        if (of_a[i].required && !member_of(p, b, &of_a[i]) && *p->looks)
            return true;
    return false;
}

static bool apart(const struct pair *p, u16 a, u16 b, u32 depth)
{
    const struct grammar_node *x = &p->g->nodes[a], *y = &p->g->nodes[b];
    if (depth == DEPTH || !look(p))
        return false;
    if (x->kind == GRAMMAR_UNION || y->kind == GRAMMAR_UNION) {
        const struct grammar_node *u = x->kind == GRAMMAR_UNION ? x : y;
        bool all = true;
        for (u32 i = 0; all && i < u->n; i++) {
            u16 to = p->g->links[u->first + i];
            all = u == x ? apart(p, to, b, depth + 1) : apart(p, a, to, depth + 1);
        }
        return all;
    }
    if (!(widened(grammar_types(p->g, a)) & widened(grammar_types(p->g, b))))
        return !y->loose;
    if (x->kind == GRAMMAR_LITERAL && y->kind == GRAMMAR_LITERAL)
        return texts_apart(p, x, y);
    return x->kind == GRAMMAR_OBJECT && y->kind == GRAMMAR_OBJECT &&
           members_apart(p, x, y, depth + 1);
}

bool grammar_apart(const struct grammar *g, u16 a, u16 b, u32 *looks)
{
    return apart(&(struct pair){.g = g, .looks = looks}, a, b, 0);
}
