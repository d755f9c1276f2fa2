#include "core/engine/grammar.h"

#include "core/engine/frames.h"
#include "core/engine/number.h"
#include "core/engine/string.h"

#include <string.h>

enum { MARK_BLANKS = 2 };

/* --- states ----------------------------------------------------------------------------------- */

static void copy_thread(struct grammar_thread *to, const struct grammar_thread *from)
{
    to->depth = from->depth;
    to->blanks = from->blanks;
    memcpy(to->frames, from->frames, from->depth * sizeof *to->frames);
}

static bool same_thread(const struct grammar_thread *a, const struct grammar_thread *b)
{
    return a->depth == b->depth && a->blanks == b->blanks &&
           memcmp(a->frames, b->frames, a->depth * sizeof *a->frames) == 0;
}

void grammar_copy(struct grammar_state *to, const struct grammar_state *from)
{
    to->n = from->n;
    to->thoughts = from->thoughts;
    for (u32 i = 0; i < from->n; i++)
        copy_thread(&to->threads[i], &from->threads[i]);
}

bool grammar_same(const struct grammar_state *a, const struct grammar_state *b)
{
    bool same = a->n == b->n;
    for (u32 i = 0; same && i < a->n; i++)
        same = same_thread(&a->threads[i], &b->threads[i]);
    return same;
}

/* One that is there already, or too many: fewer texts get through, and none that should not. */
static void add_thread(struct grammar_state *s, const struct grammar_thread *t)
{
    for (u32 i = 0; i < s->n; i++)
        if (same_thread(&s->threads[i], t))
            return;
    if (s->n < GRAMMAR_THREADS)
        copy_thread(&s->threads[s->n++], t);
}

static bool push(struct grammar_thread *t, u8 kind, u16 node)
{
    if (t->depth == LIMIT_SCHEMA_DEPTH)
        return false;
    t->frames[t->depth++] = (struct grammar_frame){.kind = kind, .node = node};
    return true;
}

static bool is_blank(u8 c)
{
    return c == ' ' || c == '\n' || c == '\t';
}

/* --- objects and arrays ---------------------------------------------------------------------- */

static enum act begin_key(const struct grammar_node *n, struct grammar_thread *t,
                          struct grammar_frame *f)
{
    if (n->items != GRAMMAR_NONE) { /* any name */
        f->phase = OBJECT_COLON;
        f->b = n->items;
        return push(t, GRAMMAR_STRING, GRAMMAR_NONE) ? TAKEN : REFUSED;
    }
    f->phase = OBJECT_KEY;
    f->b = f->a;
    f->c = 1; /* the quote */
    return f->a < n->n ? TAKEN : REFUSED;
}

/* A key that begins like the one of `b` did and goes on with c. */
static enum act in_key(const struct grammar *g, const struct grammar_node *n,
                       struct grammar_frame *f, u8 c)
{
    struct str so_far = {key_of(g, n, f->b).p, f->c};
    u32 end = n->kind == GRAMMAR_CALL ? n->n : members_end(g, n, f->a);
    for (u32 i = f->a; i < end; i++) {
        struct str key = key_of(g, n, i);
        if (key.n <= f->c || (u8)key.p[f->c] != c || !str_starts(key, so_far))
            continue;
        f->b = (u16)i;
        if (++f->c == key.n) {
            f->a = (u16)(i + 1);
            f->b = g->members[n->first + i].node;
            f->phase = OBJECT_COLON;
        }
        return TAKEN;
    }
    return REFUSED;
}

/* Between brackets and marks models put blanks, or not. at: of the text that is being read; what
 * comes before it is a bracket. */
static bool skips_before(struct grammar_thread *t, const char *text, u32 at, u8 c)
{
    bool between = memchr("{[}]<", text[at], 5) && (at == 0 || memchr("[}]>", text[at - 1], 4));
    return is_blank(c) && between && ++t->blanks <= MARK_BLANKS;
}

/* Is what came the whole of a name, which tags follow? */
static bool is_named(const struct grammar *g, const struct grammar_node *n, struct grammar_frame f)
{
    return in_key(g, n, &f, '<') == TAKEN && f.phase == OBJECT_COLON;
}

static bool push_arguments(const struct grammar *g, struct grammar_thread *t, u16 node)
{
    bool tags = g->nodes[node].kind == GRAMMAR_TAGS;
    if (!push(t, tags ? GRAMMAR_TAGS : VALUE, node))
        return false;
    if (tags) { /* of which the first one has begun with the name's end */
        t->frames[t->depth - 1].phase = TAG_KEY;
        t->frames[t->depth - 1].c = 1;
    }
    return true;
}

/* Behind what opens it and the name comes the value, and then what closes it. */
static enum act call(const struct grammar *g, struct grammar_thread *t, struct grammar_frame *f,
                     u8 c)
{
    const struct grammar_node *n = &g->nodes[f->node];
    struct grammar_piece close = g->texts[n->items];
    if (is_blank(c) && (f->phase == CALL_NAMED || (f->phase == CALL_OPEN && is_named(g, n, *f)))) {
        f->phase = CALL_NAMED;
        return ++t->blanks <= MARK_BLANKS ? TAKEN : REFUSED;
    }
    if (f->phase == CALL_NAMED && c != '<')
        return REFUSED;
    if (f->phase != CALL_CLOSE) {
        if (f->c && skips_before(t, key_of(g, n, f->b).p, f->c, c))
            return TAKEN;
        enum act act = in_key(g, n, f, c);
        if (f->phase != OBJECT_COLON)
            return act;
        if (f->b == GRAMMAR_NONE)
            return ENDED;
        f->phase = CALL_CLOSE;
        f->c = 0;
        return push_arguments(g, t, f->b) ? TAKEN : REFUSED;
    }
    if (f->c == close.n)
        return n->ends ? REFUSED : PASSED;
    if (skips_before(t, g->bytes + close.at, f->c, c))
        return TAKEN;
    if ((u8)g->bytes[close.at + f->c] != c)
        return REFUSED;
    return ++f->c == close.n ? ENDED : TAKEN;
}

/* Blanks and a mark; anything up to the other one; blanks, and the text begins. */
static enum act thought(const struct grammar *g, struct grammar_thread *t, struct grammar_frame *f,
                        u8 c)
{
    bool open = f->phase == THOUGHT_OPEN, over = f->phase == THOUGHT_OVER;
    struct grammar_piece text = g->texts[open ? g->thought_begin : g->thought_end];
    const char *mark = g->bytes + text.at;
    bool goes_on = !over && c == (u8)mark[f->c];
    if ((over || (open && f->c == 0)) && is_blank(c) && t->blanks < MARK_BLANKS) {
        t->blanks++;
        return TAKEN;
    }
    t->blanks = 0;
    if (over)
        return PASSED;
    if (!goes_on && f->phase != THINKING)
        return REFUSED;
    f->c = goes_on ? f->c + 1 : c == (u8)mark[0];
    if (f->c == text.n) {
        f->c = 0;
        f->phase = open ? THINKING : THOUGHT_OVER;
    } else if (!open && f->c == g->thought_sure) {
        f->phase = THOUGHT_CLOSES;
    }
    return TAKEN;
}

/* c: bytes of the mark, whose first one does not come again in it. */
static enum act prose(const struct grammar *g, struct grammar_thread *t, struct grammar_frame *f,
                      u8 c)
{
    const struct grammar_node *n = &g->nodes[f->node];
    const char *mark = g->bytes + g->texts[n->first].at;
    f->c = c == (u8)mark[f->c] ? f->c + 1 : c == (u8)mark[0];
    if (f->c < g->texts[n->first].n)
        return TAKEN;
    f->c = 0;
    if (!push(t, GRAMMAR_CALL, n->items))
        return REFUSED;
    t->frames[t->depth - 1].c = g->texts[n->first].n;
    return TAKEN;
}

static enum act object(const struct grammar *g, struct grammar_thread *t, struct grammar_frame *f,
                       u8 c)
{
    const struct grammar_node *n = &g->nodes[f->node];
    switch ((enum object_phase)f->phase) {
    case OBJECT_KEY:
        return in_key(g, n, f, c);
    case OBJECT_COLON:
        if (c != ':')
            return REFUSED;
        f->phase = OBJECT_NEXT;
        return push(t, VALUE, f->b) ? TAKEN : REFUSED;
    case OBJECT_OPEN:
        if (c == '"')
            return begin_key(n, t, f);
        return c == '}' && may_close(g, n, f->a) ? ENDED : REFUSED;
    case OBJECT_NEXT:
        if (c == '}')
            return may_close(g, n, f->a) ? ENDED : REFUSED;
        f->phase = OBJECT_COMMA;
        return c == ',' && (n->items != GRAMMAR_NONE || f->a < n->n) ? TAKEN : REFUSED;
    case OBJECT_COMMA:
        return c == '"' ? begin_key(n, t, f) : REFUSED;
    }
    return REFUSED;
}

static enum act array(const struct grammar *g, struct grammar_thread *t, struct grammar_frame *f,
                      u8 c)
{
    const struct grammar_node *n = &g->nodes[f->node];
    if (c == ']')
        return f->a >= n->min ? ENDED : REFUSED;
    if (f->phase == ARRAY_NEXT && c != ',')
        return REFUSED;
    if (n->max != GRAMMAR_NONE && f->a >= n->max)
        return REFUSED;
    enum act act = f->phase == ARRAY_OPEN ? AGAIN : TAKEN;
    f->a = count_on(n, f->a);
    f->phase = ARRAY_NEXT;
    return push(t, VALUE, n->items) ? act : REFUSED;
}

/* --- literals -------------------------------------------------------------------------------- */

/* One of the texts that begins with so_far and goes on with c, or with anything if that is -1;
 * n->n: none. */
static u32 find_text(const struct grammar *g, const struct grammar_node *n, struct str so_far,
                     int c)
{
    for (u32 i = 0; i < n->n; i++) {
        struct str text = text_of(g, n->first + i);
        if (text.n > so_far.n && (c < 0 || (u8)text.p[so_far.n] == c) && str_starts(text, so_far))
            return i;
    }
    return n->n;
}

/* b: a text that begins as what came; c: bytes of it. */
static enum act literal(const struct grammar *g, struct grammar_frame *f, u8 c)
{
    const struct grammar_node *n = &g->nodes[f->node];
    struct str text = text_of(g, n->first + f->b);
    u32 i = find_text(g, n, (struct str){text.p, f->c}, c);
    if (i == n->n)
        return f->c && f->c == text.n ? PASSED : REFUSED;
    text = text_of(g, n->first + i);
    f->b = (u16)i;
    return ++f->c == text.n && find_text(g, n, text, -1) == n->n ? ENDED : TAKEN;
}

/* --- tags ------------------------------------------------------------------------------------- */

static enum act tag_key(const struct grammar *g, struct grammar_thread *t, struct grammar_frame *f,
                        u8 c)
{
    const struct grammar_node *n = &g->nodes[f->node];
    if (skips_before(t, key_of(g, n, f->b).p, f->c, c))
        return TAKEN;
    enum act act = in_key(g, n, f, c);
    if (f->phase != OBJECT_COLON)
        return act;
    f->c = 0;
    if (f->a == n->n)
        return ENDED;
    if (f->b == GRAMMAR_NONE) { /* and such a one may come again */
        f->a--;
        f->phase = TAG_NAME;
        return TAKEN;
    }
    const struct grammar_node *value = &g->nodes[f->b];
    f->phase = value->kind == GRAMMAR_RAW ? TAG_TEXT : value->raw ? TAG_VALUE : TAG_CLOSE;
    return f->phase != TAG_CLOSE || push(t, VALUE, f->b) ? TAKEN : REFUSED;
}

/* Any text, and the one that ends it, whose first byte does not come again in it; then `next`. */
static enum act text_until(const struct grammar *g, struct grammar_thread *t,
                           struct grammar_frame *f, u32 end, u8 next, u8 c)
{
    struct str mark = text_of(g, end);
    t->blanks = 0;
    f->c = c == (u8)mark.p[f->c] ? f->c + 1 : c == (u8)mark.p[0];
    if (f->c == mark.n) {
        f->phase = next;
        f->c = 0;
    }
    return TAKEN;
}

/* A text as it is, before which blanks may stand; then `next`. */
static enum act text_of_tag(const struct grammar *g, struct grammar_thread *t,
                            struct grammar_frame *f, u32 text, u8 next, u8 c)
{
    struct str mark = text_of(g, text);
    if (is_blank(c) && f->c == 0)
        return ++t->blanks <= MARK_BLANKS ? TAKEN : REFUSED;
    if ((u8)mark.p[f->c] != c)
        return REFUSED;
    if (++f->c == mark.n) {
        f->phase = next;
        f->c = 0;
    }
    return TAKEN;
}

static enum act tags(const struct grammar *g, struct grammar_thread *t, struct grammar_frame *f,
                     u8 c)
{
    const struct grammar_node *n = &g->nodes[f->node];
    bool line = n->lines && c == '\n' && t->blanks == 0;
    switch ((enum tag_phase)f->phase) {
    case TAG_NEXT:
        if (is_blank(c))
            return ++t->blanks <= MARK_BLANKS ? TAKEN : REFUSED;
        f->b = f->a;
        f->c = 1;
        return phase(f, c == '<', TAG_KEY);
    case TAG_KEY:
        return tag_key(g, t, f, c);
    case TAG_NAME:
        return text_until(g, t, f, n->items, text_of(g, n->items + 1u).n ? TAG_BEGIN : TAG_TEXT, c);
    case TAG_BEGIN:
        return text_of_tag(g, t, f, n->items + 1u, TAG_TEXT, c);
    case TAG_TEXT:
        return text_until(g, t, f, n->items + 2u, TAG_NEXT, c);
    case TAG_VALUE:
        if (line) {
            t->blanks = 1;
            return TAKEN;
        }
        t->blanks = 0;
        f->phase = TAG_CLOSE;
        return push(t, GRAMMAR_LITERAL, f->b) ? AGAIN : REFUSED;
    case TAG_CLOSE:
        if (is_blank(c) && g->nodes[f->b].raw && !line)
            return REFUSED;
        return text_of_tag(g, t, f, n->items + 2u, TAG_NEXT, c);
    }
    return REFUSED;
}

/* --- steps ------------------------------------------------------------------------------------ */

static bool skips(const struct grammar_frame *f)
{
    return f->kind == VALUE || f->kind == GRAMMAR_ARRAY ||
           (f->kind == GRAMMAR_OBJECT && f->phase != OBJECT_KEY);
}

/* The first byte of a value, or of a call in its place. */
static enum act begin_value(const struct grammar *g, struct grammar_thread *t, u16 node, u8 c)
{
    const struct grammar_node *n = &g->nodes[node];
    struct grammar_frame *f = &t->frames[t->depth - 1];
    *f = (struct grammar_frame){.kind = n->kind, .node = node};
    switch ((enum grammar_kind)n->kind) {
    case GRAMMAR_OBJECT:
        return c == '{' ? TAKEN : REFUSED;
    case GRAMMAR_ARRAY:
        return c == '[' ? TAKEN : REFUSED;
    case GRAMMAR_STRING:
        return c == '"' ? TAKEN : REFUSED;
    case GRAMMAR_NUMBER:
        return number_begin(g, f, c);
    case GRAMMAR_LITERAL:
        return literal(g, f, c);
    case GRAMMAR_CALL:
        return call(g, t, f, c);
    case GRAMMAR_UNION:
    case GRAMMAR_TEXT:
    case GRAMMAR_PROSE:
    case GRAMMAR_TAGS:
    case GRAMMAR_RAW:
        break;
    }
    return REFUSED;
}

/* Blanks between tokens, of which a model could make no end: one, or one or two line ends and an
 * indent. Where such a run stands by one more; 0: it goes on no more. */
enum { ONE_BLANK = 1, LINE_END, LINE_ENDS, INDENT };

static u8 blanks(u8 so_far, u8 c, bool in_front)
{
    bool line = c == '\n';
    if (so_far == 0)
        return line && !in_front ? LINE_END : ONE_BLANK;
    if (so_far == ONE_BLANK || (line && so_far != LINE_END))
        return 0;
    return line                                   ? LINE_ENDS
           : so_far < INDENT                      ? INDENT
           : so_far < INDENT + GRAMMAR_INDENT - 1 ? (u8)(so_far + 1)
                                                  : 0;
}

/* Nothing but a header stands before this value. */
static bool is_front(const struct grammar *g, const struct grammar_thread *t)
{
    const struct grammar_frame *f = &t->frames[t->depth - 1];
    bool head = t->depth > 1 && f[-1].kind == GRAMMAR_CALL && g->nodes[f[-1].node].ends;
    return f->kind == VALUE && (t->depth == 1 || head);
}

static enum act offer(const struct grammar *g, struct grammar_thread *t, struct grammar_frame *f,
                      u8 c)
{
    if (is_blank(c) && skips(f)) {
        t->blanks = blanks(t->blanks, c, is_front(g, t));
        return t->blanks ? TAKEN : REFUSED;
    }
    if (f->kind == THOUGHT)
        return thought(g, t, f, c);
    if (!is_blank(c))
        t->blanks = 0;
    switch (f->kind) {
    case GRAMMAR_OBJECT:
        return object(g, t, f, c);
    case GRAMMAR_ARRAY:
        return array(g, t, f, c);
    case GRAMMAR_STRING:
        return string_step(g, f, c);
    case GRAMMAR_NUMBER:
        return number_step(g, f, c);
    case GRAMMAR_CALL:
        return call(g, t, f, c);
    case GRAMMAR_PROSE:
        return prose(g, t, f, c);
    case GRAMMAR_TEXT:
        return TAKEN;
    case GRAMMAR_TAGS:
        return tags(g, t, f, c);
    default:
        return literal(g, f, c);
    }
}

/* A value begins by a byte: as each of what its node may be. seen: nodes that were tried; so one
 * that has unions within unions, or itself, costs no more than it has nodes. */
static void begin(const struct grammar *g, const struct grammar_thread *t, u16 node, u8 c,
                  u64 seen[LIMIT_SCHEMA_VALUES / 64], struct grammar_state *out)
{
    const struct grammar_node *n = &g->nodes[node];
    struct grammar_thread one;
    if (seen[node / 64] >> node % 64 & 1)
        return;
    seen[node / 64] |= (u64)1 << node % 64;
    for (u32 i = 0; n->kind == GRAMMAR_UNION && i < n->n; i++)
        begin(g, t, g->links[n->first + i], c, seen, out);
    if (n->kind == GRAMMAR_UNION || out->n == GRAMMAR_THREADS)
        return;
    copy_thread(&one, t);
    one.blanks = 0;
    enum act act = begin_value(g, &one, node, c);
    one.depth -= act == ENDED;
    if (act != REFUSED)
        add_thread(out, &one);
}

/* What becomes of a thread by a byte goes to `out`. */
static void advance(const struct grammar *g, struct grammar_thread *t, u8 c,
                    struct grammar_state *out)
{
    enum act act = AGAIN;
    while (t->depth && (act == AGAIN || act == PASSED)) {
        struct grammar_frame *f = &t->frames[t->depth - 1];
        if (f->kind == VALUE && !is_blank(c)) {
            u64 seen[LIMIT_SCHEMA_VALUES / 64] = {0};
            begin(g, t, f->node, c, seen, out);
            return;
        }
        act = offer(g, t, f, c);
        t->depth -= act == ENDED || act == PASSED;
    }
    if (act == TAKEN || act == ENDED)
        add_thread(out, t);
}

static struct grammar_frame *thought_of(struct grammar_thread *t)
{
    struct grammar_frame *f = t->depth ? &t->frames[t->depth - 1] : NULL;
    return f && f->kind == THOUGHT && f->phase == THINKING ? f : NULL;
}

static bool thinks(struct grammar_state *s)
{
    bool thinks = false;
    for (u32 i = 0; i < s->n; i++)
        thinks = thinks || thought_of(&s->threads[i]);
    return thinks;
}

/* What is no thought goes: the texts that it could be, too. */
static void end_thought(const struct grammar *g, struct grammar_state *s)
{
    u32 n = s->n;
    if (s->thoughts < g->thought_tokens || !thinks(s))
        return;
    s->n = 0;
    for (u32 i = 0; i < n; i++) {
        struct grammar_frame *f = thought_of(&s->threads[i]);
        if (f) {
            f->phase = THOUGHT_CLOSES;
            add_thread(s, &s->threads[i]);
        }
    }
}

/* What goes on where the text begins. */
static bool begin_head(const struct grammar *g, struct grammar_thread *t)
{
    const struct grammar_node *root = &g->nodes[g->root];
    if (!g->begun)
        return true;
    if (root->kind == GRAMMAR_PROSE && !push(t, GRAMMAR_CALL, root->items))
        return false;
    t->frames[t->depth - 1].c = g->begun;
    return true;
}

void grammar_begin(const struct grammar *g, struct grammar_state *s)
{
    u8 kind = g->nodes[g->root].kind;
    bool begun = kind == GRAMMAR_CALL || kind == GRAMMAR_PROSE || kind == GRAMMAR_TEXT,
         thought = g->thought_end < g->n_texts;
    s->n = thought && !g->thinks ? 2 : 1;
    s->thoughts = 0;
    for (u32 i = 0; i < s->n; i++) {
        struct grammar_thread *t = &s->threads[i];
        t->depth = t->blanks = 0;
        bool room = push(t, begun ? kind : VALUE, g->root) && begin_head(g, t) &&
                    (!thought || i > 0 || push(t, THOUGHT, GRAMMAR_NONE));
        ASSERT(room);
        t->frames[t->depth - 1].phase = thought && g->thinks ? THINKING : 0;
    }
    end_thought(g, s);
}

bool grammar_step(const struct grammar *g, struct grammar_state *s, u8 byte)
{
    struct grammar_state next;
    next.n = 0;
    next.thoughts = s->thoughts;
    for (u32 i = 0; i < s->n; i++)
        advance(g, &s->threads[i], byte, &next);
    grammar_copy(s, &next);
    return s->n > 0;
}

bool grammar_read(const struct grammar *g, struct grammar_state *s, struct str token)
{
    bool thought = thinks(s), reads = true;
    for (size_t i = 0; reads && i < token.n; i++)
        reads = grammar_step(g, s, (u8)token.p[i]);
    s->thoughts += thought;
    end_thought(g, s);
    return reads;
}

/* Where nothing closes it, the value does. */
static bool call_complete(const struct grammar *g, const struct grammar_frame *f)
{
    return f->kind == GRAMMAR_CALL && f->phase == CALL_CLOSE &&
           f->c == g->texts[g->nodes[f->node].items].n;
}

static bool frame_complete(const struct grammar *g, const struct grammar_frame *f)
{
    switch (f->kind) {
    case GRAMMAR_PROSE:
    case GRAMMAR_TEXT:
        return true;
    case GRAMMAR_LITERAL:
        return f->c == text_of(g, g->nodes[f->node].first + f->b).n;
    case GRAMMAR_NUMBER:
        return number_complete(g, f);
    case GRAMMAR_CALL:
        return call_complete(g, f);
    default:
        return f->kind == THOUGHT && f->phase == THOUGHT_OVER;
    }
}

static bool thread_complete(const struct grammar *g, const struct grammar_thread *t)
{
    bool complete = true;
    for (u32 i = 0; i < t->depth; i++)
        complete = complete && frame_complete(g, &t->frames[i]);
    return complete;
}

bool grammar_complete(const struct grammar *g, const struct grammar_state *s)
{
    bool complete = false;
    for (u32 i = 0; i < s->n; i++)
        complete = complete || thread_complete(g, &s->threads[i]);
    return complete;
}

/* A call may stand there in place of a value. */
static bool is_before_call(const struct grammar *g, const struct grammar_frame *f)
{
    const struct grammar_node *n = f->kind == VALUE ? &g->nodes[f->node] : NULL;
    return n && n->kind == GRAMMAR_UNION && n->n &&
           g->nodes[g->links[n->first]].kind == GRAMMAR_CALL;
}

bool grammar_in_mark(const struct grammar *g, const struct grammar_state *s)
{
    const struct grammar_thread *t = s->threads;
    const struct grammar_frame *f = s->n && t->depth ? &t->frames[t->depth - 1] : NULL;
    u8 kind = f ? f->kind : (u8)VALUE;
    return (f && is_before_call(g, f)) || kind == GRAMMAR_CALL || kind == GRAMMAR_PROSE ||
           kind == GRAMMAR_TEXT || kind == THOUGHT ||
           (kind == GRAMMAR_TAGS && f->phase == TAG_TEXT);
}

static bool is_prose(const struct grammar *g, const struct grammar_thread *t,
                     struct grammar_prose *p)
{
    const struct grammar_frame *f = t->depth ? &t->frames[t->depth - 1] : NULL;
    bool thought = f && f->kind == THOUGHT && f->phase == THINKING;
    bool raw = f && f->kind == GRAMMAR_TAGS && f->phase == TAG_TEXT;
    *p = (struct grammar_prose){0};
    if (!f || (!thought && !raw && f->kind != GRAMMAR_PROSE))
        return f && f->kind == GRAMMAR_TEXT;
    u32 text = thought ? g->thought_end
               : raw   ? g->nodes[f->node].items + 2u
                       : g->nodes[f->node].first;
    const char *mark = g->bytes + g->texts[text].at;
    *p = (struct grammar_prose){(u8)mark[0], f->c ? (u8)mark[f->c] : 0};
    return true;
}

bool grammar_in_prose(const struct grammar *g, const struct grammar_state *s,
                      struct grammar_prose *p)
{
    bool prose = false;
    for (u32 i = 0; i < s->n && !prose; i++)
        prose = is_prose(g, &s->threads[i], p);
    return prose;
}

bool grammar_closed(const struct grammar_state *s)
{
    bool closed = true;
    for (u32 i = 0; i < s->n; i++)
        closed = closed && s->threads[i].depth == 0;
    return closed;
}

u32 grammar_text_room(const struct grammar *g, const struct grammar_state *s)
{
    u32 most = 0;
    for (u32 i = 0; i < s->n; i++) {
        const struct grammar_thread *t = &s->threads[i];
        struct grammar_text text;
        if (t->depth && string_text(g, &t->frames[t->depth - 1], &text) &&
            text.pattern == GRAMMAR_NONE)
            most = MAX(most, text.room.most);
    }
    return most;
}

bool grammar_in_text(const struct grammar *g, const struct grammar_state *s,
                     struct grammar_text *text)
{
    const struct grammar_thread *t = s->threads;
    return s->n == 1 && t->depth && string_text(g, &t->frames[t->depth - 1], text);
}

void grammar_end_text(struct grammar_state *to, const struct grammar_state *s)
{
    grammar_copy(to, s);
    to->threads[0].depth--;
    to->threads[0].blanks = 0;
}
