/* Tokens, nodes and expressions for the template parser; the statements are in template_parse.c.
 * The parser state is one struct on the stack of parse_template. Errors stick: after the first,
 * the current token is T_EOF for good, so every function runs out without checks of its own, and
 * nodes made then may be incomplete and share memory: nobody follows their
 * pointers while `err` is set.
 */
#ifndef ZIGCUDA_TEMPLATE_EXPR_H
#define ZIGCUDA_TEMPLATE_EXPR_H

#include "core/model/template_lex.h"
#include "core/model/template_parse.h"

struct parser {
    struct lexer lex;
    struct token cur, look;
    enum err err;
    struct template *t;
    struct frame *frame;
    u32 depth, branch; /* branch: inside an if of the current frame */
    u32 loops;         /* loops open in this function body: break may stand here */
    struct macro *macro;
};

/* A list of nodes being built; appending keeps the order. */
struct chain {
    struct node *first, **end;
    u32 n;
};

enum tuple_how {
    TUPLE_PLAIN,
    TUPLE_NO_COND, /* `if` ends it */
    TUPLE_PARENS,  /* () is an empty tuple */
};

/* Refuses the template with line and column of `pos`. */
#define PARSE_FAIL(p, pos, ...) \
    parse_stop((p), (p)->err ? (p)->err : lex_fail(&(p)->lex, (pos), __VA_ARGS__))
void parse_stop(struct parser *p, enum err err);

void parse_advance(struct parser *p);
bool parse_at_op(const struct parser *p, char op);
bool parse_at_name(const struct parser *p, const char *z);
bool parse_skip_op(struct parser *p, char op);
bool parse_skip_name(struct parser *p, const char *z);
void parse_expect_op(struct parser *p, char op);
struct str parse_expect_name(struct parser *p);
bool parse_deeper(struct parser *p); /* false: failed, or LIMIT_TEMPLATE_DEPTH; else count down */

void *parse_keep(struct parser *p, size_t size); /* zeroed memory, never NULL */
struct node *parse_node(struct parser *p, enum node_kind kind, u32 pos);
void parse_append(struct chain *c, struct node *n);
u32 parse_intern(struct parser *p, struct str name);
void parse_mention(struct parser *p, u32 id, bool set); /* see struct frame */
bool parse_constant_name(struct str s, struct val *v);  /* true, none, ... */

struct node *parse_expression(struct parser *p);
struct node *parse_tuple(struct parser *p, enum tuple_how how);
bool parse_tuple_end(struct parser *p);
struct node *parse_filter(struct parser *p, const struct node *of); /* its name comes next */

#endif
