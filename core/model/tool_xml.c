#include "core/model/tool_xml.h"

#include "core/base/json.h"

#include <string.h>

enum state {
    TEXT,
    OPEN,    /* behind the mark of calls: that of a function */
    NAME,    /* of the function */
    CLOSE,   /* behind its quote */
    HEAD,    /* behind it: what shows that this is a call */
    NAMED,   /* it is one; its name is to be told, */
    BEGUN,   /* and is told */
    BETWEEN, /* parameters */
    KEY,
    COLON, /* behind a key */
    VALUE,
    DATA,   /* of a value: CDATA, */
    CLOSED, /* and behind that */
    BEHIND, /* the function: the end of the call, or the next one */
    GAP,    /* behind that */
    STATES
};

/* What a value is. */
enum value { UNKNOWN, STRING, JSON };

enum { MARKS = 5, MARK_BYTES = 16 };

struct mark {
    const char *text;
    u8 to;
};

struct tool_xml {
    struct mark marks[STATES][MARKS]; /* that count in a state, and where they lead */
    bool lines;                       /* a value has a line end before and behind it */
    char name_end;                    /* ends a name; 0: a blank does, or a mark */
};

/* Where a mark breaks off, what has come of it is read again but for the first character. */
const struct tool_xml tool_xml_function = {
    .marks = {[TEXT] = {{"<tool_call>", OPEN}, {"<function=", NAME}},
              [OPEN] = {{"<function=", NAME}},
              [HEAD] = {{"<parameter=", KEY}, {"</function>", BEHIND}, {"</tool_call>", GAP}},
              [BETWEEN] = {{"<parameter=", KEY},
                           {"</function>", BEHIND},
                           {"</tool_call>", GAP},
                           {"<tool_call>", OPEN},
                           {"<function=", NAME}},
              [KEY] = {{">", VALUE}},
              [VALUE] = {{"</parameter>", BETWEEN}},
              [BEHIND] = {{"</tool_call>", GAP}, {"<tool_call>", OPEN}, {"<function=", NAME}},
              [GAP] = {{"<tool_call>", OPEN}, {"<function=", NAME}}},
    .lines = true,
    .name_end = '>'};

const struct tool_xml tool_xml_arg_key = {
    .marks = {[TEXT] = {{"<tool_call>", NAME}},
              [HEAD] = {{"<arg_key>", KEY}, {"</tool_call>", GAP}},
              [BETWEEN] = {{"<arg_key>", KEY}, {"</tool_call>", GAP}, {"<tool_call>", NAME}},
              [KEY] = {{"</arg_key>", COLON}},
              [COLON] = {{"<arg_value>", VALUE}, {"<arg_key>", KEY}, {"</tool_call>", GAP}},
              [VALUE] = {{"</arg_value>", BETWEEN}},
              [GAP] = {{"<tool_call>", NAME}}}};

const struct tool_xml tool_xml_param = {
    .marks = {[TEXT] = {{"<function name=\"", NAME}},
              [CLOSE] = {{">", HEAD}},
              [HEAD] = {{"<param name=\"", KEY}, {"</function>", GAP}},
              [BETWEEN] = {{"<param name=\"", KEY},
                           {"</function>", GAP},
                           {"<function name=\"", NAME}},
              [KEY] = {{"\">", VALUE}},
              [VALUE] = {{"</param>", BETWEEN}, {"<![CDATA[", DATA}},
              [DATA] = {{"]]>", CLOSED}},
              [CLOSED] = {{"</param>", BETWEEN}},
              [GAP] = {{"<function name=\"", NAME}}},
    .name_end = '"'};

/* --- what is held, and what goes out --------------------------------------------------------- */

void tool_put(struct tool_reader *r, struct str s)
{
    ASSERT(s.n <= sizeof r->out - r->n_out);
    memcpy(r->out + r->n_out, s.p, s.n);
    r->n_out += (u32)s.n;
}

void tool_put_escaped(struct tool_reader *r, struct str s)
{
    static const char hex[] = "0123456789abcdef", signs[] = "\"\\\b\f\n\r\t";
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i], code[] = {'\\', 'u', '0', '0', hex[(u8)c >> 4], hex[c & 15]};
        const char *at = c ? strchr(signs, c) : NULL;
        if (at)
            tool_put(r, (struct str){(char[]){'\\', "\"\\bfnrt"[at - signs]}, 2});
        else if ((u8)c < ' ')
            tool_put(r, (struct str){code, sizeof code});
        else
            tool_put(r, (struct str){&c, 1});
    }
}

static void step(struct tool_reader *r, const struct tool_xml *form, char c);

static void let_go(struct tool_reader *r)
{
    tool_put(r, (struct str){r->held, r->n});
    r->n = 0;
}

static void hold(struct tool_reader *r, struct str s)
{
    ASSERT(s.n <= sizeof r->held - r->n);
    memcpy(r->held + r->n, s.p, s.n);
    r->n += (u32)s.n;
}

/* What needs more room than there is, is none. */
static void keep(struct tool_reader *r, char c)
{
    if (r->n == TOOL_HELD_BYTES - MARK_BYTES) {
        let_go(r);
        r->state = TEXT;
    }
    hold(r, (struct str){&c, 1});
}

/* It is no call. */
static void is_none(struct tool_reader *r, const struct tool_xml *form, char c)
{
    let_go(r);
    r->state = TEXT;
    step(r, form, c);
}

/* --- values ----------------------------------------------------------------------------------- */

u32 tool_kind_of(char first)
{
    switch (first) {
    case 't':
    case 'f':
    case 'T':
    case 'F':
        return TOOL_BOOL;
    case 'n':
    case 'N':
        return TOOL_NULL;
    case '[':
        return TOOL_LIST;
    case '{':
        return TOOL_OBJECT;
    case '"':
        return TOOL_QUOTED;
    default:
        return first == '-' || (first >= '0' && first <= '9') ? TOOL_NUMBER : 0;
    }
}

struct str tool_trimmed(struct str s)
{
    while (s.n && json_is_blank(*s.p))
        s = (struct str){s.p + 1, s.n - 1};
    while (s.n && json_is_blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

const char *tool_of_python(struct str s, bool whole)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (u32 i = 0; i < COUNTOF(words); i++)
        if (whole ? str_is(s, words[i][0]) : str_starts(str_of(words[i][0]), s))
            return words[i][1];
    return NULL;
}

static void is_text(struct tool_reader *r)
{
    r->value = STRING;
    tool_put(r, STR("\""));
    tool_put_escaped(r, (struct str){r->held, r->n});
    r->n = 0;
}

static void begin_value(struct tool_reader *r)
{
    r->kinds = r->types.kinds ? r->types.kinds(r->types.of, r->parameter) : TOOL_ANY;
    r->began = r->line_end = false;
    r->first = true;
    r->value = UNKNOWN;
    r->json = (struct json_prefix){0};
    r->n = 0;
    if (!r->kinds)
        is_text(r);
}

/* What was JSON so far is text, and is read again: marks count in it that stood in strings. */
static void read_again(struct tool_reader *r)
{
    ASSERT(r->n + MARK_BYTES <= sizeof r->again - r->n_again);
    r->unread = true;
    r->behind = r->n_again;
    while (r->n)
        r->again[r->n_again++] = r->held[--r->n];
    is_text(r);
}

/* Behind what is read again, or now. */
static void feed(struct tool_reader *r, const struct tool_xml *form, char c)
{
    if (!r->unread) {
        step(r, form, c);
        return;
    }
    memmove(r->again + r->behind + 1, r->again + r->behind, r->n_again - r->behind);
    r->again[r->behind] = c;
    r->n_again++;
}

/* What it can be by the bytes that are held, of which c is the last. */
static void judge(struct tool_reader *r, char c)
{
    struct str all = {r->held, r->n}, s = tool_trimmed(all);
    if (s.n && !r->began) {
        r->began = true;
        r->kinds &= tool_kind_of(c);
        if (!r->kinds) {
            read_again(r);
            return;
        }
    }
    bool json = json_prefix_step(&r->json, c);
    if (r->n <= TOOL_VALUE_BYTES && (json || tool_of_python(s, false)))
        return;
    if (!json || !r->began || !(r->kinds & (TOOL_LIST | TOOL_OBJECT))) {
        read_again(r);
        return;
    }
    r->value = JSON;
    tool_put(r, (struct str){s.p, (size_t)(r->held + r->n - s.p)});
    r->n = 0;
}

static void settle(struct tool_reader *r, char c)
{
    if (r->value == STRING) {
        tool_put_escaped(r, (struct str){&c, 1});
    } else if (r->value == JSON) {
        (void)json_prefix_step(&r->json, c);
        tool_put(r, (struct str){&c, 1});
    } else {
        keep(r, c);
        judge(r, c);
    }
}

/* A line end waits for what follows it: the last one is not of the value. */
static void value(struct tool_reader *r, const struct tool_xml *form, char c)
{
    bool first = r->first, line_end = r->line_end;
    r->first = false;
    r->line_end = form->lines && c == '\n' && !first && !line_end;
    if (r->line_end || (form->lines && c == '\n' && first))
        return;
    settle(r, line_end ? '\n' : c);
    if (line_end && r->unread)
        feed(r, form, c);
    else if (line_end)
        value(r, form, c);
}

static void end_value(struct tool_reader *r)
{
    struct str s = tool_trimmed((struct str){r->held, r->n});
    const char *word = tool_of_python(s, true);
    if (r->value == UNKNOWN && json_prefix_complete(&r->json)) {
        tool_put(r, s);
    } else if (r->value == UNKNOWN && word) {
        tool_put(r, str_of(word));
    } else if (r->value != JSON) {
        if (r->value == UNKNOWN)
            is_text(r);
        tool_put(r, STR("\""));
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

u64 tool_hash(u64 h, struct str s)
{
    for (size_t i = 0; i < s.n; i++) /* FNV-1a */
        h = (h ^ (u8)s.p[i]) * 0x100000001b3;
    return h;
}

static u64 hash_function(struct str name)
{
    return tool_hash(tool_hash(0xcbf29ce484222325, name), (struct str){"", 1});
}

u64 tool_parameter(struct str function, struct str key)
{
    return tool_hash(hash_function(function), key);
}

static bool in_call(const struct tool_reader *r)
{
    return r->state > NAMED && r->state < BEHIND;
}

static void key(struct tool_reader *r, struct str s)
{
    r->parameter = tool_hash(r->parameter, s);
    tool_put_escaped(r, s);
}

/* From one part of a call to the next one. */
static void go(struct tool_reader *r, u8 to)
{
    if (r->state == KEY)
        tool_put(r, STR("\": "));
    if (r->state == COLON && to != VALUE) /* a key alone */
        tool_put(r, STR("null"));
    if (to == BETWEEN)
        end_value(r);
    r->state = to;
    if (to == VALUE) {
        begin_value(r);
    } else if (to == KEY) {
        tool_put(r, r->any ? STR(", \"") : STR("{\""));
        r->any = true;
        r->parameter = r->function;
    } else if (!in_call(r)) {
        tool_put(r, r->any ? STR("}") : STR("{}"));
        r->n = 0;
    }
}

/* A mark is there. */
static void arrive(struct tool_reader *r, const struct mark *mark)
{
    r->matched = 0;
    if (r->state == HEAD) {
        r->then = mark->to;
        r->state = NAMED;
        return;
    }
    if (in_call(r))
        go(r, mark->to);
    r->state = mark->to;
    if (mark->to == OPEN || mark->to == NAME) {
        if (r->n > TOOL_HELD_BYTES - 2 * MARK_BYTES) /* blanks before it */
            let_go(r);
        hold(r, str_of(mark->text));
        r->name_at = r->n;
    } else if (mark->to == HEAD) {
        hold(r, str_of(mark->text));
    }
}

static void name(struct tool_reader *r, const struct tool_xml *form, char c)
{
    bool plain = (u8)c > ' ' && !strchr("\"\\<>", c);
    r->name_n = r->n - r->name_at;
    if (plain && r->name_n < TOOL_NAME_BYTES) {
        keep(r, c);
    } else if (r->name_n == 0 && !form->name_end && json_is_blank(c)) {
        keep(r, c);
        r->name_at = r->n;
    } else if (r->name_n == 0 || plain || (form->name_end && c != form->name_end)) {
        is_none(r, form, c);
    } else {
        r->state = form->marks[CLOSE]->text ? CLOSE : HEAD;
        if (form->name_end)
            keep(r, c);
        else
            step(r, form, c);
    }
}

/* A character that is of no mark. */
static void plain(struct tool_reader *r, const struct tool_xml *form, char c)
{
    bool blank = json_is_blank(c);
    switch ((enum state)r->state) {
    case TEXT:
        if (!blank)
            let_go(r);
        if (blank)
            keep(r, c);
        else
            tool_put(r, (struct str){&c, 1});
        break;
    case OPEN:
    case CLOSE:
    case HEAD:
        if (blank)
            keep(r, c);
        else
            is_none(r, form, c);
        break;
    case NAME:
        name(r, form, c);
        break;
    case KEY:
        key(r, (struct str){&c, 1});
        break;
    case VALUE:
    case DATA:
        value(r, form, c);
        break;
    case BEHIND:
    case GAP:
        if (!blank)
            is_none(r, form, c);
        break;
    default: /* models put blanks there, and nothing else that could be told */
        break;
    }
}

static bool in_value(const struct tool_reader *r)
{
    return r->state == VALUE || r->state == DATA;
}

/* The mark that goes on so, behind what has matched; within a string of JSON there is none, and
 * that of CDATA begins a value. */
static const struct mark *find(const struct tool_reader *r, const struct tool_xml *form, char c)
{
    const struct mark *marks = form->marks[r->state];
    if (in_value(r) && r->value != STRING && !r->line_end && json_prefix_in_string(&r->json))
        return NULL;
    for (u32 i = 0; i < MARKS && marks[i].text && c; i++)
        if ((r->first || marks[i].to != DATA) &&
            (!r->matched || strncmp(marks[i].text, marks[r->mark].text, r->matched) == 0) &&
            marks[i].text[r->matched] == c)
            return &marks[i];
    return NULL;
}

static void step(struct tool_reader *r, const struct tool_xml *form, char c)
{
    const struct mark *mark = find(r, form, c);
    if (mark) {
        r->mark = (u8)(mark - form->marks[r->state]);
        r->matched++;
        if (!mark->text[r->matched])
            arrive(r, mark);
        return;
    }
    if (r->matched) { /* it breaks off */
        struct str was = {form->marks[r->state][r->mark].text, r->matched};
        r->matched = 0;
        plain(r, form, *was.p);
        for (size_t i = 1; i < was.n; i++)
            feed(r, form, was.p[i]);
        feed(r, form, c);
        return;
    }
    plain(r, form, c);
}

/* --- the reader ------------------------------------------------------------------------------- */

static bool give(struct tool_reader *r, bool arguments, struct piece *piece)
{
    *piece = (struct piece){arguments ? PART_ARGUMENTS : PART_TEXT, {r->out, r->n_out}};
    return r->n_out > 0;
}

static bool give_name(struct tool_reader *r, struct piece *piece)
{
    *piece = (struct piece){PART_NAME, {r->held + r->name_at, r->name_n}};
    r->calls++;
    r->function = hash_function(piece->text);
    r->any = false;
    r->n = 0;
    r->state = BEGUN;
    return true;
}

bool tool_xml_next(struct tool_reader *r, const struct tool_xml *form, struct str *text,
                   struct piece *piece)
{
    r->n_out = 0;
    while (text->n || r->n_again || r->state == NAMED || r->state == BEGUN) {
        bool was = in_call(r);
        char c = r->n_again ? r->again[r->n_again - 1] : text->n ? *text->p : 0;
        if (r->state == NAMED)
            return give(r, false, piece) || give_name(r, piece);
        if (r->state == BEGUN) {
            go(r, r->then);
        } else {
            if (r->n_out >= TOOL_FULL_BYTES && ((u8)c & 0xc0) != 0x80)
                return give(r, was, piece);
            if (r->n_again)
                r->n_again--;
            else
                *text = (struct str){text->p + 1, text->n - 1};
            step(r, form, c);
            r->unread = false;
        }
        if (was && !in_call(r))
            return give(r, true, piece);
    }
    return give(r, in_call(r), piece);
}

/* A mark stands in what may still have become a string of JSON: nothing will. */
static bool was_text(const struct tool_reader *r, const struct tool_xml *form)
{
    const char *mark = form->marks[r->state]->text;
    return in_value(r) && r->value == UNKNOWN && memmem(r->held, r->n, mark, strlen(mark));
}

/* Else what is held inside of a call would be of arguments that are not finished anyway. */
bool tool_xml_end(struct tool_reader *r, const struct tool_xml *form, struct piece *piece)
{
    struct str none = STR("");
    r->n_out = 0;
    if (was_text(r, form)) {
        read_again(r);
        return give(r, true, piece);
    }
    if (r->n_again || r->state == NAMED || r->state == BEGUN)
        return tool_xml_next(r, form, &none, piece) || tool_xml_end(r, form, piece);
    const char *mark = form->marks[r->state][r->mark].text;
    if (!in_call(r)) {
        let_go(r);
        if (r->matched && !(r->state == BEHIND && mark[1] == '/'))
            tool_put(r, (struct str){mark, r->matched});
    }
    r->matched = 0;
    return give(r, false, piece);
}
