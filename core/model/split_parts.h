/* What a compiled split pattern consists of; between split.c, split_compile.c and split_class.c.
 * Every different class of a pattern, a single character too, has a number, and one look-up tells
 * of a character which classes it is in. For that the code points are cut into zones at the ends
 * of all ranges in the pattern: within a zone only the kind (unicode.h) makes a difference.
 */
#ifndef ZIGCUDA_SPLIT_PARTS_H
#define ZIGCUDA_SPLIT_PARTS_H

#include "config/limits.h"
#include "core/model/split.h"

enum split_op {
    SPLIT_ONE,    /* a character of set */
    SPLIT_RUN,    /* min to max of them, and one of `lead` before them where there is one */
    SPLIT_PEEK,   /* one lies ahead, or not */
    SPLIT_AHEAD,  /* the steps behind this match, or not; then on at `to` */
    SPLIT_ATOM,   /* the steps behind this, taken as they matched first; then on at `to` */
    SPLIT_CHOICE, /* the next step, or else the one at `to`; jump: the other way round */
    SPLIT_JUMP,
    SPLIT_LINE_START,
    SPLIT_LINE_END,
    SPLIT_MATCH,
};

struct split_step {
    u8 op;
    bool negated : 1, jump : 1;
    bool possessive : 1; /* giving back cannot help, or must not */
    bool sure : 1;       /* from here on all texts match */
    i32 to;              /* from this step */
    u32 min, max;
    u64 set, lead; /* classes, a bit each */
    u64 first;     /* what this and the steps behind it may begin with */
};

#define SPLIT_CHARACTER ((u64)1 << LIMIT_SPLIT_CLASSES) /* the class of all of them, */
#define SPLIT_END (SPLIT_CHARACTER << 1)                /* and of the text's end */
#define SPLIT_ANY UINT64_MAX

struct split {
    u64 ascii[128]; /* the classes of these characters */
    u16 start[128]; /* the first alternative that can begin with this one */
    const u64 *of;  /* [zones_n][unicode_kind_count]: of the others */
    const u32 *zones;
    u32 zones_n;
    u32 n;
    struct split_step steps[];
};

/* --- reading a pattern ---------------------------------------------------------------------- */

struct split_reader {
    struct str s;
    size_t at;
    bool folded;       /* within (?i:..) */
    u32 depth;         /* of brackets and groups */
    u32 brackets;      /* of these alone */
    const char *fault; /* the first one; reading is at the end then */
    size_t fault_at;
    u32 zones[LIMIT_SPLIT_ZONES]; /* where one begins, in order */
    u32 zones_n;
};

/* Notes what is wrong with what begins at byte `at`. */
void split_fault(struct split_reader *r, size_t at, const char *what);

static inline bool split_more(const struct split_reader *r)
{
    return r->at < r->s.n;
}

/* Is c next? Then reads it. */
static inline bool split_eat(struct split_reader *r, char c)
{
    bool is = split_more(r) && r->s.p[r->at] == c;
    r->at += is;
    return is;
}

/* A set of kinds. */
struct split_kinds {
    u64 w[4];
};

/* Reads a character, an escape or [..]; the kinds in it among the characters of the zone that
 * begins at cp. Zones that it needs are added. */
struct split_kinds split_class(struct split_reader *r, u32 cp);

#endif
