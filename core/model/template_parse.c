#include "core/model/template_parse.h"

#include "config/limits.h"
#include "core/model/template_filter.h"
#include "core/model/template_lex.h"
#include "core/model/template_method.h"

/* Errors stick in `err`: every function may go on with the EOF token that then stays. */
struct parser {
    struct lexer lex;
    struct token cur, look;
    enum err err;
    struct template *t;
    struct frame *frame;
    u32 depth, branch; /* branch: inside an if of the current frame */
    u32 loops;         /* loops open in this function body: break may stand here */
    struct macro *macro;
};

/* --- tokens ---------------------------------------------------------------------------------- */

static void stop(struct parser *p, enum err err)
{
    if (p->err == ERR_OK)
        p->err = err;
    p->cur = p->look = (struct token){.kind = T_EOF};
}

#define FAIL(p, pos, ...) stop((p), (p)->err ? (p)->err : lex_fail(&(p)->lex, (pos), __VA_ARGS__))

static void advance(struct parser *p)
{
    p->cur = p->look;
    if (p->err == ERR_OK && p->cur.kind != T_EOF) {
        enum err err = lex_next(&p->lex, &p->look);
        if (err != ERR_OK)
            stop(p, err);
    }
}

static bool at_op(const struct parser *p, char op)
{
    return p->cur.kind == T_OP && p->cur.op == (u8)op;
}

static bool at_name(const struct parser *p, const char *z)
{
    return p->cur.kind == T_NAME && str_is(p->cur.text, z);
}

static bool skip_op(struct parser *p, char op)
{
    bool hit = at_op(p, op);
    if (hit)
        advance(p);
    return hit;
}

static bool skip_name(struct parser *p, const char *z)
{
    bool hit = at_name(p, z);
    if (hit)
        advance(p);
    return hit;
}

static void expect_op(struct parser *p, char op)
{
    if (!skip_op(p, op))
        FAIL(p, p->cur.pos, "'%c' is missing", op);
}

static struct str expect_name(struct parser *p)
{
    struct str s = p->cur.text;
    if (p->cur.kind != T_NAME)
        FAIL(p, p->cur.pos, "a name is missing");
    advance(p);
    return s;
}

static void expect_block_end(struct parser *p)
{
    if (p->cur.kind != T_BLOCK_END)
        FAIL(p, p->cur.pos, "'%%}' is missing");
    advance(p);
}

/* --- nodes and names ------------------------------------------------------------------------- */

static void *keep(struct parser *p, size_t size)
{
    static _Alignas(16) u8 spill[512]; /* so that a full arena needs no checks above */
    void *m = arena_alloc(p->lex.keep, size, 8);
    if (m)
        return m;
    stop(p, arena_full(p->lex.keep, p->lex.name, p->lex.e));
    ASSERT(size <= sizeof spill);
    memset(spill, 0, sizeof spill);
    return spill;
}

static struct node *node(struct parser *p, enum node_kind kind, u32 pos)
{
    struct node *n = keep(p, sizeof *n);
    n->kind = (u8)kind;
    n->pos = pos;
    n->frame = p->frame;
    return n;
}

/* A list being built: append keeps the order. */
struct chain {
    struct node *first, **end;
    u32 n;
};

static void append(struct chain *c, struct node *n)
{
    if (!c->first)
        c->end = &c->first;
    *c->end = n;
    c->end = &n->next;
    c->n++;
}

static u32 intern(struct parser *p, struct str name)
{
    struct template *t = p->t;
    for (u32 i = 0; i < t->name_count; i++)
        if (str_eq(t->names[i], name))
            return i;
    if (t->name_count == LIMIT_TEMPLATE_NAMES) {
        FAIL(p, p->cur.pos, "more than %d variables (LIMIT_TEMPLATE_NAMES)", LIMIT_TEMPLATE_NAMES);
        return 0;
    }
    t->names[t->name_count] = name;
    return t->name_count++;
}

static void mention(struct parser *p, u32 id, bool set)
{
    for (struct mention *m = p->frame->mentions; m; m = m->next)
        if (m->id == id)
            return;
    struct mention *m = keep(p, sizeof *m);
    *m = (struct mention){p->frame->mentions, id, set && p->branch == 0};
    p->frame->mentions = m;
}

/* What a nested scope must put back. */
struct saved {
    struct frame *frame;
    u32 branch;
};

static struct saved frame_open(struct parser *p)
{
    struct saved s = {p->frame, p->branch};
    p->frame = keep(p, sizeof *p->frame);
    *p->frame = (struct frame){.parent = s.frame};
    p->branch = 0;
    return s;
}

static void frame_close(struct parser *p, struct saved s)
{
    p->frame = s.frame;
    p->branch = s.branch;
}

static bool deeper(struct parser *p)
{
    if (p->err != ERR_OK)
        return false;
    if (p->depth >= LIMIT_TEMPLATE_DEPTH) {
        FAIL(p, p->cur.pos, "nested deeper than %d (LIMIT_TEMPLATE_DEPTH)", LIMIT_TEMPLATE_DEPTH);
        return false;
    }
    p->depth++;
    return true;
}

/* --- expressions ----------------------------------------------------------------------------- */

static struct node *expression(struct parser *p);
static struct node *or_expression(struct parser *p);
static struct node *unary(struct parser *p, bool with_filter);
static struct node *postfix(struct parser *p, struct node *n);

static bool constant_name(struct str s, struct val *v)
{
    if (str_is(s, "true") || str_is(s, "True"))
        *v = val_bool(true);
    else if (str_is(s, "false") || str_is(s, "False"))
        *v = val_bool(false);
    else if (str_is(s, "none") || str_is(s, "None"))
        *v = val_none();
    else
        return false;
    return true;
}

static struct node *name_node(struct parser *p, bool set)
{
    struct node *n = node(p, N_NAME, p->cur.pos);
    static const char *const lacking[] = {"cycler", "joiner", "lipsum", "caller", "super", "self"};
    n->name = p->cur.text;
    if (constant_name(n->name, &n->value)) {
        n->kind = N_CONST;
        if (set)
            FAIL(p, n->pos, "cannot assign to %.*s", STR_ARG(n->name));
    } else {
        for (u32 i = 0; !set && i < COUNTOF(lacking); i++)
            if (str_is(n->name, lacking[i]))
                FAIL(p, n->pos, "'%s' is not supported", lacking[i]);
        n->id = intern(p, n->name);
        mention(p, n->id, set);
        if (p->macro && str_is(n->name, "kwargs") && !set)
            p->macro->kwargs_id = n->id + 1;
        if (p->macro && str_is(n->name, "varargs") && !set)
            p->macro->varargs_id = n->id + 1;
    }
    advance(p);
    return n;
}

static struct node *strings(struct parser *p)
{
    struct node *n = node(p, N_CONST, p->cur.pos);
    struct str s = p->cur.text;
    advance(p);
    while (p->cur.kind == T_STRING) { /* "a" "b" is one string */
        struct str more = p->cur.text, both = {NULL, s.n + more.n};
        char *m = arena_alloc(p->lex.keep, both.n + 1, 1);
        if (!m) {
            stop(p, arena_full(p->lex.keep, p->lex.name, p->lex.e));
            break;
        }
        memcpy(m, s.p, s.n);
        memcpy(m + s.n, more.p, more.n);
        s = (struct str){m, both.n};
        advance(p);
    }
    n->value = val_str(s.p, s.n);
    return n;
}

static bool tuple_end(struct parser *p)
{
    return p->cur.kind == T_VAR_END || p->cur.kind == T_BLOCK_END || at_op(p, ')') ||
           p->cur.kind == T_EOF;
}

enum tuple_how {
    TUPLE_PLAIN,
    TUPLE_NO_COND, /* `if` ends it */
    TUPLE_PARENS,  /* () is an empty tuple */
};

static struct node *tuple(struct parser *p, enum tuple_how how)
{
    struct chain items = {0};
    bool many = false;
    u32 pos = p->cur.pos;
    for (;;) {
        if (items.n)
            expect_op(p, ',');
        if (tuple_end(p))
            break;
        append(&items, how == TUPLE_NO_COND ? or_expression(p) : expression(p));
        if (!at_op(p, ','))
            break;
        many = true;
    }
    if (!many && items.n)
        return items.first;
    if (!many && how != TUPLE_PARENS)
        FAIL(p, pos, "an expression is missing");
    struct node *n = node(p, N_TUPLE, pos);
    n->list = items.first;
    n->n = items.n;
    return n;
}

static struct node *list_literal(struct parser *p)
{
    struct node *n = node(p, N_LIST, p->cur.pos);
    struct chain items = {0};
    expect_op(p, '[');
    while (p->err == ERR_OK && !at_op(p, ']')) {
        if (items.n)
            expect_op(p, ',');
        if (at_op(p, ']'))
            break;
        append(&items, expression(p));
    }
    expect_op(p, ']');
    n->list = items.first;
    n->n = items.n;
    return n;
}

static struct node *dict_literal(struct parser *p)
{
    struct node *n = node(p, N_DICT, p->cur.pos);
    struct chain items = {0};
    expect_op(p, '{');
    while (p->err == ERR_OK && !at_op(p, '}')) {
        if (items.n)
            expect_op(p, ',');
        if (at_op(p, '}'))
            break;
        struct node *pair = node(p, N_PAIR, p->cur.pos);
        pair->a = expression(p);
        expect_op(p, ':');
        pair->b = expression(p);
        append(&items, pair);
    }
    expect_op(p, '}');
    n->list = items.first;
    n->n = items.n;
    return n;
}

static struct node *primary(struct parser *p)
{
    struct node *n;
    switch (p->cur.kind) {
    case T_NAME:
        return name_node(p, false);
    case T_STRING:
        return strings(p);
    case T_INT:
    case T_FLOAT:
        n = node(p, N_CONST, p->cur.pos);
        n->value = p->cur.kind == T_INT ? val_int(p->cur.i) : val_float(p->cur.f);
        advance(p);
        return n;
    default:
        break;
    }
    if (skip_op(p, '(')) {
        n = tuple(p, TUPLE_PARENS);
        expect_op(p, ')');
        return n;
    }
    if (at_op(p, '['))
        return list_literal(p);
    if (at_op(p, '{'))
        return dict_literal(p);
    FAIL(p, p->cur.pos, "an expression is missing");
    return node(p, N_CONST, p->cur.pos);
}

/* (a, b, c=1): positional into *n, keywords behind them in the same chain. */
static struct node *call_args(struct parser *p, u32 *n)
{
    struct chain args = {0};
    bool keywords = false;
    *n = 0;
    expect_op(p, '(');
    while (p->err == ERR_OK && !at_op(p, ')')) {
        if (args.n)
            expect_op(p, ',');
        if (at_op(p, ')'))
            break;
        if (at_op(p, '*') || at_op(p, (char)OP_POW))
            FAIL(p, p->cur.pos, "* and ** in a call are not supported");
        if (p->cur.kind == T_NAME && p->look.kind == T_OP && p->look.op == '=') {
            struct node *kw = node(p, N_KWARG, p->cur.pos);
            kw->name = p->cur.text;
            for (const struct node *o = args.first; o; o = o->next)
                if (o->kind == N_KWARG && str_eq(o->name, kw->name))
                    FAIL(p, kw->pos, "the keyword argument '%.*s' is repeated",
                         STR_ARG(kw->name));
            advance(p);
            advance(p);
            kw->a = expression(p);
            keywords = true;
            append(&args, kw);
            continue;
        }
        if (keywords)
            FAIL(p, p->cur.pos, "a positional argument stands behind a keyword argument");
        append(&args, expression(p));
        ++*n;
    }
    expect_op(p, ')');
    return args.first;
}

static struct node *none_node(struct parser *p)
{
    struct node *n = node(p, N_CONST, p->cur.pos);
    n->value = val_none();
    return n;
}

/* What stands in [ ]: an index, or the three parts of a slice. */
static struct node *subscript(struct parser *p, struct node *of)
{
    struct node *n = node(p, N_ITEM, p->cur.pos);
    struct node *first = at_op(p, ':') ? none_node(p) : expression(p);
    n->a = of;
    n->b = first;
    if (at_op(p, ':')) {
        struct chain parts = {0};
        n->kind = N_SLICE;
        append(&parts, first);
        for (int i = 0; i < 2; i++)
            append(&parts, skip_op(p, ':') && !at_op(p, ':') && !at_op(p, ']') ? expression(p)
                                                                              : none_node(p));
        n->list = parts.first;
    }
    if (at_op(p, ','))
        FAIL(p, p->cur.pos, "[a, b] is not supported");
    return n;
}

static struct node *dotted(struct parser *p, struct node *of)
{
    struct node *n = node(p, N_ATTR, p->cur.pos);
    n->a = of;
    if (p->cur.kind == T_INT) { /* a.0 is a[0] */
        struct node *index = node(p, N_CONST, p->cur.pos);
        index->value = val_int(p->cur.i);
        n->kind = N_ITEM;
        n->b = index;
        advance(p);
        return n;
    }
    n->name = expect_name(p);
    if (at_op(p, '(') && method_unsupported(n->name))
        FAIL(p, n->pos, "the method '%.*s' is not supported", STR_ARG(n->name));
    return n;
}

static struct node *call(struct parser *p, struct node *callee)
{
    struct node *n = node(p, N_CALL, p->cur.pos);
    n->a = callee;
    n->list = call_args(p, &n->n);
    return n;
}

static struct node *postfix(struct parser *p, struct node *n)
{
    while (p->err == ERR_OK) {
        if (skip_op(p, '.')) {
            n = dotted(p, n);
        } else if (skip_op(p, '[')) {
            n = subscript(p, n);
            expect_op(p, ']');
        } else if (at_op(p, '(')) {
            n = call(p, n);
        } else {
            break;
        }
    }
    return n;
}

/* map('name') and select('name') carry the name of a filter or test in an argument. */
static void check_named_argument(struct parser *p, const struct node *n)
{
    struct str f = n->name;
    bool map = str_is(f, "map"), plain = str_is(f, "select") || str_is(f, "reject");
    bool attr = str_is(f, "selectattr") || str_is(f, "rejectattr");
    const struct node *arg = n->list;
    if (attr && arg)
        arg = arg->next;
    if ((!map && !plain && !attr) || !arg || arg->kind != N_CONST || arg->value.type != V_STR)
        return;
    struct str name = val_text(arg->value);
    if (map ? !filter_find(name) : !test_find(name))
        FAIL(p, arg->pos, "the %s '%.*s' is unknown or not supported", map ? "filter" : "test",
             STR_ARG(name));
}

/* A filter name with its arguments, behind the '|'. */
static struct node *filter(struct parser *p, const struct node *of)
{
    struct node *n = node(p, N_FILTER, p->cur.pos);
    n->a = of;
    n->name = expect_name(p);
    n->func = filter_find(n->name);
    if (!n->func)
        FAIL(p, n->pos, "the filter '%.*s' is unknown or not supported", STR_ARG(n->name));
    if (at_op(p, '('))
        n->list = call_args(p, &n->n);
    check_named_argument(p, n);
    return n;
}

static struct node *test(struct parser *p, struct node *of)
{
    struct node *n = node(p, N_TEST, p->cur.pos);
    n->a = of;
    n->op = skip_name(p, "not");
    n->name = expect_name(p);
    n->func = test_find(n->name);
    if (!n->func)
        FAIL(p, n->pos, "the test '%.*s' is unknown or not supported", STR_ARG(n->name));
    if (at_op(p, '(')) {
        n->list = call_args(p, &n->n);
        return n;
    }
    bool arg = p->cur.kind == T_STRING || p->cur.kind == T_INT || p->cur.kind == T_FLOAT ||
               at_op(p, '[') || at_op(p, '{') ||
               (p->cur.kind == T_NAME && !at_name(p, "else") && !at_name(p, "or") &&
                !at_name(p, "and"));
    if (!arg)
        return n;
    if (at_name(p, "is"))
        FAIL(p, p->cur.pos, "tests cannot be chained with is");
    n->list = postfix(p, primary(p));
    n->n = 1;
    return n;
}

static struct node *filters_and_tests(struct parser *p, struct node *n)
{
    while (p->err == ERR_OK) {
        if (skip_op(p, '|'))
            n = filter(p, n);
        else if (skip_name(p, "is"))
            n = test(p, n);
        else if (at_op(p, '('))
            n = call(p, n);
        else
            break;
    }
    return n;
}

static struct node *unary(struct parser *p, bool with_filter)
{
    struct node *n;
    if (!deeper(p))
        return node(p, N_CONST, p->cur.pos);
    if (at_op(p, '-') || at_op(p, '+')) {
        n = node(p, at_op(p, '-') ? N_NEG : N_POS, p->cur.pos);
        advance(p);
        n->a = unary(p, false);
    } else {
        n = primary(p);
    }
    n = postfix(p, n);
    if (with_filter)
        n = filters_and_tests(p, n);
    p->depth--;
    return n;
}

static struct node *binary(struct parser *p, struct node *a,
                           struct node *(*operand)(struct parser *p))
{
    struct node *n = node(p, N_BINARY, p->cur.pos);
    n->op = p->cur.op;
    advance(p);
    n->a = a;
    n->b = operand(p);
    return n;
}

static struct node *operand_unary(struct parser *p)
{
    return unary(p, true);
}

static struct node *power(struct parser *p)
{
    struct node *n = unary(p, true);
    while (at_op(p, (char)OP_POW))
        n = binary(p, n, operand_unary);
    return n;
}

static struct node *product(struct parser *p)
{
    struct node *n = power(p);
    while (at_op(p, '*') || at_op(p, '/') || at_op(p, '%') || at_op(p, (char)OP_FLOORDIV))
        n = binary(p, n, power);
    return n;
}

static struct node *concat(struct parser *p)
{
    struct chain items = {0};
    u32 pos = p->cur.pos;
    append(&items, product(p));
    while (skip_op(p, '~'))
        append(&items, product(p));
    if (items.n == 1)
        return items.first;
    struct node *n = node(p, N_CONCAT, pos);
    n->list = items.first;
    n->n = items.n;
    return n;
}

static struct node *sum(struct parser *p)
{
    struct node *n = concat(p);
    while (at_op(p, '+') || at_op(p, '-'))
        n = binary(p, n, concat);
    return n;
}

/* The comparison operator here as a byte: '<' '>' OP_* 'i'n 'n'ot in, or 0. Skips it. */
static u8 comparison(struct parser *p)
{
    u8 op = p->cur.kind == T_OP ? p->cur.op : 0;
    if (op && strchr("<>ENGL", op)) {
        advance(p);
        return op;
    }
    if (skip_name(p, "in"))
        return 'i';
    if (at_name(p, "not") && p->look.kind == T_NAME && str_is(p->look.text, "in")) {
        advance(p);
        advance(p);
        return 'n';
    }
    return 0;
}

static struct node *compare(struct parser *p)
{
    struct chain ops = {0};
    struct node *first = sum(p);
    u32 pos = p->cur.pos;
    for (u8 op; (op = comparison(p));) {
        struct node *pair = node(p, N_PAIR, pos);
        pair->op = op;
        pair->a = sum(p);
        append(&ops, pair);
    }
    if (!ops.n)
        return first;
    struct node *n = node(p, N_CMP, pos);
    n->a = first;
    n->list = ops.first;
    return n;
}

static struct node *not_expression(struct parser *p)
{
    if (!at_name(p, "not"))
        return compare(p);
    struct node *n = node(p, N_NOT, p->cur.pos);
    advance(p);
    if (deeper(p)) {
        n->a = not_expression(p);
        p->depth--;
    }
    return n;
}

static struct node *and_expression(struct parser *p)
{
    struct node *a = not_expression(p);
    while (at_name(p, "and")) {
        struct node *n = node(p, N_AND, p->cur.pos);
        advance(p);
        n->a = a;
        n->b = not_expression(p);
        a = n;
    }
    return a;
}

static struct node *or_expression(struct parser *p)
{
    struct node *a = and_expression(p);
    while (at_name(p, "or")) {
        struct node *n = node(p, N_OR, p->cur.pos);
        advance(p);
        n->a = a;
        n->b = and_expression(p);
        a = n;
    }
    return a;
}

static struct node *expression(struct parser *p)
{
    if (!deeper(p))
        return node(p, N_CONST, p->cur.pos);
    struct node *a = or_expression(p);
    while (at_name(p, "if")) {
        struct node *n = node(p, N_COND, p->cur.pos);
        advance(p);
        n->a = a;
        n->b = or_expression(p);
        if (skip_name(p, "else"))
            n->c = expression(p);
        a = n;
    }
    p->depth--;
    return a;
}

/* --- assignment targets ---------------------------------------------------------------------- */

/* Mentions come when the value has been read: {% set x = x %} reads first. */
static void mention_target(struct parser *p, const struct node *n)
{
    if (n->kind == N_NAME)
        mention(p, n->id, true);
    if (n->kind == N_TUPLE)
        for (const struct node *m = n->list; m; m = m->next)
            mention_target(p, m);
}

static struct node *target_item(struct parser *p, bool with_space)
{
    struct node *n = node(p, N_NAME, p->cur.pos);
    if (skip_op(p, '(')) {
        struct chain items = {0};
        while (p->err == ERR_OK && !at_op(p, ')')) {
            if (items.n)
                expect_op(p, ',');
            if (at_op(p, ')'))
                break;
            append(&items, target_item(p, false));
        }
        expect_op(p, ')');
        n->kind = N_TUPLE;
        n->list = items.first;
        n->n = items.n;
        return n;
    }
    n->name = expect_name(p);
    if (constant_name(n->name, &n->value))
        FAIL(p, n->pos, "cannot assign to %.*s", STR_ARG(n->name));
    n->id = intern(p, n->name);
    if (with_space && skip_op(p, '.')) {
        struct node *attr = node(p, N_ATTR, n->pos);
        attr->a = n;
        attr->name = expect_name(p);
        mention(p, n->id, false);
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
        append(&items, target_item(p, with_space));
        if (!skip_op(p, ','))
            break;
        many = true;
        if (tuple_end(p) || at_op(p, '='))
            break;
    }
    if (!many)
        return items.first;
    struct node *n = node(p, N_TUPLE, pos);
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
    skip_op(p, ':');
    expect_block_end(p);
    return statements(p, ends, end ? end : &ignored);
}

static struct node *if_statement(struct parser *p, u32 pos)
{
    struct node *n = node(p, S_IF, pos);
    struct chain branches = {0};
    struct str end = STR("if");
    bool has_else = false;
    do {
        struct node *branch = node(p, N_PAIR, p->cur.pos);
        has_else = str_is(end, "else");
        if (!has_else)
            branch->a = tuple(p, TUPLE_NO_COND);
        p->branch++;
        branch->list = body(p, has_else ? "endif" : "elif else endif", &end);
        p->branch--;
        append(&branches, branch);
    } while (p->err == ERR_OK && !str_is(end, "endif"));
    n->list = branches.first;
    return n;
}

static bool mentions_loop(const struct parser *p)
{
    for (const struct mention *m = p->frame->mentions; m; m = m->next)
        if (m->id == p->t->loop_id)
            return true;
    return false;
}

static struct node *for_statement(struct parser *p, u32 pos)
{
    struct node *n = node(p, S_FOR, pos);
    struct node *to = target(p, false);
    struct str end;
    if (!skip_name(p, "in"))
        FAIL(p, p->cur.pos, "'in' is missing");
    n->b = tuple(p, TUPLE_NO_COND);
    struct saved s = frame_open(p);
    n->frame = p->frame;
    n->a = to;
    mention_target(p, to);
    if (mentions_loop(p))
        FAIL(p, to->pos, "a loop variable cannot be named loop");
    mention(p, p->t->loop_id, true);
    if (skip_name(p, "if"))
        n->c = expression(p);
    if (at_name(p, "recursive"))
        FAIL(p, p->cur.pos, "recursive loops are not supported");
    p->loops++;
    n->list = body(p, "else endfor", &end);
    p->loops--;
    frame_close(p, s);
    if (p->err == ERR_OK && str_is(end, "else")) {
        s = frame_open(p);
        struct node *other = node(p, S_SCOPE, p->cur.pos);
        other->list = body(p, "endfor", NULL);
        frame_close(p, s);
        n->other = other;
    }
    return n;
}

static const struct node *filter_chain(struct parser *p)
{
    struct node *n = NULL;
    while (skip_op(p, '|'))
        n = filter(p, n);
    return n;
}

static struct node *set_statement(struct parser *p, u32 pos)
{
    struct node *n = node(p, S_SET, pos);
    struct node *to = target(p, true);
    n->a = to;
    if (skip_op(p, '=')) {
        n->b = tuple(p, TUPLE_PLAIN);
        mention_target(p, to);
        return n;
    }
    n->kind = S_CAPTURE;
    if (to->kind == N_TUPLE)
        FAIL(p, pos, "a {%% set %%} block cannot fill several variables");
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
    expect_op(p, '(');
    while (p->err == ERR_OK && !at_op(p, ')')) {
        if (params.n)
            expect_op(p, ',');
        struct node *n = node(p, N_KWARG, p->cur.pos);
        n->name = expect_name(p);
        n->id = intern(p, n->name);
        mention(p, n->id, true);
        if (skip_op(p, '='))
            n->a = expression(p);
        else if (defaults)
            FAIL(p, n->pos, "a parameter without default stands behind one with a default");
        defaults = n->a != NULL;
        append(&params, n);
    }
    expect_op(p, ')');
    m->params = params.first;
    m->n = params.n;
}

static struct node *macro_statement(struct parser *p, u32 pos)
{
    struct node *n = node(p, S_MACRO, pos);
    struct macro *m = keep(p, sizeof *m), *outer = p->macro;
    u32 loops = p->loops;
    n->macro = m;
    n->name = m->name = expect_name(p);
    n->id = intern(p, n->name);
    mention(p, n->id, true);
    struct saved s = frame_open(p);
    m->frame = p->frame;
    p->macro = m;
    p->loops = 0;
    parameters(p, m);
    m->kwargs_id = m->varargs_id = 0; /* a default may not use them */
    m->body = body(p, "endmacro", NULL);
    for (const struct node *q = m->params; q; q = q->next) { /* a parameter of that name wins */
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
    struct node *n = node(p, S_WITH, pos);
    struct chain pairs = {0};
    while (p->err == ERR_OK && p->cur.kind != T_BLOCK_END) {
        if (pairs.n)
            expect_op(p, ',');
        struct node *pair = node(p, N_PAIR, p->cur.pos);
        pair->a = target(p, false);
        expect_op(p, '=');
        pair->b = expression(p);
        append(&pairs, pair);
    }
    struct saved s = frame_open(p);
    n->frame = p->frame;
    n->other = pairs.first;
    for (const struct node *q = pairs.first; q; q = q->next)
        mention_target(p, q->a);
    n->list = body(p, "endwith", NULL);
    frame_close(p, s);
    return n;
}

static struct node *filter_statement(struct parser *p, u32 pos)
{
    struct node *n = node(p, S_CAPTURE, pos), *first = filter(p, NULL);
    while (skip_op(p, '|'))
        first = filter(p, first);
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
    struct node *n = node(p, S_SCOPE, pos);
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
    struct str tag = expect_name(p);
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
            FAIL(p, pos, "'%.*s' outside of a loop", STR_ARG(tag));
        return node(p, str_is(tag, "break") ? S_BREAK : S_CONTINUE, pos);
    }
    FAIL(p, pos, "the tag '%.*s' is unknown or not supported here", STR_ARG(tag));
    return node(p, S_TEXT, pos);
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
    if (!deeper(p))
        return NULL;
    while (p->err == ERR_OK && p->cur.kind != T_EOF) {
        u32 pos = p->cur.pos;
        if (p->cur.kind == T_DATA) {
            n = node(p, S_TEXT, pos);
            n->name = p->cur.text;
            advance(p);
        } else if (p->cur.kind == T_VAR_BEGIN) {
            advance(p);
            n = node(p, S_PRINT, pos);
            n->a = tuple(p, TUPLE_PLAIN);
            if (p->cur.kind != T_VAR_END)
                FAIL(p, p->cur.pos, "'}}' is missing");
            advance(p);
        } else {
            advance(p); /* {% */
            if (p->cur.kind == T_NAME && among(p->cur.text, ends)) {
                *end = p->cur.text;
                advance(p);
                p->depth--;
                if (str_starts(*end, STR("end")))
                    expect_block_end(p);
                return list.first;
            }
            n = statement(p);
            if (n->kind == S_SET || n->kind == S_BREAK || n->kind == S_CONTINUE)
                expect_block_end(p);
        }
        append(&list, n);
    }
    if (*ends)
        FAIL(p, p->lex.src.n, "the template ends where one of these is missing: %s", ends);
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
    p.frame = keep(&p, sizeof *p.frame);
    t->frame = p.frame;
    t->loop_id = intern(&p, STR("loop"));
    advance(&p);
    advance(&p);
    t->body = statements(&p, "", &end);
    TRY(p.err);
    *out = t;
    return ERR_OK;
}
