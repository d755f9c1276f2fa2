/* Evaluates a compiled template: expressions, statements, scopes, loops and macros. Captured text
 * ({% set %} blocks, macros) is written to the output and cut off again, so nothing is built
 * twice. The loop object and error reports, which values need, are declared here.
 */
#ifndef ZIGCUDA_TEMPLATE_EVAL_H
#define ZIGCUDA_TEMPLATE_EVAL_H

#include "core/model/template_parse.h"

/* Runs the whole template; failures are in r. */
void eval_template(struct rt *r);

struct val eval_call(struct rt *r, struct val callee, const struct args *args);

/* "file: line 3, column 7: text" with the place of the node being evaluated. */
void eval_report(struct rt *r, enum err code, const char *text);
void eval_undefined(struct rt *r, struct val v); /* "'x' is undefined" */

/* a op b of arithmetic: + - * / % OP_POW OP_FLOORDIV (template_ops.c). */
struct val op_binary(struct rt *r, u8 op, struct val a, struct val b);
struct val op_negate(struct rt *r, struct val a, bool minus);

/* The variable `loop`. */
bool loop_attr(struct rt *r, struct loop *l, struct str name, struct val *out);
i64 loop_length(struct rt *r, struct loop *l);

#endif
