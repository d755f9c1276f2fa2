/* Text the way Python's str works on it: characters are code points, white space and case follow
 * Unicode, repr() and float printing follow CPython. Pure functions over slices, and the writers
 * of str(x), repr(x) and json.dumps(x) into a sink. Owns nothing.
 */
#ifndef ZIGCUDA_TEMPLATE_TEXT_H
#define ZIGCUDA_TEMPLATE_TEXT_H

#include "core/model/template_value.h"

/* --- slices --- */
u32 text_char(struct str s, size_t at, u32 *cp); /* code point at byte `at`; its length in bytes */
bool text_is_space(u32 cp);                      /* str.isspace of one character */
size_t text_space_before(struct str s);          /* bytes of white space at the end */
size_t text_space_after(struct str s);           /* and at the start */
size_t text_length(struct str s);                /* characters */
size_t text_offset(struct str s, size_t chars);  /* byte offset of a character (clamped) */
const char *text_find(struct str hay, struct str needle); /* first, or NULL */
size_t text_line(struct str s, size_t *next); /* str.splitlines: bytes of the first line */
u32 text_upper(u32 cp);
u32 text_lower(u32 cp);
bool text_cased(u32 cp);
bool text_alpha(u32 cp);
enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_JINJA_TITLE };

/* --- writing --- */
struct sink sink_open(struct rt *r); /* a new string; no other may be made until sink_close */
struct val sink_close(struct rt *r, struct sink *s);
void sink_put(struct rt *r, struct sink *s, const char *p, size_t n);
void sink_put_str(struct rt *r, struct sink *s, struct str t);
void sink_put_z(struct rt *r, struct sink *s, const char *z);
void sink_put_cp(struct rt *r, struct sink *s, u32 cp);
void sink_put_val(struct rt *r, struct sink *s, struct val v);  /* str(v) */
void sink_put_repr(struct rt *r, struct sink *s, struct val v); /* repr(v) */
void sink_put_case(struct rt *r, struct sink *s, struct str t, enum text_case how);
void sink_put_escaped(struct rt *r, struct sink *s, struct str t); /* &<>"' for HTML */

struct val text_of(struct rt *r, struct val v); /* str(v): a string as it is */
struct val text_copy(struct rt *r, struct str s);
struct val text_concat(struct rt *r, struct val a, struct val b); /* both V_STR */

/* repr of a double into out: the shortest digits that read back the same. */
enum { DOUBLE_BYTES = 40 };
size_t text_double(double f, char *out);

/* json.dumps. indent < 0: one line; item and key: the separators. */
struct dump {
    bool ascii, sort;
    struct str indent; /* p == NULL: one line */
    struct str item, key;
};
void sink_put_json(struct rt *r, struct sink *s, struct val v, const struct dump *d);

/* str % args and str.format(args). */
struct val text_percent(struct rt *r, struct str fmt, struct val args);
struct val text_format(struct rt *r, struct str fmt, const struct args *args);

#endif
