/* UTF-8 by RFC 3629 (no surrogates, nothing above U+10FFFF, shortest form only). */
#ifndef ZIGCUDA_UTF8_H
#define ZIGCUDA_UTF8_H

#include "core/base/base.h"

/* Decodes one character at p (n >= 1 bytes are there). Returns its length 1..4, or 0 when the
 * bytes are not valid; *cp is set only when valid. */
u32 utf8_decode(const char *p, size_t n, u32 *cp);

/* Encodes a scalar value into out[4]; returns the length. */
u32 utf8_encode(u32 cp, char *out);

bool utf8_valid(struct str s);

/* Length of the maximal invalid subpart at p (Unicode 15, section 3.9, U+FFFD substitution):
 * 1..3 bytes which are replaced by one U+FFFD. Only meaningful when utf8_decode gave 0. */
u32 utf8_bad_length(const char *p, size_t n);

/* True when the n bytes at p are a proper prefix of some valid character: more bytes may come. */
bool utf8_incomplete(const char *p, size_t n);

#endif
