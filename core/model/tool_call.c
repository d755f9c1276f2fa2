#include "core/model/tool_call.h"

#include "core/base/json.h"
#include "core/model/tool_literal.h"
#include "core/model/tool_xml.h"

#include <string.h>

struct tool_format {
    const char *taught; /* stands in a template that teaches it */
    const char * or ;   /* or this does */
    const char * not ;  /* and this does not: another format has the same mark */
    const char *begin, *end;
    bool whole;   /* a text that begins with a call needs no mark */
    bool named;   /* the name stands before "[ARGS]" and the arguments, in no object */
    bool special; /* begin is a special token */
    const char *open, *middle, *close; /* around name and arguments */
    const struct tool_xml *xml;        /* they are read there */
    struct tool_tags tags;             /* of what is XML */
    const char *open_alone, *close_alone;
    const struct tool_literal *literal; /* arguments behind a name, in no object */
};

static const char args_mark[] = "[ARGS]";

static const struct tool_format formats[] = {
    {.taught = "<parameter=",
     .not = "",
     .begin = "<function=", /* the one before it may be forgotten */
     .open = "<function=",
     .middle = "><",
     .close = "</function>",
     .xml = &tool_xml_function,
     .tags = {"<parameter=", ">", "", "</parameter>", true},
     .open_alone = "<tool_call><function=",
     .close_alone = "</function></tool_call>"},
    {.taught = "<arg_key>",
     .not = "",
     .begin = "<tool_call>",
     .open = "<tool_call>",
     .middle = "<",
     .close = "</tool_call>",
     .xml = &tool_xml_arg_key,
     .tags = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", false}},
    {.taught = "<param name=", /* parts of its marks are special tokens */
     .not = "",
     .begin = "<function name=\"",
     .special = true,
     .open = "<function name=\"",
     .middle = "\"><",
     .close = "</function>",
     .xml = &tool_xml_param,
     .tags = {"<param name=\"", "\">", "", "</param>", false}},
    {.taught = "<tool_call>",
     .not = "<function=",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .open = "<tool_call>{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .close = "}</tool_call>"},
    {.taught = "[TOOL_CALLS]",
     .not = args_mark,
     .begin = "[TOOL_CALLS]",
     .end = "",
     .special = true,
     .open = "[TOOL_CALLS][{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .close = "}]"},
    {.taught = "[TOOL_CALLS]",
     .not = "",
     .begin = "[TOOL_CALLS]",
     .end = "",
     .named = true,
     .special = true,
     .open = "[TOOL_CALLS]",
     .middle = args_mark,
     .close = ""},
    {.taught = "<|tool_call|>",
     .not = "",
     .begin = "<|tool_call|>",
     .end = "<|/tool_call|>",
     .special = true,
     .open = "<|tool_call|>[{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .close = "}]<|/tool_call|>"},
    {.taught = "<TOOLCALL>", /* Nemotron Nano v2; its marks may be special tokens */
     .not = "",
     .begin = "<TOOLCALL>",
     .end = "</TOOLCALL>",
     .special = true,
     .open = "<TOOLCALL>[{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .close = "}]</TOOLCALL>"},
    {.taught = "\"parameters\": dictionary",
     .not = "",
     .begin = "<|python_tag|>",
     .end = "",
     .whole = true,
     .open = "{\"name\": \"",
     .middle = "\", \"parameters\": ",
     .close = "}"},
    {.taught = "<|tool_call>", /* what a grammar makes is JSON */
     .not = "",
     .begin = "<|tool_call>",
     .end = "<tool_call|>",
     .special = true,
     .open = "<|tool_call>call:",
     .middle = " ",
     .close = "<tool_call|>",
     .literal = &tool_literal_gemma},
    {.taught = "<|tool_call_start|>", /* the same, as its models know it, too */
     .or = "List of tools: ",
     .not = "",
     .begin = "<|tool_call_start|>",
     .end = "<|tool_call_end|>",
     .special = true,
     .open = "<|tool_call_start|>[{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .close = "}]<|tool_call_end|>",
     .literal = &tool_literal_python},
    {.taught = "<|channel|>", /* read by core/model/harmony.c */
     .not = "",
     .begin = "<|end|>",
     .end = "",
     .special = true,
     .open = "<|end|><|start|>assistant<|channel|>commentary to=functions.",
     .middle = " <|constrain|>json<|message|>",
     .close = ""},
};

enum state {
    TEXT,
    OPEN,      /* behind the mark: a call or a list of them */
    NAMED,     /* a name that "[ARGS]" follows */
    ARGS_MARK, /* the way there */
    CALLED,    /* a name that the bracket of a literal follows */
    LITERAL,
    MEMBER, /* in the object: a key, or its end */
    KEY,
    COLON,
    VALUE,
    STRING, /* a value before the arguments */
    MEMBER_END,
    ARGUMENTS,
    NONE, /* at the end of an object that has none */
    TAIL, /* its members behind the arguments */
    NEXT, /* behind the object */
    END,  /* the mark behind it */
    GAP   /* and behind that */
};

enum act { PASS, KEEP, DROP, LET_GO, BEGIN, ARGUMENT, NO_ARGUMENTS };

static bool has(struct str s, const char *z)
{
    return z && *z && memmem(s.p, s.n, z, strlen(z)) != NULL;
}

const struct tool_format *tool_format_of(struct str source)
{
    for (u32 i = 0; has(source, "tools") && i < COUNTOF(formats); i++)
        if ((has(source, formats[i].taught) || has(source, formats[i].or)) &&
            !has(source, formats[i].not ))
            return &formats[i];
    return NULL;
}

struct str tool_call_mark(const struct tool_format *f)
{
    return str_of(f->whole ? "" : f->begin);
}

struct str tool_call_open(const struct tool_format *f, bool alone)
{
    return str_of(alone && f->open_alone ? f->open_alone : f->open);
}

struct str tool_call_middle(const struct tool_format *f)
{
    return str_of(f->middle);
}

struct str tool_call_close(const struct tool_format *f, bool alone)
{
    return str_of(alone && f->close_alone ? f->close_alone : f->close);
}

const struct tool_tags *tool_call_tags(const struct tool_format *f)
{
    return f->xml ? &f->tags : NULL;
}

bool tool_format_is_typed(const struct tool_format *f)
{
    return f->xml || f->literal;
}

bool tool_format_is_python(const struct tool_format *f)
{
    return f->literal == &tool_literal_python;
}

bool tool_format_is_special(const struct tool_format *f)
{
    return f->special;
}

struct tool_reader tool_reader_of(const struct tool_format *f, struct tool_types types)
{
    return (struct tool_reader){.format = f, .types = types};
}

static bool held_is(const struct tool_reader *r, u32 at, u32 n, const char *z)
{
    return str_is((struct str){r->held + at, n}, z);
}

static enum act to(struct tool_reader *r, enum state state)
{
    r->state = state;
    return KEEP;
}

/* --- outside of calls ------------------------------------------------------------------------ */

/* In marks the first character does not come again: where one breaks off, none began within. */
static enum act text(struct tool_reader *r, char c)
{
    const char *mark = r->format->begin;
    if (r->matched && c != mark[r->matched])
        return LET_GO;
    if (c == mark[r->matched]) {
        r->began = true;
        if (mark[++r->matched])
            return KEEP;
        r->list = false;
        return to(r, OPEN);
    }
    if (json_is_blank(c))
        return KEEP;
    if (c == '{' && r->format->whole && !r->began) {
        r->began = true;
        return to(r, MEMBER);
    }
    r->began = true;
    return r->n ? LET_GO : PASS;
}

/* Behind a call comes another one, or text. */
static enum act next(struct tool_reader *r, char c)
{
    if (json_is_blank(c))
        return DROP;
    if (c == ']' && r->list) {
        r->list = false;
        return DROP;
    }
    if (c == (r->list ? ',' : ';') && (r->list || r->format->whole)) {
        r->state = OPEN;
        return DROP;
    }
    r->matched = 0;
    if (c == '{')
        return to(r, MEMBER);
    if (c && c == *r->format->end) {
        r->matched = 1;
        return to(r, END);
    }
    r->state = TEXT;
    return text(r, c);
}

static enum act end(struct tool_reader *r, char c)
{
    if (c != r->format->end[r->matched])
        return LET_GO;
    if (r->format->end[++r->matched])
        return KEEP;
    r->n = r->matched = 0;
    r->state = GAP;
    return DROP;
}

/* --- the way to the arguments ---------------------------------------------------------------- */

static bool name_is(struct tool_reader *r, u32 at, u32 n)
{
    r->name_at = at;
    r->name_n = n;
    return r->named = n > 0 && n <= TOOL_NAME_BYTES && !memchr(r->held + at, '\\', n);
}

/* A name, before which "call:" may stand, and blanks behind it. */
static enum act called(struct tool_reader *r, char c)
{
    static const char prefix[] = "call:";
    struct str name = {r->held + r->name_at, r->n - r->name_at};
    if ((u8)c > ' ' && !strchr("\"\\'<>()[]{}=,", c))
        return name.n && json_is_blank(name.p[name.n - 1]) ? LET_GO : KEEP;
    if (json_is_blank(c))
        return name.n ? KEEP : LET_GO;
    if (str_starts(name, STR(prefix)))
        name = (struct str){name.p + sizeof prefix - 1, name.n - (sizeof prefix - 1)};
    name = tool_trimmed(name);
    return c == r->format->literal->open && name_is(r, (u32)(name.p - r->held), (u32)name.n)
               ? BEGIN
               : LET_GO;
}

static enum act open(struct tool_reader *r, char c)
{
    r->named = false;
    if (json_is_blank(c))
        return KEEP;
    if (r->format->named) {
        r->name_at = r->n;
        return to(r, NAMED);
    }
    if (c == '[' && !r->list) {
        r->list = true;
        return KEEP;
    }
    if (c == '{')
        return to(r, MEMBER);
    r->name_at = r->n;
    r->state = CALLED;
    return r->format->literal ? called(r, c) : LET_GO;
}

/* Version 11 has "[CALL_ID]" and an id before "[ARGS]". */
static enum act named(struct tool_reader *r, char c)
{
    if (r->state == NAMED)
        return c != '['                                    ? KEEP
               : name_is(r, r->name_at, r->n - r->name_at) ? to(r, ARGS_MARK)
                                                           : LET_GO;
    u32 n = sizeof args_mark - 2; /* all but the last character */
    if (c == ']' && held_is(r, r->n - n, n, "[ARGS"))
        return to(r, VALUE);
    return KEEP;
}

static enum act member(struct tool_reader *r, char c)
{
    if (c == '"') {
        r->key_at = r->n + 1;
        return to(r, KEY);
    }
    if (c == '}' && r->named)
        return NO_ARGUMENTS;
    return json_is_blank(c) || c == ',' ? KEEP : LET_GO;
}

static enum act key(struct tool_reader *r, char c)
{
    if (c != '"')
        return c == '\\' ? LET_GO : KEEP;
    r->key_n = r->n - r->key_at;
    return to(r, COLON);
}

static enum act value(struct tool_reader *r, char c)
{
    bool arguments = r->format->named || held_is(r, r->key_at, r->key_n, "arguments") ||
                     held_is(r, r->key_at, r->key_n, "parameters");
    if (json_is_blank(c))
        return KEEP;
    if (c == '{' && arguments && r->named)
        return BEGIN;
    if (c != '"' || r->format->named)
        return LET_GO;
    r->value_at = r->n + 1;
    r->escaped = false;
    return to(r, STRING);
}

static enum act string(struct tool_reader *r, char c)
{
    if (c != '"' || r->escaped) {
        r->escaped = c == '\\' && !r->escaped;
        return KEEP;
    }
    if (held_is(r, r->key_at, r->key_n, "name") && !name_is(r, r->value_at, r->n - r->value_at))
        return LET_GO;
    return to(r, MEMBER_END);
}

static enum act member_end(struct tool_reader *r, char c)
{
    if (c == ',')
        return to(r, MEMBER);
    if (c == '}' && r->named)
        return NO_ARGUMENTS;
    return json_is_blank(c) ? KEEP : LET_GO;
}

/* --- arguments and what follows them --------------------------------------------------------- */

/* Steps over a character of JSON; true: a bracket or other sign, in no string. */
static bool sign(struct tool_reader *r, char c)
{
    if (r->in_string) {
        r->in_string = c != '"' || r->escaped;
        r->escaped = c == '\\' && !r->escaped;
        return false;
    }
    r->in_string = c == '"';
    r->escaped = false;
    return !r->in_string;
}

static enum act arguments(struct tool_reader *r, char c)
{
    if (sign(r, c)) {
        r->depth += c == '{' || c == '[';
        r->depth -= c == '}' || c == ']';
    }
    if (r->depth == 0)
        r->state = r->format->named ? NEXT : TAIL;
    return ARGUMENT;
}

/* Small models forget the last bracket: the mark behind it ends the call, too. */
static enum act tail(struct tool_reader *r, char c)
{
    bool is_sign = sign(r, c);
    if (is_sign && r->depth == 0 && c && (c == *r->format->end || c == ']')) {
        r->state = NEXT;
        return next(r, c);
    }
    if (is_sign && r->depth == 0 && c == '}')
        r->state = NEXT;
    else if (is_sign) {
        r->depth += c == '{' || c == '[';
        r->depth -= r->depth && (c == '}' || c == ']');
    }
    return DROP;
}

/* --- the reader ------------------------------------------------------------------------------ */

static enum act step(struct tool_reader *r, char c)
{
    switch ((enum state)r->state) {
    case TEXT:
        return text(r, c);
    case OPEN:
        return open(r, c);
    case NAMED:
    case ARGS_MARK:
        return named(r, c);
    case CALLED:
        return called(r, c);
    case MEMBER:
        return member(r, c);
    case KEY:
        return key(r, c);
    case COLON:
        return c == ':' ? to(r, VALUE) : json_is_blank(c) ? KEEP : LET_GO;
    case VALUE:
        return value(r, c);
    case STRING:
        return string(r, c);
    case MEMBER_END:
        return member_end(r, c);
    case ARGUMENTS:
        return arguments(r, c);
    case TAIL:
        return tail(r, c);
    case END:
        return end(r, c);
    case NEXT:
        return next(r, c);
    case LITERAL:
    case NONE:
    case GAP:
        break;
    }
    if (json_is_blank(c))
        return DROP;
    r->state = TEXT;
    return text(r, c);
}

/* Held are whole characters. */
static bool has_room(const struct tool_reader *r, char c)
{
    return r->n + 4 <= TOOL_HELD_BYTES || (((u8)c & 0xc0) == 0x80 && r->n < TOOL_HELD_BYTES);
}

static enum act act_on(struct tool_reader *r, char c)
{
    enum act act = step(r, c);
    return act == KEEP && !has_room(r, c) ? LET_GO : act;
}

/* Gives out text up to p, and goes on there. */
static bool give(struct str *text, const char *p, enum part part, struct str what,
                 struct piece *piece)
{
    text->n -= (size_t)(p - text->p);
    text->p = p;
    *piece = (struct piece){part, what};
    return true;
}

static bool give_name(struct tool_reader *r, struct str *text, const char *p, enum state then,
                      struct piece *piece)
{
    r->calls++;
    if (then == LITERAL)
        tool_literal_begin(r);
    r->n = r->depth = 0;
    r->in_string = r->escaped = false;
    r->state = then;
    return give(text, p, PART_NAME, (struct str){r->held + r->name_at, r->name_n}, piece);
}

/* Arguments go on, as JSON. */
static bool literal(struct tool_reader *r, struct str *text, struct piece *piece)
{
    const char *p = text->p, *end = p + text->n;
    r->n_out = 0;
    while (p < end && r->state == LITERAL &&
           (r->n_out < TOOL_FULL_BYTES || ((u8)*p & 0xc0) == 0x80)) {
        enum tool_literal_step done =
            tool_literal_step(r, r->format->literal, r->format->end, *p++);
        if (done != LITERAL_GOES_ON) {
            r->state = done == LITERAL_CLOSED ? NEXT : GAP;
            r->n = r->matched = 0;
        }
    }
    return give(text, p, PART_ARGUMENTS, (struct str){r->out, r->n_out}, piece) && r->n_out;
}

bool tool_next(struct tool_reader *r, struct str *text, struct piece *piece)
{
    if (r->format->xml)
        return tool_xml_next(r, r->format->xml, text, piece);
    while (r->state == LITERAL && text->n)
        if (literal(r, text, piece))
            return true;
    const char *from = text->p, *p = from, *end = from + text->n; /* from: not given out yet */
    if (r->state == NONE && p < end) {
        r->state = NEXT;
        return give(text, p + 1, PART_ARGUMENTS, STR("{}"), piece);
    }
    while (p < end) {
        size_t here = (size_t)(p - from), held = r->n;
        switch (act_on(r, *p)) {
        case PASS:
            p++;
            break;
        case KEEP:
            r->held[r->n++] = *p++;
            break;
        case DROP:
            from = ++p;
            break;
        case LET_GO:
            r->state = TEXT;
            r->n = r->matched = 0;
            if (held > here) /* it came with earlier text */
                return give(text, p, PART_TEXT, (struct str){r->held, held}, piece);
            break;
        case BEGIN:
        case NO_ARGUMENTS:
            if (here > held)
                return give(text, p, PART_TEXT, (struct str){from, here - held}, piece);
            return give_name(r, text, p,
                             *p == '}'            ? NONE
                             : r->state == CALLED ? LITERAL
                                                  : ARGUMENTS,
                             piece);
        case ARGUMENT:
            p++;
            if (r->state != ARGUMENTS || p == end)
                return give(text, p, PART_ARGUMENTS, (struct str){from, (size_t)(p - from)}, piece);
            break;
        }
    }
    size_t n = (size_t)(p - from), held = MIN(r->n, n);
    return give(text, p, PART_TEXT, (struct str){from, n - held}, piece) && n > held;
}

bool tool_end(struct tool_reader *r, struct piece *piece)
{
    if (r->format && r->format->xml)
        return tool_xml_end(r, r->format->xml, piece);
    bool drops = r->state == END || r->state == LITERAL;
    *piece = (struct piece){PART_TEXT, {r->held, drops ? 0 : r->n}};
    r->n = 0;
    return piece->text.n > 0;
}

bool tool_in_call(const struct tool_reader *r)
{
    return r->format && (r->state == ARGUMENTS || r->state == LITERAL || r->state == TAIL);
}
