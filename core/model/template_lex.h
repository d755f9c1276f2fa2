/* Splits a template into tokens as jinja2's lexer does under trim_blocks and lstrip_blocks: plain
 * text, {{ }}, {% %}, {# #}, raw blocks, and the -, + markers. The source (new lines normalised)
 * and unescaped strings live in the arena handed in. Limit: LIMIT_TEMPLATE_DEPTH open brackets.
 * Reference: the Jinja documentation, "Whitespace Control"; behaviour checked against jinja2 3.1.
 */
#ifndef ZIGCUDA_TEMPLATE_LEX_H
#define ZIGCUDA_TEMPLATE_LEX_H

#include "core/base/arena.h"
#include "config/limits.h"

enum token_kind {
    T_EOF,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OP, /* op: the character, or one of OP_* for two characters */
};

enum { OP_EQ = 'E', OP_NE = 'N', OP_GE = 'G', OP_LE = 'L', OP_POW = 'P', OP_FLOORDIV = 'D' };

struct token {
    u8 kind, op;
    u32 pos;         /* byte offset in the source */
    struct str text; /* data, name, unescaped string */
    i64 i;
    double f;
};

struct lexer {
    struct arena *keep;
    const char *name; /* of the template, for messages */
    struct str src;
    size_t at;
    u8 state; /* inside data, {{ or {% */
    bool line_starting;
    u32 depth;
    char open[LIMIT_TEMPLATE_DEPTH];
    struct err_text *e;
};

/* Copies and normalises `source`. */
MUST enum err lex_open(struct lexer *l, struct arena *keep, struct str source, const char *name,
                       struct err_text *e);
MUST enum err lex_next(struct lexer *l, struct token *t);

/* "name: line 3, column 9: text" as ERR_MODEL. */
enum err lex_fail(const struct lexer *l, size_t pos, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Line and column (from 1, in bytes) of an offset. */
void lex_place(struct str src, size_t pos, u32 *line, u32 *column);

#endif
