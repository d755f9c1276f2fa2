#include "core/model/template_expr.h"

#include "config/limits.h"
#include "core/model/template_filter.h"
#include "core/model/template_method.h"

/* --- tokens ---------------------------------------------------------------------------------- */

void parse_stop(struct parser *p, enum err err)
{
    if (p->err == ERR_OK)
        p->err = err;
    p->cur = p->look = (struct token){.kind = T_EOF};
}

void parse_advance(struct parser *p)
{
    p->cur = p->look;
    if (p->err == ERR_OK && p->cur.kind != T_EOF) {
        enum err err = lex_next(&p->lex, &p->look);
        if (err != ERR_OK)
            parse_stop(p, err);
    }
}

bool parse_at_op(const struct parser *p, char op)
{
    return p->cur.kind == T_OP && p->cur.op == (u8)op;
}

bool parse_at_name(const struct parser *p, const char *z)
{
    return p->cur.kind == T_NAME && str_is(p->cur.text, z);
}

bool parse_skip_op(struct parser *p, char op)
{
    bool hit = parse_at_op(p, op);
    if (hit)
        parse_advance(p);
    return hit;
}

bool parse_skip_name(struct parser *p, const char *z)
{
    bool hit = parse_at_name(p, z);
    if (hit)
        parse_advance(p);
    return hit;
}

void parse_expect_op(struct parser *p, char op)
{
    if (!parse_skip_op(p, op))
        PARSE_FAIL(p, p->cur.pos, "'%c' is missing", op);
}

struct str parse_expect_name(struct parser *p)
{
    struct str s = p->cur.text;
    if (p->cur.kind != T_NAME)
        PARSE_FAIL(p, p->cur.pos, "a name is missing");
    parse_advance(p);
    return s;
}

/* --- nodes and names ------------------------------------------------------------------------- */

void *parse_keep(struct parser *p, size_t size)
{
    static _Alignas(16) u8 spill[512]; /* for a full arena: written, never followed */
    void *m = arena_alloc(p->lex.keep, size, 8);
    if (m)
        return m;
    parse_stop(p, arena_full(p->lex.keep, p->lex.name, p->lex.e));
    ASSERT(size <= sizeof spill);
    memset(spill, 0, sizeof spill);
    return spill;
}

struct node *parse_node(struct parser *p, enum node_kind kind, u32 pos)
{
    struct node *n = parse_keep(p, sizeof *n);
    n->kind = (u8)kind;
    n->pos = pos;
    n->frame = p->frame;
    return n;
}

void parse_append(struct chain *c, struct node *n)
{
    if (!c->first)
        c->end = &c->first;
    *c->end = n;
    c->end = &n->next;
    c->n++;
}

u32 parse_intern(struct parser *p, struct str name)
{
    struct template *t = p->t;
    for (u32 i = 0; i < t->name_count; i++)
        if (str_eq(t->names[i], name))
            return i;
    if (t->name_count == LIMIT_TEMPLATE_NAMES) {
        PARSE_FAIL(p, p->cur.pos, "more than %d variables (LIMIT_TEMPLATE_NAMES)",
                   LIMIT_TEMPLATE_NAMES);
        return 0;
    }
    t->names[t->name_count] = name;
    return t->name_count++;
}

void parse_mention(struct parser *p, u32 id, bool set)
{
    if (p->err != ERR_OK)
        return;
    for (struct mention *m = p->frame->mentions; m; m = m->next)
        if (m->id == id)
            return;
    struct mention *m = parse_keep(p, sizeof *m);
    *m = (struct mention){p->frame->mentions, id, set && p->branch == 0};
    p->frame->mentions = m;
}

bool parse_deeper(struct parser *p)
{
    if (p->err != ERR_OK)
        return false;
    if (p->depth >= LIMIT_TEMPLATE_DEPTH) {
        PARSE_FAIL(p, p->cur.pos, "nested deeper than %d (LIMIT_TEMPLATE_DEPTH)",
                   LIMIT_TEMPLATE_DEPTH);
        return false;
    }
    p->depth++;
    return true;
}

/* --- expressions ----------------------------------------------------------------------------- */

static struct node *or_expression(struct parser *p);
static struct node *unary(struct parser *p, bool with_filter);
static struct node *postfix(struct parser *p, struct node *n);

bool parse_constant_name(struct str s, struct val *v)
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
    struct node *n = parse_node(p, N_NAME, p->cur.pos);
    static const char *const lacking[] = {"cycler", "joiner", "lipsum", "caller", "super", "self"};
    n->name = p->cur.text;
    if (parse_constant_name(n->name, &n->value)) {
        n->kind = N_CONST;
        if (set)
            PARSE_FAIL(p, n->pos, "cannot assign to %.*s", STR_ARG(n->name));
    } else {
        for (u32 i = 0; !set && i < COUNTOF(lacking); i++)
            if (str_is(n->name, lacking[i]))
                PARSE_FAIL(p, n->pos, "'%s' is not supported", lacking[i]);
        n->id = parse_intern(p, n->name);
        parse_mention(p, n->id, set);
        if (p->macro && str_is(n->name, "kwargs") && !set)
            p->macro->kwargs_id = n->id + 1;
        if (p->macro && str_is(n->name, "varargs") && !set)
            p->macro->varargs_id = n->id + 1;
    }
    parse_advance(p);
    return n;
}

static struct node *strings(struct parser *p)
{
    struct node *n = parse_node(p, N_CONST, p->cur.pos);
    struct str s = p->cur.text;
    parse_advance(p);
    while (p->cur.kind == T_STRING) { /* "a" "b" is one string */
        struct str more = p->cur.text, both = {NULL, s.n + more.n};
        char *m = arena_alloc(p->lex.keep, both.n + 1, 1);
        if (!m) {
            parse_stop(p, arena_full(p->lex.keep, p->lex.name, p->lex.e));
            break;
        }
        memcpy(m, s.p, s.n);
        memcpy(m + s.n, more.p, more.n);
        s = (struct str){m, both.n};
        parse_advance(p);
    }
    n->value = val_str(s.p, s.n);
    return n;
}

bool parse_tuple_end(struct parser *p)
{
    return p->cur.kind == T_VAR_END || p->cur.kind == T_BLOCK_END || parse_at_op(p, ')') ||
           p->cur.kind == T_EOF;
}

struct node *parse_tuple(struct parser *p, enum tuple_how how)
{
    struct chain items = {0};
    bool many = false;
    u32 pos = p->cur.pos;
    for (;;) {
        if (items.n)
            parse_expect_op(p, ',');
        if (parse_tuple_end(p))
            break;
        parse_append(&items, how == TUPLE_NO_COND ? or_expression(p) : parse_expression(p));
        if (!parse_at_op(p, ','))
            break;
        many = true;
    }
    if (!many && items.n)
        return items.first;
    if (!many && how != TUPLE_PARENS)
        PARSE_FAIL(p, pos, "an expression is missing");
    struct node *n = parse_node(p, N_TUPLE, pos);
    n->list = items.first;
    n->n = items.n;
    return n;
}

static struct node *list_literal(struct parser *p)
{
    struct node *n = parse_node(p, N_LIST, p->cur.pos);
    struct chain items = {0};
    parse_expect_op(p, '[');
    while (p->err == ERR_OK && !parse_at_op(p, ']')) {
        if (items.n)
            parse_expect_op(p, ',');
        if (parse_at_op(p, ']'))
            break;
        parse_append(&items, parse_expression(p));
    }
    parse_expect_op(p, ']');
    n->list = items.first;
    n->n = items.n;
    return n;
}

static struct node *dict_literal(struct parser *p)
{
    struct node *n = parse_node(p, N_DICT, p->cur.pos);
    struct chain items = {0};
    parse_expect_op(p, '{');
    while (p->err == ERR_OK && !parse_at_op(p, '}')) {
        if (items.n)
            parse_expect_op(p, ',');
        if (parse_at_op(p, '}'))
            break;
        struct node *pair = parse_node(p, N_PAIR, p->cur.pos);
        pair->a = parse_expression(p);
        parse_expect_op(p, ':');
        pair->b = parse_expression(p);
        parse_append(&items, pair);
    }
    parse_expect_op(p, '}');
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
        n = parse_node(p, N_CONST, p->cur.pos);
        n->value = p->cur.kind == T_INT ? val_int(p->cur.i) : val_float(p->cur.f);
        parse_advance(p);
        return n;
    default:
        break;
    }
    if (parse_skip_op(p, '(')) {
        n = parse_tuple(p, TUPLE_PARENS);
        parse_expect_op(p, ')');
        return n;
    }
    if (parse_at_op(p, '['))
        return list_literal(p);
    if (parse_at_op(p, '{'))
        return dict_literal(p);
    PARSE_FAIL(p, p->cur.pos, "an expression is missing");
    return parse_node(p, N_CONST, p->cur.pos);
}

/* (a, b, c=1): positional into *n, keywords behind them in the same chain. */
static struct node *call_args(struct parser *p, u32 *n)
{
    struct chain args = {0};
    bool keywords = false;
    *n = 0;
    parse_expect_op(p, '(');
    while (p->err == ERR_OK && !parse_at_op(p, ')')) {
        if (args.n)
            parse_expect_op(p, ',');
        if (parse_at_op(p, ')'))
            break;
        if (parse_at_op(p, '*') || parse_at_op(p, (char)OP_POW))
            PARSE_FAIL(p, p->cur.pos, "* and ** in a call are not supported");
        if (p->cur.kind == T_NAME && p->look.kind == T_OP && p->look.op == '=') {
            struct node *kw = parse_node(p, N_KWARG, p->cur.pos);
            kw->name = p->cur.text;
            for (const struct node *o = args.first; o && p->err == ERR_OK; o = o->next)
                if (o->kind == N_KWARG && str_eq(o->name, kw->name))
                    PARSE_FAIL(p, kw->pos, "the keyword argument '%.*s' is repeated",
                               STR_ARG(kw->name));
            parse_advance(p);
            parse_advance(p);
            kw->a = parse_expression(p);
            keywords = true;
            parse_append(&args, kw);
            continue;
        }
        if (keywords)
            PARSE_FAIL(p, p->cur.pos, "a positional argument stands behind a keyword argument");
        parse_append(&args, parse_expression(p));
        ++*n;
    }
    parse_expect_op(p, ')');
    return args.first;
}

static struct node *none_node(struct parser *p)
{
    struct node *n = parse_node(p, N_CONST, p->cur.pos);
    n->value = val_none();
    return n;
}

/* What stands in [ ]: an index, or the three parts of a slice. */
static struct node *subscript(struct parser *p, struct node *of)
{
    struct node *n = parse_node(p, N_ITEM, p->cur.pos);
    struct node *first = parse_at_op(p, ':') ? none_node(p) : parse_expression(p);
    n->a = of;
    n->b = first;
    if (parse_at_op(p, ':')) {
        struct chain parts = {0};
        n->kind = N_SLICE;
        parse_append(&parts, first);
        for (int i = 0; i < 2; i++)
            parse_append(&parts,
                         parse_skip_op(p, ':') && !parse_at_op(p, ':') && !parse_at_op(p, ']')
                             ? parse_expression(p)
                             : none_node(p));
        n->list = parts.first;
    }
    if (parse_at_op(p, ','))
        PARSE_FAIL(p, p->cur.pos, "[a, b] is not supported");
    return n;
}

static struct node *dotted(struct parser *p, struct node *of)
{
    struct node *n = parse_node(p, N_ATTR, p->cur.pos);
    n->a = of;
    if (p->cur.kind == T_INT) { /* a.0 is a[0] */
        struct node *index = parse_node(p, N_CONST, p->cur.pos);
        index->value = val_int(p->cur.i);
        n->kind = N_ITEM;
        n->b = index;
        parse_advance(p);
        return n;
    }
    n->name = parse_expect_name(p);
    if (parse_at_op(p, '(') && method_unsupported(n->name))
        PARSE_FAIL(p, n->pos, "the method '%.*s' is not supported", STR_ARG(n->name));
    return n;
}

static struct node *call(struct parser *p, struct node *callee)
{
    struct node *n = parse_node(p, N_CALL, p->cur.pos);
    n->a = callee;
    n->list = call_args(p, &n->n);
    return n;
}

static struct node *postfix(struct parser *p, struct node *n)
{
    while (p->err == ERR_OK) {
        if (parse_skip_op(p, '.')) {
            n = dotted(p, n);
        } else if (parse_skip_op(p, '[')) {
            n = subscript(p, n);
            parse_expect_op(p, ']');
        } else if (parse_at_op(p, '(')) {
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
        PARSE_FAIL(p, arg->pos, "the %s '%.*s' is unknown or not supported",
                   map ? "filter" : "test", STR_ARG(name));
}

/* A filter name with its arguments, behind the '|'. */
struct node *parse_filter(struct parser *p, const struct node *of)
{
    struct node *n = parse_node(p, N_FILTER, p->cur.pos);
    n->a = of;
    n->name = parse_expect_name(p);
    n->func = filter_find(n->name);
    if (!n->func)
        PARSE_FAIL(p, n->pos, "the filter '%.*s' is unknown or not supported", STR_ARG(n->name));
    if (parse_at_op(p, '('))
        n->list = call_args(p, &n->n);
    check_named_argument(p, n);
    return n;
}

static struct node *test(struct parser *p, struct node *of)
{
    struct node *n = parse_node(p, N_TEST, p->cur.pos);
    n->a = of;
    n->op = parse_skip_name(p, "not");
    n->name = parse_expect_name(p);
    n->func = test_find(n->name);
    if (!n->func)
        PARSE_FAIL(p, n->pos, "the test '%.*s' is unknown or not supported", STR_ARG(n->name));
    if (parse_at_op(p, '(')) {
        n->list = call_args(p, &n->n);
        return n;
    }
    bool arg = p->cur.kind == T_STRING || p->cur.kind == T_INT || p->cur.kind == T_FLOAT ||
               parse_at_op(p, '[') || parse_at_op(p, '{') ||
               (p->cur.kind == T_NAME && !parse_at_name(p, "else") && !parse_at_name(p, "or") &&
                !parse_at_name(p, "and"));
    if (!arg)
        return n;
    if (parse_at_name(p, "is"))
        PARSE_FAIL(p, p->cur.pos, "tests cannot be chained with is");
    n->list = postfix(p, primary(p));
    n->n = 1;
    return n;
}

static struct node *filters_and_tests(struct parser *p, struct node *n)
{
    while (p->err == ERR_OK) {
        if (parse_skip_op(p, '|'))
            n = parse_filter(p, n);
        else if (parse_skip_name(p, "is"))
            n = test(p, n);
        else if (parse_at_op(p, '('))
            n = call(p, n);
        else
            break;
    }
    return n;
}

static struct node *unary(struct parser *p, bool with_filter)
{
    struct node *n;
    if (!parse_deeper(p))
        return parse_node(p, N_CONST, p->cur.pos);
    if (parse_at_op(p, '-') || parse_at_op(p, '+')) {
        n = parse_node(p, parse_at_op(p, '-') ? N_NEG : N_POS, p->cur.pos);
        parse_advance(p);
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
    struct node *n = parse_node(p, N_BINARY, p->cur.pos);
    n->op = p->cur.op;
    parse_advance(p);
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
    while (parse_at_op(p, (char)OP_POW))
        n = binary(p, n, operand_unary);
    return n;
}

static struct node *product(struct parser *p)
{
    struct node *n = power(p);
    while (parse_at_op(p, '*') || parse_at_op(p, '/') || parse_at_op(p, '%') ||
           parse_at_op(p, (char)OP_FLOORDIV))
        n = binary(p, n, power);
    return n;
}

static struct node *concat(struct parser *p)
{
    struct chain items = {0};
    u32 pos = p->cur.pos;
    parse_append(&items, product(p));
    while (parse_skip_op(p, '~'))
        parse_append(&items, product(p));
    if (items.n == 1)
        return items.first;
    struct node *n = parse_node(p, N_CONCAT, pos);
    n->list = items.first;
    n->n = items.n;
    return n;
}

static struct node *sum(struct parser *p)
{
    struct node *n = concat(p);
    while (parse_at_op(p, '+') || parse_at_op(p, '-'))
        n = binary(p, n, concat);
    return n;
}

/* The comparison operator here as a byte: '<' '>' OP_* 'i'n 'n'ot in, or 0. Skips it. */
static u8 comparison(struct parser *p)
{
    u8 op = p->cur.kind == T_OP ? p->cur.op : 0;
    if (op && strchr("<>ENGL", op)) {
        parse_advance(p);
        return op;
    }
    if (parse_skip_name(p, "in"))
        return 'i';
    if (parse_at_name(p, "not") && p->look.kind == T_NAME && str_is(p->look.text, "in")) {
        parse_advance(p);
        parse_advance(p);
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
        struct node *pair = parse_node(p, N_PAIR, pos);
        pair->op = op;
        pair->a = sum(p);
        parse_append(&ops, pair);
    }
    if (!ops.n)
        return first;
    struct node *n = parse_node(p, N_CMP, pos);
    n->a = first;
    n->list = ops.first;
    return n;
}

static struct node *not_expression(struct parser *p)
{
    if (!parse_at_name(p, "not"))
        return compare(p);
    struct node *n = parse_node(p, N_NOT, p->cur.pos);
    parse_advance(p);
    if (parse_deeper(p)) {
        n->a = not_expression(p);
        p->depth--;
    }
    return n;
}

static struct node *and_expression(struct parser *p)
{
    struct node *a = not_expression(p);
    while (parse_at_name(p, "and")) {
        struct node *n = parse_node(p, N_AND, p->cur.pos);
        parse_advance(p);
        n->a = a;
        n->b = not_expression(p);
        a = n;
    }
    return a;
}

static struct node *or_expression(struct parser *p)
{
    struct node *a = and_expression(p);
    while (parse_at_name(p, "or")) {
        struct node *n = parse_node(p, N_OR, p->cur.pos);
        parse_advance(p);
        n->a = a;
        n->b = and_expression(p);
        a = n;
    }
    return a;
}

struct node *parse_expression(struct parser *p)
{
    if (!parse_deeper(p))
        return parse_node(p, N_CONST, p->cur.pos);
    struct node *a = or_expression(p);
    while (parse_at_name(p, "if")) {
        struct node *n = parse_node(p, N_COND, p->cur.pos);
        parse_advance(p);
        n->a = a;
        n->b = or_expression(p);
        if (parse_skip_name(p, "else"))
            n->c = parse_expression(p);
        a = n;
    }
    p->depth--;
    return a;
}
