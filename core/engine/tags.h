/* Arguments in XML from those in JSON: what was compiled of a function's schema becomes tags, in
 * order of its properties, or of any names. A value there is JSON where it can be no text; any text
 * where its schema has any string; or one of its texts. What else a schema asks of a text, and
 * values that only quotes would tell from texts, are refused.
 */
#ifndef ZIGCUDA_TAGS_H
#define ZIGCUDA_TAGS_H

#include "core/engine/grammar.h"

/* Into *node, from an object's node; `close`: behind the last one. Else what is wrong, with the
 * property `at`, if there is such a one. */
const char *tags_make(struct grammar *g, u16 object, const struct grammar_tags *tags,
                      struct str close, u16 *node, u32 *at);

#endif
