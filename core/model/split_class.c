#include "core/model/split_parts.h"
#include "core/model/unicode.h"

#define NO_CHAR UINT32_MAX

void split_fault(struct split_reader *r, size_t at, const char *what)
{
    if (!r->fault) {
        r->fault = what;
        r->fault_at = at;
    }
    r->at = r->s.n;
}

static struct split_kinds kinds_all(bool all)
{
    u64 w = all ? UINT64_MAX : 0;
    return (struct split_kinds){{w, w, w, w}};
}

static struct split_kinds kinds_not(struct split_kinds a)
{
    for (u32 i = 0; i < COUNTOF(a.w); i++)
        a.w[i] = ~a.w[i];
    return a;
}

static struct split_kinds kinds_or(struct split_kinds a, struct split_kinds b)
{
    for (u32 i = 0; i < COUNTOF(a.w); i++)
        a.w[i] |= b.w[i];
    return a;
}

static struct split_kinds kinds_and(struct split_kinds a, struct split_kinds b)
{
    return kinds_not(kinds_or(kinds_not(a), kinds_not(b)));
}

static void zone_add(struct split_reader *r, u32 cp)
{
    u32 i = r->zones_n;
    while (i > 0 && r->zones[i - 1] > cp)
        i--;
    if (cp < 0x80 || cp > 0x10ffff || (i > 0 && r->zones[i - 1] == cp))
        return;
    if (r->zones_n == LIMIT_SPLIT_ZONES) {
        split_fault(r, r->at, "more ends of ranges than LIMIT_SPLIT_ZONES in config/limits.h");
        return;
    }
    memmove(r->zones + i + 1, r->zones + i, (r->zones_n - i) * sizeof *r->zones);
    r->zones[i] = cp;
    r->zones_n++;
}

static struct split_kinds range(struct split_reader *r, u32 low, u32 high, u32 cp)
{
    zone_add(r, low);
    zone_add(r, high + 1);
    return kinds_all(low <= cp && cp <= high);
}

/* --- properties ----------------------------------------------------------------------------- */

/* Kinds with one of these bits, of this script (0: any), of one of these categories: "L" stands
 * for all that begin so, "" for all. */
static struct split_kinds kinds_of(u32 bits, u32 script, struct str category)
{
    struct split_kinds k = kinds_all(false);
    for (u32 i = 0; i < unicode_kind_count; i++) {
        const struct unicode_bits *u = &unicode_bits_of[i];
        struct str name = {unicode_categories + 2 * u->category, 2};
        if ((!bits || (u->bits & bits)) && (!script || u->script == script) &&
            str_starts(name, category))
            k.w[i / 64] |= (u64)1 << i % 64;
    }
    return k;
}

/* \w. Within brackets Oniguruma leaves out the six numbers of Latin-1 that it takes elsewhere. */
static struct split_kinds word_kinds(bool within)
{
    struct split_kinds k = kinds_of(UNICODE_NAME, 0, STR(""));
    return within ? kinds_and(k, kinds_not(kinds_of(0, 0, STR("No")))) : k;
}

static bool same_name(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if ((a.p[i] | 0x20) != (b.p[i] | 0x20))
            return false;
    return true;
}

/* The category that a name stands for, "" when it is none. */
static struct str category_of(struct str name)
{
    static const char *const groups[] = {"Letter", "Mark",      "Number", "Punctuation",
                                         "Symbol", "Separator", "Other"};
    static const char letters[] = "LMNPSZC";
    for (u32 i = 0; i < COUNTOF(groups); i++) {
        struct str letter = {letters + i, 1};
        if (same_name(name, letter) || same_name(name, str_of(groups[i])))
            return letter;
    }
    for (const char *c = unicode_categories; *c; c += 2)
        if (same_name(name, (struct str){c, 2}))
            return (struct str){c, 2};
    return STR("");
}

/* A property by its name; false when it is not known here. */
static bool named_kinds(struct str name, struct split_kinds *out)
{
    struct str category = category_of(name);
    u32 bits = str_is(name, "=digit")         ? UNICODE_DIGIT
               : str_is(name, "=punctuation") ? UNICODE_MARK
                                              : 0;
    u32 script = 1;
    while (unicode_scripts[script] && !same_name(name, str_of(unicode_scripts[script])))
        script++;
    if (!unicode_scripts[script])
        script = 0;
    *out = kinds_of(bits, script, category);
    return bits || script || category.n;
}

/* {L}, {^L} of \p and \P. */
static struct split_kinds property(struct split_reader *r, size_t from, bool negated)
{
    struct split_kinds k = kinds_all(false);
    const char *end = split_more(r) ? memchr(r->s.p + r->at, '}', r->s.n - r->at) : NULL;
    if (!end || !split_eat(r, '{')) {
        split_fault(r, from, "\\p without {..}");
        return k;
    }
    negated ^= split_eat(r, '^');
    struct str name = {r->s.p + r->at, (size_t)(end - r->s.p) - r->at};
    r->at += name.n + 1;
    if (!named_kinds(name, &k))
        split_fault(r, from, "a property that is not known here");
    return negated ? kinds_not(k) : k;
}

/* --- characters ----------------------------------------------------------------------------- */

static u32 hex(struct split_reader *r, size_t from, u32 digits)
{
    u32 value = 0, n = 0;
    for (; n < digits && split_more(r); n++, r->at++) {
        char c = r->s.p[r->at], low = c | 0x20;
        bool letter = low >= 'a' && low <= 'f';
        if (!letter && !(c >= '0' && c <= '9'))
            break;
        value = value << 4 | (u32)(letter ? low - 'a' + 10 : c - '0');
    }
    if (n && value <= 0x10ffff && (value & ~0x7ffu) != 0xd800)
        return value;
    split_fault(r, from, "no code point");
    return 0;
}

/* \xHH, \x{H..} and \uHHHH, at the letter. */
static u32 coded(struct split_reader *r, size_t from)
{
    bool four = r->s.p[r->at++] == 'u', braces = !four && split_eat(r, '{');
    size_t digits = r->at;
    u32 cp = hex(r, from, four ? 4 : braces ? 6 : 2);
    if ((four && r->at - digits != 4) || (braces && !split_eat(r, '}')))
        split_fault(r, from, "no code point");
    if (!four && !braces && cp >= 0x80)
        split_fault(r, from, "a byte that is no character");
    if (r->folded)
        split_fault(r, from, "a code point in (?i:..)");
    return cp;
}

/* An escape: a character, or a class into *k. */
static u32 escape(struct split_reader *r, size_t from, struct split_kinds *k)
{
    static const char plain[][2] = {{'t', '\t'}, {'n', '\n'}, {'r', '\r'}, {'f', '\f'},
                                    {'v', '\v'}, {'a', '\a'}, {'e', 0x1b}};
    char c = split_more(r) ? r->s.p[r->at] : 0, low = c | 0x20;
    for (u32 i = 0; i < COUNTOF(plain); i++)
        if (c == plain[i][0]) {
            r->at++;
            return (u32)plain[i][1];
        }
    if (c == 'x' || c == 'u')
        return coded(r, from);
    if ((c > ' ' && c < '0') || (c && strchr(" \t\n\r:;<=>?@[\\]^_`{|}~", c))) {
        r->at++;
        return (u32)c;
    }
    r->at++;
    if (low == 's')
        *k = kinds_of(UNICODE_SPACE, 0, STR(""));
    else if (low == 'd')
        *k = kinds_of(0, 0, STR("Nd"));
    else if (low == 'w')
        *k = word_kinds(r->brackets);
    else if (low == 'p')
        *k = property(r, from, false);
    else
        split_fault(r, from, "an escape that is not supported");
    if (c != low)
        *k = kinds_not(*k);
    return NO_CHAR;
}

/* A character, or a class into *k and NO_CHAR. */
static u32 item(struct split_reader *r, struct split_kinds *k)
{
    size_t from = r->at;
    u32 cp;
    r->at += unicode_next(r->s.p + from, &cp);
    if (cp == '\\')
        cp = escape(r, from, k);
    if (r->folded && cp >= 0x80 &&
        (cp == NO_CHAR || unicode_categories[2 * unicode_of(cp).category] != 'P'))
        split_fault(r, from, "neither ASCII nor punctuation in (?i:..)");
    return cp;
}

/* What stands between brackets once: a character, a range, a class. */
static struct split_kinds member(struct split_reader *r, u32 cp, bool first)
{
    size_t from = r->at;
    struct split_kinds k = kinds_all(false);
    bool dash = r->s.p[from] == '-';
    u32 low = item(r, &k), high = low;
    bool more = r->at + 1 < r->s.n && r->s.p[r->at] == '-' && r->s.p[r->at + 1] != ']';
    if ((dash && !first && split_more(r) && r->s.p[r->at] != ']') ||
        (more && (low == NO_CHAR || dash))) {
        split_fault(r, from, "a - that is no range; \\- is the character");
        return k;
    }
    if (more) {
        r->at++;
        high = r->s.p[r->at] == '[' ? NO_CHAR : item(r, &k);
        if (high == NO_CHAR || high < low)
            split_fault(r, from, "a range that ends before it begins");
    }
    return low == NO_CHAR || r->fault ? k : range(r, low, high, cp);
}

/* The rest of [..], behind the bracket. */
static struct split_kinds brackets(struct split_reader *r, size_t from, u32 cp)
{
    struct split_kinds all = kinds_all(true), some = kinds_all(false);
    bool negated = split_eat(r, '^'), empty = true;
    if (negated && r->folded)
        split_fault(r, from, "[^..] in (?i:..)");
    r->brackets++;
    if (++r->depth > LIMIT_SPLIT_DEPTH)
        split_fault(r, from, "deeper than LIMIT_SPLIT_DEPTH in config/limits.h");
    while (split_more(r)) {
        size_t at = r->at;
        struct str rest = {r->s.p + at, r->s.n - at};
        bool both = str_starts(rest, STR("&&"));
        if (empty && (both || *rest.p == ']')) {
            split_fault(r, at, "an empty class");
        } else if (both) {
            r->at += 2;
            all = kinds_and(all, some);
            some = kinds_all(false);
            empty = true;
        } else if (split_eat(r, ']')) {
            r->depth--;
            r->brackets--;
            all = kinds_and(all, some);
            return negated ? kinds_not(all) : all;
        } else if (str_starts(rest, STR("[:"))) {
            split_fault(r, at, "[:..:]");
        } else {
            some = kinds_or(some, split_eat(r, '[') ? brackets(r, at, cp) : member(r, cp, empty));
            empty = false;
        }
    }
    split_fault(r, from, "a class without its ]");
    return all;
}

static struct split_kinds class_of(struct split_reader *r, u32 cp)
{
    size_t from = r->at;
    struct split_kinds k = kinds_all(false);
    if (split_eat(r, '['))
        return brackets(r, from, cp);
    if (split_eat(r, '.'))
        return kinds_not(range(r, '\n', '\n', cp));
    u32 c = item(r, &k);
    return c == NO_CHAR || r->fault ? k : range(r, c, c, cp);
}

/* Is a letter, big or small, in the class at `from`? */
static bool has_letter(struct split_reader *r, size_t from, u32 low)
{
    r->at = from;
    bool has = class_of(r, low).w[0];
    r->at = from;
    return (class_of(r, low - 0x20).w[0]) || has;
}

/* Under (?i) the letters are those of ASCII; what else folds to one are long s and the Kelvin
 * sign. */
struct split_kinds split_class(struct split_reader *r, u32 cp)
{
    static const u32 odd[][2] = {{0x17f, 's'}, {0x212a, 'k'}};
    size_t from = r->at;
    struct split_kinds k = class_of(r, cp);
    size_t end = r->at;
    u32 low = cp < 0x80 ? cp | 0x20 : 0;
    for (u32 i = 0; i < COUNTOF(odd) && r->folded && !r->fault; i++) {
        if (has_letter(r, from, odd[i][1]))
            range(r, odd[i][0], odd[i][0], cp);
        if (cp == odd[i][0])
            low = odd[i][1];
    }
    if (r->folded && !r->fault && low >= 'a' && low <= 'z' && has_letter(r, from, low))
        k = kinds_all(true);
    r->at = end;
    return k;
}
