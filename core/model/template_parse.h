/* The tree of a compiled template, made by a recursive-descent parser after jinja2's grammar
 * (3.1). It lives in the arena handed to template_compile and never changes afterwards. Names are
 * interned, so that scopes compare numbers. Limits: LIMIT_TEMPLATE_DEPTH nested blocks and
 * expressions, LIMIT_TEMPLATE_NAMES names. What is not supported is an error here, at boot.
 */
#ifndef ZIGCUDA_TEMPLATE_PARSE_H
#define ZIGCUDA_TEMPLATE_PARSE_H

#include "core/model/template_value.h"

enum node_kind {
    /* expressions */
    N_CONST,  /* value */
    N_NAME,   /* id, name */
    N_LIST,   /* list[n] */
    N_TUPLE,  /* list[n]; also an assignment target */
    N_DICT,   /* list of N_PAIR a: b */
    N_PAIR,   /* also a branch of S_IF: a condition or NULL, list the body */
    N_KWARG,  /* name = a */
    N_NEG,    /* -a */
    N_POS,    /* +a */
    N_NOT,    /* not a */
    N_BINARY, /* a op b */
    N_CONCAT, /* list joined by ~ */
    N_CMP,    /* a, then list of N_PAIR (op, a) */
    N_AND,
    N_OR,
    N_COND,   /* a if b else c (c may be NULL) */
    N_ATTR,   /* a.name; as a target: ns.name */
    N_ITEM,   /* a[b] */
    N_SLICE,  /* a[b], list of three, NULL bounds are N_CONST none */
    N_CALL,   /* a(list); n positional, then N_KWARG */
    N_FILTER, /* a | func(list); a NULL inside a block filter */
    N_TEST,   /* a is func(list); op 1: is not */
    /* statements */
    S_TEXT,    /* name: the text */
    S_PRINT,   /* {{ a }} */
    S_IF,      /* list of N_PAIR */
    S_FOR,     /* for a in b if c: list else other */
    S_SET,     /* a = b */
    S_CAPTURE, /* set a (target; NULL for a filter block) to list's text, through filters b */
    S_MACRO,   /* id(macro) */
    S_WITH,    /* other: N_PAIR target a, value b; list the body */
    S_SCOPE,   /* {% generation %}: list, with its own variables */
    S_BREAK,
    S_CONTINUE,
};

/* Where names of one scope come from. In jinja2 a scope's first mention of a name decides whether
 * a name that is not set yet falls back to the request's variables (first read) or is undefined
 * (first set, outside of an if). */
struct frame {
    const struct frame *parent;
    struct mention {
        struct mention *next;
        u32 id;
        bool set_first;
    } * mentions;
};

struct macro {
    struct str name;
    const struct node *params; /* chain of N_KWARG: id, name, default a or NULL */
    const struct node *body;
    const struct frame *frame;
    u32 n;
    u32 kwargs_id, varargs_id; /* 1 + id when the body uses them, else 0 */
    struct scope *home;        /* where it was defined: set when the definition is executed */
};

struct node {
    u8 kind, op;
    u32 pos, id, n;
    struct str name;
    struct node *next;
    const struct node *a, *b, *c, *list, *other;
    struct val value;
    const struct func *func;
    const struct frame *frame;
    struct macro *macro;
};

struct template
{
    const struct template *for_tools;      /* used instead when the request has tools, or NULL */
    const struct tool_format *calls;       /* how it teaches to call them, or NULL */
    const struct thought_format *thoughts; /* the marks of thoughts that it knows, or NULL */
    const char *name;
    struct str source;
    const struct node *body;
    const struct frame *frame;
    struct str *names; /* [name_count] */
    u32 name_count, loop_id;
};

MUST enum err parse_template(struct arena *keep, struct str source, const char *name,
                             struct template **out, struct err_text *e);

#endif
