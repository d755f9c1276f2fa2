#include "core/model/template_text.h"

#include "core/base/utf8.h"
#include "core/model/template_eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <wctype.h>

/* --- slices --------------------------------------------------------------------------------- */

u32 text_char(struct str s, size_t at, u32 *cp)
{
    u32 n = utf8_decode(s.p + at, s.n - at, cp);
    ASSERT(n > 0); /* everything that comes in was checked */
    return n;
}

bool text_is_space(u32 c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t text_space_after(struct str s)
{
    size_t at = 0;
    while (at < s.n) {
        u32 cp, n = text_char(s, at, &cp);
        if (!text_is_space(cp))
            break;
        at += n;
    }
    return at;
}

static size_t char_before(struct str s, size_t at)
{
    while (at > 0 && ((u8)s.p[--at] & 0xc0) == 0x80)
        ;
    return at;
}

size_t text_space_before(struct str s)
{
    size_t end = s.n;
    while (end > 0) {
        u32 cp;
        size_t at = char_before(s, end);
        text_char(s, at, &cp);
        if (!text_is_space(cp))
            break;
        end = at;
    }
    return s.n - end;
}

size_t text_length(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((u8)s.p[i] & 0xc0) != 0x80;
    return n;
}

size_t text_offset(struct str s, size_t chars)
{
    size_t i = 0;
    for (; i < s.n; i++)
        if (((u8)s.p[i] & 0xc0) != 0x80 && chars-- == 0)
            break;
    return i;
}

const char *text_find(struct str hay, struct str needle)
{
    return needle.n == 0 ? hay.p : memmem(hay.p, hay.n, needle.p, needle.n);
}

size_t text_line(struct str s, size_t *next)
{
    for (size_t i = 0; i < s.n;) {
        u32 c, n = text_char(s, i, &c);
        if ((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
            c == 0x2029) {
            *next = i + n + (c == '\r' && i + 1 < s.n && s.p[i + 1] == '\n');
            return i;
        }
        i += n;
    }
    *next = s.n;
    return s.n;
}

u32 text_upper(u32 c)
{
    return c < 0x80 ? (c - 'a' <= 25 ? c - 32 : c) : (u32)towupper((wint_t)c);
}

u32 text_lower(u32 c)
{
    return c < 0x80 ? (c - 'A' <= 25 ? c + 32 : c) : (u32)towlower((wint_t)c);
}

bool text_alpha(u32 c)
{
    return c < 0x80 ? (c | 32) - 'a' <= 25 : iswalpha((wint_t)c) != 0;
}

bool text_cased(u32 c)
{
    return text_upper(c) != c || text_lower(c) != c || c == 0xdf;
}

/* --- writing -------------------------------------------------------------------------------- */

struct sink sink_open(struct rt *r)
{
    ASSERT(!r->building);
    r->building = true;
    return (struct sink){.p = r->lo};
}

struct val sink_close(struct rt *r, struct sink *s)
{
    ASSERT(r->building && s->p + s->n == r->lo);
    r->building = false;
    return val_str(s->p, s->n);
}

void sink_put(struct rt *r, struct sink *s, const char *p, size_t n)
{
    bool output = s == &r->out;
    size_t room = output ? s->cap - s->n : (size_t)(r->hi - r->lo);
    if (r->failed || n == 0 || !rt_charge(r, n))
        return;
    if (n > room) {
        if (output)
            rt_too_long(r);
        else
            rt_limit(r, "the strings of this rendering need more memory than it has");
        return;
    }
    memmove(s->p + s->n, p, n);
    s->n += n;
    if (!output)
        r->lo += n; /* objects made meanwhile stay clear of it */
}

void sink_put_str(struct rt *r, struct sink *s, struct str t)
{
    sink_put(r, s, t.p, t.n);
}

void sink_put_z(struct rt *r, struct sink *s, const char *z)
{
    sink_put(r, s, z, strlen(z));
}

void sink_put_cp(struct rt *r, struct sink *s, u32 cp)
{
    char text[4];
    sink_put(r, s, text, utf8_encode(cp, text));
}

/* Adds one to the last digit of "d.ddde-dd". */
static void next_digits(char *text)
{
    for (char *p = strchr(text, 'e'); p-- > text;)
        if (*p == '9') {
            *p = '0';
        } else if (*p != '.') {
            ++*p;
            return;
        }
}

/* The fewest digits that read back as f. 15 always suffice to print what 15 digits made, so the
 * search starts there, except among subnormals. Above a power of two the doubles lie twice as far
 * apart as below: there the next decimal up may be one digit shorter than the nearest. */
static void shortest(double f, char *text, size_t size)
{
    int exponent;
    bool power = fabs(frexp(f, &exponent)) == 0.5;
    for (int precision = fabs(f) < 0x1p-1022 ? 0 : 14;; precision++) {
        snprintf(text, size, "%.*e", precision, f);
        if (precision == 16 || strtod(text, NULL) == f)
            return;
        next_digits(text);
        if (power && strtod(text, NULL) == f)
            return;
    }
}

size_t text_double(double f, char *out)
{
    if (isnan(f) || isinf(f))
        return (size_t)snprintf(out, DOUBLE_BYTES, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
    char text[40], digits[20];
    shortest(f, text, sizeof text);
    const char *p = text + (text[0] == '-');
    char *e = strchr(text, 'e');
    int point = (int)strtol(e + 1, NULL, 10) + 1, n = 0;
    for (; p < e; p++)
        if (*p != '.')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    char *o = out;
    if (text[0] == '-')
        *o++ = '-';
    if (point > 16 || point < -3) { /* CPython: repr switches at 1e16 and 1e-4 */
        *o++ = digits[0];
        if (n > 1)
            *o++ = '.';
        memcpy(o, digits + 1, (size_t)(n - 1));
        o += n - 1;
        return (size_t)(o + snprintf(o, 8, "e%+03d", point - 1) - out);
    }
    if (point <= 0) {
        *o++ = '0';
        *o++ = '.';
    }
    for (int i = MIN(point, 0); i < MAX(n, point + 1); i++) {
        if (i == point && point > 0)
            *o++ = '.';
        *o++ = i >= 0 && i < n ? digits[i] : '0';
    }
    return (size_t)(o - out);
}

/* Not printable in Python's sense, so far as it is settled by category and not by the Unicode
 * version: controls, format characters, separators, surrogates, private use, noncharacters. */
static bool printable(u32 c)
{
    static const u32 hidden[][2] = {
        {0, 0x1f},          {0x7f, 0xa0},       {0xad, 0xad},       {0x378, 0x379},
        {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},
        {0x890, 0x891},     {0x8e2, 0x8e2},     {0x1680, 0x1680},   {0x180e, 0x180e},
        {0x2000, 0x200f},   {0x2028, 0x202f},   {0x205f, 0x206f},   {0x3000, 0x3000},
        {0xd800, 0xf8ff},   {0xfdd0, 0xfdef},   {0xfeff, 0xfeff},   {0xfff0, 0xfffb},
        {0xfffe, 0xffff},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x1bca0, 0x1bca3},
        {0x1d173, 0x1d17a}, {0xe0000, 0xe00ff}, {0xe01f0, 0x10ffff}};
    for (u32 i = 0; i < COUNTOF(hidden) && c >= hidden[i][0]; i++)
        if (c <= hidden[i][1])
            return false;
    return true;
}

static void put_escape(struct rt *r, struct sink *s, u32 cp)
{
    char text[16];
    snprintf(text, sizeof text, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    sink_put_z(r, s, text);
}

static void put_repr_str(struct rt *r, struct sink *s, struct str t)
{
    char quote = t.n && memchr(t.p, '\'', t.n) && !memchr(t.p, '"', t.n) ? '"' : '\'';
    size_t from = 0;
    sink_put(r, s, &quote, 1);
    for (size_t i = 0; i < t.n && !r->failed;) {
        u32 cp, n = text_char(t, i, &cp);
        bool plain = cp != (u32)quote && cp != '\\' && printable(cp);
        if (!plain) {
            sink_put(r, s, t.p + from, i - from);
            from = i + n;
        }
        if (cp == '\\' || cp == (u32)quote)
            sink_put(r, s, (char[]){'\\', (char)cp}, 2);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            sink_put_z(r, s, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        else if (!plain)
            put_escape(r, s, cp);
        i += n;
    }
    sink_put(r, s, t.p + from, t.n - from);
    sink_put(r, s, &quote, 1);
}

static void put_dict(struct rt *r, struct sink *s, const struct dict *d)
{
    sink_put_z(r, s, "{");
    for (u32 i = 0; i < d->n && !r->failed; i++) {
        sink_put_z(r, s, i ? ", " : "");
        sink_put_repr(r, s, d->pairs[i].key);
        sink_put_z(r, s, ": ");
        sink_put_repr(r, s, d->pairs[i].value);
    }
    sink_put_z(r, s, "}");
}

static void put_items(struct rt *r, struct sink *s, const char *open, struct val v,
                      const char *close)
{
    sink_put_z(r, s, open);
    for (u32 i = 0; i < v.n && !r->failed; i++) {
        sink_put_z(r, s, i ? ", " : "");
        sink_put_repr(r, s, v.items[i]);
    }
    sink_put_z(r, s, close);
}

static void put_view(struct rt *r, struct sink *s, struct val v)
{
    sink_put_z(r, s,
               v.n == VIEW_KEYS     ? "dict_keys(["
               : v.n == VIEW_VALUES ? "dict_values(["
                                    : "dict_items([");
    for (u32 i = 0; i < v.dict->n && !r->failed; i++) {
        const struct pair *p = &v.dict->pairs[i];
        sink_put_z(r, s, i ? ", " : "");
        sink_put_z(r, s, v.n == VIEW_ITEMS ? "(" : "");
        if (v.n != VIEW_VALUES)
            sink_put_repr(r, s, p->key);
        sink_put_z(r, s, v.n == VIEW_ITEMS ? ", " : "");
        if (v.n != VIEW_KEYS)
            sink_put_repr(r, s, p->value);
        sink_put_z(r, s, v.n == VIEW_ITEMS ? ")" : "");
    }
    sink_put_z(r, s, "])");
}

static void put_range(struct rt *r, struct sink *s, const struct range *g)
{
    char text[80];
    int n =
        snprintf(text, sizeof text, "range(%lld, %lld", (long long)g->start, (long long)g->stop);
    sink_put(r, s, text, (size_t)n);
    n = g->step == 1 ? 0 : snprintf(text, sizeof text, ", %lld", (long long)g->step);
    sink_put(r, s, text, (size_t)n);
    sink_put_z(r, s, ")");
}

static void put_number(struct rt *r, struct sink *s, struct val v)
{
    char text[DOUBLE_BYTES];
    size_t n = v.type == V_FLOAT ? text_double(v.f, text)
                                 : (size_t)snprintf(text, sizeof text, "%lld", (long long)v.i);
    sink_put(r, s, text, n);
}

static void put_repr(struct rt *r, struct sink *s, struct val v)
{
    switch ((enum val_type)v.type) {
    case V_UNDEF:
        sink_put_z(r, s, "Undefined");
        break;
    case V_NONE:
        sink_put_z(r, s, "None");
        break;
    case V_BOOL:
        sink_put_z(r, s, v.i ? "True" : "False");
        break;
    case V_INT:
    case V_FLOAT:
        put_number(r, s, v);
        break;
    case V_BIG:
        sink_put_str(r, s, val_text(v));
        break;
    case V_STR:
        sink_put_z(r, s, v.markup ? "Markup(" : "");
        put_repr_str(r, s, val_text(v));
        sink_put_z(r, s, v.markup ? ")" : "");
        break;
    case V_LIST:
        put_items(r, s, "[", v, "]");
        break;
    case V_TUPLE:
        put_items(r, s, "(", v, v.n == 1 ? ",)" : ")");
        break;
    case V_DICT:
        put_dict(r, s, v.dict);
        break;
    case V_VIEW:
        put_view(r, s, v);
        break;
    case V_RANGE:
        put_range(r, s, v.range);
        break;
    case V_SPACE:
        sink_put_z(r, s, "<Namespace ");
        put_dict(r, s, v.dict);
        sink_put_z(r, s, ">");
        break;
    case V_GEN:
    case V_LOOP:
    case V_MACRO:
    case V_FUNC:
    case V_METHOD:
        rt_fail(r, "a %s cannot be printed", val_type_name(v));
        break;
    }
}

void sink_put_repr(struct rt *r, struct sink *s, struct val v)
{
    if (!rt_enter(r))
        return;
    put_repr(r, s, v);
    rt_leave(r);
}

void sink_put_val(struct rt *r, struct sink *s, struct val v)
{
    if (v.type == V_STR)
        sink_put_str(r, s, val_text(v));
    else if (v.type != V_UNDEF)
        sink_put_repr(r, s, v);
}

void sink_put_escaped(struct rt *r, struct sink *s, struct str t)
{
    for (size_t i = 0; i < t.n && !r->failed; i++) {
        const char *z = t.p[i] == '&'    ? "&amp;"
                        : t.p[i] == '<'  ? "&lt;"
                        : t.p[i] == '>'  ? "&gt;"
                        : t.p[i] == '"'  ? "&#34;"
                        : t.p[i] == '\'' ? "&#39;"
                                         : NULL;
        sink_put(r, s, z ? z : t.p + i, z ? strlen(z) : 1);
    }
}

/* The letters whose upper case is longer than one character, in the languages that have them. */
static const char *upper_special(u32 c, bool title)
{
    switch (c) {
    case 0xdf:
        return title ? "Ss" : "SS";
    case 0x149:
        return "\xca\xbcN";
    case 0xfb00:
        return title ? "Ff" : "FF";
    case 0xfb01:
        return title ? "Fi" : "FI";
    case 0xfb02:
        return title ? "Fl" : "FL";
    default:
        return NULL;
    }
}

static void put_lower(struct rt *r, struct sink *s, struct str t, size_t at, u32 c, bool after)
{
    u32 next = 0;
    size_t n = c == 0x3a3 ? text_char(t, at, &next) : 0;
    if (c == 0x3a3 && at + n < t.n)
        text_char(t, at + n, &next);
    if (c == 0x3a3 && after && (at + n >= t.n || !text_cased(next)))
        sink_put_cp(r, s, 0x3c2); /* sigma at the end of a word */
    else if (c == 0x130)
        sink_put_z(r, s, "i\xcc\x87");
    else
        sink_put_cp(r, s, text_lower(c));
}

void sink_put_case(struct rt *r, struct sink *s, struct str t, enum text_case how)
{
    bool after = false; /* a cased letter stands before: inside a word */
    bool start = true;  /* of the string, or of a word as the `title` filter splits */
    for (size_t i = 0; i < t.n && !r->failed;) {
        u32 c, n = text_char(t, i, &c);
        bool upper = how == CASE_UPPER || (how == CASE_CAPITAL && i == 0) ||
                     (how == CASE_TITLE && !after) || (how == CASE_JINJA_TITLE && start);
        const char *special = upper ? upper_special(c, how != CASE_UPPER) : NULL;
        if (special)
            sink_put_z(r, s, special);
        else if (upper)
            sink_put_cp(r, s, text_upper(c));
        else
            put_lower(r, s, t, i, c, after);
        start = text_is_space(c) || (c < 0x80 && strchr("-({[<", (int)c) && c);
        after = text_cased(c);
        i += n;
    }
}

struct val text_of(struct rt *r, struct val v)
{
    if (v.type == V_STR)
        return v;
    struct sink s = sink_open(r);
    sink_put_val(r, &s, v);
    return sink_close(r, &s);
}

struct val text_copy(struct rt *r, struct str t)
{
    struct sink s = sink_open(r);
    sink_put_str(r, &s, t);
    return sink_close(r, &s);
}

struct val text_concat(struct rt *r, struct val a, struct val b)
{
    if (b.n == 0 || a.n == 0)
        return b.n ? b : a;
    if (a.s + a.n == b.s) /* `out + x|tojson`: b was made right behind a */
        return val_str(a.s, (size_t)a.n + b.n);
    bool newest = a.s + a.n == r->lo; /* then it grows where it stands */
    struct sink s = sink_open(r);
    if (!newest)
        sink_put_str(r, &s, val_text(a));
    sink_put_str(r, &s, val_text(b));
    struct val v = sink_close(r, &s);
    return newest ? val_str(a.s, (size_t)a.n + v.n) : v;
}

/* --- % and format ----------------------------------------------------------------------------- */

/* One conversion of str % args: spec is "%...X". */
static void put_conversion(struct rt *r, struct sink *s, const char *spec, char kind, struct val v)
{
    char form[32], text[400];
    size_t n = strlen(spec);
    if (kind == 's' || kind == 'r') {
        if (n != 2)
            rt_fail(r, "\"%s\" is not supported in a format", spec);
        else if (kind == 's')
            sink_put_val(r, s, v);
        else
            sink_put_repr(r, s, v);
        return;
    }
    if (!val_is_num(v) || (kind == 'x' && v.type == V_FLOAT)) {
        rt_fail(r, "\"%s\" wants a number, not %s", spec, val_type_name(v));
        return;
    }
    memcpy(form, spec, n - 1);
    double f = val_num(v);
    if (strchr("feg", kind)) {
        snprintf(form + n - 1, sizeof form - n, "%c", kind);
        n = (size_t)snprintf(text, sizeof text, form, f);
    } else if (v.type == V_FLOAT && !(fabs(f) < 9e18)) {
        rt_fail(r, "cannot convert this float to an integer");
        return;
    } else {
        snprintf(form + n - 1, sizeof form - n, "ll%c", kind == 'x' ? 'x' : 'd');
        n = (size_t)snprintf(text, sizeof text, form,
                             (long long)(v.type == V_FLOAT ? (i64)f : v.i));
    }
    sink_put(r, s, text, MIN(n, sizeof text - 1));
}

struct val text_percent(struct rt *r, struct str fmt, struct val args)
{
    const struct val *list = args.type == V_TUPLE ? args.items : &args;
    u32 n = args.type == V_TUPLE ? args.n : 1, used = 0;
    struct sink s = sink_open(r);
    for (size_t i = 0; i < fmt.n && !r->failed; i++) {
        if (fmt.p[i] != '%') {
            sink_put(r, &s, fmt.p + i, 1);
            continue;
        }
        char spec[16] = "%";
        size_t k = 1;
        while (++i < fmt.n && k < 8 && fmt.p[i] && strchr("0123456789.-+ #", fmt.p[i]))
            spec[k++] = fmt.p[i];
        char kind = i < fmt.n ? fmt.p[i] : 0;
        spec[k++] = kind;
        if (kind == '%' && k == 2)
            sink_put_z(r, &s, "%");
        else if (!kind || !strchr("srdifxeg", kind))
            rt_fail(r, "unsupported conversion in a %% format");
        else if (used == n)
            rt_fail(r, "not enough arguments for format string");
        else
            put_conversion(r, &s, spec, kind, list[used++]);
    }
    bool indexed = args.type == V_DICT || args.type == V_LIST || args.type == V_UNDEF;
    if (used < n && !indexed) /* Python takes what could be indexed by name as it is */
        rt_fail(r, "not all arguments converted during string formatting");
    return sink_close(r, &s);
}

static const struct val *format_field(struct str name, const struct args *args, u32 *next)
{
    if (name.n == 0)
        return *next < args->n ? &args->pos[(*next)++] : NULL;
    if ((u8)(name.p[0] - '0') <= 9) {
        u32 i = 0;
        for (size_t k = 0; k < name.n && k < 6 && (u8)(name.p[k] - '0') <= 9; k++)
            i = i * 10 + (u32)(name.p[k] - '0');
        return i < args->n ? &args->pos[i] : NULL;
    }
    for (u32 i = 0; i < args->kn; i++)
        if (str_eq(args->kw[i].name, name))
            return &args->kw[i].value;
    return NULL;
}

struct val text_format(struct rt *r, struct str fmt, const struct args *args)
{
    u32 next = 0;
    struct sink s = sink_open(r);
    for (size_t i = 0; i < fmt.n && !r->failed; i++) {
        char c = fmt.p[i];
        bool twice = i + 1 < fmt.n && fmt.p[i + 1] == c;
        if ((c != '{' && c != '}') || twice) {
            sink_put(r, &s, &c, 1);
            i += (c == '{' || c == '}');
            continue;
        }
        const char *end = memchr(fmt.p + i, '}', fmt.n - i);
        struct str name = {fmt.p + i + 1, end ? (size_t)(end - fmt.p) - i - 1 : 0};
        const struct val *v = end && c == '{' ? format_field(name, args, &next) : NULL;
        if (!v)
            rt_fail(r, "this replacement field of format() is wrong or not supported");
        else
            sink_put_val(r, &s, *v);
        i += name.n + 1;
    }
    return sink_close(r, &s);
}

/* --- json.dumps ------------------------------------------------------------------------------- */

static void put_json_str(struct rt *r, struct sink *s, struct str t, bool ascii)
{
    size_t from = 0;
    sink_put_z(r, s, "\"");
    for (size_t i = 0; i < t.n && !r->failed;) {
        u32 c = (u8)t.p[i], n = 1;
        char text[16] = "";
        if (c >= 0x80) {
            n = text_char(t, i, &c);
            if (ascii && c < 0x10000)
                snprintf(text, sizeof text, "\\u%04x", c);
            else if (ascii)
                snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10),
                         0xdc00 + (c & 0x3ff));
        } else if (c == '"' || c == '\\') {
            snprintf(text, sizeof text, "\\%c", (char)c);
        } else if (c < 0x20) {
            static const char names[] = "btn?fr"; /* 8..13; vertical tab has no short name */
            if (c >= 8 && c <= 13 && c != 11)
                snprintf(text, sizeof text, "\\%c", names[c - 8]);
            else
                snprintf(text, sizeof text, "\\u%04x", c);
        } else if (c == 0x7f && ascii) {
            snprintf(text, sizeof text, "\\u007f");
        }
        if (text[0]) {
            sink_put(r, s, t.p + from, i - from);
            sink_put_z(r, s, text);
            from = i + n;
        }
        i += n;
    }
    sink_put(r, s, t.p + from, t.n - from);
    sink_put_z(r, s, "\"");
}

static void put_indent(struct rt *r, struct sink *s, const struct dump *d, u32 level)
{
    if (!d->indent.p)
        return;
    sink_put_z(r, s, "\n");
    for (u32 i = 0; i < level && !r->failed; i++)
        sink_put_str(r, s, d->indent);
}

static void put_json_scalar(struct rt *r, struct sink *s, struct val v)
{
    if (v.type == V_NONE)
        sink_put_z(r, s, "null");
    else if (v.type == V_BOOL)
        sink_put_z(r, s, v.i ? "true" : "false");
    else if (v.type == V_FLOAT && isnan(v.f))
        sink_put_z(r, s, "NaN");
    else if (v.type == V_FLOAT && isinf(v.f))
        sink_put_z(r, s, v.f < 0 ? "-Infinity" : "Infinity");
    else if (val_is_num(v) || v.type == V_BIG)
        sink_put_repr(r, s, v);
    else
        rt_fail(r, "a value of type %s cannot be written as JSON", val_type_name(v));
}

static void put_json(struct rt *r, struct sink *s, struct val v, const struct dump *d, u32 level);

static void put_json_key(struct rt *r, struct sink *s, struct val key, const struct dump *d)
{
    if (key.type == V_STR) {
        put_json_str(r, s, val_text(key), d->ascii);
        return;
    }
    sink_put_z(r, s, "\"");
    put_json_scalar(r, s, key);
    sink_put_z(r, s, "\"");
}

static void put_json_dict(struct rt *r, struct sink *s, const struct dict *from,
                          const struct dump *d, u32 level)
{
    struct pair *pairs = from->pairs;
    if (d->sort && from->n > 1) {
        pairs = rt_alloc(r, from->n, sizeof *pairs);
        for (u32 i = 0; pairs && i < from->n && !r->failed; i++) {
            u32 at = i; /* insertion keeps it simple; objects are small and steps are counted */
            for (; at > 0 && val_cmp(r, from->pairs[i].key, pairs[at - 1].key) < 0; at--)
                pairs[at] = pairs[at - 1];
            pairs[at] = from->pairs[i];
        }
    }
    sink_put_z(r, s, "{");
    for (u32 i = 0; i < from->n && !r->failed; i++) {
        if (i)
            sink_put_str(r, s, d->item);
        put_indent(r, s, d, level + 1);
        put_json_key(r, s, pairs[i].key, d);
        sink_put_str(r, s, d->key);
        put_json(r, s, pairs[i].value, d, level + 1);
    }
    if (from->n)
        put_indent(r, s, d, level);
    sink_put_z(r, s, "}");
}

static void put_json(struct rt *r, struct sink *s, struct val v, const struct dump *d, u32 level)
{
    if (!rt_enter(r))
        return;
    if (v.type == V_STR) {
        put_json_str(r, s, val_text(v), d->ascii);
    } else if (v.type == V_DICT) {
        put_json_dict(r, s, v.dict, d, level);
    } else if (val_is_seq(v)) {
        sink_put_z(r, s, "[");
        for (u32 i = 0; i < v.n && !r->failed; i++) {
            if (i)
                sink_put_str(r, s, d->item);
            put_indent(r, s, d, level + 1);
            put_json(r, s, v.items[i], d, level + 1);
        }
        if (v.n)
            put_indent(r, s, d, level);
        sink_put_z(r, s, "]");
    } else {
        put_json_scalar(r, s, v);
    }
    rt_leave(r);
}

void sink_put_json(struct rt *r, struct sink *s, struct val v, const struct dump *d)
{
    put_json(r, s, v, d, 0);
}
