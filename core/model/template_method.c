#include "core/model/template_method.h"

#include "core/model/template_eval.h"
#include "core/model/template_text.h"

#define METHOD(name)                                                           \
    static struct val name(struct rt *r, struct val self, const struct val *a, \
                           const struct args *args)
#define UNUSED (void)r, (void)self, (void)a, (void)args

static bool want_str(struct rt *r, struct val v)
{
    if (v.type == V_STR)
        return true;
    if (v.type == V_UNDEF)
        eval_undefined(r, v);
    else
        rt_fail(r, "a string is wanted here, not %s", val_type_name(v));
    return false;
}

static bool want_int(struct rt *r, struct val v, i64 absent, i64 *out)
{
    *out = arg_absent(v) ? absent : v.i;
    if (arg_absent(v) || v.type == V_INT || v.type == V_BOOL)
        return true;
    rt_fail(r, "an integer is wanted here, not %s", val_type_name(v));
    return false;
}

static struct val piece(struct val self, size_t from, size_t to)
{
    struct val v = val_str(self.s + from, to - from);
    v.markup = self.markup;
    return v;
}

/* --- strip ----------------------------------------------------------------------------------- */

static bool in_set(struct str set, const char *p, u32 n)
{
    return memmem(set.p, set.n, p, n) != NULL; /* UTF-8 matches only at characters */
}

static struct val strip(struct rt *r, struct val self, struct val chars, bool left, bool right)
{
    struct str s = val_text(self);
    size_t from = 0, to = s.n;
    rt_charge(r, s.n);
    if (arg_absent(chars) || chars.type == V_NONE) {
        from = left ? text_space_after(s) : 0;
        to -= right && from < s.n ? text_space_before(s) : 0;
        return piece(self, from, to);
    }
    if (!want_str(r, chars))
        return val_nothing();
    u32 cp;
    while (left && from < to) {
        u32 n = text_char(s, from, &cp);
        if (!in_set(val_text(chars), s.p + from, n))
            break;
        from += n;
    }
    while (right && to > from) {
        size_t at = to - 1;
        while (((u8)s.p[at] & 0xc0) == 0x80)
            at--;
        if (!in_set(val_text(chars), s.p + at, (u32)(to - at)))
            break;
        to = at;
    }
    return piece(self, from, to);
}

METHOD(str_strip)
{
    UNUSED;
    return strip(r, self, a[0], true, true);
}
METHOD(str_lstrip)
{
    UNUSED;
    return strip(r, self, a[0], true, false);
}
METHOD(str_rstrip)
{
    UNUSED;
    return strip(r, self, a[0], false, true);
}

/* --- split ----------------------------------------------------------------------------------- */

/* Pieces of a split, in order of the text. Counted first, so that the list has its size. */
struct split {
    struct val *items; /* NULL: count only */
    size_t n;
};

static void add_piece(struct split *o, struct val self, size_t from, size_t to)
{
    if (o->items)
        o->items[o->n] = piece(self, from, to);
    o->n++;
}

static void split_space(struct split *o, struct val self, i64 max)
{
    struct str s = val_text(self);
    size_t at = text_space_after(s);
    while (at < s.n) {
        size_t end = at;
        u32 cp, n;
        if (max >= 0 && o->n == (size_t)max) {
            add_piece(o, self, at, s.n);
            return;
        }
        while (end < s.n && (n = text_char(s, end, &cp)) && !text_is_space(cp))
            end += n;
        add_piece(o, self, at, end);
        at = end + text_space_after((struct str){s.p + end, s.n - end});
    }
}

static void split_by(struct split *o, struct val self, struct str sep, i64 max)
{
    size_t at = 0;
    const char *hit;
    while ((max < 0 || o->n < (size_t)max) &&
           (hit = text_find((struct str){self.s + at, self.n - at}, sep))) {
        add_piece(o, self, at, (size_t)(hit - self.s));
        at = (size_t)(hit - self.s) + sep.n;
    }
    add_piece(o, self, at, self.n);
}

static void reverse_pieces(struct split *o)
{
    for (size_t i = 0; o->items && i < o->n / 2; i++) {
        struct val v = o->items[i];
        o->items[i] = o->items[o->n - 1 - i];
        o->items[o->n - 1 - i] = v;
    }
}

static void rsplit_by(struct split *o, struct val self, struct str sep, i64 max)
{
    size_t end = self.n;
    for (size_t at = end; at-- > 0 && (max < 0 || o->n < (size_t)max);)
        if (at + sep.n <= end && memcmp(self.s + at, sep.p, sep.n) == 0) {
            add_piece(o, self, at + sep.n, end);
            end = at;
        }
    add_piece(o, self, 0, end);
    reverse_pieces(o);
}

static void rsplit_space(struct split *o, struct val self, i64 max)
{
    struct str s = val_text(self);
    s.n -= text_space_before(s);
    while (s.n > 0) {
        size_t at = s.n;
        if (max >= 0 && o->n == (size_t)max) {
            add_piece(o, self, 0, s.n);
            break;
        }
        while (at > 0) {
            size_t p = at - 1;
            u32 cp;
            while (p > 0 && ((u8)s.p[p] & 0xc0) == 0x80)
                p--;
            text_char(s, p, &cp);
            if (text_is_space(cp))
                break;
            at = p;
        }
        add_piece(o, self, at, s.n);
        s.n = at;
        s.n -= text_space_before(s);
    }
    reverse_pieces(o);
}

static struct val split(struct rt *r, struct val self, const struct val *a, bool from_right)
{
    struct split o = {0};
    i64 max;
    bool space = arg_absent(a[0]) || a[0].type == V_NONE;
    if (!want_int(r, a[1], -1, &max) || (!space && !want_str(r, a[0])) || !rt_charge(r, 2 * self.n))
        return val_nothing();
    if (!space && a[0].n == 0) {
        rt_fail(r, "empty separator");
        return val_nothing();
    }
    for (int pass = 0; pass < 2 && !r->failed; pass++) {
        o.items = pass ? rt_alloc(r, o.n, sizeof *o.items) : NULL;
        if (pass && !o.items)
            return val_nothing();
        o.n = 0;
        if (space && from_right)
            rsplit_space(&o, self, max);
        else if (space)
            split_space(&o, self, max);
        else if (from_right)
            rsplit_by(&o, self, val_text(a[0]), max);
        else
            split_by(&o, self, val_text(a[0]), max);
    }
    return r->failed ? val_nothing() : val_list(o.items, o.n);
}

METHOD(str_split)
{
    UNUSED;
    return split(r, self, a, false);
}
METHOD(str_rsplit)
{
    UNUSED;
    return split(r, self, a, true);
}

METHOD(str_splitlines)
{
    UNUSED;
    bool keep = !arg_absent(a[0]) && val_truthy(a[0]);
    struct val *items = NULL;
    size_t n = 0;
    rt_charge(r, 2 * self.n);
    for (int pass = 0; pass < 2; pass++) {
        items = pass ? rt_alloc(r, n, sizeof *items) : NULL;
        if (pass && !items)
            return val_nothing();
        n = 0;
        for (size_t at = 0, next; at < self.n; at += next) {
            size_t line = text_line((struct str){self.s + at, self.n - at}, &next);
            if (items)
                items[n] = piece(self, at, at + (keep ? next : line));
            n++;
        }
    }
    return val_list(items, n);
}

static struct val partition(struct rt *r, struct val self, struct val sep, bool right)
{
    struct val *items = rt_alloc(r, 3, sizeof *items);
    if (!items || !want_str(r, sep))
        return val_nothing();
    if (sep.n == 0)
        rt_fail(r, "empty separator");
    const char *hit = NULL, *p = self.s;
    for (; (p = text_find((struct str){p, (size_t)(self.s + self.n - p)}, val_text(sep))); p++) {
        hit = p;
        if (!right || sep.n == 0)
            break;
    }
    size_t at = hit ? (size_t)(hit - self.s) : right ? 0 : self.n;
    items[0] = piece(self, 0, at);
    items[1] = piece(self, at, at + (hit ? sep.n : 0));
    items[2] = piece(self, at + (hit ? sep.n : 0), self.n);
    struct val v = val_list(items, 3);
    v.type = V_TUPLE;
    return v;
}

METHOD(str_partition)
{
    UNUSED;
    return partition(r, self, a[0], false);
}
METHOD(str_rpartition)
{
    UNUSED;
    return partition(r, self, a[0], true);
}

/* --- search ---------------------------------------------------------------------------------- */

/* The part [start, end) in characters, as slices clamp it; false when start lies behind the end. */
static bool part(struct rt *r, struct val self, struct val start, struct val end, struct str *out,
                 i64 *skipped)
{
    *out = val_text(self);
    *skipped = 0;
    if (arg_absent(start) && arg_absent(end))
        return true;
    i64 n = val_len(r, self), from, to;
    start = start.type == V_NONE ? (struct val){0} : start;
    end = end.type == V_NONE ? (struct val){0} : end;
    if (!want_int(r, start, 0, &from) || !want_int(r, end, n, &to))
        return false;
    from = from < 0 ? MAX(from + n, 0) : from;
    to = to < 0 ? MAX(to + n, 0) : MIN(to, n);
    if (from > n || from > to)
        return false;
    size_t at = text_offset(*out, (size_t)from), stop = text_offset(*out, (size_t)to);
    *out = (struct str){self.s + at, stop - at};
    *skipped = from;
    return true;
}

static bool affix(struct str s, struct str fix, bool at_end)
{
    return at_end ? str_ends(s, fix) : str_starts(s, fix);
}

static struct val has_affix(struct rt *r, struct val self, const struct val *a, bool at_end)
{
    struct str s;
    i64 skipped;
    bool inside = part(r, self, a[1], a[2], &s, &skipped), hit = false;
    if (a[0].type != V_TUPLE)
        return val_bool(want_str(r, a[0]) && inside && affix(s, val_text(a[0]), at_end));
    for (u32 i = 0; i < a[0].n && want_str(r, a[0].items[i]); i++)
        hit |= affix(s, val_text(a[0].items[i]), at_end);
    return val_bool(hit && inside);
}

METHOD(str_startswith)
{
    UNUSED;
    return has_affix(r, self, a, false);
}
METHOD(str_endswith)
{
    UNUSED;
    return has_affix(r, self, a, true);
}

/* Character index of the first or last hit, or -1. */
static i64 find(struct rt *r, struct val self, const struct val *a, bool last)
{
    struct str s;
    i64 skipped;
    if (!want_str(r, a[0]) || !rt_charge(r, self.n) || !part(r, self, a[1], a[2], &s, &skipped))
        return -1;
    const char *hit = text_find(s, val_text(a[0]));
    if (hit && last)
        for (size_t at = s.n - a[0].n + 1; at-- > 0;)
            if (a[0].n == 0 || memcmp(s.p + at, a[0].s, a[0].n) == 0) {
                hit = s.p + at;
                break;
            }
    return hit ? skipped + (i64)text_length((struct str){s.p, (size_t)(hit - s.p)}) : -1;
}

static struct val found(struct rt *r, i64 at)
{
    if (at < 0)
        rt_fail(r, "substring not found");
    return val_int(at);
}

METHOD(str_find)
{
    UNUSED;
    return val_int(find(r, self, a, false));
}
METHOD(str_rfind)
{
    UNUSED;
    return val_int(find(r, self, a, true));
}
METHOD(str_index)
{
    UNUSED;
    return found(r, find(r, self, a, false));
}
METHOD(str_rindex)
{
    UNUSED;
    return found(r, find(r, self, a, true));
}

METHOD(str_count)
{
    UNUSED;
    struct str s;
    i64 skipped, n = 0;
    if (!want_str(r, a[0]) || !rt_charge(r, self.n) || !part(r, self, a[1], a[2], &s, &skipped))
        return val_int(0);
    if (a[0].n == 0)
        return val_int((i64)text_length(s) + 1);
    for (const char *hit; (hit = text_find(s, val_text(a[0]))); n++) {
        size_t behind = (size_t)(hit - s.p) + a[0].n;
        s = (struct str){s.p + behind, s.n - behind};
    }
    return val_int(n);
}

METHOD(str_replace)
{
    UNUSED;
    i64 max, done = 0;
    if (!want_str(r, a[0]) || !want_str(r, a[1]) || !want_int(r, a[2], -1, &max))
        return val_nothing();
    struct str s = val_text(self), from = val_text(a[0]);
    struct sink o = sink_open(r);
    while ((max < 0 || done < max) && !r->failed) {
        const char *hit = text_find(s, from);
        if (!hit || (from.n == 0 && s.n == 0 && done > 0))
            break;
        sink_put(r, &o, s.p, (size_t)(hit - s.p));
        sink_put_str(r, &o, val_text(a[1]));
        size_t behind = (size_t)(hit - s.p) + from.n;
        s = (struct str){s.p + behind, s.n - behind};
        done++;
        if (from.n == 0) { /* between all characters, and at both ends */
            u32 cp, n = s.n ? text_char(s, 0, &cp) : 0;
            sink_put(r, &o, s.p, n);
            s = (struct str){s.p + n, s.n - n};
            if (n && s.n == 0 && (max < 0 || done < max))
                sink_put_str(r, &o, val_text(a[1]));
        }
    }
    sink_put_str(r, &o, s);
    struct val v = sink_close(r, &o);
    v.markup = self.markup;
    return v;
}

static struct val without(struct rt *r, struct val self, struct val fix, bool at_end)
{
    if (!want_str(r, fix) || !affix(val_text(self), val_text(fix), at_end))
        return self;
    return at_end ? piece(self, 0, self.n - fix.n) : piece(self, fix.n, self.n);
}

METHOD(str_removeprefix)
{
    UNUSED;
    return without(r, self, a[0], false);
}
METHOD(str_removesuffix)
{
    UNUSED;
    return without(r, self, a[0], true);
}

/* --- case and classes ------------------------------------------------------------------------ */

static struct val recase(struct rt *r, struct val self, enum text_case how)
{
    struct sink s = sink_open(r);
    sink_put_case(r, &s, val_text(self), how);
    struct val v = sink_close(r, &s);
    v.markup = self.markup;
    return v;
}

METHOD(str_upper)
{
    UNUSED;
    return recase(r, self, CASE_UPPER);
}
METHOD(str_lower)
{
    UNUSED;
    return recase(r, self, CASE_LOWER);
}
METHOD(str_title)
{
    UNUSED;
    return recase(r, self, CASE_TITLE);
}
METHOD(str_capitalize)
{
    UNUSED;
    return recase(r, self, CASE_CAPITAL);
}

static bool is_digit(u32 c)
{
    return c - '0' <= 9;
}
static bool is_alnum(u32 c)
{
    return is_digit(c) || text_alpha(c);
}

static struct val all(struct rt *r, struct val self, bool (*is)(u32 cp))
{
    rt_charge(r, self.n);
    for (size_t i = 0; i < self.n;) {
        u32 cp, n = text_char(val_text(self), i, &cp);
        if (!is(cp))
            return val_bool(false);
        i += n;
    }
    return val_bool(self.n > 0);
}

METHOD(str_isdigit)
{
    UNUSED;
    return all(r, self, is_digit);
}
METHOD(str_isalpha)
{
    UNUSED;
    return all(r, self, text_alpha);
}
METHOD(str_isalnum)
{
    UNUSED;
    return all(r, self, is_alnum);
}
METHOD(str_isspace)
{
    UNUSED;
    return all(r, self, text_is_space);
}

static struct val is_case(struct rt *r, struct val self, bool upper)
{
    bool some = false;
    rt_charge(r, self.n);
    for (size_t i = 0; i < self.n;) {
        u32 cp, n = text_char(val_text(self), i, &cp);
        if (text_cased(cp) && (upper ? text_upper(cp) : text_lower(cp)) != cp)
            return val_bool(false);
        some |= text_cased(cp);
        i += n;
    }
    return val_bool(some);
}

METHOD(str_isupper)
{
    UNUSED;
    return is_case(r, self, true);
}
METHOD(str_islower)
{
    UNUSED;
    return is_case(r, self, false);
}

/* --- join and format ------------------------------------------------------------------------- */

METHOD(str_join)
{
    UNUSED;
    struct val list = val_to_list(r, a[0]);
    for (u32 i = 0; i < list.n && !r->failed; i++)
        want_str(r, list.items[i]);
    struct sink s = sink_open(r);
    for (u32 i = 0; i < list.n && !r->failed; i++) {
        if (i)
            sink_put_str(r, &s, val_text(self));
        sink_put_str(r, &s, val_text(list.items[i]));
    }
    return sink_close(r, &s);
}

METHOD(str_format)
{
    UNUSED;
    return text_format(r, val_text(self), args);
}

/* --- dicts and lists ------------------------------------------------------------------------- */

METHOD(dict_get_method)
{
    UNUSED;
    if (!val_hashable(a[0]))
        rt_fail(r, "unhashable type: '%s'", val_type_name(a[0]));
    const struct val *v = r->failed ? NULL : dict_get(r, self.dict, a[0]);
    return v ? *v : arg_absent(a[1]) ? val_none() : a[1];
}

METHOD(dict_keys)
{
    UNUSED;
    return val_view(self, VIEW_KEYS);
}
METHOD(dict_values)
{
    UNUSED;
    return val_view(self, VIEW_VALUES);
}
METHOD(dict_items)
{
    UNUSED;
    return val_view(self, VIEW_ITEMS);
}
METHOD(same)
{
    UNUSED;
    return self; /* values never change: a copy is the value */
}

METHOD(list_count)
{
    UNUSED;
    i64 n = 0;
    for (u32 i = 0; i < self.n && !r->failed; i++)
        n += val_eq(r, self.items[i], a[0]);
    return val_int(n);
}

METHOD(list_index)
{
    UNUSED;
    for (u32 i = 0; i < self.n && !r->failed; i++)
        if (val_eq(r, self.items[i], a[0]))
            return val_int(i);
    rt_fail(r, "the value is not in the list");
    return val_nothing();
}

static const struct func str_methods[] = {
    {"strip", "/ chars", 0, false, str_strip},
    {"lstrip", "/ chars", 0, false, str_lstrip},
    {"rstrip", "/ chars", 0, false, str_rstrip},
    {"split", "sep maxsplit", 0, false, str_split},
    {"rsplit", "sep maxsplit", 0, false, str_rsplit},
    {"splitlines", "keepends", 0, false, str_splitlines},
    {"partition", "/ sep", 1, false, str_partition},
    {"rpartition", "/ sep", 1, false, str_rpartition},
    {"startswith", "/ prefix start end", 1, false, str_startswith},
    {"endswith", "/ suffix start end", 1, false, str_endswith},
    {"find", "/ sub start end", 1, false, str_find},
    {"rfind", "/ sub start end", 1, false, str_rfind},
    {"index", "/ sub start end", 1, false, str_index},
    {"rindex", "/ sub start end", 1, false, str_rindex},
    {"count", "/ sub start end", 1, false, str_count},
    {"replace", "/ old new count", 2, false, str_replace},
    {"removeprefix", "/ prefix", 1, false, str_removeprefix},
    {"removesuffix", "/ suffix", 1, false, str_removesuffix},
    {"upper", "", 0, false, str_upper},
    {"lower", "", 0, false, str_lower},
    {"title", "", 0, false, str_title},
    {"capitalize", "", 0, false, str_capitalize},
    {"isdigit", "", 0, false, str_isdigit},
    {"isalpha", "", 0, false, str_isalpha},
    {"isalnum", "", 0, false, str_isalnum},
    {"isspace", "", 0, false, str_isspace},
    {"isupper", "", 0, false, str_isupper},
    {"islower", "", 0, false, str_islower},
    {"join", "/ iterable", 1, false, str_join},
    {"format", "", 0, true, str_format},
};

static const struct func dict_methods[] = {
    {"get", "/ key default", 1, false, dict_get_method},
    {"keys", "", 0, false, dict_keys},
    {"values", "", 0, false, dict_values},
    {"items", "", 0, false, dict_items},
    {"copy", "", 0, false, same},
};

static const struct func list_methods[] = {
    {"count", "/ value", 1, false, list_count},
    {"index", "/ value", 1, false, list_index},
    {"copy", "", 0, false, same},
};

static const struct func *in_table(const struct func *table, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, table[i].name))
            return &table[i];
    return NULL;
}

const struct func *method_find(struct val self, struct str name)
{
    if (self.type == V_STR)
        return in_table(str_methods, COUNTOF(str_methods), name);
    if (self.type == V_DICT)
        return in_table(dict_methods, COUNTOF(dict_methods), name);
    if (val_is_seq(self)) /* a tuple has no copy */
        return in_table(list_methods, COUNTOF(list_methods) - (self.type == V_TUPLE), name);
    return NULL;
}

static bool one_of(struct str name, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, words[i]))
            return true;
    return false;
}

bool method_hidden(struct val self, struct str name)
{
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    static const char *const list[] = {"append", "clear", "pop",    "reverse",
                                       "insert", "sort",  "extend", "remove"};
    return (self.type == V_DICT && one_of(name, dict, COUNTOF(dict))) ||
           (self.type == V_LIST && one_of(name, list, COUNTOF(list)));
}

bool method_unsupported(struct str name)
{
    static const char *const lacking[] = {
        "casefold",  "center",       "encode",    "expandtabs",  "format_map", "isascii",
        "isdecimal", "isidentifier", "isnumeric", "isprintable", "istitle",    "ljust",
        "maketrans", "rjust",        "swapcase",  "translate",   "zfill",      "fromkeys"};
    return one_of(name, lacking, COUNTOF(lacking));
}
