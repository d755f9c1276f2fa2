/* The machine's strings: with all that JSON allows for in them, of so many characters, and with a
 * pattern. Inside of core/engine/grammar only.
 */
#ifndef ZIGCUDA_STRING_H
#define ZIGCUDA_STRING_H

#include "core/engine/number.h"

/* A byte behind the opening quote. */
enum act string_step(const struct grammar *g, struct grammar_frame *f, u8 c);

/* Is it between two characters of a string? Then what may follow. */
bool string_text(const struct grammar *g, const struct grammar_frame *f, struct grammar_text *text);

#endif
