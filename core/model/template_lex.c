#include "core/model/template_lex.h"

#include "core/base/utf8.h"
#include "core/model/template_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN_DATA, IN_VAR, IN_BLOCK };

void lex_place(struct str src, size_t pos, u32 *line, u32 *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < MIN(pos, src.n); i++) {
        *column = src.p[i] == '\n' ? 1 : *column + 1;
        *line += src.p[i] == '\n';
    }
}

enum err lex_fail(const struct lexer *l, size_t pos, const char *fmt, ...)
{
    char text[512];
    u32 line, column;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    lex_place(l->src, pos, &line, &column);
    return err_set(l->e, ERR_MODEL, "%s: line %u, column %u: %s", l->name, line, column, text);
}

enum err lex_open(struct lexer *l, struct arena *keep, struct str source, const char *name,
                  struct err_text *e)
{
    *l = (struct lexer){.keep = keep, .name = name, .line_starting = true, .e = e};
    if (source.n > LIMIT_TEMPLATE_BYTES)
        return err_set(e, ERR_MODEL,
                       "%s: a template of %zu bytes (at most %zu: LIMIT_TEMPLATE_BYTES in "
                       "config/limits.h)",
                       name, source.n, LIMIT_TEMPLATE_BYTES);
    if (!utf8_valid(source))
        return err_set(e, ERR_MODEL, "%s: not UTF-8", name);
    char *p = arena_alloc(keep, source.n + 1, 1);
    if (!p)
        return arena_full(keep, name, e);
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        bool cr = source.p[i] == '\r';
        if (cr && i + 1 < source.n && source.p[i + 1] == '\n')
            continue;
        p[n++] = cr ? '\n' : source.p[i];
    }
    n -= n > 0 && p[n - 1] == '\n'; /* keep_trailing_newline is off */
    l->src = (struct str){p, n};
    return ERR_OK;
}

static struct str rest(const struct lexer *l, size_t at)
{
    return (struct str){l->src.p + at, l->src.n - at};
}

static bool looking_at(const struct lexer *l, size_t at, const char *z)
{
    return str_starts(rest(l, MIN(at, l->src.n)), str_of(z));
}

static size_t skip_space(const struct lexer *l, size_t at)
{
    return at + text_space_after(rest(l, at));
}

/* End marker of a tag at `at` ("%}", "#}", "}}"), with its '-' or '+' and what it eats behind it.
 * Returns the offset behind all of that, or 0. `newline`: trim_blocks applies. */
static size_t tag_end(const struct lexer *l, size_t at, const char *mark, bool newline)
{
    if (at + 1 < l->src.n && l->src.p[at] == '-' && looking_at(l, at + 1, mark))
        return skip_space(l, at + 3);
    if (newline && at + 1 < l->src.n && l->src.p[at] == '+' && looking_at(l, at + 1, mark))
        return at + 3;
    if (!looking_at(l, at, mark))
        return 0;
    at += 2;
    return at + (newline && looking_at(l, at, "\n"));
}

/* "raw" or "endraw" with its end behind a "{%" and marker that end at `at`; 0 when it is not. */
static size_t raw_tag(const struct lexer *l, size_t at, const char *word)
{
    at = skip_space(l, at);
    if (!looking_at(l, at, word))
        return 0;
    at = skip_space(l, at + strlen(word));
    bool ends = word[0] == 'e'; /* only {% endraw %} trims the new line and knows +%} */
    return tag_end(l, at, "%}", ends);
}

/* Offset behind the opening of a tag and its '-' or '+'. */
static size_t tag_open(const struct lexer *l, size_t at, char *sign)
{
    char c = at + 2 < l->src.n ? l->src.p[at + 2] : 0;
    *sign = c == '-' || c == '+' ? c : 0;
    return at + 2 + (*sign != 0);
}

/* Text from `from` to the tag at `to`, cut as the tag's marker and lstrip_blocks want. */
static struct str data_before(const struct lexer *l, size_t from, size_t to, char sign, bool var)
{
    struct str d = {l->src.p + from, to - from};
    if (sign == '-') {
        d.n -= text_space_before(d);
    } else if (sign != '+' && !var) {
        size_t line = d.n;
        while (line > 0 && d.p[line - 1] != '\n')
            line--;
        struct str tail = {d.p + line, d.n - line};
        if ((line > 0 || l->line_starting) && tail.n && text_space_after(tail) == tail.n)
            d.n = line;
    }
    return d;
}

static void behind(struct lexer *l, size_t at)
{
    l->at = at;
    l->line_starting = at > 0 && l->src.p[at - 1] == '\n';
}

/* The raw block whose opening tag ends at l->at: its text is data. */
static enum err raw_block(struct lexer *l, size_t tag, struct token *t)
{
    for (size_t i = l->at; i + 1 < l->src.n; i++) {
        char sign;
        if (!looking_at(l, i, "{%"))
            continue;
        size_t end = raw_tag(l, tag_open(l, i, &sign), "endraw");
        if (!end)
            continue;
        *t = (struct token){.kind = T_DATA, .pos = (u32)l->at};
        t->text = data_before(l, l->at, i, sign, false);
        behind(l, end);
        return ERR_OK;
    }
    if (l->at == l->src.n) { /* nothing behind it: jinja2 lets that pass */
        *t = (struct token){.kind = T_DATA, .pos = (u32)l->at};
        return ERR_OK;
    }
    return lex_fail(l, tag, "{%% raw %%} without {%% endraw %%}");
}

static enum err comment(struct lexer *l, size_t tag, size_t behind_open)
{
    for (size_t at = behind_open; at < l->src.n; at++) {
        size_t end = tag_end(l, at, "#}", true);
        if (end) {
            behind(l, end);
            return ERR_OK;
        }
    }
    if (l->src.n == behind_open) { /* nothing behind it: jinja2 lets that pass */
        l->at = l->src.n;
        return ERR_OK;
    }
    return lex_fail(l, tag, "comment without an end (\"#}\" is missing)");
}

/* The tag at `tag`: enters it. A comment or raw block is handled here (kind stays T_DATA). */
static enum err enter(struct lexer *l, size_t tag, struct token *t)
{
    char sign;
    size_t at = tag_open(l, tag, &sign), raw;
    *t = (struct token){.kind = T_DATA, .pos = (u32)tag};
    if (looking_at(l, tag, "{#"))
        return comment(l, tag, at);
    if (looking_at(l, tag, "{%") && (raw = raw_tag(l, at, "raw"))) {
        behind(l, raw);
        return raw_block(l, tag, t);
    }
    bool var = looking_at(l, tag, "{{");
    t->kind = var ? T_VAR_BEGIN : T_BLOCK_BEGIN;
    l->state = var ? IN_VAR : IN_BLOCK;
    l->at = at;
    l->line_starting = false;
    return ERR_OK;
}

static enum err data(struct lexer *l, struct token *t)
{
    size_t q = l->at;
    while (q < l->src.n) {
        const char *brace = memchr(l->src.p + q, '{', l->src.n - q);
        q = brace ? (size_t)(brace - l->src.p) : l->src.n;
        if (looking_at(l, q, "{{") || looking_at(l, q, "{%") || looking_at(l, q, "{#"))
            break;
        q += q < l->src.n;
    }
    if (q >= l->src.n) {
        *t = (struct token){.kind = l->at < l->src.n ? T_DATA : T_EOF, .pos = (u32)l->at};
        t->text = rest(l, l->at);
        l->at = l->src.n;
        return ERR_OK;
    }
    char sign;
    tag_open(l, q, &sign);
    struct str d = data_before(l, l->at, q, sign, looking_at(l, q, "{{"));
    if (d.n == 0)
        return enter(l, q, t);
    *t = (struct token){.kind = T_DATA, .pos = (u32)l->at, .text = d};
    l->at = q; /* the tag comes with the next call */
    return ERR_OK;
}

static bool hex_digits(struct str s, size_t n, u32 *out)
{
    u32 v = 0;
    if (s.n < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        u32 c = (u8)s.p[i], low = c | 32;
        if (c - '0' > 9 && low - 'a' > 5)
            return false;
        v = v << 4 | (c - '0' <= 9 ? c - '0' : low - 'a' + 10);
    }
    *out = v;
    return true;
}

/* One backslash escape of Python ("unicode-escape") at s (behind the backslash); bytes read, or 0.
 * Writes at most s's own length plus 8 bytes. */
static size_t escape(struct str s, char **out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    u8 c = (u8)s.p[0];
    u32 cp = 0, width = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const char *hit = c ? strchr(from, c) : NULL;
    if (c == '\n')
        return 1;
    if (hit) {
        *(*out)++ = to[hit - from];
        return 1;
    }
    if (width) {
        if (!hex_digits((struct str){s.p + 1, s.n - 1}, width, &cp))
            return 0;
        if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
            return 0;
        *out += utf8_encode(cp, *out);
        return 1 + width;
    }
    if (c >= '0' && c <= '7') {
        size_t i = 0;
        for (; i < 3 && i < s.n && s.p[i] >= '0' && s.p[i] <= '7'; i++)
            cp = cp * 8 + (u32)(s.p[i] - '0');
        *out += utf8_encode(cp, *out);
        return i;
    }
    if (c == 'N')
        return 0;
    *(*out)++ = '\\';
    if (c < 0x80) {
        *(*out)++ = (char)c;
        return 1;
    }
    u32 n = utf8_decode(s.p, s.n, &cp); /* Python escapes it first and finds \\ there */
    *out += snprintf(*out, 10, cp < 0x100 ? "x%02x" : cp < 0x10000 ? "u%04x" : "U%08x", cp);
    return n;
}

static enum err string(struct lexer *l, struct token *t)
{
    char quote = l->src.p[l->at];
    size_t end = l->at + 1;
    while (end < l->src.n && l->src.p[end] != quote)
        end += l->src.p[end] == '\\' ? 2 : 1;
    if (end >= l->src.n)
        return lex_fail(l, l->at, "string without an end");
    char *text = arena_alloc(l->keep, 5 * (end - l->at), 1), *o = text;
    if (!text)
        return arena_full(l->keep, l->name, l->e);
    for (size_t i = l->at + 1; i < end;) {
        if (l->src.p[i] != '\\') {
            *o++ = l->src.p[i++];
            continue;
        }
        size_t n = escape((struct str){l->src.p + i + 1, end - i - 1}, &o);
        if (n == 0)
            return lex_fail(l, i, "this escape in a string is wrong or not supported");
        i += 1 + n;
    }
    l->keep->used_bytes -= 5 * (end - l->at) - (size_t)(o - text); /* hand back what is not used */
    *t = (struct token){.kind = T_STRING, .pos = (u32)l->at};
    t->text = (struct str){text, (size_t)(o - text)};
    l->at = end + 1;
    return ERR_OK;
}

static bool digit_of(char c, u32 base, u32 *d)
{
    u32 low = (u8)c | 32u;
    *d = (u32)(u8)c - '0' <= 9 ? (u32)(u8)c - '0' : low - 'a' <= 5 ? low - 'a' + 10 : 99;
    return *d < base;
}

/* Digits of `base` with single underscores between them; bytes taken. */
static size_t digit_run(struct str s, u32 base, bool leading_underscore)
{
    size_t i = 0;
    u32 d;
    while (i < s.n) {
        size_t j = i + (s.p[i] == '_' && (i > 0 || leading_underscore));
        if (j >= s.n || !digit_of(s.p[j], base, &d))
            break;
        i = j + 1;
    }
    return i;
}

/* Length of a float literal at s, or 0: digits with a fraction, an exponent, or both. */
static size_t float_length(struct str s)
{
    size_t whole = digit_run(s, 10, false), n = whole;
    if (n + 1 < s.n && s.p[n] == '.') {
        struct str f = {s.p + n + 1, s.n - n - 1};
        size_t frac = digit_run(f, 10, false);
        n += frac ? 1 + frac : 0;
    }
    if (n + 1 < s.n && (s.p[n] | 32) == 'e') {
        size_t sign = s.p[n + 1] == '+' || s.p[n + 1] == '-';
        struct str x = {s.p + n + 1 + sign, s.n - n - 1 - sign};
        size_t digits = digit_run(x, 10, false);
        n += digits ? 1 + sign + digits : 0;
    }
    return n > whole ? n : 0;
}

static enum err float_literal(struct lexer *l, struct token *t, size_t n)
{
    char text[128];
    size_t k = 0;
    if (n >= sizeof text)
        return lex_fail(l, l->at, "number of %zu characters", n);
    for (size_t i = 0; i < n; i++)
        if (l->src.p[l->at + i] != '_')
            text[k++] = l->src.p[l->at + i];
    text[k] = 0;
    *t = (struct token){.kind = T_FLOAT, .pos = (u32)l->at, .f = strtod(text, NULL)};
    l->at += n;
    return ERR_OK;
}

static enum err number(struct lexer *l, struct token *t)
{
    struct str s = rest(l, l->at);
    bool after_dot = l->at > 0 && l->src.p[l->at - 1] == '.';
    size_t n = after_dot ? 0 : float_length(s);
    if (n)
        return float_literal(l, t, n);
    u32 base = 10, d;
    size_t skip = 0;
    if (s.n > 2 && s.p[0] == '0') {
        char x = (char)(s.p[1] | 32);
        base = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 10;
        skip = base == 10 ? 0 : 2;
        if (skip && !digit_run((struct str){s.p + 2, s.n - 2}, base, true))
            base = 10, skip = 0;
    }
    n = skip + digit_run((struct str){s.p + skip, s.n - skip}, base, skip > 0);
    if (base == 10 && s.p[0] == '0') /* only zeros may follow a leading zero */
        for (size_t i = 0; i < n; i++)
            if (s.p[i] != '0' && s.p[i] != '_')
                n = s.p[i - 1] == '_' ? i - 1 : i;
    *t = (struct token){.kind = T_INT, .pos = (u32)l->at};
    for (size_t i = skip; i < n; i++)
        if (s.p[i] != '_' && digit_of(s.p[i], base, &d) &&
            (__builtin_mul_overflow(t->i, (i64)base, &t->i) ||
             __builtin_add_overflow(t->i, (i64)d, &t->i)))
            return lex_fail(l, l->at, "integers beyond 64 bits are not supported");
    l->at += n;
    return ERR_OK;
}

static bool name_byte(char c)
{
    return (u8)c >= 0x80 || c == '_' || (u8)(c - '0') <= 9 || (u8)((c | 32) - 'a') <= 25;
}

static enum err operator(struct lexer *l, struct token *t) {
    static const char two[][3] = {"==", "!=", ">=", "<=", "**", "//"};
    static const u8 codes[] = {OP_EQ, OP_NE, OP_GE, OP_LE, OP_POW, OP_FLOORDIV};
    *t = (struct token){.kind = T_OP, .pos = (u32)l->at};
    for (u32 i = 0; i < COUNTOF(two);
         i++) if (looking_at(l, l->at, two[i])){t->op = codes[i]; l->at += 2; return ERR_OK;}
char c = l->src.p[l->at];
if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
    return lex_fail(l, l->at, "unexpected character '%c'", (u8)c < 0x80 ? c : '?');
if (strchr("([{", c)) {
    if (l->depth == LIMIT_TEMPLATE_DEPTH)
        return lex_fail(l, l->at, "more than %d open brackets", LIMIT_TEMPLATE_DEPTH);
    l->open[l->depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
} else if (strchr(")]}", c)) {
    if (l->depth == 0 || l->open[--l->depth] != c)
        return lex_fail(l, l->at, "'%c' closes nothing", c);
}
t->op = (u8)c;
l->at++;
return ERR_OK;
}

static enum err inside(struct lexer *l, struct token *t)
{
    bool var = l->state == IN_VAR;
    for (;;) {
        size_t end = l->depth ? 0 : tag_end(l, l->at, var ? "}}" : "%}", !var);
        if (end) {
            *t = (struct token){.kind = var ? T_VAR_END : T_BLOCK_END, .pos = (u32)l->at};
            behind(l, end);
            l->state = IN_DATA;
            return ERR_OK;
        }
        size_t space = text_space_after(rest(l, l->at));
        if (!space)
            break;
        l->at += space;
    }
    if (l->at >= l->src.n)
        return lex_fail(l, l->src.n, "the template ends inside a tag");
    char c = l->src.p[l->at];
    if ((u8)(c - '0') <= 9)
        return number(l, t);
    if (c == '"' || c == '\'')
        return string(l, t);
    if (!name_byte(c))
        return operator(l, t);
    size_t from = l->at;
    while (l->at < l->src.n && name_byte(l->src.p[l->at]))
        l->at++;
    *t = (struct token){.kind = T_NAME, .pos = (u32)from};
    t->text = (struct str){l->src.p + from, l->at - from};
    return ERR_OK;
}

enum err lex_next(struct lexer *l, struct token *t)
{
    do {
        if (l->state != IN_DATA)
            return inside(l, t);
        TRY(data(l, t));
    } while (t->kind == T_DATA && t->text.n == 0); /* a comment, an empty raw block */
    return ERR_OK;
}
