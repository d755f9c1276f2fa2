/* Calls in XML, for tool_call.h, whose reader this is a part of:
 *
 *   <tool_call> <function=f> <parameter=KEY> VALUE </parameter> ... </function> </tool_call>
 *   <tool_call>f <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> ... </tool_call>
 *   <function name="f"><param name="KEY">VALUE</param> ... </function>
 *
 * with or without line ends between; the first one's models forget marks around a function, and
 * have one line end before and behind a value, which are not of it; a value of the third may stand
 * in <![CDATA[ ... ]]>. A value ends at its mark, unless that stands in a string of what is JSON so
 * far. The arguments become JSON as they come: {"KEY": VALUE, ...}. By its function's schema a
 * value is text, which is passed on at once as a string, or may be something else: then it is held
 * until that is clear, and TOOL_VALUE_BYTES at most. JSON of a kind that it may be stays as the
 * model has written it, Python's True, False and None are true, false and null, and anything else
 * is text. Lists and objects that are longer are believed to go on as JSON.
 */
#ifndef ZIGCUDA_TOOL_XML_H
#define ZIGCUDA_TOOL_XML_H

#include "core/model/tool_call.h"

struct tool_xml; /* a form of it */
extern const struct tool_xml tool_xml_function, tool_xml_arg_key, tool_xml_param;

/* As tool_next and tool_end, of readers whose format is one of these. */
bool tool_xml_next(struct tool_reader *r, const struct tool_xml *form, struct str *text,
                   struct piece *piece);
bool tool_xml_end(struct tool_reader *r, const struct tool_xml *form, struct piece *piece);

/* --- what literals (tool_literal.h) share ----------------------------------------------------- */

enum { TOOL_FULL_BYTES = 256 /* of `out`: then what has come is passed on */ };

void tool_put(struct tool_reader *r, struct str s);
void tool_put_escaped(struct tool_reader *r, struct str s); /* of a string of JSON */
struct str tool_trimmed(struct str s);

/* The kind of what begins so; 0: text. */
u32 tool_kind_of(char first);

/* What Python calls it, as JSON; whole: all of it has come, else its beginning may have. */
const char *tool_of_python(struct str s, bool whole);

/* tool_parameter goes on. */
u64 tool_hash(u64 h, struct str s);

#endif
