/* What can be said of two parts of a grammar without trying texts: of which types a part's texts
 * are, and whether a text of one could fit the schema that the other one was made of. That is more
 * than the other's grammar lets through: members in any order, names that it does not know, values
 * of other types where the schema names none. So where it says apart, they are; where it does not,
 * they may be. Owns nothing.
 */
#ifndef ZIGCUDA_APART_H
#define ZIGCUDA_APART_H

#include "core/engine/grammar.h"

enum {
    TYPE_NULL = 1 << 0,
    TYPE_BOOLEAN = 1 << 1,
    TYPE_INTEGER = 1 << 2,
    TYPE_FRACTION = 1 << 3, /* number is both */
    TYPE_STRING = 1 << 4,
    TYPE_ARRAY = 1 << 5,
    TYPE_OBJECT = 1 << 6
};

u32 grammar_types(const struct grammar *g, u16 node);

/* Does no text of a fit the schema of b? looks: pairs that may still be looked at; with none left
 * it says no. */
bool grammar_apart(const struct grammar *g, u16 a, u16 b, u32 *looks);

#endif
