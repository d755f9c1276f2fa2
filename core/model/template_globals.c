/* The global functions of the environment transformers sets up: range, dict, namespace,
 * raise_exception, strftime_now (declared in template_filter.h). */
#include "core/base/date.h"
#include "core/model/template_eval.h"
#include "core/model/template_filter.h"
#include "core/model/template_text.h"

enum { RANGE_MAX = 100000 }; /* the sandbox of jinja2 refuses longer ones */

#define GLOBAL(name)                                                           \
    static struct val name(struct rt *r, struct val self, const struct val *a, \
                           const struct args *args)
#define UNUSED (void)r, (void)self, (void)a, (void)args

GLOBAL(g_range)
{
    UNUSED;
    i64 v[3] = {0, 0, 1};
    if (args->n < 1 || args->n > 3 || args->kn)
        rt_fail(r, "range wants one to three integers");
    for (u32 i = 0; i < args->n && !r->failed; i++) {
        if (args->pos[i].type != V_INT && args->pos[i].type != V_BOOL)
            rt_fail(r, "range wants integers, not %s", val_type_name(args->pos[i]));
        else
            v[args->n == 1 ? 1 : i] = args->pos[i].i;
    }
    if (v[2] == 0)
        rt_fail(r, "range: the step must not be zero");
    struct range *g = rt_alloc(r, 1, sizeof *g);
    if (!g)
        return val_nothing();
    u64 span = v[2] > 0 ? (v[1] > v[0] ? (u64)v[1] - (u64)v[0] : 0)
                        : (v[0] > v[1] ? (u64)v[0] - (u64)v[1] : 0);
    u64 step = v[2] > 0 ? (u64)v[2] : 0 - (u64)v[2];
    u64 n = span ? (span - 1) / step + 1 : 0;
    if (n > RANGE_MAX)
        rt_fail(r, "range too big: the sandbox blocks ranges larger than %d", RANGE_MAX);
    *g = (struct range){v[0], v[1], v[2], (i64)n};
    return (struct val){.type = V_RANGE, .range = g};
}

/* dict(mapping or pairs, key=value...) */
static struct val make_dict(struct rt *r, const struct args *args, u8 type)
{
    struct dict *d = dict_new(r, args->kn + 4);
    struct iter it;
    struct val v;
    if (args->n > 1)
        rt_fail(r, "dict and namespace take one positional argument at most");
    if (!r->failed && args->n && args->pos[0].type == V_UNDEF)
        eval_undefined(r, args->pos[0]); /* it has no keys() */
    if (!r->failed && args->n) {
        bool mapping = args->pos[0].type == V_DICT;
        struct val src = mapping ? val_view(args->pos[0], VIEW_ITEMS) : args->pos[0];
        for (bool ok = iter_open(r, &it, src); ok && iter_next(r, &it, &v);) {
            struct val pair = val_to_list(r, v);
            if (!r->failed && pair.n != 2)
                rt_fail(r, "dict wants pairs of key and value");
            if (!r->failed)
                dict_put(r, d, pair.items[0], pair.items[1]);
        }
    }
    for (u32 i = 0; i < args->kn && !r->failed; i++)
        dict_put(r, d, val_str(args->kw[i].name.p, args->kw[i].name.n), args->kw[i].value);
    return r->failed ? val_nothing() : (struct val){.type = type, .dict = d};
}

GLOBAL(g_dict)
{
    UNUSED;
    return make_dict(r, args, V_DICT);
}

GLOBAL(g_namespace)
{
    UNUSED;
    return make_dict(r, args, V_SPACE);
}

GLOBAL(g_raise)
{
    UNUSED;
    struct val text = text_of(r, a[0]);
    if (!r->failed)
        rt_fail(r, "%.*s", (int)MIN(text.n, 900u), text.s);
    return val_nothing();
}

/* datetime.now().strftime(fmt): the C locale, no time zone. */
GLOBAL(g_strftime_now)
{
    UNUSED;
    if (a[0].type != V_STR) {
        rt_fail(r, "strftime_now wants a format");
        return val_nothing();
    }
    struct date now = date_of(r->now_s);
    struct sink s = sink_open(r);
    struct str f = val_text(a[0]);
    for (size_t i = 0; i < f.n && !r->failed; i++) {
        char text[DATE_TEXT];
        if (f.p[i] != '%' || i + 1 == f.n) {
            sink_put(r, &s, f.p + i, 1);
            continue;
        }
        bool plain = f.p[i + 1] == '-' && i + 2 < f.n;
        i += 1 + plain;
        u32 n = date_format(&now, f.p[i], plain, text);
        if (n == 0 && f.p[i] != 'z' && f.p[i] != 'Z') /* a naive time has no zone */
            rt_fail(r, "strftime_now: unsupported conversion");
        sink_put(r, &s, text, n);
    }
    return sink_close(r, &s);
}

static const struct func globals[] = {
    {"dict", "", 0, true, g_dict},
    {"namespace", "", 0, true, g_namespace},
    {"raise_exception", "message", 1, false, g_raise},
    {"range", "", 0, true, g_range},
    {"strftime_now", "format", 1, false, g_strftime_now},
};

const struct func *global_find(struct str name)
{
    for (size_t i = 0; i < COUNTOF(globals); i++)
        if (str_is(name, globals[i].name))
            return &globals[i];
    return NULL;
}
