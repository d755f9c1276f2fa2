#include "core/model/template_filter.h"

#include "core/model/template_eval.h"
#include "core/model/template_lex.h"
#include "core/model/template_lists.h"
#include "core/model/template_method.h"
#include "core/model/template_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FILTER(name)                                                           \
    static struct val name(struct rt *r, struct val self, const struct val *a, \
                           const struct args *args)
#define UNUSED (void)r, (void)self, (void)a, (void)args

static bool flag(struct val v) /* of an optional argument, absent is false */
{
    return !arg_absent(v) && val_truthy(v);
}

/* --- text ------------------------------------------------------------------------------------ */

/* Filters of text take any value as str(value); then a method of strings does the work. */
static struct val by_method(struct rt *r, struct val self, const char *name, struct val arg)
{
    struct val s = text_of(r, self);
    struct args args = {.n = !arg_absent(arg), .pos = &arg};
    return r->failed ? s : func_call(r, method_find(s, str_of(name)), s, &args);
}

FILTER(f_trim)
{
    UNUSED;
    return by_method(r, self, "strip", a[0]);
}
FILTER(f_upper)
{
    UNUSED;
    return by_method(r, self, "upper", (struct val){0});
}
FILTER(f_lower)
{
    UNUSED;
    return by_method(r, self, "lower", (struct val){0});
}
FILTER(f_capitalize)
{
    UNUSED;
    return by_method(r, self, "capitalize", (struct val){0});
}
FILTER(f_string)
{
    UNUSED;
    return text_of(r, self);
}

FILTER(f_title)
{
    UNUSED;
    struct val text = text_of(r, self);
    struct sink s = sink_open(r);
    sink_put_case(r, &s, val_text(text), CASE_JINJA_TITLE);
    return sink_close(r, &s);
}

FILTER(f_replace)
{
    UNUSED;
    struct val pos[3] = {text_of(r, a[0]), text_of(r, a[1]), a[2]};
    struct args given = {.n = 2 + (!arg_absent(a[2]) && a[2].type != V_NONE), .pos = pos};
    struct val s = text_of(r, self);
    s.markup = false; /* autoescape is off: str(s) */
    return r->failed ? s : func_call(r, method_find(s, STR("replace")), s, &given);
}

FILTER(f_safe)
{
    UNUSED;
    struct val s = text_of(r, self);
    s.markup = true;
    return s;
}

FILTER(f_escape)
{
    UNUSED;
    if (self.type == V_STR && self.markup)
        return self;
    struct val text = text_of(r, self);
    struct sink s = sink_open(r);
    sink_put_escaped(r, &s, val_text(text));
    struct val v = sink_close(r, &s);
    v.markup = true;
    return v;
}

FILTER(f_format)
{
    UNUSED;
    struct val tuple = val_list(args->pos, args->n);
    tuple.type = V_TUPLE;
    if (args->kn)
        rt_fail(r, "format with keyword arguments is not supported");
    struct val s = text_of(r, self);
    return r->failed ? s : text_percent(r, val_text(s), tuple);
}

/* Text of `width` blanks (an integer) or `width` itself (a string). */
static struct val blanks(struct rt *r, struct val width, i64 absent)
{
    if (width.type == V_STR)
        return width;
    if (arg_absent(width))
        width = val_int(absent);
    if (width.type != V_INT && width.type != V_BOOL) {
        rt_fail(r, "a width must be an integer or a string, not %s", val_type_name(width));
        return val_str("", 0);
    }
    return op_binary(r, '*', val_str(" ", 1), width);
}

FILTER(f_indent)
{
    UNUSED;
    if (self.type != V_STR) {
        if (self.type == V_UNDEF)
            eval_undefined(r, self);
        rt_fail(r, "indent wants a string, not %s", val_type_name(self));
        return val_nothing();
    }
    struct val pad = blanks(r, a[0], 4);
    bool blank = flag(a[2]), first = true;
    struct str t = val_text(self);
    struct sink s = sink_open(r);
    if (flag(a[1]))
        sink_put_str(r, &s, val_text(pad));
    for (size_t at = 0; (at <= t.n) && !r->failed; first = false) {
        size_t next, line = text_line((struct str){t.p + at, t.n - at}, &next);
        if (!first)
            sink_put_z(r, &s, "\n");
        if (!first && (line || blank))
            sink_put_str(r, &s, val_text(pad));
        sink_put(r, &s, t.p + at, line);
        if (next == line)
            break; /* the last line; jinja2 adds a new line first, so an empty one counts */
        at += next;
    }
    return sink_close(r, &s);
}

FILTER(f_wordcount)
{
    UNUSED;
    struct val s = text_of(r, self);
    i64 words = 0;
    bool inside = false;
    for (size_t i = 0; i < s.n;) {
        u32 c, n = text_char(val_text(s), i, &c);
        bool word = c == '_' || c - '0' <= 9 || text_alpha(c);
        words += word && !inside;
        inside = word;
        i += n;
    }
    return val_int(words);
}

/* --- JSON ------------------------------------------------------------------------------------ */

FILTER(f_tojson)
{
    UNUSED;
    struct dump d = {.ascii = flag(a[0]), .sort = flag(a[3]), .item = STR(", "), .key = STR(": ")};
    if (!arg_absent(a[1]) && a[1].type != V_NONE) {
        d.indent = val_text(blanks(r, a[1], 0));
        d.item = STR(",");
    }
    if (!arg_absent(a[2]) && a[2].type != V_NONE) {
        struct val two = val_to_list(r, a[2]);
        if (!r->failed && (two.n != 2 || two.items[0].type != V_STR || two.items[1].type != V_STR))
            rt_fail(r, "separators must be two strings");
        if (r->failed)
            return val_nothing();
        d.item = val_text(two.items[0]);
        d.key = val_text(two.items[1]);
    }
    if (r->failed)
        return val_nothing();
    struct sink s = sink_open(r);
    sink_put_json(r, &s, self, &d);
    return sink_close(r, &s);
}

/* --- numbers --------------------------------------------------------------------------------- */

/* A literal as Python's float() reads it; false when it is none. */
static bool read_float(struct str s, double *out)
{
    char text[400];
    size_t n = 0;
    s.n -= text_space_before(s);
    size_t lead = text_space_after(s);
    s = (struct str){s.p + lead, s.n - lead};
    bool digit = false;
    if (s.n == 0 || s.n >= sizeof text)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        bool is = (u8)(s.p[i] - '0') <= 9;
        if (s.p[i] == '_') { /* only between digits */
            if (!digit || i + 1 == s.n || (u8)(s.p[i + 1] - '0') > 9)
                return false;
            continue;
        }
        if ((s.p[i] | 32) == 'x' || s.p[i] == '(')
            return false; /* C reads hexadecimal, Python does not */
        digit = is;
        text[n++] = s.p[i];
    }
    text[n] = 0;
    char *end;
    *out = strtod(text, &end);
    return end == text + n && (u8)text[0] > ' ';
}

/* int(text, base): 1 read, 0 none, -1 beyond 64 bits. */
static int read_int(struct str s, i64 base, i64 *out)
{
    s.n -= text_space_before(s);
    size_t i = text_space_after(s);
    bool minus = i < s.n && s.p[i] == '-', some = false, digit = false;
    i += i < s.n && (s.p[i] == '-' || s.p[i] == '+');
    if (i + 1 < s.n && s.p[i] == '0') {
        char x = (char)(s.p[i + 1] | 32);
        if ((x == 'x' && base == 16) || (x == 'o' && base == 8) || (x == 'b' && base == 2)) {
            i += 2;
            digit = true; /* 0x_1 is allowed */
        }
    }
    for (*out = 0; i < s.n; i++) {
        u32 c = (u8)s.p[i], d = c - '0' <= 9           ? c - '0'
                                : (c | 32) - 'a' <= 25 ? (c | 32) - 'a' + 10
                                                       : 99;
        if (c == '_' && digit && i + 1 < s.n) {
            digit = false;
            continue;
        }
        if (d >= base)
            return 0;
        digit = some = true;
        if (__builtin_mul_overflow(*out, base, out) ||
            __builtin_sub_overflow(*out, (i64)d, out)) /* downwards: INT64_MIN fits */
            return -1;
    }
    if (!minus && *out == INT64_MIN)
        return -1;
    *out = minus ? *out : -*out;
    return some;
}

static struct val to_int(struct rt *r, double f, struct val otherwise)
{
    if (isnan(f) || isinf(f))
        return otherwise;
    if (!(fabs(f) < 9.2e18)) {
        rt_fail(r, "integers beyond 64 bits are not supported");
        return val_nothing();
    }
    return val_int((i64)f);
}

FILTER(f_int)
{
    UNUSED;
    struct val otherwise = arg_absent(a[0]) ? val_int(0) : a[0];
    i64 i = 0, base = arg_absent(a[1]) ? 10 : a[1].i;
    double f;
    switch ((enum val_type)self.type) {
    case V_UNDEF:
        eval_undefined(r, self);
        return val_nothing();
    case V_BOOL:
    case V_INT:
        return val_int(self.i);
    case V_BIG:
        return self;
    case V_FLOAT:
        return to_int(r, self.f, otherwise);
    case V_STR:
        break;
    default:
        return otherwise;
    }
    if (!arg_absent(a[1]) &&
        (a[1].type != V_INT || (base != 2 && base != 8 && base != 10 && base != 16)))
        rt_fail(r, "this base of int is not supported");
    int got = read_int(val_text(self), base, &i);
    if (got < 0)
        rt_fail(r, "integers beyond 64 bits are not supported");
    if (got)
        return val_int(i);
    return read_float(val_text(self), &f) ? to_int(r, f, otherwise) : otherwise;
}

FILTER(f_float)
{
    UNUSED;
    double f;
    if (self.type == V_UNDEF)
        eval_undefined(r, self);
    if (val_is_num(self))
        return val_float(val_num(self));
    if (self.type == V_BIG)
        return val_float(strtod(self.s, NULL)); /* JSON texts end in a NUL */
    if (self.type == V_STR && read_float(val_text(self), &f))
        return val_float(f);
    return arg_absent(a[0]) ? val_float(0) : a[0];
}

FILTER(f_abs)
{
    UNUSED;
    if (!val_is_num(self)) {
        rt_fail(r, "abs wants a number, not %s", val_type_name(self));
        return val_nothing();
    }
    bool negative = self.type == V_FLOAT ? signbit(self.f) : self.i < 0;
    return op_negate(r, self, negative);
}

/* round() of an integer to 10^-precision, half to even. */
static struct val round_int(struct rt *r, i64 i, i64 precision)
{
    i64 unit = 1;
    if (precision >= 0)
        return val_int(i);
    for (; precision < 0; precision++)
        if (__builtin_mul_overflow(unit, 10, &unit))
            return val_int(0);
    i64 low = i - (((i % unit) + unit) % unit), rest = i - low, half = unit / 2;
    bool up = rest > half || (rest == half && (low / unit) % 2 != 0);
    return op_binary(r, '+', val_int(low), val_int(up ? unit : 0));
}

FILTER(f_round)
{
    UNUSED;
    i64 precision = arg_absent(a[0]) ? 0 : a[0].i;
    char text[400];
    struct str how = arg_absent(a[1]) ? STR("common") : val_text(a[1]);
    bool common = a[1].type != V_STR || str_is(how, "common");
    if (!arg_absent(a[1]) && a[1].type != V_STR)
        rt_fail(r, "method must be common, ceil or floor");
    else if (!common && !str_is(how, "ceil") && !str_is(how, "floor"))
        rt_fail(r, "method must be common, ceil or floor");
    if (!val_is_num(self) || (!arg_absent(a[0]) && a[0].type != V_INT))
        rt_fail(r, "round wants a number and an integer precision");
    if (r->failed)
        return val_nothing();
    double f = val_num(self);
    if (!common) {
        double scale = pow(10, (double)precision), x = f * scale;
        return val_float((str_is(how, "ceil") ? ceil(x) : floor(x)) / scale);
    }
    if (self.type != V_FLOAT)
        return round_int(r, self.i, precision);
    if (!isfinite(f) || precision > 300)
        return self;
    if (precision < 0) {
        double scale = pow(10, (double)-precision);
        return val_float(nearbyint(f / scale) * scale);
    }
    snprintf(text, sizeof text, "%.*f", precision > 60 ? 60 : (int)precision, f);
    return val_float(strtod(text, NULL));
}

/* --- values ---------------------------------------------------------------------------------- */

FILTER(f_length)
{
    UNUSED;
    i64 n = val_len(r, self);
    if (n < 0)
        rt_fail(r, "object of type '%s' has no length", val_type_name(self));
    return val_int(n);
}

FILTER(f_default)
{
    UNUSED;
    bool take = self.type == V_UNDEF || (flag(a[1]) && !val_truthy(self));
    return !take ? self : arg_absent(a[0]) ? val_str("", 0) : a[0];
}

FILTER(f_attr)
{
    UNUSED;
    if (a[0].type != V_STR)
        rt_fail(r, "attr wants the name of an attribute");
    if (self.type == V_DICT && !r->failed && !method_find(self, val_text(a[0])))
        return val_undef(val_text(a[0])); /* attributes only, no members */
    return r->failed ? val_nothing() : val_attr(r, self, val_text(a[0]));
}

/* --- tests ----------------------------------------------------------------------------------- */

#define TEST(name, expr)       \
    FILTER(name)               \
    {                          \
        UNUSED;                \
        return val_bool(expr); \
    }

static bool is_int(struct val v)
{
    return v.type == V_INT || v.type == V_BIG;
}

static bool remainder_is(struct rt *r, struct val v, struct val by, i64 want)
{
    struct val m = op_binary(r, '%', v, by);
    return !r->failed && val_eq(r, m, val_int(want));
}

static bool is_case(struct rt *r, struct val v, const char *method)
{
    return val_truthy(by_method(r, v, method, (struct val){0}));
}

static bool same_object(struct val a, struct val b)
{
    if (a.type != b.type || a.n != b.n)
        return false;
    return a.type == V_NONE || a.i == b.i;
}

static bool has_length(struct val v)
{
    return v.type == V_UNDEF || v.type == V_STR || val_is_seq(v) || v.type == V_DICT ||
           v.type == V_RANGE;
}

TEST(t_defined, self.type != V_UNDEF)
TEST(t_undefined, self.type == V_UNDEF)
TEST(t_none, self.type == V_NONE)
TEST(t_boolean, self.type == V_BOOL)
TEST(t_true, self.type == V_BOOL && self.i)
TEST(t_false, self.type == V_BOOL && !self.i)
TEST(t_integer, is_int(self))
TEST(t_float, self.type == V_FLOAT)
TEST(t_number, val_is_num(self) || self.type == V_BIG)
TEST(t_string, self.type == V_STR)
TEST(t_mapping, self.type == V_DICT)
TEST(t_sequence, has_length(self))
TEST(t_iterable, val_iterable(self))
TEST(t_callable, self.type >= V_MACRO || self.type == V_UNDEF || self.type == V_LOOP)
TEST(t_escaped, self.type == V_STR && self.markup)
TEST(t_odd, remainder_is(r, self, val_int(2), 1))
TEST(t_even, remainder_is(r, self, val_int(2), 0))
TEST(t_divisibleby, remainder_is(r, self, a[0], 0))
TEST(t_eq, val_eq(r, self, a[0]))
TEST(t_ne, !val_eq(r, self, a[0]))
TEST(t_lt, val_cmp(r, self, a[0]) < 0)
TEST(t_le, val_cmp(r, self, a[0]) <= 0)
TEST(t_gt, val_cmp(r, self, a[0]) > 0)
TEST(t_ge, val_cmp(r, self, a[0]) >= 0)
TEST(t_in, val_in(r, self, a[0]))
TEST(t_sameas, same_object(self, a[0]))
TEST(t_lower, is_case(r, self, "islower"))
TEST(t_upper, is_case(r, self, "isupper"))

/* --- tables ---------------------------------------------------------------------------------- */

static const struct func filters[] = {
    {"abs", "", 0, false, f_abs},
    {"attr", "name", 1, false, f_attr},
    {"capitalize", "", 0, false, f_capitalize},
    {"count", "", 0, false, f_length},
    {"d", "default_value boolean", 0, false, f_default},
    {"default", "default_value boolean", 0, false, f_default},
    {"e", "", 0, false, f_escape},
    {"escape", "", 0, false, f_escape},
    {"float", "default", 0, false, f_float},
    {"format", "", 0, true, f_format},
    {"indent", "width first blank", 0, false, f_indent},
    {"int", "default base", 0, false, f_int},
    {"length", "", 0, false, f_length},
    {"lower", "", 0, false, f_lower},
    {"replace", "old new count", 2, false, f_replace},
    {"round", "precision method", 0, false, f_round},
    {"safe", "", 0, false, f_safe},
    {"string", "", 0, false, f_string},
    {"title", "", 0, false, f_title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, false, f_tojson},
    {"trim", "chars", 0, false, f_trim},
    {"upper", "", 0, false, f_upper},
    {"wordcount", "", 0, false, f_wordcount},
};

static const struct func tests[] = {
    {"!=", "other", 1, false, t_ne},        {"<", "other", 1, false, t_lt},
    {"<=", "other", 1, false, t_le},        {"==", "other", 1, false, t_eq},
    {">", "other", 1, false, t_gt},         {">=", "other", 1, false, t_ge},
    {"boolean", "", 0, false, t_boolean},   {"callable", "", 0, false, t_callable},
    {"defined", "", 0, false, t_defined},   {"divisibleby", "num", 1, false, t_divisibleby},
    {"eq", "other", 1, false, t_eq},        {"equalto", "other", 1, false, t_eq},
    {"escaped", "", 0, false, t_escaped},   {"even", "", 0, false, t_even},
    {"false", "", 0, false, t_false},       {"float", "", 0, false, t_float},
    {"ge", "other", 1, false, t_ge},        {"greaterthan", "other", 1, false, t_gt},
    {"gt", "other", 1, false, t_gt},        {"in", "seq", 1, false, t_in},
    {"integer", "", 0, false, t_integer},   {"iterable", "", 0, false, t_iterable},
    {"le", "other", 1, false, t_le},        {"lessthan", "other", 1, false, t_lt},
    {"lower", "", 0, false, t_lower},       {"lt", "other", 1, false, t_lt},
    {"mapping", "", 0, false, t_mapping},   {"ne", "other", 1, false, t_ne},
    {"none", "", 0, false, t_none},         {"number", "", 0, false, t_number},
    {"odd", "", 0, false, t_odd},           {"sameas", "other", 1, false, t_sameas},
    {"sequence", "", 0, false, t_sequence}, {"string", "", 0, false, t_string},
    {"true", "", 0, false, t_true},         {"undefined", "", 0, false, t_undefined},
    {"upper", "", 0, false, t_upper},
};

static const struct func *in_table(const struct func *table, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, table[i].name))
            return &table[i];
    return NULL;
}

const struct func *filter_find(struct str name)
{
    const struct func *f = in_table(filters, COUNTOF(filters), name);
    return f ? f : list_filter_find(name);
}

const struct func *test_find(struct str name)
{
    return in_table(tests, COUNTOF(tests), name);
}
