#include "core/model/template_value.h"

#include "config/limits.h"
#include "core/model/template_eval.h"
#include "core/model/template_method.h"
#include "core/model/template_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- failure and ceilings -------------------------------------------------------------------- */

static void fail(struct rt *r, enum err code, const char *fmt, va_list args)
{
    char text[ERR_TEXT_MAX];
    if (r->failed)
        return;
    r->failed = true;
    vsnprintf(text, sizeof text, fmt, args);
    eval_report(r, code, text);
}

void rt_fail(struct rt *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail(r, ERR_REQUEST, fmt, args);
    va_end(args);
}

static void limit(struct rt *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void limit(struct rt *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail(r, ERR_LIMIT, fmt, args);
    va_end(args);
}

void rt_limit(struct rt *r, const char *what)
{
    limit(r, "%s", what);
}

void rt_too_long(struct rt *r)
{
    r->failed = true;
    err_set(r->e, ERR_TOO_LONG, "the rendered text has more than %zu bytes", r->out.cap);
}

bool rt_step(struct rt *r)
{
    if (!r->failed && ++r->steps > LIMIT_TEMPLATE_STEPS)
        limit(r, "the template takes more than %u steps (LIMIT_TEMPLATE_STEPS)",
              LIMIT_TEMPLATE_STEPS);
    return !r->failed;
}

bool rt_charge(struct rt *r, size_t bytes)
{
    r->bytes += bytes;
    if (!r->failed && r->bytes > (u64)LIMIT_TEMPLATE_STEPS * 64)
        limit(r,
              "the template handles more than %llu bytes of text (64 a step of "
              "LIMIT_TEMPLATE_STEPS)",
              (unsigned long long)LIMIT_TEMPLATE_STEPS * 64);
    return !r->failed;
}

bool rt_enter(struct rt *r)
{
    if (r->failed)
        return false;
    if (r->depth == LIMIT_TEMPLATE_CALLS) {
        limit(r, "the template nests deeper than %d expressions and calls (LIMIT_TEMPLATE_CALLS)",
              LIMIT_TEMPLATE_CALLS);
        return false;
    }
    r->depth++;
    return true;
}

void rt_leave(struct rt *r)
{
    r->depth--;
}

void *rt_alloc(struct rt *r, size_t n, size_t size)
{
    size_t bytes;
    if (r->failed)
        return NULL;
    if (!size_mul(n, size, &bytes) || bytes > (size_t)(r->hi - r->lo) ||
        ROUND_UP(bytes, (size_t)8) > (size_t)(r->hi - r->lo)) {
        rt_limit(r, "the values of this rendering need more memory than it has");
        return NULL;
    }
    r->hi -= ROUND_UP(bytes, (size_t)8);
    return r->hi;
}

/* --- making values --------------------------------------------------------------------------- */

struct val val_nothing(void)
{
    return (struct val){.type = V_UNDEF, .s = ""};
}

struct val val_list(const struct val *items, size_t n)
{
    return (struct val){.type = V_LIST, .n = (u32)n, .items = items};
}

struct val val_tuple2(struct rt *r, struct val a, struct val b)
{
    struct val *items = rt_alloc(r, 2, sizeof *items);
    if (!items)
        return val_nothing();
    items[0] = a;
    items[1] = b;
    return (struct val){.type = V_TUPLE, .n = 2, .items = items};
}

struct val val_view(struct val dict, enum view_kind kind)
{
    return (struct val){.type = V_VIEW, .n = kind, .dict = dict.dict};
}

static struct val json_number(const struct json *j)
{
    i64 i;
    if (json_i64(j, &i))
        return val_int(i);
    for (size_t k = 0; k < j->text.n; k++)
        if (strchr(".eE", j->text.p[k]))
            return val_float(strtod(j->text.p, NULL)); /* too large is inf, as in Python */
    return (struct val){.type = V_BIG, .n = (u32)j->text.n, .s = j->text.p};
}

struct val val_json(struct rt *r, const struct json *j)
{
    struct val *items;
    struct dict *d;
    u32 i = 0;
    switch (j->type) {
    case JSON_NULL:
        return val_none();
    case JSON_FALSE:
    case JSON_TRUE:
        return val_bool(j->type == JSON_TRUE);
    case JSON_NUMBER:
        return json_number(j);
    case JSON_STRING:
        return val_str(j->text.p, j->text.n);
    case JSON_ARRAY:
        items = rt_alloc(r, j->n, sizeof *items);
        for (const struct json *m = j->child; m && items; m = m->next)
            items[i++] = val_json(r, m);
        return val_list(items, items ? j->n : 0);
    case JSON_OBJECT:
        d = dict_new(r, j->n);
        for (const struct json *m = j->child; m && d; m = m->next)
            dict_put(r, d, val_str(m->key.p, m->key.n), val_json(r, m));
        return d ? (struct val){.type = V_DICT, .dict = d} : val_nothing();
    }
    ASSERT(false);
}

/* --- dicts ----------------------------------------------------------------------------------- */

enum { DICT_SMALL = 8 }; /* up to here a scan beats the index */

bool val_hashable(struct val v)
{
    if (v.type == V_TUPLE)
        for (u32 i = 0; i < v.n; i++)
            if (!val_hashable(v.items[i]))
                return false;
    return v.type != V_LIST && v.type != V_DICT && v.type != V_VIEW;
}

static u32 hash_bytes(u32 h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const u8 *)p)[i]) * 0x01000193u;
    return h ^ h >> 15;
}

/* Equal values hash equal: 1, 1.0 and true are one key. */
static u32 hash(struct val v)
{
    if (v.type == V_STR || v.type == V_BIG)
        return hash_bytes(0x811c9dc5u, v.s, v.n);
    if (val_is_num(v)) {
        double f = val_num(v) + 0.0; /* no -0.0 */
        return hash_bytes(7, &f, sizeof f);
    }
    u32 h = v.type;
    if (v.type == V_TUPLE)
        for (u32 i = 0; i < v.n; i++)
            h = h * 31 + hash(v.items[i]);
    return h;
}

struct dict *dict_new(struct rt *r, u32 cap)
{
    struct dict *d = rt_alloc(r, 1, sizeof *d);
    struct pair *pairs = rt_alloc(r, cap, sizeof *pairs);
    if (!d || !pairs)
        return NULL;
    *d = (struct dict){.cap = cap, .pairs = pairs};
    return d;
}

static bool dict_index(struct rt *r, struct dict *d)
{
    d->slots = 32;
    while (d->slots < 2 * d->cap)
        d->slots *= 2;
    d->index = rt_alloc(r, d->slots, sizeof *d->index);
    if (!d->index)
        return false;
    memset(d->index, 0, d->slots * sizeof *d->index);
    for (u32 i = 0; i < d->n; i++) {
        u32 at = hash(d->pairs[i].key) & (d->slots - 1);
        while (d->index[at])
            at = (at + 1) & (d->slots - 1);
        d->index[at] = i + 1;
    }
    return true;
}

static struct pair *dict_find(struct rt *r, const struct dict *d, struct val key)
{
    if (!d->slots) {
        for (u32 i = 0; i < d->n; i++)
            if (d->pairs[i].key.type == V_STR && key.type == V_STR
                    ? str_eq(val_text(d->pairs[i].key), val_text(key))
                    : val_eq(r, d->pairs[i].key, key))
                return &d->pairs[i];
        return NULL;
    }
    for (u32 at = hash(key) & (d->slots - 1); d->index[at]; at = (at + 1) & (d->slots - 1))
        if (rt_charge(r, 16) && val_eq(r, d->pairs[d->index[at] - 1].key, key))
            return &d->pairs[d->index[at] - 1];
    return NULL;
}

const struct val *dict_get(struct rt *r, const struct dict *d, struct val key)
{
    struct pair *p = dict_find(r, d, key);
    return p ? &p->value : NULL;
}

const struct val *dict_get_str(struct rt *r, const struct dict *d, struct str key)
{
    return dict_get(r, d, val_str(key.p, key.n));
}

static bool dict_grow(struct rt *r, struct dict *d)
{
    u32 cap = MAX(4u, 2 * d->cap);
    struct pair *pairs = rt_alloc(r, cap, sizeof *pairs);
    if (!pairs)
        return false;
    memcpy(pairs, d->pairs, d->n * sizeof *pairs);
    d->pairs = pairs;
    d->cap = cap;
    d->slots = 0;
    return true;
}

void dict_put(struct rt *r, struct dict *d, struct val key, struct val value)
{
    if (r->failed)
        return;
    if (!val_hashable(key)) {
        rt_fail(r, "unhashable type: '%s'", val_type_name(key));
        return;
    }
    struct pair *p = dict_find(r, d, key);
    if (p) {
        p->value = value;
        return;
    }
    if (d->n == d->cap && !dict_grow(r, d))
        return;
    d->pairs[d->n++] = (struct pair){key, value};
    if (d->slots) {
        u32 at = hash(key) & (d->slots - 1);
        while (d->index[at])
            at = (at + 1) & (d->slots - 1);
        d->index[at] = d->n;
    } else if (d->n > DICT_SMALL) {
        dict_index(r, d);
    }
}

/* --- what Python answers --------------------------------------------------------------------- */

const char *val_type_name(struct val v)
{
    static const char *const names[] = {
        "Undefined", "NoneType",  "bool",        "int",   "int",       "float",
        "str",       "list",      "tuple",       "dict",  "dict view", "range",
        "generator", "Namespace", "LoopContext", "Macro", "function",  "method"};
    return names[v.type];
}

bool val_truthy(struct val v)
{
    switch ((enum val_type)v.type) {
    case V_UNDEF:
    case V_NONE:
        return false;
    case V_BOOL:
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
    case V_LIST:
    case V_TUPLE:
        return v.n != 0;
    case V_DICT:
    case V_VIEW:
        return v.dict->n != 0;
    case V_RANGE:
        return v.range->n != 0;
    default:
        return true;
    }
}

double val_num(struct val v)
{
    return v.type == V_FLOAT ? v.f : (double)v.i;
}

static bool dict_eq(struct rt *r, const struct dict *a, const struct dict *b)
{
    if (a->n != b->n)
        return false;
    for (u32 i = 0; i < a->n && !r->failed; i++) {
        const struct val *other = dict_get(r, b, a->pairs[i].key);
        if (!other || !val_eq(r, a->pairs[i].value, *other))
            return false;
    }
    return true;
}

static bool eq(struct rt *r, struct val a, struct val b)
{
    if (val_is_num(a) && val_is_num(b))
        return a.type == V_FLOAT || b.type == V_FLOAT ? val_num(a) == val_num(b) : a.i == b.i;
    if (a.type != b.type)
        return false;
    switch ((enum val_type)a.type) {
    case V_UNDEF:
    case V_NONE:
        return true;
    case V_STR:
    case V_BIG:
        return rt_charge(r, MIN(a.n, b.n)) && str_eq(val_text(a), val_text(b));
    case V_LIST:
    case V_TUPLE:
        if (a.n != b.n)
            return false;
        for (u32 i = 0; i < a.n; i++)
            if (r->failed || !val_eq(r, a.items[i], b.items[i]))
                return false;
        return true;
    case V_DICT:
        return dict_eq(r, a.dict, b.dict);
    case V_RANGE:
        return a.range->n == b.range->n &&
               (a.range->n == 0 || (a.range->start == b.range->start &&
                                    (a.range->n == 1 || a.range->step == b.range->step)));
    default:
        return a.dict == b.dict && a.n == b.n; /* the same object */
    }
}

bool val_eq(struct rt *r, struct val a, struct val b)
{
    if (!rt_charge(r, 8) || !rt_enter(r))
        return false;
    bool same = eq(r, a, b);
    rt_leave(r);
    return same;
}

static int cmp(struct rt *r, struct val a, struct val b)
{
    if (val_is_num(a) && val_is_num(b)) {
        if (a.type == V_FLOAT || b.type == V_FLOAT)
            return val_num(a) < val_num(b) ? -1 : val_num(a) > val_num(b) ? 1 : 0;
        return a.i < b.i ? -1 : a.i > b.i;
    }
    if (a.type == V_STR && b.type == V_STR) {
        rt_charge(r, MIN(a.n, b.n)); /* bytes of UTF-8 order as code points do */
        int c = MIN(a.n, b.n) ? memcmp(a.s, b.s, MIN(a.n, b.n)) : 0;
        return c ? c : a.n < b.n ? -1 : a.n > b.n;
    }
    if (val_is_seq(a) && a.type == b.type) {
        for (u32 i = 0; i < MIN(a.n, b.n) && !r->failed; i++)
            if (!val_eq(r, a.items[i], b.items[i]))
                return val_cmp(r, a.items[i], b.items[i]);
        return a.n < b.n ? -1 : a.n > b.n;
    }
    if (a.type == V_UNDEF || b.type == V_UNDEF)
        eval_undefined(r, a.type == V_UNDEF ? a : b);
    else
        rt_fail(r, "'%s' and '%s' cannot be ordered", val_type_name(a), val_type_name(b));
    return 0;
}

int val_cmp(struct rt *r, struct val a, struct val b)
{
    if (!rt_charge(r, 8) || !rt_enter(r))
        return 0;
    int c = cmp(r, a, b);
    rt_leave(r);
    return c;
}

bool val_in(struct rt *r, struct val needle, struct val hay)
{
    if (hay.type == V_STR) {
        if (needle.type != V_STR)
            rt_fail(r, "'in' a string wants a string, not %s", val_type_name(needle));
        return !r->failed && rt_charge(r, hay.n) && text_find(val_text(hay), val_text(needle));
    }
    if (hay.type == V_DICT || (hay.type == V_VIEW && hay.n == VIEW_KEYS)) {
        if (!val_hashable(needle))
            rt_fail(r, "unhashable type: '%s'", val_type_name(needle));
        return !r->failed && dict_get(r, hay.dict, needle);
    }
    struct iter it;
    struct val v;
    if (!iter_open(r, &it, hay))
        return false;
    while (iter_next(r, &it, &v))
        if (val_eq(r, v, needle))
            return true;
    return false;
}

i64 val_len(struct rt *r, struct val v)
{
    switch ((enum val_type)v.type) {
    case V_UNDEF:
        return 0;
    case V_STR:
        rt_charge(r, v.n);
        return (i64)text_length(val_text(v));
    case V_LIST:
    case V_TUPLE:
        return v.n;
    case V_DICT:
    case V_VIEW:
        return v.dict->n;
    case V_RANGE:
        return v.range->n;
    case V_LOOP:
        return loop_length(r, v.loop);
    default:
        return -1;
    }
}

static struct val str_at(struct rt *r, struct val s, i64 at)
{
    i64 n = at < 0 ? val_len(r, s) : 0;
    at += n;
    if (at < 0 || !rt_charge(r, MIN((size_t)at, s.n)))
        return val_nothing();
    size_t from = text_offset(val_text(s), (size_t)at);
    if (from >= s.n)
        return val_nothing();
    u32 cp;
    return val_str(s.s + from, text_char(val_text(s), from, &cp));
}

/* obj[key] as Python has it; undefined where that raises. */
static struct val subscript(struct rt *r, struct val obj, struct val key)
{
    if (obj.type == V_DICT) {
        const struct val *v = val_hashable(key) ? dict_get(r, obj.dict, key) : NULL;
        return v ? *v : val_nothing();
    }
    if (key.type != V_INT && key.type != V_BOOL)
        return val_nothing();
    i64 i = key.i;
    if (obj.type == V_STR)
        return str_at(r, obj, i);
    if (val_is_seq(obj)) {
        i += i < 0 ? obj.n : 0;
        return i >= 0 && i < obj.n ? obj.items[i] : val_nothing();
    }
    if (obj.type == V_RANGE) {
        i += i < 0 ? obj.range->n : 0;
        if (i >= 0 && i < obj.range->n)
            return val_int(obj.range->start + i * obj.range->step);
    }
    return val_nothing();
}

/* getattr(obj, name); false when there is none. Names the sandbox hides answer undefined. */
static bool attribute(struct rt *r, struct val obj, struct str name, struct val *out)
{
    *out = val_undef(name);
    if (name.n >= 2 && memcmp(name.p, "__", 2) == 0)
        return str_ends(name, STR("__"));
    if (obj.type == V_SPACE) {
        const struct val *v = dict_get_str(r, obj.dict, name);
        if (v && name.p[0] != '_')
            *out = *v;
        return v != NULL;
    }
    if (obj.type == V_LOOP)
        return loop_attr(r, obj.loop, name, out);
    if (method_hidden(obj, name))
        return true;
    const struct func *f = method_find(obj, name);
    struct bound *b = f ? rt_alloc(r, 1, sizeof *b) : NULL;
    if (b) {
        *b = (struct bound){obj, f};
        *out = (struct val){.type = V_METHOD, .bound = b};
    }
    return f != NULL;
}

struct val val_attr(struct rt *r, struct val obj, struct str name)
{
    struct val v;
    if (obj.type == V_UNDEF) {
        eval_undefined(r, obj);
        return val_nothing();
    }
    if (attribute(r, obj, name, &v))
        return v;
    v = subscript(r, obj, val_str(name.p, name.n));
    return v.type == V_UNDEF ? val_undef(name) : v;
}

struct val val_item(struct rt *r, struct val obj, struct val key)
{
    struct val v;
    if (obj.type == V_UNDEF) {
        eval_undefined(r, obj);
        return val_nothing();
    }
    if (obj.type == V_DICT && val_hashable(key)) { /* undefined may be a member, too */
        const struct val *hit = dict_get(r, obj.dict, key);
        if (hit)
            return *hit;
    }
    v = subscript(r, obj, key);
    if (v.type == V_UNDEF && key.type == V_STR && !attribute(r, obj, val_text(key), &v))
        v = val_undef(val_text(key));
    return v;
}

static bool slice_bound(struct rt *r, struct val v, i64 n, i64 low, i64 high, i64 none, i64 *out)
{
    *out = none;
    if (v.type == V_NONE)
        return true;
    if (v.type != V_INT && v.type != V_BOOL) {
        rt_fail(r, "slice indices must be integers or none, not %s", val_type_name(v));
        return false;
    }
    i64 i = v.i < 0 ? MAX(v.i, -n - 1) + n : v.i;
    *out = MIN(MAX(i, low), high);
    return true;
}

static struct val slice_str(struct rt *r, struct val s, i64 from, i64 count, i64 step)
{
    struct str t = val_text(s);
    if (!rt_charge(r, t.n) || count == 0)
        return val_str(s.s, 0);
    size_t at = text_offset(t, (size_t)from);
    if (step == 1) {
        size_t n = text_offset((struct str){t.p + at, t.n - at}, (size_t)count);
        struct val v = val_str(t.p + at, n);
        v.markup = s.markup;
        return v;
    }
    struct sink out = sink_open(r);
    for (i64 k = 0; k < count && !r->failed; k++) {
        u32 cp;
        sink_put(r, &out, t.p + at, text_char(t, at, &cp));
        for (i64 j = 0; k + 1 < count && j < (step < 0 ? -step : step); j++)
            do
                at += step < 0 ? (size_t)-1 : 1;
            while (at < t.n && ((u8)t.p[at] & 0xc0) == 0x80);
    }
    return sink_close(r, &out);
}

struct val val_slice(struct rt *r, struct val obj, struct val from, struct val to, struct val by)
{
    bool known = obj.type == V_STR || val_is_seq(obj) || obj.type == V_RANGE;
    if (obj.type == V_UNDEF)
        eval_undefined(r, obj);
    else if (!known)
        rt_fail(r, "a %s cannot be sliced", val_type_name(obj));
    if (!known)
        return val_nothing();
    i64 n = val_len(r, obj), step, a, b;
    if (!slice_bound(r, by, 0, INT32_MIN, INT32_MAX, 1, &step))
        return val_nothing();
    step = by.type == V_NONE ? 1 : MIN(MAX(by.i, -(i64)INT32_MAX), (i64)INT32_MAX);
    if (step == 0)
        rt_fail(r, "slice step cannot be zero");
    i64 low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (!slice_bound(r, from, n, low, high, step < 0 ? high : low, &a) ||
        !slice_bound(r, to, n, low, high, step < 0 ? low : high, &b) || r->failed)
        return val_nothing();
    i64 count =
        step > 0 ? (b > a ? (b - a - 1) / step + 1 : 0) : (a > b ? (a - b - 1) / -step + 1 : 0);
    if (obj.type == V_STR)
        return slice_str(r, obj, a, count, step);
    if (obj.type == V_RANGE) {
        struct range *g = rt_alloc(r, 1, sizeof *g), *o = obj.range;
        if (g)
            *g = (struct range){o->start + a * o->step, o->start + b * o->step, o->step * step,
                                count};
        return g ? (struct val){.type = V_RANGE, .range = g} : val_nothing();
    }
    struct val v = obj;
    v.n = (u32)count;
    v.items = obj.items + (count ? a : 0);
    if (step != 1 && count > 0) {
        struct val *items = rt_alloc(r, (size_t)count, sizeof *items);
        for (i64 k = 0; items && k < count; k++)
            items[k] = obj.items[a + k * step];
        v.items = items;
        v.n = items ? v.n : 0;
    }
    return v;
}

/* --- iteration ------------------------------------------------------------------------------- */

bool val_iterable(struct val v)
{
    return v.type == V_UNDEF || (v.type >= V_STR && v.type <= V_GEN) || v.type == V_LOOP;
}

bool iter_open(struct rt *r, struct iter *it, struct val v)
{
    *it = (struct iter){.src = v};
    if (!val_iterable(v) || v.type == V_LOOP)
        rt_fail(r, "'%s' object is not iterable", val_type_name(v));
    return !r->failed;
}

static bool dict_next(struct rt *r, struct iter *it, struct val *out)
{
    const struct dict *d = it->src.dict;
    if (it->at >= d->n)
        return false;
    const struct pair *p = &d->pairs[it->at++];
    if (it->src.type == V_DICT || it->src.n == VIEW_KEYS)
        *out = p->key;
    else
        *out = it->src.n == VIEW_VALUES ? p->value : val_tuple2(r, p->key, p->value);
    return true;
}

bool iter_next(struct rt *r, struct iter *it, struct val *out)
{
    u32 cp;
    if (!rt_step(r))
        return false;
    switch ((enum val_type)it->src.type) {
    case V_STR:
        if ((size_t)it->at >= it->src.n)
            return false;
        *out = val_str(it->src.s + it->at, text_char(val_text(it->src), (size_t)it->at, &cp));
        it->at += out->n;
        return true;
    case V_LIST:
    case V_TUPLE:
        if (it->at >= it->src.n)
            return false;
        *out = it->src.items[it->at++];
        return true;
    case V_DICT:
    case V_VIEW:
        return dict_next(r, it, out) && !r->failed;
    case V_RANGE:
        if (it->at >= it->src.range->n)
            return false;
        *out = val_int(it->src.range->start + it->at++ * it->src.range->step);
        return true;
    case V_GEN:
        if (it->src.gen->done || !rt_enter(r))
            return false;
        it->src.gen->done = !it->src.gen->next(r, it->src.gen, out) || r->failed;
        rt_leave(r);
        return !it->src.gen->done;
    default:
        return false; /* undefined: nothing */
    }
}

struct val iter_list(struct rt *r, struct iter *it)
{
    size_t n = 0, cap = 0;
    struct val *items = NULL, v;
    while (iter_next(r, it, &v)) {
        if (n == cap) {
            cap = MAX((size_t)8, 2 * cap);
            struct val *more = rt_alloc(r, cap, sizeof *more);
            if (!more)
                break;
            if (n)
                memcpy(more, items, n * sizeof *items);
            items = more;
        }
        items[n++] = v;
    }
    return r->failed ? val_nothing() : val_list(items, n);
}

struct val val_to_list(struct rt *r, struct val v)
{
    struct iter it;
    if (val_is_seq(v)) {
        v.type = V_LIST;
        return v;
    }
    return iter_open(r, &it, v) ? iter_list(r, &it) : val_nothing();
}

struct val gen_new(struct rt *r, struct gen g)
{
    struct gen *p = rt_alloc(r, 1, sizeof *p);
    if (!p)
        return val_nothing();
    *p = g;
    return (struct val){.type = V_GEN, .gen = p};
}

static bool list_next(struct rt *r, struct gen *g, struct val *out)
{
    return iter_next(r, &g->it, out);
}

struct val gen_over_list(struct rt *r, struct val list)
{
    return gen_new(r, (struct gen){.next = list_next, .it = {.src = list}});
}

/* --- arguments ------------------------------------------------------------------------------- */

bool arg_absent(struct val v)
{
    return v.type == V_UNDEF && v.s == NULL;
}

/* Position of a keyword among the blank-separated parameter names, or -1. */
static int param_of(const char *params, struct str name)
{
    for (int i = 0; *params; i++) {
        size_t n = strcspn(params, " ");
        if (n == name.n && memcmp(params, name.p, n) == 0)
            return i;
        params += n + (params[n] == ' ');
    }
    return -1;
}

static u32 params_count(const char *params)
{
    u32 n = *params != 0;
    for (; *params; params++)
        n += *params == ' ';
    return n;
}

struct val func_call(struct rt *r, const struct func *f, struct val self, const struct args *args)
{
    struct val a[FUNC_PARAMS_MAX] = {0}; /* all absent */
    bool positional = f->params[0] == '/';
    const char *names = f->params + (positional ? 2 : 0);
    u32 params = params_count(names);
    if (!rt_step(r))
        return val_nothing();
    if (f->variadic)
        return f->run(r, self, a, args);
    if (args->n > params) {
        rt_fail(r, "%s takes at most %u arguments, not %u", f->name, params, args->n);
        return val_nothing();
    }
    for (u32 i = 0; i < args->n; i++)
        a[i] = args->pos[i];
    for (u32 i = 0; i < args->kn; i++) {
        int at = positional ? -1 : param_of(names, args->kw[i].name);
        if (at < 0 || (u32)at < args->n || !arg_absent(a[at])) {
            rt_fail(r, "%s cannot take the keyword argument '%.*s'", f->name,
                    STR_ARG(args->kw[i].name));
            return val_nothing();
        }
        a[at] = args->kw[i].value;
    }
    for (u32 i = 0; i < f->required; i++)
        if (arg_absent(a[i])) {
            rt_fail(r, "%s wants %u arguments", f->name, f->required);
            return val_nothing();
        }
    return f->run(r, self, a, args);
}
