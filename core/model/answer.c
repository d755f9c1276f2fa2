#include "core/model/answer.h"

#include "core/base/json.h"
#include "core/model/harmony.h"

#include <string.h>

enum state {
    TEXT,
    OPEN,     /* nothing but blanks has come */
    THOUGHT,  /* behind the first mark, nothing but blanks has come */
    THINKING, /* within */
    BEHIND,   /* behind the last mark, nothing but blanks has come */
    LEAD      /* no text has come, which may have a mark; that is read as a thought is */
};

static const struct thought_format formats[] = {
    {.begin = "<think>", .end = "</think>"},
    {.begin = "[THINK]", .end = "[/THINK]"},
    {.begin = "<seed:think>", .end = "</seed:think>"},
    {.begin = "<|channel>thought", .end = "<channel|>", .again = true}};

/* LFM 2.5 */
static const struct thought_format thinking = {
    .begin = "<think>", .end = "</think>", .member = "thinking"};

static const struct thought_format hunyuan = {
    .begin = "<think>", .end = "</think>", .answer = "<answer>", .answer_end = "</answer>"};

static const struct thought_format harmony = {.begin = "<|channel|>analysis<|message|>",
                                              .end = "<|end|>",
                                              .next = "<|start|>assistant",
                                              .text = "<|channel|>final<|message|>",
                                              .preamble = "<|channel|>commentary<|message|>",
                                              .member = "thinking"};

static bool has(struct str s, const char *z)
{
    return memmem(s.p, s.n, z, strlen(z)) != NULL;
}

const struct thought_format *thought_format_of(struct str source)
{
    if (harmony_is_taught(source))
        return &harmony;
    if (has(source, thinking.end) && has(source, ".thinking") && !has(source, "reasoning_content"))
        return &thinking;
    if (has(source, hunyuan.end) && has(source, hunyuan.answer_end))
        return &hunyuan;
    for (u32 i = 0; i < COUNTOF(formats); i++)
        if (has(source, formats[i].end))
            return &formats[i];
    return NULL;
}

static struct str without_blanks_behind(struct str s)
{
    while (s.n && json_is_blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

enum thoughts thoughts_behind(const struct thought_format *f, struct str prompt)
{
    size_t n = f ? strlen(f->begin) : 0;
    struct str s = without_blanks_behind(prompt);
    if (!f)
        return THOUGHTS_NONE;
    if (f->next)
        return harmony_behind(prompt);
    if (s.n >= n && memcmp(s.p + s.n - n, f->begin, n) == 0)
        return THOUGHTS_OPEN;
    n = strlen(f->end); /* a template has closed them, as it was told to */
    return s.n >= n && memcmp(s.p + s.n - n, f->end, n) == 0 ? THOUGHTS_NONE : THOUGHTS_MAY;
}

enum thoughts thoughts_within(const struct thought_format *f, struct str message)
{
    const char *begin = f ? memmem(message.p, message.n, f->begin, strlen(f->begin)) : NULL;
    if (!f)
        return THOUGHTS_NONE;
    if (f->next) /* its prompt has the header that says */
        return THOUGHTS_MAY;
    if (!begin)
        return without_blanks_behind(message).n ? THOUGHTS_NONE : THOUGHTS_MAY;
    size_t left = message.n - (size_t)(begin - message.p);
    return memmem(begin, left, f->end, strlen(f->end)) ? THOUGHTS_NONE : THOUGHTS_OPEN;
}

struct answer_reader answer_reader_of(const struct answer_format *f)
{
    struct answer_reader r = {.calls = tool_reader_of(f->calls, f->types),
                              .part = STR(""),
                              .format = f->thoughts,
                              .left_out = f->left_out,
                              .again = f->thoughts && f->thoughts->again && !f->raw && !f->formed,
                              .formed = f->formed && f->calls,
                              .state = TEXT};
    if (f->thoughts && f->thoughts->next && (f->calls || !f->raw))
        harmony_begin(&r.calls, f);
    else if (f->thoughts && !f->raw && f->first != THOUGHTS_NONE)
        r.state = f->first == THOUGHTS_OPEN ? THOUGHT : OPEN;
    else if (f->thoughts && !f->raw && f->thoughts->answer)
        r.state = LEAD;
    return r;
}

bool answer_thinks(const struct answer_reader *r)
{
    return r->calls.harmony ? harmony_thinks(&r->calls)
                            : !r->marked && (r->state == THOUGHT || r->state == THINKING);
}

/* --- parts -------------------------------------------------------------------------------------
 */

static void drop(struct str *text, const char *to)
{
    text->n -= (size_t)(to - text->p);
    text->p = to;
}

static void skip_blanks(struct str *text)
{
    const char *p = text->p, *end = p + text->n;
    while (p < end && json_is_blank(*p))
        p++;
    drop(text, p);
}

/* Is r->part the beginning of an object? Then there are no calls. True: a piece was held so far. */
static bool begins_object(struct answer_reader *r, struct piece *piece)
{
    struct str s = r->part;
    skip_blanks(&s);
    if (!s.n)
        return false;
    r->formed = false;
    if (*s.p != '{')
        return false;
    bool held = tool_end(&r->calls, piece);
    r->calls.format = NULL;
    return held;
}

/* What `calls` makes of r->part. */
static bool next_of_part(struct answer_reader *r, struct piece *piece)
{
    if (r->formed && begins_object(r, piece))
        return true;
    if (r->calls.format)
        return tool_next(&r->calls, &r->part, piece);
    *piece = (struct piece){PART_TEXT, r->part};
    r->part.n = 0;
    return piece->text.n > 0;
}

static void hold(struct answer_reader *r, struct str *text)
{
    memcpy(r->held + r->n, text->p, text->n);
    r->n += (u32)text->n;
    drop(text, text->p + text->n);
}

static void enter(struct answer_reader *r, enum state state)
{
    r->state = state;
    r->n = r->matched = r->blanks = 0;
}

/* Does c go on with the mark of a text, where that of a thought does not? */
static bool leads(const struct answer_reader *r, char c)
{
    const struct thought_format *f = r->format;
    return r->state == OPEN && f->answer && strncmp(f->answer, f->begin, r->matched) == 0 &&
           f->answer[r->matched] == c;
}

/* Blanks and a first mark, or a text that has none: what is held is its beginning. */
static void open(struct answer_reader *r, struct str *text)
{
    const char *p = text->p, *end = p + text->n;
    const char *mark = r->state == LEAD ? r->format->answer : r->format->begin;
    for (; p < end && mark[r->matched]; p++) {
        if (leads(r, *p) && *p != mark[r->matched]) {
            mark = r->format->answer;
            r->state = LEAD;
        }
        if (*p == mark[r->matched])
            r->matched++;
        else if (r->matched || !json_is_blank(*p) || ++r->blanks > ANSWER_BLANKS)
            break;
    }
    if (!mark[r->matched]) {
        drop(text, p);
        r->marked = r->state == LEAD;
        enter(r, THOUGHT);
    } else if (p == end) {
        hold(r, text);
    } else {
        r->part = (struct str){r->held, r->n};
        enter(r, TEXT);
    }
}

/* What stands before the first mark, where it may come again: within a call it does not. */
static void pass(struct answer_reader *r, struct str *text)
{
    const char *p = text->p, *end = p + text->n, *mark = r->again ? r->format->begin : "";
    bool call = tool_in_call(&r->calls);
    while (p < end && *mark && !call && *p == mark[r->matched] && mark[++r->matched])
        p++;
    if (*mark && r->matched && !mark[r->matched]) {
        drop(text, p + 1);
        enter(r, THOUGHT);
    } else if (r->matched && p < end) {
        r->part = (struct str){mark, r->matched};
        r->matched = 0;
        drop(text, p);
    } else if (p == end) {
        drop(text, p);
    } else {
        const char *next = *mark ? memchr(p + 1, *mark, text->n - 1) : NULL;
        r->part = (struct str){p, (size_t)((next ? next : end) - p)};
        drop(text, next ? next : end);
    }
}

/* Gives out what is held and the text up to `sure`, in one piece where that has room. */
static bool give(struct answer_reader *r, struct str *text, const char *sure, struct piece *piece)
{
    size_t n = (size_t)(sure - text->p);
    u32 blanks = r->blanks > ANSWER_BLANKS ? r->blanks : 0; /* others are looked at again */
    if (r->n && r->n + n > ANSWER_HELD_BYTES) {
        *piece = (struct piece){PART_THOUGHT, {r->held, r->n}};
        for (blanks = 0; blanks < r->n && json_is_blank(r->held[r->n - 1 - blanks]); blanks++)
            ;
    } else if (r->n) {
        memcpy(r->held + r->n, text->p, n);
        *piece = (struct piece){PART_THOUGHT, {r->held, r->n + n}};
        drop(text, sure);
    } else {
        *piece = (struct piece){PART_THOUGHT, {text->p, n}};
        drop(text, sure);
    }
    enter(r, THINKING);
    r->blanks = blanks;
    if (r->marked)
        r->part = piece->text;
    else
        r->thought = true;
    return !r->marked && !r->left_out;
}

/* Blanks and what may be the last mark wait for what follows. What is behind the last byte that is
 * a thought's for certain is looked at again when that has been given out. */
static bool think(struct answer_reader *r, struct str *text, struct piece *piece)
{
    if (r->state == THOUGHT && !r->n)
        skip_blanks(text);
    const char *p = text->p, *end = p + text->n, *sure = NULL;
    const char *mark = r->marked ? r->format->answer_end : r->format->end;
    u32 matched = r->matched;
    while (p < end && mark[r->matched]) {
        if (*p == mark[r->matched]) {
            r->matched++;
            p++;
            continue;
        }
        bool blank = !r->matched && json_is_blank(*p);
        p += !r->matched; /* else it is looked at again: not as what goes on with the mark */
        r->matched = 0;
        r->blanks = blank ? r->blanks + 1 : 0;
        if (!blank || r->blanks > ANSWER_BLANKS)
            sure = p;
    }
    if (sure && r->state == THOUGHT && r->thought && !r->marked && !r->left_out) {
        r->state = THINKING;
        r->matched = matched;
        r->blanks = 0;
        *piece = (struct piece){PART_THOUGHT, STR("\n\n")};
        return true;
    }
    if (sure)
        return give(r, text, sure, piece);
    if (mark[r->matched]) {
        hold(r, text);
    } else {
        drop(text, p);
        enter(r, r->marked ? TEXT : BEHIND);
        r->marked = false;
    }
    return false;
}

/* --- the reader --------------------------------------------------------------------------------
 */

bool answer_next(struct answer_reader *r, struct str *text, struct piece *piece)
{
    if (r->calls.harmony)
        return harmony_next(&r->calls, text, piece);
    while (!next_of_part(r, piece)) {
        if (!text->n)
            return false;
        switch ((enum state)r->state) {
        case OPEN:
        case LEAD:
            open(r, text);
            break;
        case THOUGHT:
        case THINKING:
            if (think(r, text, piece))
                return true;
            break;
        case BEHIND:
            skip_blanks(text);
            if (text->n)
                enter(r, r->format->answer ? LEAD : TEXT);
            break;
        case TEXT:
            pass(r, text);
        }
    }
    return true;
}

bool answer_end(struct answer_reader *r, struct piece *piece)
{
    if (r->calls.harmony)
        return harmony_end(&r->calls, piece);
    bool thought = answer_thinks(r) && r->matched && !r->left_out;
    struct str held = {r->held, r->n};
    if (r->state == OPEN || r->state == LEAD || (r->marked && r->matched))
        r->part = held;
    if (r->state == TEXT && r->matched)
        r->part = (struct str){r->format->begin, r->matched};
    r->matched = 0;
    if (r->state != TEXT)
        enter(r, answer_thinks(r) ? BEHIND : TEXT);
    *piece = (struct piece){PART_THOUGHT, held};
    return thought || next_of_part(r, piece) || tool_end(&r->calls, piece);
}
