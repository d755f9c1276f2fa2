/* Each text is read whole, byte by byte and cut in two at every offset: always the same comes out,
 * and for noise what a second reader, of whole texts, makes of it.
 */
#include "core/model/answer.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

/* What has come: T(text) R(thought) N(name) A(arguments), neighbours of one kind in one. */
struct told {
    char text[4096];
    size_t n;
    enum part last;
    bool any;
};

static void tell(struct told *t, const struct piece *p)
{
    CHECK(p->text.n > 0);
    if (!t->any || p->part != t->last || p->part == PART_NAME) {
        if (t->any)
            t->text[t->n++] = ')';
        t->text[t->n++] = "TNAR"[p->part];
        t->text[t->n++] = '(';
    }
    t->any = true;
    t->last = p->part;
    memcpy(t->text + t->n, p->text.p, p->text.n);
    t->n += p->text.n;
}

static void take(struct answer_reader *r, const char *p, size_t n, struct told *t)
{
    struct str text = {p, n};
    struct piece piece;
    while (answer_next(r, &text, &piece))
        tell(t, &piece);
    CHECK(text.n == 0);
}

static const char *finish(struct answer_reader *r, struct told *t)
{
    struct piece piece;
    while (answer_end(r, &piece))
        tell(t, &piece);
    if (t->any)
        t->text[t->n++] = ')';
    t->text[t->n] = 0;
    return t->text;
}

static void check(const struct answer_format *f, const char *text, const char *wanted)
{
    static struct told told;
    size_t n = strlen(text);
    for (size_t at = 0; at <= n + 1; at++) { /* n + 1: byte by byte */
        struct answer_reader r = answer_reader_of(f);
        told = (struct told){0};
        take(&r, text, at <= n ? at : 0, &told);
        for (size_t i = at <= n ? at : 0; i < n; i = at <= n ? n : i + 1)
            take(&r, text + i, at <= n ? n - i : 1, &told);
        if (strcmp(finish(&r, &told), wanted) != 0) {
            printf("of %s, cut at %zu:\n  got    %s\n  wanted %s\n", text, at, told.text, wanted);
            CHECK(!"as wanted");
            return;
        }
    }
}

static const struct thought_format *format(const char *template)
{
    return thought_format_of(str_of(template));
}

void answer_marked_texts(void)
{
    const struct thought_format *f = format("{{ x }}</think> <answer></answer>");
    struct answer_format may = {.thoughts = f, .first = THOUGHTS_MAY},
                         open = {.thoughts = f, .first = THOUGHTS_OPEN},
                         none = {.thoughts = f, .first = THOUGHTS_NONE},
                         left_out = {.thoughts = f, .first = THOUGHTS_MAY, .left_out = true},
                         raw = {.thoughts = f, .first = THOUGHTS_MAY, .raw = true};
    const char *whole = "<think>\nhm\n</think>\n<answer>\nyes <b>\n\n so</answer \n</answer>";
    CHECK(f && f->answer && !format("x</think> <answer>")->answer);
    check(&may, whole, "R(hm)T(yes <b>\n\n so</answer)");
    check(&left_out, whole, "T(yes <b>\n\n so</answer)");
    check(&raw, "<think>a</think><answer>b</answer>", "T(<think>a</think><answer>b</answer>)");
    check(&open, "hm</think><answer>a</answer>", "R(hm)T(a)");
    check(&none, "\n<answer>\na\n</answer>", "T(a)");
    check(&none, "<answer></answer>", "");
    check(&may, "\n<answer>a", "T(a)"); /* without thoughts, and unfinished */
    check(&may, "<answer>a\n</ans", "T(a\n</ans)");
    check(&may, "<think>a</think>\n<ans", "R(a)T(<ans)");
    check(&may, "<an>swer", "T(<an>swer)"); /* without marks */
    check(&none, "<thank>\n you</answer>", "T(<thank>\n you</answer>)");
    check(&may, "<think>a</think>\n\nIt is <answer>a</answer>.",
          "R(a)T(It is <answer>a</answer>.)");
    check(&may, "<answer>a</answer>.", "T(a.)");
}

void answer_thoughts(void)
{
    struct answer_format may = {.thoughts = format("x</think>"), .first = THOUGHTS_MAY},
                         open = {.thoughts = may.thoughts, .first = THOUGHTS_OPEN},
                         none = {.thoughts = may.thoughts, .first = THOUGHTS_NONE}, plain = {0};
    check(&may, "<think>\nI think, so.\n</think>\n\nYes.", "R(I think, so.)T(Yes.)");
    check(&may, "\n<think>a  b\n\nc</think>", "R(a  b\n\nc)");
    check(&may, "<think>\n\n</think>\n\n Hi", "T(Hi)");
    check(&may, "<think> < </think <//think></think>x", "R(< </think <//think>)T(x)");
    check(&may, "<think>half a thought \n", "R(half a thought)");
    check(&may, "<think>half a mark\n</thi", "R(half a mark\n</thi)");
    check(&may, " Hi <think>a</think> ", "T( Hi <think>a</think> )");
    check(&may, "  <thin", "T(  <thin)");
    check(&may, "", "");
    check(&may, " \n", "T( \n)");
    check(&may, "<think>a</think>b</think><think>c</think>", "R(a)T(b</think><think>c</think>)");
    check(&open, "\nsince</think>so", "R(since)T(so)");
    check(&open, "<think>a</think>b", "R(<think>a)T(b)");
    check(&none, "<think>a</think>b", "T(<think>a</think>b)");
    check(&plain, "<think>a</think>b", "T(<think>a</think>b)");

    may.left_out = true;
    check(&may, "<think>a b</think> c", "T(c)");
    check(&may, "<think>a b <", "");
    CHECK(format("{{ messages }} <think>") == NULL);
    may = (struct answer_format){.thoughts = format("[/THINK]"), .first = THOUGHTS_MAY};
    check(&may, "[THINK]a[THINK[/THINK]b", "R(a[THINK)T(b)");
    may.thoughts = format("<seed:think></seed:think>");
    check(&may, "<seed:think>a</seed:think>b", "R(a)T(b)");
}

void answer_thoughts_and_calls(void)
{
    struct answer_format f = {.thoughts = format("</think>"),
                              .first = THOUGHTS_MAY,
                              .calls = tool_format_of(STR("tools <tool_call>"))};
    check(&f,
          "<think>I could <tool_call>{\"name\": \"no\"}</tool_call>.</think>\n\n<tool_call>\n"
          "{\"name\": \"f\", \"arguments\": {\"a\": \"<think>\"}}\n</tool_call>",
          "R(I could <tool_call>{\"name\": \"no\"}</tool_call>.)N(f)A({\"a\": \"<think>\"})");
    check(&f, "<think>a</think>b <tool_call>{\"name\": \"f\"}</tool_call>", "R(a)T(b)N(f)A({})");
    check(&f, "<t<tool_call>{\"name\": \"f\"}</tool_call>", "T(<t)N(f)A({})");
    check(&f, " <tool_call>{\"name\": \"f\"}</tool_call>", "N(f)A({})");
    check(&f, "<think>a</think><tool_c", "R(a)T(<tool_c)");
}

/* Gemma 4's come again, behind text and calls. */
void answer_thoughts_that_come_again(void)
{
    struct answer_format f = {.thoughts = format("<|channel>thought <channel|>"),
                              .first = THOUGHTS_MAY},
                         other = f;
    check(&f, "<|channel>thought\nI think.\n<channel|>Yes.", "R(I think.)T(Yes.)");
    check(&f, "<|channel>thought<channel|>Yes.", "T(Yes.)");
    check(&f, "Yes <|channel>thoug <|<|channel>thought\n<channel|>", "T(Yes <|channel>thoug <|)");
    check(&f, "<|channel>thought a<channel|>b<|channel>thought <c<channel|>d<|channel>thought \n",
          "R(a)T(b)R(\n\n<c)T(d)");
    check(&f, "a<|channel>thought", "T(a)");
    check(&f, "a<|channel>th", "T(a<|channel>th)");
    check(&f, "<channel|>a<channel|>", "T(<channel|>a<channel|>)");
    other.first = THOUGHTS_NONE;
    check(&other, "a<b<|channel>thought\nso<channel|>b", "T(a<b)R(so)T(b)");
    other.formed = true;
    check(&other, "\"<|channel>thought\nso\"", "T(\"<|channel>thought\nso\")");
    other = f;
    other.left_out = true;
    check(&other, "<|channel>thought a<channel|>b<|channel>thought c<channel|>d", "T(bd)");
    other.left_out = false;
    other.raw = true;
    check(&other, "<|channel>thought a<channel|>b", "T(<|channel>thought a<channel|>b)");
    f.calls = tool_format_of(STR("tools <|tool_call>"));
    check(&f,
          "<|channel>thought a <|tool_call>call:f{}<channel|>b <|tool_call>call:f{a:<|\"|>"
          "<|channel>thought<|\"|>,b:<|channel>thought}<tool_call|><|channel>thought c<channel|>"
          "<|tool_call>call:g{}<tool_call|>",
          "R(a <|tool_call>call:f{})T(b)N(f)A({\"a\": \"<|channel>thought\", \"b\": "
          "\"<|channel>thought\"})R(\n\nc)N(g)A({})");
    CHECK(thoughts_behind(f.thoughts, STR("model\n<|channel>thought\n<channel|>")) ==
          THOUGHTS_NONE);
    CHECK(thoughts_behind(f.thoughts, STR("model\n<|channel>thought\n")) == THOUGHTS_OPEN);
    CHECK(strcmp(format("message.thinking </think>")->member, "thinking") == 0);
    CHECK(!format("message.thinking reasoning_content </think>")->member);
}

/* More blanks than wait are a thought's, or a text's. */
void answer_thoughts_of_blanks(void)
{
    struct answer_format f = {.thoughts = format("</think>"), .first = THOUGHTS_MAY};
    for (u32 n = ANSWER_BLANKS - 2; n <= ANSWER_BLANKS + 2; n++) {
        char text[1024], wanted[1100];
        snprintf(text, sizeof text, "<think>a%*s<b%*s</think>%*sc", (int)n, "", (int)n, "", (int)n,
                 "");
        snprintf(wanted, sizeof wanted, "R(a%*s<b%*s)T(c)", (int)n, "",
                 n > ANSWER_BLANKS ? (int)n : 0, "");
        check(&f, text, wanted);
        snprintf(text, sizeof text, "%*s<think>a", (int)n, "");
        snprintf(wanted, sizeof wanted, n > ANSWER_BLANKS ? "T(%s)" : "R(a)", text);
        check(&f, text, wanted);
        snprintf(text, sizeof text, "<think>a%*s%0300d", (int)n, "", 7);
        snprintf(wanted, sizeof wanted, "R(%s)", text + 7);
        check(&f, text, wanted);
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n';
}

/* The same of a whole text, as its sentences say it. */
static void expect(const char *text, bool within, char *out, size_t room)
{
    const char *p = text, *end;
    while (!within && is_blank(*p))
        p++;
    if (!within && strncmp(p, "<think>", 7) != 0) {
        snprintf(out, room, *text ? "T(%s)" : "%s", text);
        return;
    }
    p += within ? 0 : 7;
    while (is_blank(*p))
        p++;
    end = strstr(p, "</think>");
    const char *stop = end ? end : p + strlen(p), *open = strrchr(p, '<'), *said = "";
    bool mark = !end && open && strncmp("</think>", open, strlen(open)) == 0;
    while (!mark && stop > p && is_blank(stop[-1]))
        stop--;
    for (said = end ? end + 8 : ""; is_blank(*said);)
        said++;
    snprintf(out, room, "%s%.*s%s%s%s%s", stop > p ? "R(" : "", (int)(stop - p), p,
             stop > p ? ")" : "", *said ? "T(" : "", said, *said ? ")" : "");
}

void answer_thoughts_of_noise(void)
{
    static const char *const pieces[] = {"<think>", "</think>", "<",   "</thi",  "nk>", " ",
                                         "\n\n",    "so",       "a b", "<think", "/",   "</"};
    struct answer_format f = {.thoughts = format("</think>")};
    u32 seed = 1;
    for (u32 i = 0; i < 6000; i++) {
        char text[256] = "", wanted[512];
        size_t n = 0;
        for (u32 k = 0; k < i % 9; k++) {
            seed = seed * 1664525 + 1013904223;
            n += (size_t)snprintf(text + n, sizeof text - n, "%s",
                                  pieces[(seed >> 8) % COUNTOF(pieces)]);
        }
        f.first = i / 9 % 2 ? THOUGHTS_OPEN : THOUGHTS_MAY;
        expect(text, f.first == THOUGHTS_OPEN, wanted, sizeof wanted);
        check(&f, text, wanted);
    }
}

void answer_thoughts_begin_in_prompts(void)
{
    const struct thought_format *f = format("</think>");
    CHECK(thoughts_behind(NULL, STR("<think>")) == THOUGHTS_NONE);
    CHECK(thoughts_behind(f, STR("")) == THOUGHTS_MAY);
    CHECK(thoughts_behind(f, STR("<|im_start|>assistant\n")) == THOUGHTS_MAY);
    CHECK(thoughts_behind(f, STR("assistant\n<think>\n")) == THOUGHTS_OPEN);
    CHECK(thoughts_behind(f, STR("assistant\n<think>\n\n</think>\n\n")) == THOUGHTS_NONE);
    CHECK(thoughts_within(f, STR("<think>a")) == THOUGHTS_OPEN);
    CHECK(thoughts_within(f, STR("<think>a</think>")) == THOUGHTS_NONE);
    CHECK(thoughts_within(f, STR("So")) == THOUGHTS_NONE);
    CHECK(thoughts_within(f, STR(" ")) == THOUGHTS_MAY);
    CHECK(thoughts_within(NULL, STR(" ")) == THOUGHTS_NONE);
}

/* --- messages (core/model/harmony.h) ------------------------------------------------------------
 */

static const char taught[] = "tools <|channel|> <|message|>";

#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL "<|channel|>final<|message|>"
#define NEXT "<|end|><|start|>assistant"
#define TO "<|channel|>commentary to=functions."
#define JSON " <|constrain|>json<|message|>"

void answer_messages(void)
{
    struct answer_format may = {.thoughts = format(taught), .first = THOUGHTS_MAY}, other = may;
    CHECK(may.thoughts && !format("<|end|><|channel|>"));
    check(&may, ANALYSIS "I think.\n" NEXT FINAL " Yes.\n", "R(I think.\n)T( Yes.\n)");
    check(&may, ANALYSIS "I think." NEXT FINAL "Yes.<|end|>", "R(I think.)T(Yes.)");
    check(&may, FINAL "Yes < no <| <|end| <|endoftext|> <|end|> <|end|>x",
          "T(Yes < no <| <|end| <|endoftext|> <|end|> <|end|>x)");
    check(&may, FINAL "a<<|end|><|end|><|start|>assistant" FINAL "b", "T(a<<|end|>\n\nb)");
    check(&may, FINAL "a<|end|> \n<|start|>assistant <|channel|>final json <|message|>b",
          "T(a\n\nb)");
    check(&may,
          "<|channel|>commentary<|message|>First" NEXT ANALYSIS "Hm" NEXT ANALYSIS "So" NEXT FINAL
          "Then",
          "T(First)R(Hm\n\nSo)T(\n\nThen)");
    check(&may, ANALYSIS NEXT ANALYSIS "So" NEXT FINAL NEXT FINAL "x", "R(So)T(x)");
    check(&may, "<|start|>assistant" ANALYSIS "a" NEXT FINAL "b", "R(a)T(b)");
    check(&may, "<|channel|>other<|message|>a" NEXT "<|message|>b", "T(a\n\nb)");
    check(&may, FINAL "a<|end|><|start|>user<|message|>b", "T(a\n\nb)");

    /* What has no header, and what breaks off. */
    check(&may, "", "");
    check(&may, " \n", "T( \n)");
    check(&may, "Yes " NEXT FINAL "no", "T(Yes \n\nno)");
    check(&may, " to=x and <|chan", "T( to=x and <|chan)");
    check(&may, "<|chan", "T(<|chan)");
    check(&may, "<<|channel|>final", "T(<<|channel|>final)");
    check(&may, "<|channel|>", "");
    check(&may, "<|channel|>ana", "");
    check(&may, "<|channel|>final<|mess", "");
    check(&may, ANALYSIS, "");
    check(&may, ANALYSIS "a<|e", "R(a<|e)");
    check(&may, ANALYSIS "a<|end|>", "R(a)");
    check(&may, ANALYSIS "a<|end|><|st", "R(a)");
    check(&may, ANALYSIS "a" NEXT, "R(a)");
    check(&may, ANALYSIS "a" NEXT "<|channel|>final", "R(a)");
    check(&may, ANALYSIS "a<|end|><|start|><|end|><|start|>" FINAL "b", "R(a<|end|><|start|>)T(b)");
    check(&may, "<|channel|>final<|end|><|start|>" FINAL "b", "T(<|channel|>final\n\nb)");
    check(&may, "<|channel|>final<|start|>assistant", "T(<|channel|>final<|start|>assistant)");

    /* Calls where there are no functions. */
    check(&may, ANALYSIS "a" NEXT TO "f" JSON "{}<|call|>", "R(a)T({}<|call|>)");
    check(&may, "<|channel|>analysis to=python code<|message|>1", "R(1)");

    other.left_out = true;
    check(&other, ANALYSIS "a<b" NEXT ANALYSIS "c" NEXT FINAL "d", "T(d)");
    check(&other, ANALYSIS "a<", "");
    other = may;
    other.raw = true;
    check(&other, ANALYSIS "a" NEXT FINAL "b", "T(" ANALYSIS "a" NEXT FINAL "b)");
    other = may;
    other.formed = true;
    check(&other, ANALYSIS "a" NEXT FINAL "\"" NEXT FINAL "\"", "R(a)T(\"" NEXT FINAL "\")");
    other = may;
    other.first = THOUGHTS_OPEN;
    check(&other, " a" NEXT FINAL "b", "R( a)T(b)");
    other.first = THOUGHTS_NONE;
    check(&other, " a" NEXT ANALYSIS "b", "T( a)R(b)");
}

void answer_messages_with_calls(void)
{
    struct answer_format f = {
        .thoughts = format(taught), .first = THOUGHTS_MAY, .calls = tool_format_of(str_of(taught))};
    CHECK(tool_format_is_special(f.calls) && !tool_format_is_typed(f.calls));
    check(&f, ANALYSIS "a" NEXT TO "f" JSON "{\"a\": \"<|call|>}\\\"<|end|>\"}<|call|>",
          "R(a)N(f)A({\"a\": \"<|call|>}\\\"<|end|>\"})");
    check(&f, TO "f" JSON "{\"a\": [1, {}]}", "N(f)A({\"a\": [1, {}]})");
    check(&f, " to=functions.f<|channel|>commentary json<|message|>{}", "N(f)A({})");
    check(&f, "<|start|>assistant to=f<|channel|>commentary<|message|> {\"a\":1}\n<|call|>\n",
          "N(f)A({\"a\":1})");
    check(&f, "<|channel|>commentary to=f json<|message|>{} x <y<|call|>", "N(f)A({})");
    check(&f, "<|channel|>analysis to=browser.search code<|message|>{}", "N(browser.search)A({})");
    check(&f, "<|channel|>analysis to=python code<|message|>1 <| 2\n<|call|>",
          "N(python)A(1 <| 2\n)");
    check(&f,
          "<|channel|>commentary<|message|>I ask." NEXT TO "f" JSON "{}" NEXT TO "g" JSON
          "{\"b\":2}<|call|><|start|>assistant" FINAL "So.",
          "T(I ask.)N(f)A({})N(g)A({\"b\":2})T(\n\nSo.)");
    check(&f, TO "f" JSON "{}<|start|>assistant" FINAL "x", "N(f)A({})T(x)");
    check(&f, TO "f" JSON "{}<|call|>" FINAL "x", "N(f)A({})T(x)");
    check(&f, TO "f" JSON "{}<|call|> x", "N(f)A({})T( x)");
    check(&f, TO "f" JSON "<|call|>", "N(f)A({})");
    check(&f, TO "f" JSON " \n", "N(f)A({})");
    check(&f, TO "f" JSON "{\"a\": <|call|>", "N(f)A({\"a\": )");
    check(&f, TO "f" JSON "{\"a\": <|ca", "N(f)A({\"a\": <|ca)");
    check(&f, TO "f" JSON "<<|call|>", "N(f)A(<)");
    check(&f, TO "f <|constrain|>js", "");
    check(&f, TO "<|message|>{}", "T({})");
    check(&f, "<|start|>user to=functions.f<|channel|>commentary<|message|>{}", "T({})");
    check(&f, "<|channel|>commentary auto=f<|message|>{}", "T({})");
    check(&f, ANALYSIS "to=functions.f " TO "f" JSON "{}" NEXT FINAL "x",
          "R(to=functions.f " TO "f" JSON "{})T(x)");
    char text[1100], wanted[1100];
    for (int n = TOOL_NAME_BYTES; n <= TOOL_NAME_BYTES + 1; n++) {
        snprintf(text, sizeof text, "<|channel|>commentary to=%0*d<|message|>{}", n, 7);
        snprintf(wanted, sizeof wanted, n > TOOL_NAME_BYTES ? "T({})" : "N(%0*d)A({})", n, 7);
        check(&f, text, wanted);
    }
    /* A header that is too long. */
    snprintf(text, sizeof text, FINAL "a" NEXT "%0500d€" FINAL "b" NEXT FINAL "c", 7);
    snprintf(wanted, sizeof wanted, "T(%s)", text + sizeof FINAL - 1);
    memcpy(strstr(wanted, NEXT FINAL "c"), "\n\nc)", 5);
    check(&f, text, wanted);
    f.raw = true;
    check(&f, ANALYSIS "a" NEXT TO "f" JSON "{}<|call|>", "T(" ANALYSIS "a)N(f)A({})");
    check(&f, ANALYSIS "a" NEXT FINAL "b<|end|>", "T(" ANALYSIS "a" NEXT FINAL "b<|end|>)");
    check(&f, ANALYSIS "a" NEXT "<|chan", "T(" ANALYSIS "a" NEXT "<|chan)");
}

void answer_messages_begin_in_prompts(void)
{
    const struct thought_format *f = format(taught);
#define SAID "<|start|>user<|message|>Hi<|end|>"
    CHECK(thoughts_behind(f, STR(SAID)) == THOUGHTS_MAY);
    CHECK(thoughts_behind(f, STR(SAID "<|start|>assistant")) == THOUGHTS_MAY);
    CHECK(thoughts_behind(f, STR(SAID "<|start|>assistant" ANALYSIS)) == THOUGHTS_OPEN);
    CHECK(thoughts_behind(f, STR(SAID "<|start|>assistant" ANALYSIS "So")) == THOUGHTS_OPEN);
    CHECK(thoughts_behind(f, STR(SAID "<|start|>assistant" FINAL "So")) == THOUGHTS_NONE);
    CHECK(thoughts_behind(f, STR("Hi")) == THOUGHTS_MAY);
    CHECK(thoughts_within(f, STR("So")) == THOUGHTS_MAY);
}

/* However noise is cut, the same comes of it. */
void answer_messages_of_noise(void)
{
    static const char *const pieces[] = {
        "<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|call|>", ANALYSIS, FINAL,
        NEXT,        TO "f",    JSON,          "{\"a\": ",    "\"",       "}",      "<",
        "<|",        " ",       "\n",          "assistant",   " to=g",    "€",      "{}"};
    struct answer_format f = {.thoughts = format(taught)};
    u32 seed = 1;
    for (u32 i = 0; i < 4000; i++) {
        static struct told whole;
        char text[512];
        size_t n = 0;
        text[0] = 0;
        for (u32 k = 0; k < 2 + i % 9; k++) {
            seed = seed * 1664525 + 1013904223;
            n += (size_t)snprintf(text + n, sizeof text - n, "%s",
                                  pieces[(seed >> 8) % COUNTOF(pieces)]);
        }
        f.first = (enum thoughts)(i / 9 % 3);
        f.calls = i / 27 % 2 ? tool_format_of(str_of(taught)) : NULL;
        f.left_out = i / 54 % 3 == 1;
        f.raw = i / 54 % 3 == 2;
        struct answer_reader r = answer_reader_of(&f);
        whole = (struct told){0};
        take(&r, text, n, &whole);
        check(&f, text, finish(&r, &whole));
    }
}
