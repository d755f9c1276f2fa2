#include "core/model/harmony.h"

#include "core/base/json.h"

#include <string.h>

enum state {
    HEAD,      /* held: what may be a header, and the end of the message before it */
    BODY,      /* held: what may be its end */
    ARGUMENTS, /* the same, of a call */
    BEHIND     /* behind the object of arguments */
};

static const char start[] = "<|start|>", end[] = "<|end|>", call[] = "<|call|>",
                  message[] = "<|message|>", channel[] = "<|channel|>", functions[] = "functions.";

/* What a header may begin with where no <|start|> has to be. */
static const char *const heads[] = {channel, start, message, "<|constrain|>", "to=", NULL};

static const char *const closes[] = {call, end, NULL}, *const follow[] = {call, end, start, NULL};

static struct str behind(struct str s, const char *to)
{
    return (struct str){to, s.n - (size_t)(to - s.p)};
}

static struct str skip_blanks(struct str s)
{
    while (s.n && json_is_blank(*s.p))
        s = behind(s, s.p + 1);
    return s;
}

static const char *find(struct str s, const char *z)
{
    return memmem(s.p, s.n, z, strlen(z));
}

/* Behind the last one in s; or s. */
static struct str behind_last(struct str s, const char *z)
{
    for (const char *p = find(s, z); p; p = find(s, z))
        s = behind(s, p + strlen(z));
    return s;
}

static struct str word(struct str s)
{
    size_t n = 0;
    while (n < s.n && !json_is_blank(s.p[n]) && s.p[n] != '<')
        n++;
    return (struct str){s.p, n};
}

bool harmony_is_taught(struct str source)
{
    return find(source, channel) && find(source, message);
}

/* --- headers ----------------------------------------------------------------------------------
 */

static struct str channel_of(struct str head)
{
    const char *p = find(head, channel);
    return p ? word(behind(head, p + sizeof channel - 1)) : (struct str){0};
}

/* What this role writes to; .n 0: nothing. */
static struct str recipient_of(struct str head, bool has_role)
{
    struct str role = word(skip_blanks(head)), left = head;
    if (has_role && !str_is(role, "assistant"))
        return (struct str){0};
    for (const char *p = find(left, "to="); p; p = find(left, "to=")) {
        left = behind(left, p + 3);
        if (p == head.p || p[-1] == '>' || json_is_blank(p[-1]))
            return word(left);
    }
    return (struct str){0};
}

enum thoughts harmony_behind(struct str prompt)
{
    struct str head = behind_last(prompt, start);
    const char *p = find(head, message);
    if (!p || head.p == prompt.p)
        return THOUGHTS_MAY;
    struct str body = behind(head, p + sizeof message - 1);
    head.n = (size_t)(p - head.p);
    if (find(body, end) || find(body, call) || find(body, "<|return|>"))
        return THOUGHTS_MAY;
    return str_is(channel_of(head), "analysis") ? THOUGHTS_OPEN : THOUGHTS_NONE;
}

/* --- what is held -----------------------------------------------------------------------------
 */

static struct str held(const struct tool_reader *r)
{
    return (struct str){r->held, r->n};
}

static bool begins(struct str s, const char *mark)
{
    return s.n <= strlen(mark) && memcmp(s.p, mark, s.n) == 0;
}

/* Is s one of these marks, or the beginning of one? whole: all of it. */
static bool is_mark(struct str s, const char *const marks[], bool whole)
{
    bool is = false;
    for (u32 i = 0; marks[i]; i++)
        is = is || (begins(s, marks[i]) && (!whole || s.n == strlen(marks[i])));
    return is;
}

/* Can a header begin so, without the end of another message? */
static bool may_be_head(struct str s)
{
    bool may = false;
    s = skip_blanks(s);
    for (u32 i = 0; heads[i]; i++)
        may = may || begins(s, heads[i]) || str_starts(s, str_of(heads[i]));
    return may;
}

static bool ends_with(struct str s, const char *z)
{
    size_t n = strlen(z);
    return s.n >= n && memcmp(s.p + s.n - n, z, n) == 0;
}

/* Of a message that is no call: its end, and the next one's <|start|>. */
static bool may_be_end(struct str s)
{
    size_t n = sizeof end - 1;
    return s.n <= n
               ? begins(s, end)
               : str_starts(s, STR("<|end|>")) && begins(skip_blanks(behind(s, s.p + n)), start);
}

static bool may_be(const struct tool_reader *r, struct str s)
{
    switch ((enum state)r->state) {
    case HEAD: /* in which no other one begins */
        return (r->started || may_be_head(s)) && !ends_with(s, end) &&
               (!ends_with(s, start) || str_is(skip_blanks(s), start));
    case BODY:
        return may_be_end(s);
    case ARGUMENTS:
        return is_mark(s, closes, false);
    case BEHIND:
        break;
    }
    return is_mark(s, follow, false);
}

/* Held are whole characters. */
static bool has_room(const struct tool_reader *r, char c)
{
    return r->n + 4 <= TOOL_HELD_BYTES || (((u8)c & 0xc0) == 0x80 && r->n < TOOL_HELD_BYTES);
}

static void forget(struct tool_reader *r, u32 n)
{
    r->n -= n;
    memmove(r->held, r->held + n, r->n);
}

/* --- pieces -----------------------------------------------------------------------------------
 */

static void enter(struct tool_reader *r, enum state state, enum part part)
{
    r->state = state;
    r->message = part;
    r->fresh = true;
    r->started = false;
}

/* Gives out s, which is taken then; what is between two messages comes first. */
static bool give(struct tool_reader *r, struct str s, bool *taken, struct piece *piece)
{
    enum part part = r->message;
    bool again = r->fresh && r->said >> part & 1 && part != PART_ARGUMENTS && !r->raw;
    *taken = !again || !s.n;
    if (!s.n || (part == PART_THOUGHT && r->left_out)) {
        *taken = true;
        return false;
    }
    r->fresh = false;
    r->said |= (u8)(1 << part);
    *piece = (struct piece){part, again ? STR("\n\n") : s};
    return true;
}

static bool give_text(struct tool_reader *r, struct str *text, size_t n, struct piece *piece)
{
    bool taken, gives = give(r, (struct str){text->p, n}, &taken, piece);
    if (taken)
        *text = behind(*text, text->p + n);
    return gives;
}

/* It is forgotten when the reader is used again. */
static bool give_held(struct tool_reader *r, u32 n, struct piece *piece)
{
    bool taken, gives = give(r, (struct str){r->held, n}, &taken, piece);
    r->given = taken && gives ? n : 0;
    if (taken && !gives)
        forget(r, n);
    return gives;
}

/* Held is what goes on otherwise than a mark does: but for its end, if another one may begin there.
 */
static bool let_go(struct tool_reader *r, struct piece *piece)
{
    u32 n = MIN(r->n, 1u);
    if (r->state == HEAD) { /* the message before goes on, or the answer has none */
        r->state = BODY;
        r->started = false;
    }
    while (n < r->n && !(r->held[n] == '<' && may_be(r, behind(held(r), r->held + n))))
        n++;
    if (r->state == BEHIND) {
        forget(r, n);
        return false;
    }
    r->began = true;
    return give_held(r, n, piece);
}

/* A header is whole. */
static bool begin(struct tool_reader *r, struct piece *piece)
{
    struct str whole = held(r), head = {whole.p, whole.n - (sizeof message - 1)};
    struct str own = behind_last(head, start), to = recipient_of(own, own.p != head.p);
    bool thought = str_is(channel_of(own), "analysis") && !r->raw;
    if (str_starts(to, str_of(functions)))
        to = behind(to, to.p + sizeof functions - 1);
    if (to.n && to.n <= TOOL_NAME_BYTES && r->format) {
        enter(r, ARGUMENTS, PART_ARGUMENTS);
        r->calls++;
        r->depth = 0;
        r->began = r->in_string = r->escaped = false;
        r->given = r->n;
        *piece = (struct piece){PART_NAME, to};
        return true;
    }
    enter(r, BODY, thought ? PART_THOUGHT : PART_TEXT);
    if (r->raw)
        return give_held(r, r->n, piece);
    r->n = 0;
    return false;
}

/* A mark has come, or the beginning of a header. */
static bool marked(struct tool_reader *r, struct piece *piece)
{
    struct str s = held(r);
    switch ((enum state)r->state) {
    case HEAD:
        return ends_with(s, message) && begin(r, piece);
    case BODY:
        if (s.n > sizeof end - 1 && ends_with(s, start)) {
            r->state = HEAD;
            r->started = true;
        }
        return false;
    case ARGUMENTS:
        if (is_mark(s, closes, true)) {
            bool any = r->began;
            enter(r, HEAD, PART_TEXT);
            r->n = 0;
            *piece = (struct piece){PART_ARGUMENTS, STR("{}")};
            return !any;
        }
        return false;
    case BEHIND:
        if (is_mark(s, follow, true)) {
            r->n = ends_with(s, start) ? r->n : 0;
            enter(r, HEAD, PART_TEXT);
        }
    }
    return false;
}

/* --- the reader -------------------------------------------------------------------------------
 */

/* Steps over a byte of arguments; true: it ends their object. */
static bool argument(struct tool_reader *r, char c)
{
    bool object = r->depth > 0;
    if (!r->began)
        object = c == '{';
    r->began = true;
    if (!object)
        return false;
    if (r->in_string) {
        r->in_string = c != '"' || r->escaped;
        r->escaped = c == '\\' && !r->escaped;
        return false;
    }
    r->in_string = c == '"';
    r->escaped = false;
    r->depth += c == '{' || c == '[';
    r->depth -= c == '}' || c == ']';
    return r->depth == 0;
}

/* Bytes of the text in which no mark begins. */
static size_t plain(struct tool_reader *r, struct str text, bool *over)
{
    size_t n = 0;
    *over = false;
    if (r->formed && r->state == BODY && r->message == PART_TEXT)
        return text.n;
    if (r->state != ARGUMENTS) {
        const char *p = memchr(text.p, '<', text.n);
        return p ? (size_t)(p - text.p) : text.n;
    }
    while (n < text.n && !*over && (r->in_string || text.p[n] != '<'))
        *over = argument(r, text.p[n++]);
    return n;
}

/* What no mark begins in. */
static bool pass(struct tool_reader *r, struct str *text, struct piece *piece)
{
    bool over;
    if (r->state == ARGUMENTS && !r->began)
        *text = skip_blanks(*text);
    size_t n = plain(r, *text, &over);
    if (r->state == BEHIND) {
        *text = behind(*text, text->p + n);
        return false;
    }
    if (over)
        r->state = BEHIND;
    return give_text(r, text, n, piece);
}

/* One more byte is held, or what is held goes. */
static bool match(struct tool_reader *r, struct str *text, struct piece *piece)
{
    char c = *text->p;
    if (!has_room(r, c))
        return let_go(r, piece);
    r->held[r->n++] = c;
    if (!may_be(r, held(r))) {
        r->n--;
        return let_go(r, piece);
    }
    *text = behind(*text, text->p + 1);
    return marked(r, piece);
}

static void take_back(struct tool_reader *r)
{
    forget(r, r->given);
    r->given = 0;
}

bool harmony_next(struct tool_reader *r, struct str *text, struct piece *piece)
{
    bool gives = false;
    take_back(r);
    while (!gives && text->n) {
        if (r->n || r->state == HEAD)
            gives = match(r, text, piece);
        else
            gives = pass(r, text, piece);
        if (!gives && text->n && !r->n && r->state != HEAD && *text->p == '<')
            gives = match(r, text, piece);
    }
    return gives;
}

bool harmony_end(struct tool_reader *r, struct piece *piece)
{
    take_back(r);
    struct str s = held(r);
    bool blank = !skip_blanks(s).n, drop = r->state == BEHIND;
    if (r->state == ARGUMENTS && !r->began && !r->n) {
        r->began = true;
        *piece = (struct piece){PART_ARGUMENTS, STR("{}")};
        return true;
    }
    if (r->state == HEAD)
        drop = !r->raw && (find(s, "|>") || (blank && r->calls));
    else if (r->state == BODY)
        drop = !r->raw && str_starts(s, STR("<|end|>"));
    if (r->state == HEAD && !drop)
        r->state = BODY;
    r->n = drop ? 0 : r->n;
    r->began = true;
    return give_held(r, r->n, piece);
}

void harmony_begin(struct tool_reader *r, const struct answer_format *f)
{
    r->harmony = true;
    r->raw = f->raw;
    r->left_out = f->left_out;
    r->formed = f->formed;
    enter(r, f->first == THOUGHTS_MAY ? HEAD : BODY,
          f->first == THOUGHTS_OPEN && !f->raw ? PART_THOUGHT : PART_TEXT);
}

bool harmony_thinks(const struct tool_reader *r)
{
    return r->state == BODY && r->message == PART_THOUGHT;
}
