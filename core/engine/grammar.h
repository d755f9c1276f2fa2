/* What an answer has to be, as a machine over its bytes: JSON (RFC 8259) that fits a schema. A
 * grammar is compiled from JSON Schema once (grammar_compile); a state is moved by one byte at a
 * time, and says whether the text may end. So what is let through fits the schema, always; not all
 * that fits is let through: an object's members come in the order of its properties, numbers have
 * at most 15 digits (with bounds or multipleOf 15 in all, no exponent, and with multipleOf no more
 * of them behind the point than it has), one blank stands in front at most, and elsewhere one, or
 * one or two line ends and an indent.
 *
 * The schema's subset: type, properties, required, additionalProperties (false; for objects without
 * properties also a schema), items, minItems, maxItems, minLength, maxLength, minimum, maximum,
 * exclusiveMinimum, exclusiveMaximum, multipleOf, pattern, format, enum, const, anyOf, oneOf of
 * what can be told apart, $ref into the same document (recursive, too), allOf of one. Words that
 * only describe are passed over; any other is refused with its path. Of calls in XML see tags.h.
 */
#ifndef ZIGCUDA_GRAMMAR_H
#define ZIGCUDA_GRAMMAR_H

#include "config/limits.h"
#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/engine/range.h"
#include "core/engine/regex.h"

enum grammar_kind {
    GRAMMAR_OBJECT,  /* members[first, first + n), or members of any name: items */
    GRAMMAR_ARRAY,   /* items, min, max */
    GRAMMAR_STRING,  /* min, max characters; items: the pattern */
    GRAMMAR_NUMBER,  /* whole or not; items: its range */
    GRAMMAR_LITERAL, /* one of texts[first, first + n) */
    GRAMMAR_UNION,   /* one of links[first, first + n); of a call and a value: in that order */
    GRAMMAR_TEXT,    /* any */
    GRAMMAR_PROSE,   /* any text, and behind each texts[first] the rest of the call `items` */
    GRAMMAR_CALL,    /* the key of one of members[first, first + n) as it is, its value, and behind
                        that texts[items] as it is. A member without a value: of text, in prose */
    GRAMMAR_TAGS,    /* an object in XML: members[first, first + n - 1), and what closes it is the
                        key of the last one. texts[items] end a name, begin a value, and end it */
    GRAMMAR_RAW      /* a value there: any text up to its end */
};

enum { GRAMMAR_NONE = 0xffff }; /* no limit; no node */

struct grammar_node {
    u8 kind;
    bool whole : 1;  /* a number: no fraction */
    bool closed : 1; /* an object: with other names it would not fit */
    bool loose : 1;  /* values of other types fit the schema, but are not let through */
    bool raw : 1;    /* a literal: in XML, its texts are no JSON */
    bool lines : 1;  /* tags: a line end before and behind such a value is not of it */
    bool ends : 1;   /* a call: nothing follows it */
    u16 first, n, items, min, max;
};

struct grammar_piece { /* JSON text */
    u16 at, n;
};

struct grammar_member {
    struct grammar_piece key; /* with its quotes */
    u16 node;
    bool required;
};

struct grammar {
    u64 serial; /* no two have the same; what is behind it tells them apart */
    u16 root;
    u16 thought_begin,
        thought_end;    /* texts: marks around what may come first; GRAMMAR_NONE: none */
    bool thinks;        /* the first mark stands before the text: it begins within */
    u32 thought_tokens; /* at most, between the marks */
    u16 thought_sure;   /* so many bytes of the last mark, and the rest of it has to follow */
    u16 begun;          /* and so many of a call's key stand before the text */
    u16 n_nodes, n_members, n_texts, n_links, n_ranges, n_bytes;
    struct grammar_node nodes[LIMIT_SCHEMA_VALUES];
    struct grammar_member members[LIMIT_SCHEMA_VALUES];
    struct grammar_piece texts[LIMIT_SCHEMA_VALUES];
    u16 links[LIMIT_SCHEMA_VALUES];
    struct range ranges[LIMIT_SCHEMA_RANGES];
    struct regex_tables patterns;
    char bytes[LIMIT_SCHEMA_BYTES];
};

/* schema NULL: any object. Errors are ERR_REQUEST and begin with the path of what is refused. */
MUST enum err grammar_compile(struct grammar *g, const struct json *schema, struct err_text *e);

/* Arguments in XML: key, a name, key_end, value, its text, value_end; and so on. */
struct grammar_tags {
    struct str key, key_end, value, value_end;
    bool lines; /* a line end before and behind a text is not of it */
};

/* A call of a function, as a model writes it: open, the name, middle, the arguments. */
struct grammar_call {
    struct str open, name, middle;
    const struct json *parameters;   /* the schema of the arguments; NULL: any object */
    u32 number;                      /* for messages: tools[number], and */
    const char *where;               /* there; NULL: function.parameters */
    const struct grammar_tags *tags; /* NULL: the arguments are JSON */
    bool text;                       /* no call: any text follows, as before the mark */
};

/* One of these calls, and `close`. With a mark, which all of them begin with: any text, and where
 * the mark stands a call. */
MUST enum err grammar_compile_calls(struct grammar *g, const struct grammar_call *calls, u32 n,
                                    struct str close, struct str mark, struct err_text *e);

/* Or JSON that fits a schema, which has to be of objects alone (NULL: any of them), in place of the
 * calls that were just compiled without a mark; where one of them is of text, in place of that. */
MUST enum err grammar_or_json(struct grammar *g, const struct json *schema, struct err_text *e);

/* Any text. */
void grammar_compile_text(struct grammar *g);

/* For answers in messages, each behind a header (core/model/harmony.h). Of JSON: this header stands
 * before it. Of calls: the first `begun` bytes of all of them stand before the text, which is
 * behind a header, too, then; and with a call it ends. */
MUST enum err grammar_head(struct grammar *g, struct str head, struct err_text *e);
void grammar_messages(struct grammar *g, u32 begun);

/* Before the text of a grammar that was just compiled may come a thought: anything, between these
 * marks, `tokens` of it at most; begun: the first mark is there already. The first character of a
 * mark does not come again in it. */
MUST enum err grammar_think(struct grammar *g, struct str begin, struct str end, bool begun,
                            u32 tokens, struct err_text *e);

/* Directly behind such a thought has to stand this, which is of neither part. */
MUST enum err grammar_think_on(struct grammar *g, struct str next, struct err_text *e);

/* --- the machine ----------------------------------------------------------------------------- */

enum { GRAMMAR_THREADS = 8, GRAMMAR_INDENT = 24 }; /* alternatives at once; blanks of a line */

struct grammar_frame { /* a value that is not finished; what a, b, c are, its kind says */
    u16 node, a, b, c;
    u8 kind, phase;
};

struct grammar_thread {
    u8 depth, blanks;
    struct grammar_frame frames[LIMIT_SCHEMA_DEPTH];
};

struct grammar_state {
    u32 n;        /* 0: no text of the grammar begins so */
    u32 thoughts; /* tokens of one so far */
    struct grammar_thread threads[GRAMMAR_THREADS];
};

void grammar_begin(const struct grammar *g, struct grammar_state *s);
/* False, with s->n 0: no text of the grammar goes on so. */
bool grammar_step(const struct grammar *g, struct grammar_state *s, u8 byte);
/* The same by a whole token, which counts where one is thought. */
bool grammar_read(const struct grammar *g, struct grammar_state *s, struct str token);
bool grammar_complete(const struct grammar *g, const struct grammar_state *s); /* it may end here */
bool grammar_closed(const struct grammar_state *s); /* it has to: nothing may follow */
/* In a string: so many characters may follow, whichever they are, but quotes, backslashes and
 * control characters. */
u32 grammar_text_room(const struct grammar *g, const struct grammar_state *s);

/* In one string and nothing else, at the beginning of a character. */
struct grammar_text {
    struct regex_room room; /* how many characters may follow, and have to */
    u16 pattern, state;     /* GRAMMAR_NONE: whichever they are */
};

bool grammar_in_text(const struct grammar *g, const struct grammar_state *s,
                     struct grammar_text *text);
/* The state behind the quote that ends it, whether or not it may come here. */
void grammar_end_text(struct grammar_state *to, const struct grammar_state *s);
/* In a call, around its value, before one, in prose, a thought or a text in XML: there marks are,
 * which may be special tokens.
 */
bool grammar_in_mark(const struct grammar *g, const struct grammar_state *s);
/* Any text may follow; what has the byte `begin` in it, or begins with `next`, may or may not. 0:
 * there is no such byte. */
struct grammar_prose {
    u8 begin, next; /* of a mark; next: of one that may have begun */
};

bool grammar_in_prose(const struct grammar *g, const struct grammar_state *s,
                      struct grammar_prose *p);
bool grammar_same(const struct grammar_state *a, const struct grammar_state *b);
void grammar_copy(struct grammar_state *to, const struct grammar_state *from);

#endif
