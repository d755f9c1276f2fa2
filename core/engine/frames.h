/* What the frames of the machine stand for: inside of core/engine/grammar and core/engine/foresee
 * only.
 */
#ifndef ZIGCUDA_FRAMES_H
#define ZIGCUDA_FRAMES_H

#include "core/engine/grammar.h"

/* A frame of the first kind has not begun yet: its node says what will be. One of the second is
 * what comes before the text. */
enum { VALUE = 100, THOUGHT };

enum object_phase { /* a: the first member that may come; b, c: in a key: a member like it, bytes */
                    OBJECT_OPEN,
                    OBJECT_KEY,
                    OBJECT_COLON,
                    OBJECT_NEXT,
                    OBJECT_COMMA
};
enum call_phase { /* b, c: as in a key; c: bytes of what closes */
                  CALL_OPEN,
                  CALL_CLOSE,
                  CALL_NAMED = 10 /* blanks have come behind a name: a tag follows */
};
enum thought_phase { /* c: bytes of a mark */
                     THOUGHT_OPEN,
                     THINKING,
                     THOUGHT_CLOSES, /* and nothing else may come */
                     THOUGHT_OVER
};
enum tag_phase { /* a: the first member that may come; b: as in a key, or the value; c: bytes of
                    what comes, or of what ends a text */
                 TAG_NEXT = 20,
                 TAG_KEY,
                 TAG_NAME, /* any */
                 TAG_BEGIN,
                 TAG_VALUE, /* a literal that is no JSON */
                 TAG_TEXT,
                 TAG_CLOSE
};
enum array_phase { ARRAY_OPEN, ARRAY_NEXT }; /* a: items so far, as far as they count */

static inline struct str key_of(const struct grammar *g, const struct grammar_node *n, u32 i)
{
    struct grammar_piece key = g->members[n->first + i].key;
    return (struct str){g->bytes + key.at, key.n};
}

/* Behind the members that may come next, of which only the last has to. */
static inline u32 members_end(const struct grammar *g, const struct grammar_node *n, u32 from)
{
    while (from < n->n && !g->members[n->first + from].required)
        from++;
    return MIN(from + 1, (u32)n->n);
}

static inline bool may_close(const struct grammar *g, const struct grammar_node *n, u32 from)
{
    while (from < n->n && !g->members[n->first + from].required)
        from++;
    return from == n->n;
}

static inline struct str text_of(const struct grammar *g, u32 i)
{
    return (struct str){g->bytes + g->texts[i].at, g->texts[i].n};
}

#endif
