#include "core/model/template_parse.h"

#include "config/limits.h"
#include "core/model/template_expr.h"

static void expect_block_end(struct parser *p)
{
    if (p->cur.kind != T_BLOCK_END)
        PARSE_FAIL(p, p->cur.pos, "'%%}' is missing");
    parse_advance(p);
}

/* What a nested scope must put back. */
struct saved {
    struct frame *frame;
    u32 branch;
};

static struct saved frame_open(struct parser *p)
{
    struct saved s = {p->frame, p->branch};
    p->frame = parse_keep(p, sizeof *p->frame);
    *p->frame = (struct frame){.parent = s.frame};
    p->branch = 0;
    return s;
}

static void frame_close(struct parser *p, struct saved s)
{
    p->frame = s.frame;
    p->branch = s.branch;
}

/* --- assignment targets ---------------------------------------------------------------------- */

/* Mentions come when the value has been read: {% set x = x %} reads first. */
static void mention_target(struct parser *p, const struct node *n)
{
    if (p->err != ERR_OK)
        return;
    if (n->kind == N_NAME)
        parse_mention(p, n->id, true);
    if (n->kind == N_TUPLE)
        for (const struct node *m = n->list; m; m = m->next)
            mention_target(p, m);
}

static struct node *target_item(struct parser *p, bool with_space)
{
    struct node *n = parse_node(p, N_NAME, p->cur.pos);
    if (parse_skip_op(p, '(')) {
        struct chain items = {0};
        while (p->err == ERR_OK && !parse_at_op(p, ')')) {
            if (items.n)
                parse_expect_op(p, ',');
            if (parse_at_op(p, ')'))
                break;
            parse_append(&items, target_item(p, false));
        }
        parse_expect_op(p, ')');
        n->kind = N_TUPLE;
        n->list = items.first;
        n->n = items.n;
        return n;
    }
    n->name = parse_expect_name(p);
    if (parse_constant_name(n->name, &n->value))
        PARSE_FAIL(p, n->pos, "cannot assign to %.*s", STR_ARG(n->name));
    n->id = parse_intern(p, n->name);
    if (with_space && parse_skip_op(p, '.')) {
        struct node *attr = parse_node(p, N_ATTR, n->pos);
        attr->a = n;
        attr->name = parse_expect_name(p);
        parse_mention(p, n->id, false);
        return attr;
    }
    return n;
}

static struct node *target(struct parser *p, bool with_space)
{
    struct chain items = {0};
    bool many = false;
    u32 pos = p->cur.pos;
    for (;;) {
        parse_append(&items, target_item(p, with_space));
        if (!parse_skip_op(p, ','))
            break;
        many = true;
        if (parse_tuple_end(p) || parse_at_op(p, '='))
            break;
    }
    if (!many)
        return items.first;
    struct node *n = parse_node(p, N_TUPLE, pos);
    n->list = items.first;
    n->n = items.n;
    return n;
}

/* --- statements ------------------------------------------------------------------------------ */

static struct node *statements(struct parser *p, const char *ends, struct str *end);

/* Statements up to a tag whose name is among `ends` (blank-separated); it is skipped. */
static struct node *body(struct parser *p, const char *ends, struct str *end)
{
    struct str ignored;
    parse_skip_op(p, ':');
    expect_block_end(p);
    return statements(p, ends, end ? end : &ignored);
}

static struct node *if_statement(struct parser *p, u32 pos)
{
    struct node *n = parse_node(p, S_IF, pos);
    struct chain branches = {0};
    struct str end = STR("if");
    bool has_else = false;
    do {
        struct node *branch = parse_node(p, N_PAIR, p->cur.pos);
        has_else = str_is(end, "else");
        if (!has_else)
            branch->a = parse_tuple(p, TUPLE_NO_COND);
        p->branch++;
        branch->list = body(p, has_else ? "endif" : "elif else endif", &end);
        p->branch--;
        parse_append(&branches, branch);
    } while (p->err == ERR_OK && !str_is(end, "endif"));
    n->list = branches.first;
    return n;
}

static bool mentions_loop(const struct parser *p)
{
    for (const struct mention *m = p->frame->mentions; m && p->err == ERR_OK; m = m->next)
        if (m->id == p->t->loop_id)
            return true;
    return false;
}

static struct node *for_statement(struct parser *p, u32 pos)
{
    struct node *n = parse_node(p, S_FOR, pos);
    struct node *to = target(p, false);
    struct str end;
    if (!parse_skip_name(p, "in"))
        PARSE_FAIL(p, p->cur.pos, "'in' is missing");
    n->b = parse_tuple(p, TUPLE_NO_COND);
    struct saved s = frame_open(p);
    n->frame = p->frame;
    n->a = to;
    mention_target(p, to);
    if (mentions_loop(p))
        PARSE_FAIL(p, to->pos, "a loop variable cannot be named loop");
    parse_mention(p, p->t->loop_id, true);
    if (parse_skip_name(p, "if"))
        n->c = parse_expression(p);
    if (parse_at_name(p, "recursive"))
        PARSE_FAIL(p, p->cur.pos, "recursive loops are not supported");
    p->loops++;
    n->list = body(p, "else endfor", &end);
    p->loops--;
    frame_close(p, s);
    if (p->err == ERR_OK && str_is(end, "else")) {
        s = frame_open(p);
        struct node *other = parse_node(p, S_SCOPE, p->cur.pos);
        other->list = body(p, "endfor", NULL);
        frame_close(p, s);
        n->other = other;
    }
    return n;
}

static const struct node *filter_chain(struct parser *p)
{
    struct node *n = NULL;
    while (parse_skip_op(p, '|'))
        n = parse_filter(p, n);
    return n;
}

static struct node *set_statement(struct parser *p, u32 pos)
{
    struct node *n = parse_node(p, S_SET, pos);
    struct node *to = target(p, true);
    n->a = to;
    if (parse_skip_op(p, '=')) {
        n->b = parse_tuple(p, TUPLE_PLAIN);
        mention_target(p, to);
        return n;
    }
    n->kind = S_CAPTURE;
    if (to->kind == N_TUPLE)
        PARSE_FAIL(p, pos, "a {%% set %%} block cannot fill several variables");
    n->b = filter_chain(p);
    struct saved s = frame_open(p);
    n->frame = p->frame;
    n->list = body(p, "endset", NULL);
    frame_close(p, s);
    mention_target(p, to);
    return n;
}

static void parameters(struct parser *p, struct macro *m)
{
    struct chain params = {0};
    bool defaults = false;
    parse_expect_op(p, '(');
    while (p->err == ERR_OK && !parse_at_op(p, ')')) {
        if (params.n)
            parse_expect_op(p, ',');
        struct node *n = parse_node(p, N_KWARG, p->cur.pos);
        n->name = parse_expect_name(p);
        n->id = parse_intern(p, n->name);
        parse_mention(p, n->id, true);
        if (parse_skip_op(p, '='))
            n->a = parse_expression(p);
        else if (defaults)
            PARSE_FAIL(p, n->pos, "a parameter without default stands behind one with a default");
        defaults = n->a != NULL;
        parse_append(&params, n);
    }
    parse_expect_op(p, ')');
    m->params = params.first;
    m->n = params.n;
}

static struct node *macro_statement(struct parser *p, u32 pos)
{
    struct node *n = parse_node(p, S_MACRO, pos);
    struct macro *m = parse_keep(p, sizeof *m), *outer = p->macro;
    u32 loops = p->loops;
    n->macro = m;
    n->name = m->name = parse_expect_name(p);
    n->id = parse_intern(p, n->name);
    parse_mention(p, n->id, true);
    struct saved s = frame_open(p);
    m->frame = p->frame;
    p->macro = m;
    p->loops = 0;
    parameters(p, m);
    m->kwargs_id = m->varargs_id = 0; /* a default may not use them */
    m->body = body(p, "endmacro", NULL);
    for (const struct node *q = m->params; q && p->err == ERR_OK;
         q = q->next) { /* a parameter of that name wins */
        m->kwargs_id = m->kwargs_id == q->id + 1 ? 0 : m->kwargs_id;
        m->varargs_id = m->varargs_id == q->id + 1 ? 0 : m->varargs_id;
    }
    p->macro = outer;
    p->loops = loops;
    frame_close(p, s);
    return n;
}

static struct node *with_statement(struct parser *p, u32 pos)
{
    struct node *n = parse_node(p, S_WITH, pos);
    struct chain pairs = {0};
    while (p->err == ERR_OK && p->cur.kind != T_BLOCK_END) {
        if (pairs.n)
            parse_expect_op(p, ',');
        struct node *pair = parse_node(p, N_PAIR, p->cur.pos);
        pair->a = target(p, false);
        parse_expect_op(p, '=');
        pair->b = parse_expression(p);
        parse_append(&pairs, pair);
    }
    struct saved s = frame_open(p);
    n->frame = p->frame;
    n->other = pairs.first;
    for (const struct node *q = pairs.first; q && p->err == ERR_OK; q = q->next)
        mention_target(p, q->a);
    n->list = body(p, "endwith", NULL);
    frame_close(p, s);
    return n;
}

static struct node *filter_statement(struct parser *p, u32 pos)
{
    struct node *n = parse_node(p, S_CAPTURE, pos), *first = parse_filter(p, NULL);
    while (parse_skip_op(p, '|'))
        first = parse_filter(p, first);
    n->b = first;
    struct saved s = frame_open(p);
    n->frame = p->frame;
    n->list = body(p, "endfilter", NULL);
    frame_close(p, s);
    return n;
}

/* {% generation %} marks what the assistant wrote, for training; here it only renders. It is a
 * function body to jinja2, so its variables are its own and no loop is open in it. */
static struct node *generation(struct parser *p, u32 pos)
{
    struct node *n = parse_node(p, S_SCOPE, pos);
    u32 loops = p->loops;
    p->loops = 0;
    struct saved s = frame_open(p);
    n->frame = p->frame;
    n->list = body(p, "endgeneration", NULL);
    frame_close(p, s);
    p->loops = loops;
    return n;
}

static struct node *statement(struct parser *p)
{
    u32 pos = p->cur.pos;
    struct str tag = parse_expect_name(p);
    if (str_is(tag, "if"))
        return if_statement(p, pos);
    if (str_is(tag, "for"))
        return for_statement(p, pos);
    if (str_is(tag, "set"))
        return set_statement(p, pos);
    if (str_is(tag, "macro"))
        return macro_statement(p, pos);
    if (str_is(tag, "with"))
        return with_statement(p, pos);
    if (str_is(tag, "filter"))
        return filter_statement(p, pos);
    if (str_is(tag, "generation"))
        return generation(p, pos);
    if (str_is(tag, "break") || str_is(tag, "continue")) {
        if (p->loops == 0)
            PARSE_FAIL(p, pos, "'%.*s' outside of a loop", STR_ARG(tag));
        return parse_node(p, str_is(tag, "break") ? S_BREAK : S_CONTINUE, pos);
    }
    PARSE_FAIL(p, pos, "the tag '%.*s' is unknown or not supported here", STR_ARG(tag));
    return parse_node(p, S_TEXT, pos);
}

static bool among(struct str name, const char *words)
{
    while (*words) {
        size_t n = strcspn(words, " ");
        if (n == name.n && memcmp(words, name.p, n) == 0)
            return true;
        words += n + (words[n] == ' ');
    }
    return false;
}

/* Everything up to the end tag (skipped with its name in *end), or to the end of the template when
 * `ends` is empty. */
static struct node *statements(struct parser *p, const char *ends, struct str *end)
{
    struct chain list = {0};
    struct node *n;
    if (!parse_deeper(p))
        return NULL;
    while (p->err == ERR_OK && p->cur.kind != T_EOF) {
        u32 pos = p->cur.pos;
        if (p->cur.kind == T_DATA) {
            n = parse_node(p, S_TEXT, pos);
            n->name = p->cur.text;
            parse_advance(p);
        } else if (p->cur.kind == T_VAR_BEGIN) {
            parse_advance(p);
            n = parse_node(p, S_PRINT, pos);
            n->a = parse_tuple(p, TUPLE_PLAIN);
            if (p->cur.kind != T_VAR_END)
                PARSE_FAIL(p, p->cur.pos, "'}}' is missing");
            parse_advance(p);
        } else {
            parse_advance(p); /* {% */
            if (p->cur.kind == T_NAME && among(p->cur.text, ends)) {
                *end = p->cur.text;
                parse_advance(p);
                p->depth--;
                if (str_starts(*end, STR("end")))
                    expect_block_end(p);
                return list.first;
            }
            n = statement(p);
            if (n->kind == S_SET || n->kind == S_BREAK || n->kind == S_CONTINUE)
                expect_block_end(p);
        }
        parse_append(&list, n);
    }
    if (*ends)
        PARSE_FAIL(p, p->lex.src.n, "the template ends where one of these is missing: %s", ends);
    p->depth--;
    return list.first;
}

enum err parse_template(struct arena *keep_in, struct str source, const char *name,
                        struct template **out, struct err_text *e)
{
    struct parser p = {0};
    struct str end;
    TRY(lex_open(&p.lex, keep_in, source, name, e));
    struct template *t = ARENA_NEW(keep_in, struct template, 1);
    struct str *names = ARENA_NEW(keep_in, struct str, LIMIT_TEMPLATE_NAMES);
    if (!t || !names)
        return arena_full(keep_in, name, e);
    p.t = t;
    *t = (struct template){.name = name, .source = p.lex.src, .names = names};
    p.look.kind = T_DATA;
    p.frame = parse_keep(&p, sizeof *p.frame);
    t->frame = p.frame;
    t->loop_id = parse_intern(&p, STR("loop"));
    parse_advance(&p);
    parse_advance(&p);
    t->body = statements(&p, "", &end);
    TRY(p.err);
    *out = t;
    return ERR_OK;
}
