#include "core/model/tool_literal.h"

#include "core/model/tool_xml.h"

#include <string.h>

enum { DEPTH = 32 };
_Static_assert(DEPTH <= 32 && DEPTH > LIMIT_SCHEMA_DEPTH,
               "a bit each; what a grammar makes is read");

enum state {
    BEGIN,  /* the first bracket */
    BEFORE, /* a key or a value; or no more of them */
    WORD,   /* without quotes, held until it has an end; if it is long, passed on as a string */
    STRING,
    ESCAPE, /* in a string, and held */
    QUOTE,  /* one in a string; held are blanks behind it */
    BEHIND  /* a key or a value */
};

const struct tool_literal tool_literal_gemma = {"<|\"|>", "\"", '{', ':', '}'},
                          tool_literal_python = {"", "\"'", '(', '=', ')'};

void tool_literal_begin(struct tool_reader *r)
{
    r->function = tool_parameter((struct str){r->held + r->name_at, r->name_n}, STR(""));
    r->literal = BEGIN;
    r->lists = r->ends = 0;
}

static bool in_list(const struct tool_reader *r)
{
    return r->lists & 1;
}

/* How many of the brackets that are open this one closes. */
static u32 closes(const struct tool_reader *r, const struct tool_literal *form, char c)
{
    for (u32 i = 0; i < r->depth; i++)
        if (c == (i + 1 == r->depth ? form->close : r->lists >> i & 1 ? ']' : '}'))
            return i + 1;
    return 0;
}

static bool assigns(const struct tool_reader *r, const struct tool_literal *form, char c)
{
    return r->key && c == (r->depth == 1 ? form->assign : ':');
}

static bool follows(const struct tool_reader *r, const struct tool_literal *form, char c)
{
    return c == ',' || assigns(r, form, c) || closes(r, form, c);
}

static void enter(struct tool_reader *r, enum state state)
{
    r->literal = state;
    r->n = r->matched = 0;
}

/* --- brackets --------------------------------------------------------------------------------- */

static void open(struct tool_reader *r, bool list)
{
    tool_put(r, list ? STR("[") : STR("{"));
    r->lists = r->lists << 1 | list;
    r->depth++;
    r->any = false;
    r->key = !list;
    enter(r, BEFORE);
}

/* A key that has come is without a value, if it has none. */
static void end_member(struct tool_reader *r)
{
    if (r->literal == BEHIND && r->key)
        tool_put(r, STR(": null"));
    else if (r->literal == BEFORE && !r->key && !in_list(r))
        tool_put(r, STR("null"));
}

static void close(struct tool_reader *r, u32 n)
{
    end_member(r);
    for (; n; n--) {
        tool_put(r, in_list(r) ? STR("]") : STR("}"));
        r->lists >>= 1;
        r->depth--;
    }
    r->any = true;
    r->key = false;
    enter(r, BEHIND);
}

/* --- keys and values -------------------------------------------------------------------------- */

static void begin(struct tool_reader *r)
{
    if (r->any && (r->key || in_list(r)))
        tool_put(r, STR(", "));
    r->any = true;
    if (r->key)
        r->parameter = r->function;
}

static void text(struct tool_reader *r, struct str s)
{
    if (r->key)
        r->parameter = tool_hash(r->parameter, s);
    tool_put_escaped(r, s);
    r->first = false;
}

static void begin_string(struct tool_reader *r, char quote)
{
    begin(r);
    tool_put(r, STR("\""));
    r->quote = quote;
    r->triple = false;
    r->first = true;
    enter(r, STRING);
}

static void end_string(struct tool_reader *r)
{
    tool_put(r, STR("\""));
    enter(r, BEHIND);
}

static void hold(struct tool_reader *r, char c)
{
    r->held[r->n++] = c;
}

static void let_go(struct tool_reader *r)
{
    text(r, (struct str){r->held, r->n});
    r->n = 0;
}

static bool is_json(struct str s)
{
    struct json_prefix json = {0};
    for (size_t i = 0; i < s.n; i++)
        if (!json_prefix_step(&json, s.p[i]))
            return false;
    return json_prefix_complete(&json);
}

static void end_word(struct tool_reader *r)
{
    struct str s = tool_trimmed((struct str){r->held, r->n});
    u32 kinds =
        r->depth > 1 || !r->types.kinds ? TOOL_ANY : r->types.kinds(r->types.of, r->parameter);
    const char *word = tool_of_python(s, true);
    bool is = !r->key && kinds & tool_kind_of(s.n ? *s.p : 0);
    if (!r->passed)
        begin(r);
    if (!r->passed && is && (word || is_json(s))) {
        tool_put(r, word ? str_of(word) : s);
    } else {
        if (!r->passed)
            tool_put(r, STR("\""));
        text(r, s);
        tool_put(r, STR("\""));
    }
    enter(r, BEHIND);
}

static void word(struct tool_reader *r, const struct tool_literal *form, char c)
{
    hold(r, c);
    if (str_is((struct str){r->held, r->n}, form->quote)) {
        begin_string(r, 0);
    } else if (r->passed || r->n == TOOL_VALUE_BYTES) {
        if (!r->passed) {
            begin(r);
            tool_put(r, STR("\""));
        }
        r->passed = true;
        let_go(r);
    }
}

static void before(struct tool_reader *r, const struct tool_literal *form, char c)
{
    u32 n = closes(r, form, c);
    if (n) {
        close(r, n);
    } else if (c == ',') {
        end_member(r);
        r->key = !in_list(r);
    } else if (c && strchr(form->signs, c)) {
        begin_string(r, c);
    } else if (!r->key && (c == '[' || c == '{') && r->depth < DEPTH) {
        begin(r);
        open(r, c == '[');
    } else if (!json_is_blank(c)) {
        r->literal = WORD;
        r->passed = false;
        word(r, form, c);
    }
}

static void behind(struct tool_reader *r, const struct tool_literal *form, char c)
{
    u32 n = closes(r, form, c);
    if (n) {
        close(r, n);
    } else if (assigns(r, form, c)) {
        tool_put(r, STR(": "));
        r->key = false;
        r->literal = BEFORE;
    } else if (c == ',') {
        end_member(r);
        r->key = !in_list(r);
        r->literal = BEFORE;
    }
}

/* --- strings ---------------------------------------------------------------------------------- */

static void step(struct tool_reader *r, const struct tool_literal *form, char c);

static void string(struct tool_reader *r, const struct tool_literal *form, char c)
{
    if (r->quote) {
        if (c != r->quote && c != '\\') {
            text(r, (struct str){&c, 1});
            return;
        }
        r->quotes = 1;
        r->literal = c == '\\' ? ESCAPE : QUOTE;
    } else if (c == form->quote[r->matched]) {
        if (!form->quote[++r->matched])
            end_string(r);
    } else { /* the first character of it does not come again in it */
        text(r, (struct str){form->quote, r->matched});
        r->matched = 0;
        if (c == *form->quote)
            string(r, form, c);
        else
            text(r, (struct str){&c, 1});
    }
}

/* The quotes were of the string. */
static void go_on(struct tool_reader *r, const struct tool_literal *form, char c)
{
    for (; r->quotes; r->quotes--)
        text(r, (struct str){&r->quote, 1});
    let_go(r);
    r->literal = STRING;
    step(r, form, c);
}

static void quote(struct tool_reader *r, const struct tool_literal *form, char c)
{
    if (r->triple && c == r->quote) {
        if (++r->quotes == 3)
            end_string(r);
    } else if (r->triple) {
        go_on(r, form, c);
    } else if (c == r->quote && r->first && r->n == 0) {
        r->triple = true;
        r->literal = STRING;
    } else if (follows(r, form, c)) {
        end_string(r);
        step(r, form, c);
    } else if (json_is_blank(c) && r->n < TOOL_VALUE_BYTES) {
        hold(r, c);
    } else {
        go_on(r, form, c);
    }
}

/* Behind a backslash: what JSON knows, too, and \x. Python keeps the backslash of any other. */
static void escape(struct tool_reader *r, const struct tool_literal *form, char c)
{
    const char *known = c ? strchr("\"\\/bfnrt", c) : NULL;
    u32 digits = r->n == 0 ? 0 : *r->held == 'x' ? 2 : 4;
    bool begins = digits == 0 && (c == 'x' || c == 'u');
    r->first = false;
    if (begins || (digits && c && strchr("0123456789abcdefABCDEF", c))) {
        hold(r, c);
        if (r->n <= digits || begins)
            return;
        tool_put(r, digits == 2 ? STR("\\u00") : STR("\\u"));
        tool_put(r, (struct str){r->held + 1, digits});
    } else if (digits || (!known && c != '\'' && c != '\n')) {
        tool_put(r, STR("\\\\"));
        let_go(r);
        r->literal = STRING;
        step(r, form, c);
        return;
    } else if (c != '\n') {
        tool_put(r, known ? (struct str){(char[]){'\\', c}, 2} : STR("'"));
    }
    enter(r, STRING);
}

/* --- the machine ------------------------------------------------------------------------------ */

static void step(struct tool_reader *r, const struct tool_literal *form, char c)
{
    switch ((enum state)r->literal) {
    case BEGIN:
        r->depth = 0;
        open(r, false);
        break;
    case BEFORE:
        before(r, form, c);
        break;
    case WORD:
        if (follows(r, form, c)) {
            end_word(r);
            behind(r, form, c);
        } else {
            word(r, form, c);
        }
        break;
    case STRING:
        string(r, form, c);
        break;
    case ESCAPE:
        escape(r, form, c);
        break;
    case QUOTE:
        quote(r, form, c);
        break;
    case BEHIND:
        behind(r, form, c);
    }
}

enum tool_literal_step tool_literal_step(struct tool_reader *r, const struct tool_literal *form,
                                         const char *end, char c)
{
    bool outside = r->literal == BEFORE || r->literal == WORD || r->literal == BEHIND;
    step(r, form, c);
    r->ends = !outside ? 0 : c == end[r->ends] ? r->ends + 1u : c == *end;
    if (end[r->ends])
        return r->depth ? LITERAL_GOES_ON : LITERAL_CLOSED;
    r->ends = 0;
    if (r->literal == WORD) { /* which the mark was taken for */
        r->n -= MIN(r->n, (u32)strlen(end));
        if (r->n || r->passed)
            end_word(r);
        else
            r->literal = BEFORE;
    }
    close(r, r->depth);
    return LITERAL_ENDED;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void plain(struct json_out *o, struct str s)
{
    o->comma = false;
    json_put_number(o, s);
    o->comma = false;
}

void tool_literal_write(struct json_out *o, const struct json *calls)
{
    plain(o, STR("<|tool_call_start|>["));
    for (const struct json *c = calls->child; c; c = c->next) {
        const struct json *f = json_get(c, "function"), *arguments = json_get(f, "arguments");
        plain(o, json_get(f, "name")->text);
        plain(o, STR("("));
        for (const struct json *v = arguments->child; v; v = v->next) {
            plain(o, v->key);
            plain(o, STR("="));
            json_put_tree(o, v);
            plain(o, v->next ? STR(", ") : STR(""));
        }
        plain(o, c->next ? STR("), ") : STR(")"));
    }
    plain(o, STR("]<|tool_call_end|>"));
}
