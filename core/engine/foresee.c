#include "core/engine/foresee.h"

#include "core/engine/frames.h"

#include <string.h>

/* --- blanks ----------------------------------------------------------------------------------- */

static struct str blanks_behind(struct str s, size_t at)
{
    size_t end = at + 1;
    while (end < s.n && (s.p[end] == ' ' || s.p[end] == '\n' || s.p[end] == '\t'))
        end++;
    return (struct str){s.p + at + 1, end - at - 1};
}

struct foresee_blanks foresee_blanks(struct str said)
{
    struct foresee_blanks b = {STR(" "), STR(" ")};
    bool colon = false, comma = false;
    for (size_t i = said.n; i-- > 1 && !(colon && comma);) {
        if (i + 1 == said.n) /* what follows is not there yet */
            continue;
        if (said.p[i] == ':' && said.p[i - 1] == '"' && !colon) {
            b.colon = blanks_behind(said, i);
            colon = true;
        }
        struct str blanks = blanks_behind(said, i);
        bool line = said.p[i] == '{' && memchr(blanks.p, '\n', blanks.n);
        if ((said.p[i] == ',' || line) && !comma) {
            b.comma = blanks;
            comma = true;
        }
    }
    return b;
}

/* Each value has a line of its own: how far brackets are indented is not known. */
static bool has_lines(const struct foresee_blanks *b)
{
    return memchr(b->comma.p, '\n', b->comma.n) != NULL;
}

/* --- the next piece --------------------------------------------------------------------------- */

/* The one of n texts that begins with so_far, or NULL: there are several. */
static struct str
only(const struct grammar *g, const struct grammar_node *n, u32 from, u32 to, struct str so_far,
     struct str (*text)(const struct grammar *g, const struct grammar_node *n, u32 i))
{
    struct str found = {0};
    for (u32 i = from; i < to; i++) {
        struct str one = text(g, n, i);
        if (!str_starts(one, so_far))
            continue;
        if (found.p)
            return (struct str){0};
        found = (struct str){one.p + so_far.n, one.n - so_far.n};
    }
    return found;
}

static struct str literal_of(const struct grammar *g, const struct grammar_node *n, u32 i)
{
    return text_of(g, n->first + i);
}

static struct str begins(const struct grammar *g, const struct grammar_node *n)
{
    switch ((enum grammar_kind)n->kind) {
    case GRAMMAR_OBJECT:
        return STR("{");
    case GRAMMAR_ARRAY:
        return STR("[");
    case GRAMMAR_STRING:
        return STR("\"");
    case GRAMMAR_LITERAL:
        return n->n == 1 ? literal_of(g, n, 0) : (struct str){0};
    default:
        return (struct str){0};
    }
}

/* The key that has to be next. */
static struct str next_key(const struct grammar *g, const struct grammar_node *n, u32 from)
{
    bool one = n->items == GRAMMAR_NONE && from < n->n && members_end(g, n, from) == from + 1 &&
               g->members[n->first + from].required;
    return one ? key_of(g, n, from) : (struct str){0};
}

static struct str in_object(const struct grammar *g, const struct grammar_frame *f,
                            const struct foresee_blanks *b, bool blank, struct str *before)
{
    const struct grammar_node *n = &g->nodes[f->node];
    switch ((enum object_phase)f->phase) {
    case OBJECT_OPEN:
        return has_lines(b) && !blank ? (struct str){0} : next_key(g, n, f->a);
    case OBJECT_KEY:
        return only(g, n, f->a, members_end(g, n, f->a), (struct str){key_of(g, n, f->b).p, f->c},
                    key_of);
    case OBJECT_COLON:
        return STR(":");
    case OBJECT_NEXT:
        if (next_key(g, n, f->a).n)
            return STR(",");
        return f->a == n->n && n->items == GRAMMAR_NONE && !has_lines(b) ? STR("}")
                                                                         : (struct str){0};
    case OBJECT_COMMA:
        *before = blank ? (struct str){0} : b->comma;
        return next_key(g, n, f->a);
    }
    return (struct str){0};
}

static struct str in_call(const struct grammar *g, const struct grammar_frame *f)
{
    const struct grammar_node *n = &g->nodes[f->node];
    struct str close = text_of(g, n->items);
    if (f->phase == CALL_OPEN)
        return only(g, n, 0, n->n, (struct str){key_of(g, n, f->b).p, f->c}, key_of);
    return f->phase == CALL_CLOSE ? (struct str){close.p + f->c, close.n - f->c} : (struct str){0};
}

/* .n 0: it is open. */
static struct str next(const struct grammar *g, const struct grammar_thread *t,
                       const struct foresee_blanks *b, struct str *before)
{
    const struct grammar_frame *f = t->depth ? &t->frames[t->depth - 1] : NULL;
    bool blank = t->blanks > 0;
    *before = (struct str){0};
    if (!f)
        return (struct str){0};
    switch (f->kind) {
    case VALUE:
        if (t->depth > 1 && f[-1].kind == GRAMMAR_OBJECT && !blank)
            *before = b->colon;
        return begins(g, &g->nodes[f->node]);
    case GRAMMAR_OBJECT:
        return in_object(g, f, b, blank, before);
    case GRAMMAR_CALL:
        return in_call(g, f);
    case GRAMMAR_LITERAL: {
        const struct grammar_node *n = &g->nodes[f->node];
        return only(g, n, 0, n->n, (struct str){text_of(g, n->first + f->b).p, f->c}, literal_of);
    }
    default:
        return (struct str){0};
    }
}

u32 foresee(const struct grammar *g, const struct grammar_state *s, struct foresee_blanks blanks,
            char *out, u32 room)
{
    struct grammar_state at;
    u32 n = 0;
    grammar_copy(&at, s);
    while (at.n == 1) {
        struct str before, text = next(g, &at.threads[0], &blanks, &before);
        if (!text.n || before.n + text.n > room - n)
            return n;
        for (size_t i = 0; i < before.n + text.n; i++) {
            char c = i < before.n ? before.p[i] : text.p[i - before.n];
            if (!grammar_step(g, &at, (u8)c))
                return n;
            out[n++] = c;
        }
    }
    return n;
}
