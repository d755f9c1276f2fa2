/* Arguments that are neither JSON nor XML, for tool_call.h, whose reader this is a part of:
 * literals as in a program, behind the function's name.
 *
 *   f{key:<|"|>text<|"|>,n:3,list:[true],object:{key:null}}      Gemma 4
 *   f(key="text", n=3, list=[True], object={"key": None})        LFM 2, Python
 *
 * They become JSON as they come. Strings stand between quotes, which Gemma has a token for: between
 * two of these nothing else counts. Others may have JSON's and Python's escapes, and quotes which
 * nothing follows that could follow a string are of it, as these models' templates write them so.
 * So JSON stays what it was. A word or number without quotes is what it looks like where its
 * function's schema has such a parameter, and else a string; it ends at a comma or bracket. A value
 * that is missing is null. A bracket closes what is open within it, and the mark that ends a call
 * closes all. Brackets more than 32 deep are of a word. What else stands behind a value is dropped:
 * arguments are JSON whatever comes.
 */
#ifndef ZIGCUDA_TOOL_LITERAL_H
#define ZIGCUDA_TOOL_LITERAL_H

#include "core/base/json.h"
#include "core/model/tool_call.h"

struct tool_literal {          /* a form of it */
    const char *quote, *signs; /* a text, "" for none, and signs that are quotes */
    char open, assign, close;  /* of the arguments */
};

extern const struct tool_literal tool_literal_gemma, tool_literal_python;

/* What follows is the first bracket. The function's name is taken from `held`. */
void tool_literal_begin(struct tool_reader *r);

/* Reads a byte, and writes to `out`. end: the mark that closes all. */
enum tool_literal_step { LITERAL_GOES_ON, LITERAL_CLOSED, LITERAL_ENDED /* by the mark */ };
enum tool_literal_step tool_literal_step(struct tool_reader *r, const struct tool_literal *form,
                                         const char *end, char c);

/* A message's tool_calls as LFM 2 writes them, but for words, which are JSON's. */
void tool_literal_write(struct json_out *o, const struct json *calls);

#endif
