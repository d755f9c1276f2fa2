/* Calls of functions ("tools") in what a model writes. No standard says how: a chat template
 * teaches its model one of a few ways, and so tells us which. In all of them a call has the
 * function's name and an object of arguments, behind a mark:
 *
 *   <tool_call>{"name": "f", "arguments": {...}}</tool_call>        Qwen 2.5 and 3, Hermes
 *   [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]            Mistral up to its version 7
 *   [TOOL_CALLS]f[ARGS]{...}                                        Mistral since
 *   <|tool_call|>[{"name": "f", "arguments": {...}}]<|/tool_call|>  templates for Phi 4
 *   {"name": "f", "parameters": {...}}                              Llama 3, as the whole text
 *   <tool_call><function=f><parameter=KEY>...                       Qwen 3 Coder, see tool_xml.h
 *   <tool_call>f<arg_key>KEY</arg_key><arg_value>...                GLM 4.5, the same
 *   <function name="f"><param name="KEY">...                        MiniCPM 5, the same
 *   <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}
 *                                               gpt-oss, whose messages core/model/harmony.h reads
 *   <|tool_call>call:f{key:<|"|>text<|"|>,n:3}<tool_call|>       Gemma 4, see tool_literal.h
 *   <|tool_call_start|>[f(key="text", n=3)]<|tool_call_end|>     LFM 2, the same; or as Hermes does
 *
 * The reader takes the text as it comes and gives out what stands outside of calls, names, and the
 * arguments as they were written, at once: it holds back no more than a mark and the way to the
 * arguments. What looks like a call and turns out to be none is text, to the byte. Blanks around
 * calls are dropped.
 */
#ifndef ZIGCUDA_TOOL_CALL_H
#define ZIGCUDA_TOOL_CALL_H

#include "core/base/json_prefix.h"

enum {
    TOOL_NAME_BYTES = 64,  /* OpenAI's limit */
    TOOL_HELD_BYTES = 512, /* mark, name and what else comes before the arguments: else no call */
    TOOL_VALUE_BYTES = 96, /* of a value in XML until it is known what it is */
    TOOL_OUT_BYTES = 896   /* a piece of a call in XML, or of the text beside it */
};

/* What a value in XML may be, beside text; 0: it is text. */
enum tool_kind {
    TOOL_NULL = 1,
    TOOL_BOOL = 2,
    TOOL_NUMBER = 4,
    TOOL_LIST = 8,
    TOOL_OBJECT = 16,
    TOOL_QUOTED = 32, /* a string with its quotes */
    TOOL_ANY = 63
};

/* Says what a parameter may be, by the number that it and its function have, tool_parameter; no
 * function: anything. */
struct tool_types {
    u32 (*kinds)(const void *of, u64 parameter);
    const void *of;
};

u64 tool_parameter(struct str function, struct str key);

struct tool_format;

/* The format that a chat template teaches, by its source; NULL: none that is known. */
const struct tool_format *tool_format_of(struct str template_source);

/* The mark that calls in a text have, and the texts around a call's name and arguments, of which
 * `open` begins with it; no mark: a text is a call as a whole. alone: for a text that is one call.
 */
struct str tool_call_mark(const struct tool_format *f);
struct str tool_call_open(const struct tool_format *f, bool alone);
struct str tool_call_middle(const struct tool_format *f);
struct str tool_call_close(const struct tool_format *f, bool alone);

/* What a parameter is written with, in XML: texts around its name and value. */
struct tool_tags {
    const char *key, *key_end, *value, *value_end;
    bool lines; /* a line end before and behind a value is not of it */
};

/* NULL: the arguments are JSON. */
const struct tool_tags *tool_call_tags(const struct tool_format *f);

/* Values have no types of their own, or not all: schemas say what they are. */
bool tool_format_is_typed(const struct tool_format *f);

/* Calls are Python's, as LFM 2 writes them. */
bool tool_format_is_python(const struct tool_format *f);

/* Its mark is a special token, so that the text has to be made with these. */
bool tool_format_is_special(const struct tool_format *f);

enum part {
    PART_TEXT,      /* outside of calls */
    PART_NAME,      /* a call begins */
    PART_ARGUMENTS, /* its arguments go on: JSON if the model has written JSON */
    PART_THOUGHT    /* what core/model/answer.h tells apart */
};

/* The text is of what was put in, or the reader's until it is used again. */
struct piece {
    enum part part;
    struct str text;
};

struct tool_reader {
    const struct tool_format *format;
    u32 calls; /* begun so far */
    u8 state;
    bool began; /* text that is no blank has come */
    bool list;  /* inside [...] */
    bool named, in_string, escaped;
    u32 depth, matched;                              /* brackets; bytes of a mark */
    u32 key_at, value_at, name_at, key_n, name_n, n; /* in held; n: held now */
    char held[TOOL_HELD_BYTES];

    /* Of calls in XML. */
    struct tool_types types;
    u64 function, parameter;
    struct json_prefix json; /* a value so far */
    u32 kinds;               /* it may be */
    u8 value;                /* and is */
    u8 mark, then;           /* the one of which `matched` bytes have come; the state to come */
    bool any;                /* a parameter has come, or what else is in brackets */
    bool first, line_end;    /* nothing of the value has come; a line end that may not be of it */
    u32 n_again, behind;     /* bytes that are read again, the next one last; where more come in */
    bool unread;             /* some are new */
    char again[128];
    u32 n_out;
    char out[TOOL_OUT_BYTES];

    /* Of calls in literals. */
    u8 literal, ends; /* a state; bytes of the mark that ends a call */
    u8 quotes;        /* of those that end a string, how many have come */
    char quote;       /* of a string; 0: the form's text */
    bool key, triple; /* what comes is a key; three quotes end it */
    bool passed;      /* a word that is passed on as a string */
    u32 lists;        /* bits, of the brackets from the innermost one: it is a list */

    /* Of answers in messages, core/model/harmony.h; as it is asked for */
    bool harmony, raw, left_out, formed;
    bool started, fresh; /* a message's end stands before its header; nothing of it was given out */
    u8 message, said;    /* what it is of enum part, and which of these there were: bits */
    u32 given;           /* bytes of held that were given out */
};

struct tool_reader tool_reader_of(const struct tool_format *f, struct tool_types types);

/* The next piece of *text, which is cut by what was taken; false when all is taken. */
bool tool_next(struct tool_reader *r, struct str *text, struct piece *piece);

/* Behind the last text: the next piece of what was held back; false: nothing is left. */
bool tool_end(struct tool_reader *r, struct piece *piece);

/* What comes next is of arguments. */
bool tool_in_call(const struct tool_reader *r);

#endif
