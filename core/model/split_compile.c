#include "core/model/split_parts.h"
#include "core/model/unicode.h"

/* Patterns become steps as they are read. Jumps are relative, so that what was written can move
 * when a step has to stand before it. */
struct compiler {
    struct split_reader r;
    struct split_step steps[LIMIT_SPLIT_CODE], none;
    u32 n;
    struct class
    {
        struct str text;
        bool folded;
    } classes[LIMIT_SPLIT_CLASSES];
    u32 classes_n;
    char before; /* letter of (?i:..) right before, small; or 0 */
};

/* The next character where it is of ASCII, or 0. */
static char next_char(const struct split_reader *r)
{
    return split_more(r) && r->s.p[r->at] > 0 ? r->s.p[r->at] : 0;
}

static bool is_one(char c, const char *of)
{
    return c && strchr(of, c);
}

/* --- writing steps -------------------------------------------------------------------------- */

/* Room for n steps at `at`. After a fault nothing is written any more. */
static struct split_step *insert(struct compiler *c, u32 at, u32 n)
{
    if (c->n + n > LIMIT_SPLIT_CODE)
        split_fault(&c->r, c->r.at, "more steps than LIMIT_SPLIT_CODE in config/limits.h");
    if (c->r.fault)
        return &c->none;
    memmove(c->steps + at + n, c->steps + at, (c->n - at) * sizeof *c->steps);
    memset(c->steps + at, 0, n * sizeof *c->steps);
    c->n += n;
    return c->steps + at;
}

static struct split_step *emit(struct compiler *c, enum split_op op)
{
    struct split_step *s = insert(c, c->n, 1);
    s->op = (u8)op;
    return s;
}

/* --- classes -------------------------------------------------------------------------------- */

/* The number of the class that begins here. */
static u32 class_number(struct compiler *c)
{
    struct split_reader *r = &c->r;
    size_t from = r->at;
    split_class(r, 0);
    struct class new = {{r->s.p + from, r->at - from}, r->folded};
    for (u32 i = 0; i < c->classes_n; i++)
        if (c->classes[i].folded == r->folded && str_eq(c->classes[i].text, new.text))
            return i;
    if (c->classes_n == LIMIT_SPLIT_CLASSES) {
        split_fault(r, from, "more classes than LIMIT_SPLIT_CLASSES in config/limits.h");
        return 0;
    }
    c->classes[c->classes_n] = new;
    return c->classes_n++;
}

/* Two letters of (?i:..) for which Oniguruma takes one character too, like sharp s. */
static void check_pair(struct compiler *c, size_t from, char a, char b)
{
    static const char pairs[][3] = {"ss", "st", "ff", "fi", "fl"};
    for (u32 i = 0; i < COUNTOF(pairs); i++)
        if (a == pairs[i][0] && b == pairs[i][1])
            split_fault(&c->r, from, "letters in (?i:..) that are a ligature too");
}

static void one(struct compiler *c)
{
    size_t from = c->r.at;
    char low = (char)(c->r.s.p[from] | 0x20), before = c->before;
    emit(c, SPLIT_ONE)->set = (u64)1 << class_number(c);
    c->before = c->r.folded && low >= 'a' && low <= 'z' ? low : 0;
    check_pair(c, from, before, c->before);
}

/* --- groups --------------------------------------------------------------------------------- */

/* Reads up to | or ) or the end; may what was read match nothing? */
static bool alternatives(struct compiler *c);

static bool ahead(struct compiler *c, bool negated)
{
    u32 start = c->n;
    emit(c, SPLIT_AHEAD)->negated = negated;
    alternatives(c);
    emit(c, SPLIT_MATCH);
    if (c->r.fault)
        return true;
    struct split_step *s = c->steps + start;
    s->to = (i32)(c->n - start);
    if (s->to == 3 && s[1].op == SPLIT_ONE) { /* one character: no need to go anywhere */
        *s = (struct split_step){.op = SPLIT_PEEK, .negated = negated, .set = s[1].set};
        c->n = start + 1;
    }
    return true;
}

/* What was written from `start` on is taken as it matches first. */
static void atom(struct compiler *c, u32 start)
{
    insert(c, start, 1)->op = SPLIT_ATOM;
    emit(c, SPLIT_MATCH);
    if (!c->r.fault)
        c->steps[start].to = (i32)(c->n - start);
}

/* A group behind its parenthesis; *again: may it be repeated? */
static bool group(struct compiler *c, size_t from, bool *again)
{
    struct split_reader *r = &c->r;
    bool folded = r->folded, empty;
    u32 start = c->n;
    if (++r->depth > LIMIT_SPLIT_DEPTH)
        split_fault(r, from, "deeper than LIMIT_SPLIT_DEPTH in config/limits.h");
    char kind = split_eat(r, '?') ? next_char(r) : ':';
    r->at += split_more(r) && r->s.p[r->at - 1] == '?';
    *again = kind != '=' && kind != '!';
    if (kind == 'i' && split_eat(r, ':'))
        r->folded = true;
    else if (!is_one(kind, ":>=!") || next_char(r) == '*')
        split_fault(r, from, "a group that is not supported");
    if (*again)
        empty = alternatives(c);
    else
        empty = ahead(c, kind == '!');
    if (kind == '>')
        atom(c, start);
    if (!split_eat(r, ')'))
        split_fault(r, from, "a group without its )");
    r->depth--;
    r->folded = folded;
    return empty;
}

/* --- repetition ----------------------------------------------------------------------------- */

#define NO_END UINT32_MAX

static u32 number(struct split_reader *r, u32 missing)
{
    u32 n = 0;
    size_t from = r->at;
    for (char c; (c = next_char(r)) >= '0' && c <= '9'; r->at++)
        n = MIN(n * 10 + (u32)(c - '0'), 1000000u);
    return r->at == from ? missing : n;
}

/* ? * + {m} {m,} {,n} {m,n}, and which may stand behind; false: none. */
static bool repetition(struct split_reader *r, u32 *min, u32 *max, char *how)
{
    size_t from = r->at;
    char c = next_char(r);
    if (!is_one(c, "?*+{"))
        return false;
    r->at++;
    *min = c == '+';
    *max = c == '?' ? 1 : NO_END;
    if (c == '{') {
        size_t digits = r->at;
        *min = number(r, 0);
        bool any = r->at > digits;
        *max = split_eat(r, ',') ? number(r, any ? NO_END : 0) : *min;
        if (!split_eat(r, '}') || *min > *max || *max == 0 || (*max != NO_END && *max > 100000))
            split_fault(r, from, "no count; \\{ is the character");
    }
    *how = split_eat(r, '?') ? '?' : split_eat(r, '+') ? '+' : 0;
    if (is_one(next_char(r), "?*+{"))
        split_fault(r, r->at, "a repetition of a repetition");
    if (c == '{' && (*how == '+' || (*how && *min == *max))) /* Ruby means something else by it */
        split_fault(r, from, "{..} with a + behind it, or {m}?");
    return true;
}

static void append_copy(struct compiler *c, u32 from, u32 n)
{
    struct split_step *to = insert(c, c->n, n);
    if (!c->r.fault)
        memcpy(to, c->steps + from, n * sizeof *to);
}

/* Repeats what was written from `start` on, by writing it several times; `min` of them must be,
 * each of the others can be passed over. */
static void repeat(struct compiler *c, u32 start, u32 min, u32 max, bool lazy)
{
    u32 body = c->n - start, from = start, copies = 1;
    if (min == 0)
        insert(c, from++, 1)->op = SPLIT_CHOICE;
    for (; copies < min && !c->r.fault; copies++)
        append_copy(c, from, body);
    u32 choices = min ? c->n : start;
    for (; copies < max && max != NO_END && !c->r.fault; copies++) {
        emit(c, SPLIT_CHOICE);
        append_copy(c, from, body);
    }
    u32 end = c->n + (max == NO_END);
    for (; choices < c->n && !c->r.fault; choices += 1 + body) {
        c->steps[choices].to = (i32)(end - choices);
        c->steps[choices].jump = lazy;
    }
    if (max == NO_END) { /* the way back */
        struct split_step *back = emit(c, SPLIT_CHOICE);
        back->to = -(i32)body;
        back->jump = !lazy;
    }
}

/* An atom with its repetition. */
static bool repeated(struct compiler *c)
{
    struct split_reader *r = &c->r;
    size_t from = r->at;
    u32 start = c->n, min, max;
    bool again = true, empty = false;
    char how;
    if (split_eat(r, '(')) {
        empty = group(c, from, &again);
    } else if (split_eat(r, '^') || split_eat(r, '$')) {
        emit(c, r->s.p[from] == '^' ? SPLIT_LINE_START : SPLIT_LINE_END);
        again = false;
        empty = true;
    } else if (is_one(next_char(r), "?*+{")) {
        split_fault(r, from, "nothing to repeat");
    } else {
        one(c);
    }
    if (r->fault || !repetition(r, &min, &max, &how))
        return empty;
    if (!again)
        split_fault(r, from, "an assertion that is repeated");
    if (empty && max > 1)
        split_fault(r, from, "a repetition of what may match nothing");
    if (min > 1)
        check_pair(c, from, c->before, c->before);
    c->before = 0;
    if (r->fault)
        return empty;
    struct split_step *s = c->steps + start;
    if (c->n == start + 1 && s->op == SPLIT_ONE && how != '?') {
        *s = (struct split_step){.op = SPLIT_RUN, .min = min, .max = max, .set = s->set};
        s->possessive = how == '+';
        return min == 0;
    }
    repeat(c, start, min, max, how == '?');
    if (how == '+')
        atom(c, start);
    return empty || min == 0;
}

static bool alternatives(struct compiler *c)
{
    struct split_reader *r = &c->r;
    u32 start = c->n, jumps = c->n,
        jump = 0; /* the last jump to the end; its `to`: the one before */
    bool any_empty = false;
    for (;;) {
        bool empty = true;
        while (split_more(r) && !is_one(next_char(r), "|)"))
            empty &= repeated(c);
        any_empty |= empty;
        if (!split_eat(r, '|'))
            break;
        c->before = 0;
        insert(c, start, 1)->op = SPLIT_CHOICE;
        emit(c, SPLIT_JUMP)->to = (i32)jump;
        jump = c->n - 1;
        if (r->fault)
            return true;
        c->steps[start].to = (i32)(c->n - start);
        start = c->n;
    }
    while (jump > jumps && !r->fault) {
        u32 next = (u32)c->steps[jump].to;
        c->steps[jump].to = (i32)(c->n - jump);
        jump = next;
    }
    return any_empty;
}

/* --- finishing ------------------------------------------------------------------------------ */

/* The classes of every character, and of every kind in every zone. */
static bool tables(struct compiler *c, struct arena *keep, struct split *p)
{
    struct split_reader *r = &c->r;
    u32 kinds = unicode_kind_count, zones_n = r->zones_n;
    u32 *zones = ARENA_NEW(keep, u32, zones_n);
    u64 *of = ARENA_NEW(keep, u64, (size_t)zones_n * kinds);
    if (!zones || !of)
        return false;
    memcpy(zones, r->zones, zones_n * sizeof *zones);
    for (u32 i = 0; i < 0x80; i++)
        p->ascii[i] = SPLIT_CHARACTER;
    for (size_t i = 0; i < (size_t)zones_n * kinds; i++)
        of[i] = SPLIT_CHARACTER;
    for (u32 i = 0; i < c->classes_n; i++) {
        r->s = c->classes[i].text;
        r->folded = c->classes[i].folded;
        for (u32 z = 0; z < 0x80 + zones_n; z++) {
            r->at = 0;
            struct split_kinds k = split_class(r, z < 0x80 ? z : zones[z - 0x80]);
            u64 *to = z < 0x80 ? p->ascii + z : of + (size_t)(z - 0x80) * kinds;
            for (u32 j = 0; j < (z < 0x80 ? 1 : kinds); j++) {
                u32 kind = z < 0x80 ? unicode_kind_of(z) : j;
                to[j] |= (k.w[kind / 64] >> kind % 64 & 1) << i;
            }
        }
    }
    ASSERT(!r->fault && r->zones_n == zones_n);
    p->zones = zones;
    p->of = of;
    p->zones_n = zones_n;
    return true;
}

/* Is there a character both of a and of b? */
static bool meet(const struct split *p, u64 a, u64 b)
{
    if (b & SPLIT_END) /* anything at all */
        return true;
    for (u32 i = 0; i < 128; i++)
        if ((p->ascii[i] & a) && (p->ascii[i] & b))
            return true;
    for (size_t i = 0; i < (size_t)p->zones_n * unicode_kind_count; i++)
        if ((p->of[i] & a) && (p->of[i] & b))
            return true;
    return false;
}

/* What a step may begin with, by what the steps behind it may; a way back counts as anything. */
static u64 first_of(const struct split_step *s)
{
    u64 other = s->to > 0 ? s[s->to].first : SPLIT_ANY;
    switch ((enum split_op)s->op) {
    case SPLIT_ONE:
        return s->set;
    case SPLIT_RUN:
        return s->lead | s->set | (s->min ? 0 : s[1].first);
    case SPLIT_PEEK:
        return s->negated ? SPLIT_ANY : s->set;
    case SPLIT_ATOM:
        return s[1].first;
    case SPLIT_CHOICE:
        return s[1].first | other;
    case SPLIT_JUMP:
        return other;
    case SPLIT_AHEAD:
    case SPLIT_LINE_START:
    case SPLIT_LINE_END:
    case SPLIT_MATCH:
        break;
    }
    return SPLIT_ANY;
}

/* X?Y+ is one step where X is never given back; the second one is then passed over. */
static void lead(struct split_step *s)
{
    struct split_step *next = s + 1;
    if (s->min == 0 && s->max == 1 && s->possessive && next->op == SPLIT_RUN && next->min &&
        !next->lead) {
        u64 set = s->set, first = s->first;
        *s = *next;
        s->lead = set;
        s->first = first;
        s->to = 2;
    }
}

/* Do the steps from here on match whatever comes? */
static bool sure(const struct split_step *s)
{
    switch ((enum split_op)s->op) {
    case SPLIT_MATCH:
        return true;
    case SPLIT_RUN:
        return s->min == 0 && s[1].sure;
    case SPLIT_CHOICE:
        return s[1].sure || (s->to > 0 && s[s->to].sure);
    case SPLIT_JUMP:
        return s->to > 0 && s[s->to].sure;
    default:
        return false;
    }
}

/* What helps matching along: first characters, and runs that need not give back. */
static void finish(struct split *p)
{
    for (u32 i = p->n; i-- > 0;) {
        struct split_step *s = &p->steps[i];
        s->first = first_of(s);
        s->sure = sure(s);
        if (s->op == SPLIT_JUMP && s->to > 0 && s[s->to].op == SPLIT_MATCH)
            *s = s[s->to];
        if (s->op != SPLIT_RUN)
            continue;
        s->possessive |= s[1].sure || !meet(p, s->set, s[1].first);
        s->to = 1;
        lead(s);
    }
}

static void starts(struct split *p)
{
    for (u32 c = 0; c < 128; c++) {
        const struct split_step *s = p->steps;
        while (s->op == SPLIT_CHOICE && !s->jump && !(p->ascii[c] & s[1].first))
            s += s->to;
        p->start[c] = (u16)(s - p->steps);
    }
}

static enum err refuse(const struct split_reader *r, const char *path, struct err_text *e)
{
    struct str rest = {r->s.p + r->fault_at, MIN(r->s.n - r->fault_at, (size_t)24)};
    while (rest.n > 0 && rest.p + rest.n < r->s.p + r->s.n && (rest.p[rest.n] & 0xc0) == 0x80)
        rest.n--;
    return err_set(e, ERR_MODEL, "%s: pre_tokenizer.pattern, byte %zu (\"%.*s\"): %s: %.*s", path,
                   r->fault_at, STR_ARG(rest), r->fault, STR_ARG(r->s));
}

enum err split_compile(struct arena *keep, struct str regex, const char *path, struct split **out,
                       struct err_text *e)
{
    struct compiler c = {.r = {.s = regex, .zones = {0x80}, .zones_n = 1}};
    if (regex.n > LIMIT_SPLIT_BYTES)
        return err_set(e, ERR_MODEL,
                       "%s: pre_tokenizer.pattern has %zu bytes; the limit is %d "
                       "(LIMIT_SPLIT_BYTES in config/limits.h)",
                       path, regex.n, LIMIT_SPLIT_BYTES);
    alternatives(&c);
    if (split_more(&c.r))
        split_fault(&c.r, c.r.at, "a ) without its group");
    emit(&c, SPLIT_MATCH);
    if (c.r.fault)
        return refuse(&c.r, path, e);
    struct split *p = arena_alloc(keep, sizeof *p + c.n * sizeof *p->steps, _Alignof(struct split));
    if (!p)
        return arena_full(keep, path, e);
    memcpy(p->steps, c.steps, c.n * sizeof *p->steps);
    p->n = c.n;
    if (!tables(&c, keep, p))
        return arena_full(keep, path, e);
    finish(p);
    starts(p);
    *out = p;
    return ERR_OK;
}
