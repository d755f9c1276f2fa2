#include "core/model/template_eval.h"

#include "config/limits.h"
#include "core/model/template_filter.h"
#include "core/model/template_lex.h"
#include "core/model/template_method.h"
#include "core/model/template_text.h"

/* Variables of one block; the chain of parents is lexical. */
struct scope {
    struct scope *parent;
    const struct frame *frame;
    struct binding {
        struct binding *next;
        u32 id;
        struct val value;
    } * bindings, *spare; /* spare: of earlier iterations, to be used again */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

/* One running {% for %}: its iterator with one value of lookahead, and what `loop` answers. */
struct loop {
    const struct node *node;
    struct scope *test; /* of the filter: a child of where the loop stands */
    struct val source;
    struct iter it;
    struct val now, before, ahead, changed;
    bool has_before, has_ahead, has_changed, filtered; /* filtered: `it` has no more to drop */
    i64 index0, length;                                /* length -1: not counted yet */
    u32 depth;
};

static struct val eval(struct rt *r, const struct node *n);
static enum flow run(struct rt *r, const struct node *list);

/* --- reports --------------------------------------------------------------------------------- */

void eval_report(struct rt *r, enum err code, const char *text)
{
    u32 line, column;
    const char *slash = strrchr(r->t->name, '/'); /* clients read this: no path of the server's */
    lex_place(r->t->source, r->pos, &line, &column);
    err_set(r->e, code, "%s: line %u, column %u: %s", slash ? slash + 1 : r->t->name, line, column,
            text);
}

void eval_undefined(struct rt *r, struct val v)
{
    if (v.n)
        rt_fail(r, "'%.*s' is undefined", (int)MIN(v.n, 100u), v.s);
    else
        rt_fail(r, "an undefined value is used");
}

/* --- scopes ---------------------------------------------------------------------------------- */

static struct val *scope_find(struct scope *s, u32 id)
{
    for (struct binding *b = s->bindings; b; b = b->next)
        if (b->id == id)
            return &b->value;
    return NULL;
}

static void scope_set(struct rt *r, struct scope *s, u32 id, struct val v)
{
    struct val *slot = scope_find(s, id);
    if (slot) {
        *slot = v;
        return;
    }
    struct binding *b = s->spare;
    if (b)
        s->spare = b->next;
    else
        b = rt_alloc(r, 1, sizeof *b);
    if (b) {
        *b = (struct binding){s->bindings, id, v};
        s->bindings = b;
    }
}

static struct scope *scope_new(struct rt *r, struct scope *parent, const struct frame *frame)
{
    struct scope *s = rt_alloc(r, 1, sizeof *s);
    if (s)
        *s = (struct scope){.parent = parent, .frame = frame};
    return s;
}

static void scope_clear(struct scope *s)
{
    while (s->bindings) {
        struct binding *b = s->bindings;
        s->bindings = b->next;
        b->next = s->spare;
        s->spare = b;
    }
}

/* Nothing is bound to the name: the outermost scope that mentions it decides (struct frame). */
static bool set_first(const struct frame *f, u32 id)
{
    bool set = false;
    for (; f; f = f->parent)
        for (const struct mention *m = f->mentions; m; m = m->next)
            if (m->id == id)
                set = m->set_first;
    return set;
}

static struct val lookup(struct rt *r, const struct node *n)
{
    for (struct scope *s = r->scope; s; s = s->parent) {
        struct val *v = scope_find(s, n->id);
        if (v)
            return *v;
    }
    if (!arg_absent(r->globals[n->id]) && !set_first(n->frame, n->id))
        return r->globals[n->id];
    return val_undef(n->name);
}

static void assign(struct rt *r, const struct node *to, struct val v)
{
    r->pos = to->pos;
    if (to->kind == N_NAME) {
        scope_set(r, r->scope, to->id, v);
    } else if (to->kind == N_ATTR) {
        struct val space = lookup(r, to->a);
        if (space.type != V_SPACE)
            rt_fail(r, "cannot assign attribute '%.*s': no namespace object", STR_ARG(to->name));
        else
            dict_put(r, space.dict, val_str(to->name.p, to->name.n), v);
    } else {
        struct val items = val_to_list(r, v);
        if (!r->failed && items.n != to->n)
            rt_fail(r, "%u values cannot be unpacked into %u variables", items.n, to->n);
        u32 i = 0;
        for (const struct node *m = to->list; m && !r->failed; m = m->next)
            assign(r, m, items.items[i++]);
    }
}

/* --- calls ----------------------------------------------------------------------------------- */

static bool arguments(struct rt *r, const struct node *n, struct args *out)
{
    u32 total = 0, i = 0, k = 0;
    for (const struct node *a = n->list; a; a = a->next)
        total++;
    *out = (struct args){.n = n->n, .kn = total - n->n};
    out->pos = rt_alloc(r, out->n, sizeof *out->pos);
    out->kw = rt_alloc(r, out->kn, sizeof *out->kw);
    for (const struct node *a = n->list; a && !r->failed; a = a->next) {
        if (a->kind != N_KWARG)
            out->pos[i++] = eval(r, a);
        else
            out->kw[k++] = (struct kwarg){a->name, eval(r, a->a)};
    }
    return !r->failed;
}

/* Takes the keyword argument of that name out of kw; NULL when it is not there. */
static const struct val *take_keyword(struct args *a, struct str name)
{
    for (u32 i = 0; i < a->kn; i++)
        if (str_eq(a->kw[i].name, name)) {
            struct kwarg hit = a->kw[i];
            memmove(&a->kw[i], &a->kw[i + 1], (a->kn - i - 1) * sizeof hit);
            a->kw[--a->kn] = hit;
            return &a->kw[a->kn].value;
        }
    return NULL;
}

static void bind_parameters(struct rt *r, const struct macro *m, const struct args *given)
{
    struct args a = *given;
    const struct node *p = m->params;
    u32 i = 0;
    for (; p && i < a.n; p = p->next)
        scope_set(r, r->scope, p->id, a.pos[i++]);
    for (const struct node *q = p; q && !r->failed; q = q->next) {
        const struct val *v = take_keyword(&a, q->name);
        if (v)
            scope_set(r, r->scope, q->id, *v);
    }
    for (; p && !r->failed; p = p->next)
        if (!scope_find(r->scope, p->id))
            scope_set(r, r->scope, p->id, p->a ? eval(r, p->a) : val_undef(p->name));
    if (m->kwargs_id) {
        struct dict *d = dict_new(r, a.kn);
        for (u32 k = 0; d && k < a.kn; k++)
            dict_put(r, d, val_str(a.kw[k].name.p, a.kw[k].name.n), a.kw[k].value);
        if (d)
            scope_set(r, r->scope, m->kwargs_id - 1, (struct val){.type = V_DICT, .dict = d});
    } else if (a.kn) {
        rt_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", STR_ARG(m->name),
                STR_ARG(a.kw[0].name));
    }
    struct val rest = val_list(a.pos + i, a.n - i);
    rest.type = V_TUPLE;
    if (m->varargs_id)
        scope_set(r, r->scope, m->varargs_id - 1, rest);
    else if (rest.n)
        rt_fail(r, "macro '%.*s' takes not more than %u arguments", STR_ARG(m->name), m->n);
}

/* Runs statements and takes what they printed away from the output. */
static struct val capture(struct rt *r, const struct node *list, enum flow *flow)
{
    size_t from = r->out.n;
    *flow = run(r, list);
    struct val v = text_copy(r, (struct str){r->out.p + from, r->out.n - from});
    r->out.n = from;
    return v;
}

static struct val call_macro(struct rt *r, const struct macro *m, const struct args *args)
{
    struct scope *caller = r->scope, *own = scope_new(r, m->home, m->frame);
    struct val v = val_nothing();
    enum flow flow;
    if (!own)
        return v;
    r->scope = own;
    bind_parameters(r, m, args);
    if (!r->failed)
        v = capture(r, m->body, &flow);
    r->scope = caller;
    return v;
}

struct val eval_call(struct rt *r, struct val callee, const struct args *args)
{
    switch ((enum val_type)callee.type) {
    case V_MACRO:
        return call_macro(r, callee.macro, args);
    case V_FUNC:
        return func_call(r, callee.func, val_none(), args);
    case V_METHOD:
        return func_call(r, callee.bound->func, callee.bound->self, args);
    case V_UNDEF:
        eval_undefined(r, callee);
        return val_nothing();
    default:
        rt_fail(r, "'%s' object is not callable", val_type_name(callee));
        return val_nothing();
    }
}

static struct val cycle(struct rt *r, const struct loop *l, const struct args *a)
{
    if (a->n == 0)
        rt_fail(r, "no items for cycling given");
    return a->n ? a->pos[l->index0 % a->n] : val_nothing();
}

static struct val changed(struct rt *r, struct loop *l, const struct args *a)
{
    struct val v = val_list(a->pos, a->n);
    bool same = l->has_changed && val_eq(r, l->changed, v);
    l->changed = v;
    l->has_changed = true;
    return val_bool(!same);
}

static struct val eval_call_node(struct rt *r, const struct node *n)
{
    struct args a;
    struct val callee;
    const struct node *f = n->a;
    if (f->kind == N_ATTR) { /* methods are called without making a bound method first */
        struct val self = eval(r, f->a);
        const struct func *m = r->failed ? NULL : method_find(self, f->name);
        if (m && !method_hidden(self, f->name))
            return arguments(r, n, &a) ? func_call(r, m, self, &a) : val_nothing();
        if (self.type == V_LOOP && (str_is(f->name, "cycle") || str_is(f->name, "changed"))) {
            if (!arguments(r, n, &a))
                return val_nothing();
            return str_is(f->name, "cycle") ? cycle(r, self.loop, &a) : changed(r, self.loop, &a);
        }
        r->pos = f->pos;
        callee = val_attr(r, self, f->name);
    } else {
        callee = eval(r, f);
    }
    if (r->failed || !arguments(r, n, &a))
        return val_nothing();
    r->pos = n->pos;
    return eval_call(r, callee, &a);
}

/* --- expressions ----------------------------------------------------------------------------- */

static struct val eval_items(struct rt *r, const struct node *n)
{
    struct val *items = rt_alloc(r, n->n, sizeof *items);
    u32 i = 0;
    for (const struct node *m = n->list; m && !r->failed; m = m->next)
        items[i++] = eval(r, m);
    struct val v = val_list(items, items ? n->n : 0);
    v.type = n->kind == N_TUPLE ? V_TUPLE : V_LIST;
    return r->failed ? val_nothing() : v;
}

static struct val eval_dict(struct rt *r, const struct node *n)
{
    struct dict *d = dict_new(r, n->n);
    for (const struct node *m = n->list; m && !r->failed; m = m->next) {
        struct val key = eval(r, m->a);
        dict_put(r, d, key, eval(r, m->b));
    }
    return r->failed ? val_nothing() : (struct val){.type = V_DICT, .dict = d};
}

static struct val eval_concat(struct rt *r, const struct node *n)
{
    struct val parts = eval_items(r, n), all = val_str("", 0);
    for (u32 i = 0; i < parts.n && !r->failed; i++)
        all = text_concat(r, all, text_of(r, parts.items[i]));
    all.markup = false;
    return all;
}

static bool compare(struct rt *r, u8 op, struct val a, struct val b)
{
    switch (op) {
    case OP_EQ:
        return val_eq(r, a, b);
    case OP_NE:
        return !val_eq(r, a, b);
    case 'i':
        return val_in(r, a, b);
    case 'n':
        return !val_in(r, a, b);
    default:
        break;
    }
    int c = val_cmp(r, a, b);
    bool nan = (a.type == V_FLOAT && a.f != a.f) || (b.type == V_FLOAT && b.f != b.f);
    return !nan && (op == '<' ? c < 0 : op == '>' ? c > 0 : op == OP_LE ? c <= 0 : c >= 0);
}

static struct val eval_compare(struct rt *r, const struct node *n)
{
    struct val a = eval(r, n->a);
    for (const struct node *m = n->list; m && !r->failed; m = m->next) {
        struct val b = eval(r, m->a);
        r->pos = n->pos;
        if (!r->failed && !compare(r, m->op, a, b))
            return val_bool(false);
        a = b;
    }
    return val_bool(true);
}

static struct val eval_slice(struct rt *r, const struct node *n)
{
    struct val obj = eval(r, n->a), bound[3];
    u32 i = 0;
    for (const struct node *m = n->list; m; m = m->next)
        bound[i++] = eval(r, m);
    r->pos = n->pos;
    return r->failed ? val_nothing() : val_slice(r, obj, bound[0], bound[1], bound[2]);
}

static struct val apply(struct rt *r, const struct node *n, struct val self)
{
    struct args a;
    if (r->failed || !arguments(r, n, &a))
        return val_nothing();
    r->pos = n->pos;
    struct val v = func_call(r, n->func, self, &a);
    return n->kind == N_TEST ? val_bool(val_truthy(v) != n->op) : v;
}

static struct val eval_binary(struct rt *r, const struct node *n)
{
    struct val a = eval(r, n->a);
    struct val b = r->failed ? a : eval(r, n->b);
    r->pos = n->pos;
    return r->failed ? val_nothing() : op_binary(r, n->op, a, b);
}

static struct val eval_kind(struct rt *r, const struct node *n)
{
    struct val v, w;
    switch ((enum node_kind)n->kind) {
    case N_CONST:
        return n->value;
    case N_NAME:
        return lookup(r, n);
    case N_LIST:
    case N_TUPLE:
        return eval_items(r, n);
    case N_DICT:
        return eval_dict(r, n);
    case N_NEG:
    case N_POS:
        v = eval(r, n->a);
        r->pos = n->pos;
        return r->failed ? v : op_negate(r, v, n->kind == N_NEG);
    case N_NOT:
        return val_bool(!val_truthy(eval(r, n->a)));
    case N_BINARY:
        return eval_binary(r, n);
    case N_CONCAT:
        return eval_concat(r, n);
    case N_CMP:
        return eval_compare(r, n);
    case N_AND:
        v = eval(r, n->a);
        return val_truthy(v) ? eval(r, n->b) : v;
    case N_OR:
        v = eval(r, n->a);
        return val_truthy(v) ? v : eval(r, n->b);
    case N_COND:
        v = eval(r, n->b);
        return val_truthy(v) ? eval(r, n->a) : n->c ? eval(r, n->c) : val_nothing();
    case N_ATTR:
        v = eval(r, n->a);
        r->pos = n->pos;
        return r->failed ? v : val_attr(r, v, n->name);
    case N_ITEM:
        v = eval(r, n->a);
        w = eval(r, n->b);
        r->pos = n->pos;
        return r->failed ? v : val_item(r, v, w);
    case N_SLICE:
        return eval_slice(r, n);
    case N_CALL:
        return eval_call_node(r, n);
    case N_FILTER:
    case N_TEST:
        return apply(r, n, eval(r, n->a));
    default:
        ASSERT(!"a statement where an expression stands");
    }
}

static struct val eval(struct rt *r, const struct node *n)
{
    if (!rt_step(r) || !rt_enter(r))
        return val_nothing();
    r->pos = n->pos;
    struct val v = eval_kind(r, n);
    rt_leave(r);
    return r->failed ? val_nothing() : v;
}

/* --- loops ----------------------------------------------------------------------------------- */

/* The next value that passes the loop's filter. */
static bool loop_take(struct rt *r, struct loop *l, struct val *out)
{
    const struct node *n = l->node;
    while (iter_next(r, &l->it, out)) {
        if (!n->c || l->filtered)
            return true;
        struct scope *back = r->scope;
        scope_clear(l->test);
        r->scope = l->test;
        assign(r, n->a, *out);
        bool pass = val_truthy(eval(r, n->c));
        r->scope = back;
        if (pass)
            return !r->failed;
    }
    return false;
}

static bool loop_next(struct rt *r, struct loop *l)
{
    struct val v;
    if (l->has_ahead)
        v = l->ahead;
    else if (!loop_take(r, l, &v))
        return false;
    l->has_ahead = false;
    l->has_before = l->index0 >= 0;
    l->before = l->now;
    l->now = v;
    l->index0++;
    return true;
}

static bool loop_peek(struct rt *r, struct loop *l)
{
    if (!l->has_ahead)
        l->has_ahead = loop_take(r, l, &l->ahead);
    return l->has_ahead;
}

i64 loop_length(struct rt *r, struct loop *l)
{
    if (l->length >= 0)
        return l->length;
    i64 n = l->node->c ? -1 : val_len(r, l->source);
    if (n < 0) { /* the rest must be looked at to be counted */
        struct val rest = val_list(NULL, 0), v;
        size_t cap = 0;
        struct val *items = NULL;
        for (; loop_take(r, l, &v); items[rest.n++] = v) {
            if (rest.n < cap)
                continue;
            cap = MAX((size_t)8, 2 * cap);
            struct val *more = rt_alloc(r, cap, sizeof *more);
            if (!more)
                return 0;
            if (rest.n)
                memcpy(more, items, rest.n * sizeof *more);
            items = more;
        }
        rest.items = items;
        l->it = (struct iter){.src = gen_over_list(r, rest)};
        l->filtered = true;
        n = l->index0 + 1 + rest.n + l->has_ahead;
    }
    l->length = n;
    return n;
}

bool loop_attr(struct rt *r, struct loop *l, struct str name, struct val *out)
{
    if (str_is(name, "index"))
        *out = val_int(l->index0 + 1);
    else if (str_is(name, "index0"))
        *out = val_int(l->index0);
    else if (str_is(name, "first"))
        *out = val_bool(l->index0 == 0);
    else if (str_is(name, "last"))
        *out = val_bool(!loop_peek(r, l));
    else if (str_is(name, "length"))
        *out = val_int(loop_length(r, l));
    else if (str_is(name, "revindex"))
        *out = val_int(loop_length(r, l) - l->index0);
    else if (str_is(name, "revindex0"))
        *out = val_int(loop_length(r, l) - l->index0 - 1);
    else if (str_is(name, "previtem"))
        *out = l->has_before ? l->before : val_undef(name);
    else if (str_is(name, "nextitem"))
        *out = loop_peek(r, l) ? l->ahead : val_undef(name);
    else if (str_is(name, "depth"))
        *out = val_int(1);
    else if (str_is(name, "depth0"))
        *out = val_int(0);
    else
        return false;
    return true;
}

static enum flow run_for(struct rt *r, const struct node *n)
{
    struct val source = eval(r, n->b);
    struct loop *l = rt_alloc(r, 1, sizeof *l);
    struct scope *home = r->scope, *own = scope_new(r, home, n->frame);
    struct scope *test = n->c ? scope_new(r, home, n->frame) : NULL;
    bool complete = false;
    if (r->failed)
        return FLOW_ON;
    *l = (struct loop){.node = n, .test = test, .source = source, .index0 = -1, .length = -1};
    r->pos = n->b->pos;
    if (!iter_open(r, &l->it, source))
        return FLOW_ON;
    while (loop_next(r, l)) {
        scope_clear(own);
        r->scope = own;
        scope_set(r, own, r->t->loop_id, (struct val){.type = V_LOOP, .loop = l});
        assign(r, n->a, l->now);
        enum flow flow = r->failed ? FLOW_BREAK : run(r, n->list);
        r->scope = home;
        if (flow == FLOW_BREAK || r->failed)
            break;
        complete |= flow == FLOW_ON; /* jinja2 counts an iteration where its body ends */
    }
    return n->other && !complete && !r->failed ? run(r, n->other) : FLOW_ON;
}

/* --- statements ------------------------------------------------------------------------------ */

static enum flow run_if(struct rt *r, const struct node *n)
{
    for (const struct node *b = n->list; b && !r->failed; b = b->next)
        if (!b->a || val_truthy(eval(r, b->a)))
            return r->failed ? FLOW_ON : run(r, b->list);
    return FLOW_ON;
}

/* A block with variables of its own. */
static enum flow run_scope(struct rt *r, const struct node *n, const struct node *list)
{
    struct scope *home = r->scope, *own = scope_new(r, home, n->frame);
    if (!own)
        return FLOW_ON;
    for (const struct node *p = n->kind == S_WITH ? n->other : NULL; p && !r->failed; p = p->next) {
        struct val v = eval(r, p->b);
        r->scope = own;
        assign(r, p->a, v);
        r->scope = home;
    }
    r->scope = own;
    enum flow flow = run(r, list);
    r->scope = home;
    return flow;
}

/* Filters of a block, innermost first: the chain hangs on `a`. */
static struct val filter_chain(struct rt *r, const struct node *f, struct val v)
{
    if (!f || r->failed || !rt_enter(r))
        return v;
    v = apply(r, f, filter_chain(r, f->a, v));
    rt_leave(r);
    return v;
}

static enum flow run_capture(struct rt *r, const struct node *n)
{
    struct scope *home = r->scope, *own = scope_new(r, home, n->frame);
    enum flow flow = FLOW_ON;
    if (!own)
        return flow;
    r->scope = own;
    struct val v = capture(r, n->list, &flow);
    if (flow == FLOW_ON)
        v = filter_chain(r, n->b, v);
    r->scope = home;
    if (r->failed || flow != FLOW_ON)
        return flow;
    if (n->a)
        assign(r, n->a, v);
    else
        sink_put_val(r, &r->out, v);
    return flow;
}

static enum flow run_one(struct rt *r, const struct node *n)
{
    switch ((enum node_kind)n->kind) {
    case S_TEXT:
        sink_put_str(r, &r->out, n->name);
        return FLOW_ON;
    case S_PRINT:
        sink_put_val(r, &r->out, eval(r, n->a));
        return FLOW_ON;
    case S_IF:
        return run_if(r, n);
    case S_FOR:
        return run_for(r, n);
    case S_SET:
        assign(r, n->a, eval(r, n->b));
        return FLOW_ON;
    case S_CAPTURE:
        return run_capture(r, n);
    case S_MACRO: {
        struct macro *m = rt_alloc(r, 1, sizeof *m);
        if (m) {
            *m = *n->macro;
            m->home = r->scope;
            scope_set(r, r->scope, n->id, (struct val){.type = V_MACRO, .macro = m});
        }
        return FLOW_ON;
    }
    case S_WITH:
    case S_SCOPE:
        return run_scope(r, n, n->list);
    case S_BREAK:
        return FLOW_BREAK;
    case S_CONTINUE:
        return FLOW_CONTINUE;
    default:
        ASSERT(!"an expression where a statement stands");
    }
}

static enum flow run(struct rt *r, const struct node *list)
{
    enum flow flow = FLOW_ON;
    if (!rt_enter(r))
        return flow;
    for (const struct node *n = list; n && !r->failed && flow == FLOW_ON; n = n->next) {
        r->pos = n->pos;
        if (rt_step(r))
            flow = run_one(r, n);
    }
    rt_leave(r);
    return flow;
}

void eval_template(struct rt *r)
{
    struct scope root = {.frame = r->t->frame};
    r->scope = &root;
    run(r, r->t->body);
}
