#include "core/model/template_lists.h"

#include "core/model/template_eval.h"
#include "core/model/template_filter.h"
#include "core/model/template_text.h"

#define FILTER(name)                                                           \
    static struct val name(struct rt *r, struct val self, const struct val *a, \
                           const struct args *args)
#define UNUSED (void)r, (void)self, (void)a, (void)args

/* --- attribute paths: 'function.name', 'parts.0', 3 ------------------------------------------- */

static struct val path_part(struct rt *r, struct val v, struct str part)
{
    i64 index = 0;
    bool number = part.n > 0 && part.n < 10;
    for (size_t i = 0; i < part.n && number; i++) {
        number = (u8)(part.p[i] - '0') <= 9;
        index = index * 10 + (part.p[i] - '0');
    }
    return val_item(r, v, number ? val_int(index) : val_str(part.p, part.n));
}

/* `path` absent or none: v itself. otherwise: what an undefined part becomes, unless none. */
static struct val path_get(struct rt *r, struct val v, struct val path, struct val otherwise)
{
    if (arg_absent(path) || path.type == V_NONE)
        return v;
    bool replace = !arg_absent(otherwise) && otherwise.type != V_NONE;
    if (path.type != V_STR) {
        v = val_item(r, v, path);
        return replace && v.type == V_UNDEF ? otherwise : v;
    }
    struct str rest = val_text(path);
    for (bool more = true; more && !r->failed;) {
        const char *dot = rest.n ? memchr(rest.p, '.', rest.n) : NULL;
        size_t n = dot ? (size_t)(dot - rest.p) : rest.n;
        v = path_part(r, v, (struct str){rest.p, n});
        if (replace && v.type == V_UNDEF)
            v = otherwise;
        more = dot != NULL;
        rest = (struct str){rest.p + n + more, rest.n - n - more};
    }
    return v;
}

/* What sort, unique, min and max compare: the attribute, strings in lower case unless asked. */
static struct val sort_key(struct rt *r, struct val v, struct val path, bool case_sensitive)
{
    v = path_get(r, v, path, val_none());
    if (v.type != V_STR || case_sensitive || r->failed)
        return v;
    struct sink s = sink_open(r);
    sink_put_case(r, &s, val_text(v), CASE_LOWER);
    return sink_close(r, &s);
}

static bool flag(struct val v)
{
    return !arg_absent(v) && val_truthy(v);
}

/* --- generators ------------------------------------------------------------------------------ */

static struct val keyword(const struct args *a, const char *name)
{
    for (u32 i = 0; i < a->kn; i++)
        if (str_is(a->kw[i].name, name))
            return a->kw[i].value;
    return (struct val){0};
}

/* Finds the filter or test a generator applies; off: its position among the arguments. */
static bool find_def(struct rt *r, struct gen *g, u32 off, bool map)
{
    if (g->args->n <= off)
        return true;
    struct val name = g->args->pos[off];
    if (name.type == V_STR)
        g->def = map ? filter_find(val_text(name)) : test_find(val_text(name));
    if (!g->def)
        rt_fail(r, "no %s of this name: '%.*s'", map ? "filter" : "test",
                (int)(name.type == V_STR ? MIN(name.n, 100u) : 0), name.s);
    return g->def != NULL;
}

static bool map_start(struct rt *r, struct gen *g)
{
    const struct args *a = g->args;
    g->started = true;
    if (!val_truthy(g->src))
        return false;
    struct val path = keyword(a, "attribute");
    g->by_attr = a->n == 0 && !arg_absent(path);
    if (g->by_attr) {
        u32 known = 1 + !arg_absent(keyword(a, "default"));
        g->arg = path;
        if (a->kn > known)
            rt_fail(r, "map(attribute=...) takes no other keyword than default");
    } else if (a->n == 0) {
        rt_fail(r, "map wants the name of a filter or attribute=");
    } else {
        find_def(r, g, 0, true);
    }
    return !r->failed && iter_open(r, &g->it, g->src);
}

static struct val apply_def(struct rt *r, const struct gen *g, struct val v, u32 off)
{
    struct args rest = *g->args;
    rest.pos += off + 1;
    rest.n -= off + 1;
    return func_call(r, g->def, v, &rest);
}

static bool map_next(struct rt *r, struct gen *g, struct val *out)
{
    if ((!g->started && !map_start(r, g)) || !iter_next(r, &g->it, out))
        return false;
    *out = g->by_attr ? path_get(r, *out, g->arg, keyword(g->args, "default"))
                      : apply_def(r, g, *out, 0);
    return !r->failed;
}

FILTER(f_map)
{
    UNUSED;
    struct args *own = rt_alloc(r, 1, sizeof *own);
    if (own)
        *own = *args;
    return gen_new(r, (struct gen){.next = map_next, .src = self, .args = own});
}

static bool select_start(struct rt *r, struct gen *g)
{
    g->started = true;
    if (!val_truthy(g->src))
        return false;
    if (g->by_attr && g->args->n == 0)
        rt_fail(r, "selectattr and rejectattr want the name of an attribute");
    return !r->failed && find_def(r, g, g->by_attr, false) && iter_open(r, &g->it, g->src);
}

static bool select_next(struct rt *r, struct gen *g, struct val *out)
{
    if (!g->started && !select_start(r, g))
        return false;
    while (iter_next(r, &g->it, out)) {
        struct val v = g->by_attr ? path_get(r, *out, g->args->pos[0], val_none()) : *out;
        if (!r->failed && g->def)
            v = apply_def(r, g, v, g->by_attr);
        if (r->failed)
            return false;
        if (val_truthy(v) != g->negate)
            return true;
    }
    return false;
}

static struct val select_gen(struct rt *r, struct val self, const struct args *args, bool by_attr,
                             bool negate)
{
    struct args *own = rt_alloc(r, 1, sizeof *own);
    if (own)
        *own = *args;
    return gen_new(
        r,
        (struct gen){
            .next = select_next, .src = self, .args = own, .by_attr = by_attr, .negate = negate});
}

FILTER(f_select)
{
    UNUSED;
    return select_gen(r, self, args, false, false);
}
FILTER(f_reject)
{
    UNUSED;
    return select_gen(r, self, args, false, true);
}
FILTER(f_selectattr)
{
    UNUSED;
    return select_gen(r, self, args, true, false);
}
FILTER(f_rejectattr)
{
    UNUSED;
    return select_gen(r, self, args, true, true);
}

static bool items_next(struct rt *r, struct gen *g, struct val *out)
{
    if (!g->started) {
        g->started = true;
        if (g->src.type == V_UNDEF)
            return false;
        if (g->src.type != V_DICT) {
            rt_fail(r, "items wants a mapping, not %s", val_type_name(g->src));
            return false;
        }
        g->it = (struct iter){.src = val_view(g->src, VIEW_ITEMS)};
    }
    return iter_next(r, &g->it, out);
}

FILTER(f_items)
{
    UNUSED;
    return gen_new(r, (struct gen){.next = items_next, .src = self});
}

static bool unique_next(struct rt *r, struct gen *g, struct val *out)
{
    if (!g->started) {
        g->started = true;
        g->seen = (struct val){.type = V_DICT, .dict = dict_new(r, 8)};
        if (r->failed || !iter_open(r, &g->it, g->src))
            return false;
    }
    while (iter_next(r, &g->it, out)) {
        struct val key = sort_key(r, *out, g->arg, g->by_attr);
        u32 before = g->seen.dict->n;
        if (!r->failed)
            dict_put(r, g->seen.dict, key, val_none());
        if (g->seen.dict->n > before)
            return !r->failed;
    }
    return false;
}

FILTER(f_unique)
{
    UNUSED;
    return gen_new(r, (struct gen){.next = unique_next,
                                   .src = self,
                                   .arg = a[1],
                                   .by_attr = flag(a[0])}); /* by_attr: case_sensitive here */
}

/* --- whole lists ----------------------------------------------------------------------------- */

FILTER(f_list)
{
    UNUSED;
    return val_to_list(r, self);
}

FILTER(f_join)
{
    UNUSED;
    struct val list = val_to_list(r, self);
    struct val by = arg_absent(a[0]) ? val_str("", 0) : text_of(r, a[0]);
    for (u32 i = 0; i < list.n && !r->failed && flag(a[1]); i++) {
        if (i == 0) { /* the attributes, in a list of their own */
            struct val *items = rt_alloc(r, list.n, sizeof *items);
            if (!items)
                break;
            memcpy(items, list.items, list.n * sizeof *items);
            list.items = items;
        }
        ((struct val *)list.items)[i] = path_get(r, list.items[i], a[1], val_none());
    }
    if (r->failed)
        return val_nothing();
    struct sink s = sink_open(r);
    for (u32 i = 0; i < list.n && !r->failed; i++) {
        if (i)
            sink_put_str(r, &s, val_text(by));
        sink_put_val(r, &s, list.items[i]);
    }
    return sink_close(r, &s);
}

FILTER(f_first)
{
    UNUSED;
    struct iter it;
    struct val v;
    return iter_open(r, &it, self) && iter_next(r, &it, &v) ? v : val_nothing();
}

static struct val reversed(struct rt *r, struct val list)
{
    struct val *items = rt_alloc(r, list.n, sizeof *items);
    for (u32 i = 0; items && i < list.n; i++)
        items[i] = list.items[list.n - 1 - i];
    return val_list(items, items ? list.n : 0);
}

FILTER(f_last)
{
    UNUSED;
    if (self.type == V_GEN)
        rt_fail(r, "a generator has no last element; use |list|last");
    struct val list = val_to_list(r, self);
    return list.n && !r->failed ? list.items[list.n - 1] : val_nothing();
}

FILTER(f_reverse)
{
    UNUSED;
    if (self.type == V_STR)
        return val_slice(r, self, val_none(), val_none(), val_int(-1));
    struct val list = val_to_list(r, self);
    if (r->failed)
        return list;
    list = reversed(r, list);
    return self.type == V_GEN ? list : gen_over_list(r, list); /* as reversed() and list() give */
}

struct keyed {
    struct val key, value;
};

/* Merge sort by key: stable, also when reversed, as Python's. */
static void merge_sort(struct rt *r, struct keyed *v, struct keyed *spare, size_t n, bool reverse)
{
    if (n < 2 || r->failed)
        return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    merge_sort(r, v, spare, half, reverse);
    merge_sort(r, v + half, spare, n - half, reverse);
    while (i < half && j < n) {
        int c = val_cmp(r, v[i].key, v[j].key);
        bool left = reverse ? c >= 0 : c <= 0;
        spare[k++] = left ? v[i++] : v[j++];
    }
    while (i < half)
        spare[k++] = v[i++];
    memcpy(v, spare, k * sizeof *v);
}

static struct val sort(struct rt *r, struct keyed *v, size_t n, bool reverse)
{
    struct keyed *spare = rt_alloc(r, n, sizeof *spare);
    struct val *items = rt_alloc(r, n, sizeof *items);
    if (!items)
        return val_nothing();
    merge_sort(r, v, spare, n, reverse);
    for (size_t i = 0; i < n; i++)
        items[i] = v[i].value;
    return val_list(items, n);
}

/* The list with the key of each element; paths are separated by commas in `sort`. */
static struct keyed *with_keys(struct rt *r, struct val list, struct val path, bool case_sensitive)
{
    struct keyed *v = rt_alloc(r, list.n, sizeof *v);
    struct str rest = path.type == V_STR ? val_text(path) : (struct str){"", 0};
    u32 parts = 1;
    for (size_t i = 0; i < rest.n; i++)
        parts += rest.p[i] == ',';
    for (u32 i = 0; v && i < list.n && !r->failed; i++) {
        struct val *keys = rt_alloc(r, parts, sizeof *keys), one = path;
        struct str left = rest;
        for (u32 k = 0; keys && k < parts; k++) {
            const char *comma = left.n ? memchr(left.p, ',', left.n) : NULL;
            size_t n = comma ? (size_t)(comma - left.p) : left.n;
            if (path.type == V_STR)
                one = val_str(left.p, n);
            keys[k] = sort_key(r, list.items[i], one, case_sensitive);
            left = (struct str){left.p + n + (comma != NULL), left.n - n - (comma != NULL)};
        }
        v[i] = (struct keyed){val_list(keys, parts), list.items[i]};
    }
    return r->failed ? NULL : v;
}

FILTER(f_sort)
{
    UNUSED;
    struct val list = val_to_list(r, self);
    struct keyed *v = with_keys(r, list, a[2], flag(a[1]));
    return v ? sort(r, v, list.n, flag(a[0])) : val_nothing();
}

FILTER(f_dictsort)
{
    UNUSED;
    bool by_value = a[1].type == V_STR && str_is(val_text(a[1]), "value");
    if (!arg_absent(a[1]) && !by_value && !(a[1].type == V_STR && str_is(val_text(a[1]), "key")))
        rt_fail(r, "dictsort: by must be 'key' or 'value'");
    if (self.type == V_UNDEF)
        eval_undefined(r, self);
    else if (self.type != V_DICT)
        rt_fail(r, "dictsort wants a mapping, not %s", val_type_name(self));
    if (r->failed)
        return val_nothing();
    struct val list = val_to_list(r, val_view(self, VIEW_ITEMS));
    struct keyed *v = with_keys(r, list, val_int(by_value), flag(a[0]));
    return v ? sort(r, v, list.n, flag(a[2])) : val_nothing();
}

static struct val extreme(struct rt *r, struct val self, const struct val *a, int sign)
{
    struct iter it;
    struct val v, best = val_nothing(), best_key = val_nothing();
    bool some = false;
    if (!iter_open(r, &it, self))
        return best;
    while (iter_next(r, &it, &v)) {
        struct val key = sort_key(r, v, a[1], flag(a[0]));
        if (!r->failed && (!some || sign * val_cmp(r, key, best_key) > 0)) {
            best = v;
            best_key = key;
        }
        some = true;
    }
    return best;
}

FILTER(f_max)
{
    UNUSED;
    return extreme(r, self, a, 1);
}
FILTER(f_min)
{
    UNUSED;
    return extreme(r, self, a, -1);
}

FILTER(f_sum)
{
    UNUSED;
    struct iter it;
    struct val v, total = arg_absent(a[1]) ? val_int(0) : a[1];
    if (total.type == V_STR)
        rt_fail(r, "sum() can't sum strings");
    if (r->failed || !iter_open(r, &it, self))
        return val_nothing();
    while (iter_next(r, &it, &v)) {
        v = path_get(r, v, a[0], val_none());
        if (!r->failed)
            total = op_binary(r, '+', total, v);
    }
    return total;
}

static const struct func list_filters[] = {
    {"dictsort", "case_sensitive by reverse", 0, false, f_dictsort},
    {"first", "", 0, false, f_first},
    {"items", "", 0, false, f_items},
    {"join", "d attribute", 0, false, f_join},
    {"last", "", 0, false, f_last},
    {"list", "", 0, false, f_list},
    {"map", "", 0, true, f_map},
    {"max", "case_sensitive attribute", 0, false, f_max},
    {"min", "case_sensitive attribute", 0, false, f_min},
    {"reject", "", 0, true, f_reject},
    {"rejectattr", "", 0, true, f_rejectattr},
    {"reverse", "", 0, false, f_reverse},
    {"select", "", 0, true, f_select},
    {"selectattr", "", 0, true, f_selectattr},
    {"sort", "reverse case_sensitive attribute", 0, false, f_sort},
    {"sum", "attribute start", 0, false, f_sum},
    {"unique", "case_sensitive attribute", 0, false, f_unique},
};

const struct func *list_filter_find(struct str name)
{
    for (size_t i = 0; i < COUNTOF(list_filters); i++)
        if (str_is(name, list_filters[i].name))
            return &list_filters[i];
    return NULL;
}
