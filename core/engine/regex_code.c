#include "core/engine/regex_code.h"

#include "core/base/utf8.h"

#define LAST 0x10ffffu
#define NO_CHAR UINT32_MAX
#define NO_END UINT32_MAX

enum { LIST = 96, COUNT_MAX = 10000 };

struct list { /* spans in any order */
    u32 n;
    struct regex_span of[LIST];
};

/* Which characters a class has: in every engine, and in some. */
struct chars {
    struct list sure, maybe;
};

struct reader {
    struct regex_program *p;
    struct str s;
    size_t at;
    u32 depth;
};

static void fault_at(struct reader *r, size_t at, const char *what, u32 limit)
{
    if (!r->p->fault) {
        r->p->fault = what;
        r->p->fault_at = at;
        r->p->limit = limit;
    }
    r->at = r->s.n;
}

static void fault(struct reader *r, size_t at, const char *what)
{
    fault_at(r, at, what, 0);
}

/* The next byte, or 0: in a pattern that is nothing special. */
static char next(const struct reader *r)
{
    return r->at < r->s.n ? r->s.p[r->at] : 0;
}

static bool eat(struct reader *r, char c)
{
    bool is = r->at < r->s.n && r->s.p[r->at] == c;
    r->at += is;
    return is;
}

static bool is_one(char c, const char *of)
{
    return c && strchr(of, c);
}

/* --- lists of spans --------------------------------------------------------------------------- */

static void add(struct reader *r, struct list *l, u32 low, u32 high)
{
    if (l->n == LIST)
        fault_at(r, r->at, "spans of characters in a class", LIST);
    else
        l->of[l->n++] = (struct regex_span){low, high};
}

static void add_both(struct reader *r, struct chars *c, u32 low, u32 high)
{
    add(r, &c->sure, low, high);
    add(r, &c->maybe, low, high);
}

/* In order, and what touches becomes one. */
static void tidy(struct list *l)
{
    u32 n = 0;
    for (u32 i = 1; i < l->n; i++)
        for (u32 k = i; k && l->of[k].low < l->of[k - 1].low; k--) {
            struct regex_span s = l->of[k];
            l->of[k] = l->of[k - 1];
            l->of[k - 1] = s;
        }
    for (u32 i = 0; i < l->n; i++)
        if (n && l->of[i].low <= l->of[n - 1].high + 1)
            l->of[n - 1].high = MAX(l->of[n - 1].high, l->of[i].high);
        else
            l->of[n++] = l->of[i];
    l->n = n;
}

/* What is not in it, without surrogates. */
static struct list inverse(struct reader *r, struct list *l)
{
    struct list out = {0};
    u32 from = 0;
    add(r, l, 0xd800, 0xdfff);
    tidy(l);
    for (u32 i = 0; i < l->n; i++) {
        if (l->of[i].low > from)
            add(r, &out, from, l->of[i].low - 1);
        from = l->of[i].high + 1;
    }
    if (from <= LAST)
        add(r, &out, from, LAST);
    return out;
}

static void append(struct reader *r, struct list *to, const struct list *from)
{
    for (u32 i = 0; i < from->n; i++)
        add(r, to, from->of[i].low, from->of[i].high);
}

/* --- code ------------------------------------------------------------------------------------- */

/* Room for n before `at`. Jumps are relative, and never lead over a place where this is called. */
static struct regex_code *insert(struct reader *r, u32 at, u32 n)
{
    struct regex_program *p = r->p;
    if (n > LIMIT_REGEX_CODE - p->n) {
        fault_at(r, r->at, "steps", LIMIT_REGEX_CODE);
        return NULL;
    }
    memmove(p->code + at + n, p->code + at, (p->n - at) * sizeof *p->code);
    p->n += n;
    return p->code + at;
}

static void put(struct reader *r, u32 at, u8 op, u8 set, u32 to)
{
    struct regex_code *c = insert(r, at, 1);
    if (c)
        *c = (struct regex_code){.op = op, .set = set, .to = (i16)to};
}

/* One character of these. */
static void put_set(struct reader *r, struct list *l)
{
    struct regex_program *p = r->p;
    u32 i = 0;
    tidy(l);
    while (i < p->n_sets && !(p->sets[i].n == l->n && memcmp(p->spans + p->sets[i].first, l->of,
                                                             l->n * sizeof *l->of) == 0))
        i++;
    if (i == LIMIT_REGEX_SETS) {
        fault_at(r, r->at, "different characters and classes", LIMIT_REGEX_SETS);
    } else if (i == p->n_sets && l->n > LIMIT_REGEX_SPANS - p->n_spans) {
        fault_at(r, r->at, "spans of characters", LIMIT_REGEX_SPANS);
    } else if (i == p->n_sets) {
        memcpy(p->spans + p->n_spans, l->of, l->n * sizeof *l->of);
        p->sets[p->n_sets++] = (struct regex_set){(u16)p->n_spans, (u16)l->n};
        p->n_spans += l->n;
    }
    put(r, p->n, REGEX_SET, (u8)i, 0);
}

/* --- classes ---------------------------------------------------------------------------------- */

/* \d, \w, \s. Beyond ASCII engines differ in what digits and words are, and in a few spaces. */
static void put_known(struct reader *r, struct chars *c, char letter)
{
    static const struct regex_span spaces[] = {{0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
                                               {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
                                               {0xa0, 0xa0},     {'\t', '\r'},     {' ', ' '}};
    static const struct regex_span odd[] = {{0x1c, 0x1f},     {0x85, 0x85},     {0x180e, 0x180e},
                                            {0x200b, 0x200d}, {0x2060, 0x2060}, {0xfeff, 0xfeff}};
    if (letter == 's') {
        for (u32 i = 0; i < COUNTOF(spaces); i++)
            add_both(r, c, spaces[i].low, spaces[i].high);
        for (u32 i = 0; i < COUNTOF(odd); i++)
            add(r, &c->maybe, odd[i].low, odd[i].high);
        return;
    }
    add_both(r, c, '0', '9');
    add(r, &c->maybe, 0x80, LAST);
    if (letter == 'd')
        return;
    add_both(r, c, 'A', 'Z');
    add_both(r, c, 'a', 'z');
    add_both(r, c, '_', '_');
}

static u32 hex(struct reader *r, size_t from, u32 digits)
{
    u32 value = 0;
    for (u32 i = 0; i < digits; i++, r->at++) {
        char c = next(r), low = c | 0x20;
        bool letter = low >= 'a' && low <= 'f';
        if (!letter && !(c >= '0' && c <= '9')) {
            fault(r, from, "no code point");
            return 0;
        }
        value = value << 4 | (u32)(letter ? low - 'a' + 10 : c - '0');
    }
    if (value >= 0xd800 && value <= 0xdfff)
        fault(r, from, "half a character; write it as it is");
    return value;
}

/* Behind a backslash: a character, or a class that is added, and NO_CHAR. */
static u32 escape(struct reader *r, size_t from, struct chars *to)
{
    static const char plain[][2] = {{'t', '\t'}, {'n', '\n'}, {'r', '\r'},
                                    {'f', '\f'}, {'v', '\v'}, {'0', 0}};
    char c = next(r), low = c | 0x20;
    r->at++;
    if (is_one(c, "dwsDWS")) {
        struct chars k = {0};
        put_known(r, &k, low);
        struct list sure = c == low ? k.sure : inverse(r, &k.maybe),
                    maybe = c == low ? k.maybe : inverse(r, &k.sure);
        append(r, &to->sure, &sure);
        append(r, &to->maybe, &maybe);
        return NO_CHAR;
    }
    for (u32 i = 0; i < COUNTOF(plain); i++)
        if (c == plain[i][0] && !(c == '0' && next(r) >= '0' && next(r) <= '9'))
            return (u32)plain[i][1];
    if (c == 'x' || c == 'u')
        return hex(r, from, c == 'x' ? 2 : 4);
    if (!is_one(c, "^$\\.*+?()[]{}|/-,:;=!@#%&<>~'\"`_ "))
        fault(r, from, "an escape that is not supported");
    return (u32)(u8)c;
}

static u32 character(struct reader *r, struct chars *to)
{
    size_t from = r->at;
    u32 cp = 0, n = utf8_decode(r->s.p + from, r->s.n - from, &cp);
    r->at += MAX(n, 1u);
    return cp == '\\' ? escape(r, from, to) : cp;
}

/* [..] behind the bracket. */
static void brackets(struct reader *r, size_t from, struct list *out)
{
    struct chars c = {0};
    bool negated = eat(r, '^');
    if (next(r) == ']')
        fault(r, from, "an empty class");
    while (r->at < r->s.n && !eat(r, ']')) {
        size_t at = r->at;
        u32 low = character(r, &c), high = low;
        if (next(r) == '[' || (r->at == at + 1 && low == '[')) /* of sets, elsewhere */
            fault(r, r->at, "[ in a class; \\[ is the character");
        if (r->at + 1 < r->s.n && next(r) == '-' && r->s.p[r->at + 1] != ']') {
            r->at++;
            high = character(r, &c);
            if (low == NO_CHAR || high == NO_CHAR || high < low)
                fault(r, at, "no range of characters; \\- is the character");
        }
        if (low != NO_CHAR)
            add_both(r, &c, low, high);
    }
    if (r->at == 0 || r->s.p[r->at - 1] != ']')
        fault(r, from, "a class without its ]");
    *out = negated ? inverse(r, &c.maybe) : c.sure;
}

/* --- expressions ------------------------------------------------------------------------------ */

static void alternatives(struct reader *r);

static void group(struct reader *r, size_t from)
{
    if (++r->depth > LIMIT_REGEX_DEPTH)
        fault_at(r, from, "nested groups", LIMIT_REGEX_DEPTH);
    if (eat(r, '?') && !eat(r, ':')) {
        char kind = next(r);
        r->at++;
        while (kind == '<' && r->at < r->s.n && !is_one(next(r), "=!>"))
            r->at++;
        if (kind != '<' || !eat(r, '>'))
            fault(r, from, "a group that is not supported: no looking around, no flags");
    }
    alternatives(r);
    if (!eat(r, ')'))
        fault(r, from, "a group without its )");
    r->depth--;
}

static void one(struct reader *r)
{
    size_t from = r->at;
    struct chars c = {0};
    if (eat(r, '[')) {
        brackets(r, from, &c.sure);
    } else if (eat(r, '.')) {
        add(r, &c.sure, '\n', '\n');
        add(r, &c.sure, '\r', '\r');
        add(r, &c.sure, 0x2028, 0x2029);
        c.sure = inverse(r, &c.sure);
    } else {
        u32 cp = character(r, &c);
        if (cp != NO_CHAR)
            add(r, &c.sure, cp, cp);
    }
    put_set(r, &c.sure);
}

static u32 number(struct reader *r, u32 missing)
{
    u32 n = 0;
    size_t from = r->at;
    for (char c; (c = next(r)) >= '0' && c <= '9'; r->at++)
        n = MIN(n * 10 + (u32)(c - '0'), COUNT_MAX + 1u);
    return r->at == from ? missing : n;
}

/* ? * + {m} {m,} {m,n}; false: none. That it is to be lazy changes nothing about what fits. */
static bool repetition(struct reader *r, u32 *min, u32 *max)
{
    size_t from = r->at;
    char c = next(r);
    if (!is_one(c, "?*+{"))
        return false;
    r->at++;
    *min = c == '+';
    *max = c == '?' ? 1 : NO_END;
    if (c == '{') {
        *min = number(r, NO_END);
        *max = eat(r, ',') ? number(r, NO_END) : *min;
        if (*min == NO_END || !eat(r, '}') || *max < *min)
            fault(r, from, "no count; \\{ is the character");
        else if (*min > COUNT_MAX || (*max != NO_END && *max > COUNT_MAX))
            fault_at(r, from, "repetitions", COUNT_MAX);
    }
    eat(r, '?');
    if (is_one(next(r), "?*+{"))
        fault(r, r->at, "a repetition of a repetition");
    return true;
}

static void copy(struct reader *r, u32 from, u32 n)
{
    struct regex_code *to = n ? insert(r, r->p->n, n) : NULL;
    if (to)
        memcpy(to, r->p->code + from, n * sizeof *to);
}

/* What was written from `start` on, min to max times. */
static void repeat(struct reader *r, u32 start, u32 min, u32 max)
{
    struct regex_program *p = r->p;
    u32 body = p->n - start;
    if (body == 0 || p->fault)
        return;
    if (max == 0) {
        p->n = start;
        return;
    }
    for (u32 i = 1; i < MAX(min, 1u) && !p->fault; i++)
        copy(r, start, body);
    if (max == NO_END && min == 0) {
        put(r, start, REGEX_SPLIT, 0, body + 2);
        put(r, p->n, REGEX_JUMP, 0, -(body + 1));
    } else if (max == NO_END) {
        put(r, p->n, REGEX_SPLIT, 0, -body);
    } else {
        u32 more = min ? max - min : max - 1, end = 1 + more * (body + 1);
        if (min == 0)
            put(r, start, REGEX_SPLIT, 0, body + end);
        for (u32 i = 0; i < more && !p->fault; i++) {
            put(r, p->n, REGEX_SPLIT, 0, end - 1 - i * (body + 1));
            copy(r, start + (min == 0), body);
        }
    }
}

static void repeated(struct reader *r)
{
    size_t from = r->at;
    u32 start = r->p->n, min, max;
    bool assertion = is_one(next(r), "^$");
    if (eat(r, '('))
        group(r, from);
    else if (assertion)
        put(r, start, r->s.p[r->at++] == '^' ? REGEX_START : REGEX_END, 0, 0);
    else if (is_one(next(r), "?*+{"))
        fault(r, from, "nothing to repeat; \\ makes it the character");
    else
        one(r);
    if (!r->p->fault && repetition(r, &min, &max)) {
        if (assertion)
            fault(r, from, "an assertion that is repeated");
        repeat(r, start, min, max);
    }
}

static void alternatives(struct reader *r)
{
    struct regex_program *p = r->p;
    u32 start = p->n, first = p->n, jump = 0; /* the last jump to the end: `to` is the one before */
    for (;;) {
        while (r->at < r->s.n && !is_one(next(r), "|)"))
            repeated(r);
        if (!eat(r, '|') || p->fault)
            break;
        put(r, start, REGEX_SPLIT, 0, p->n - start + 2);
        put(r, p->n, REGEX_JUMP, 0, jump);
        jump = p->n - 1;
        start = p->n;
    }
    while (jump > first && !p->fault) {
        u32 before = (u32)p->code[jump].to;
        p->code[jump].to = (i16)(p->n - jump);
        jump = before;
    }
}

bool regex_read(struct regex_program *p, struct str pattern)
{
    struct reader r = {.p = p, .s = pattern};
    p->n = p->n_sets = p->n_spans = p->limit = 0;
    p->fault = NULL;
    if (memchr(pattern.p, 0, pattern.n))
        fault(&r, 0, "a NUL in it; \\0 is the character");
    alternatives(&r);
    if (r.at < pattern.n)
        fault(&r, r.at, "a ) without its group");
    put(&r, p->n, REGEX_MATCH, 0, 0);
    return !p->fault;
}
