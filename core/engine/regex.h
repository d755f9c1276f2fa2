/* Patterns of strings (JSON Schema's `pattern`: ECMA-262) as tables: of each state and each class
 * of characters the next state. A text fits where it leads to a state of which `least` is 0. States
 * from which no text fits are not entered, so whatever has begun can be finished.
 *
 * Literals, classes, \d \w \s, groups, alternatives, counts, ^ and $; neither looking around nor
 * references to groups. As the specification has it a pattern may match anywhere in the text where
 * it is not anchored. Ceilings: LIMIT_REGEX_* in config/limits.h; making the tables takes at most
 * as many steps as there are cells times steps of the program. Owns nothing; one at a time is made.
 */
#ifndef ZIGCUDA_REGEX_H
#define ZIGCUDA_REGEX_H

#include "config/limits.h"
#include "core/base/base.h"

enum { REGEX_DEAD = 0xffff, REGEX_ENDLESS = 0xffff };

struct regex {         /* where its parts begin */
    struct str source; /* while a schema is compiled */
    u16 state, cell, zone, n_zones, n_classes;
};

struct regex_state { /* how many characters may follow until the text fits */
    u16 least, most;
};

/* All patterns of one schema. State 0 of each is the first. */
struct regex_tables {
    u16 n, n_states, n_cells, n_zones;
    struct regex of[LIMIT_REGEX_PATTERNS];
    struct regex_state states[LIMIT_REGEX_STATES];
    u16 cells[LIMIT_REGEX_CELLS]; /* [states][classes] of a pattern: the next state */
    u32 zones[LIMIT_REGEX_ZONES]; /* code points: where one begins << 8 | its class */
};

struct regex_fault { /* what: not supported at byte `at`; or there are more of it than limit */
    const char *what;
    size_t at;
    u32 limit;
};

/* The number of the pattern, which may have been there; `source` has to stay while others are
 * added. False: the fault. */
MUST bool regex_add(struct regex_tables *t, struct str source, u16 *number,
                    struct regex_fault *fault);

/* How many characters a text may have: what a state must leave room for. */
struct regex_room {
    u32 most, least; /* that may follow, and that have to */
};

struct regex_state regex_state_of(const struct regex_tables *t, u16 number, u16 state);
/* The state behind a character, or REGEX_DEAD. */
u16 regex_next(const struct regex_tables *t, u16 number, u16 state, u32 cp);
/* May one of these characters come, with that room behind it? */
bool regex_any(const struct regex_tables *t, u16 number, u16 state, u32 low, u32 high,
               struct regex_room room);
bool regex_fits(struct regex_state s, struct regex_room room);

/* One pattern, to be read by many texts. */
struct regex_reader {
    const struct regex_tables *t;
    u16 number, n_classes;
    const u16 *cells;
    u8 ascii[128]; /* the classes of these characters */
};

void regex_open(struct regex_reader *r, const struct regex_tables *t, u16 number);
/* The state behind whole characters, or REGEX_DEAD. */
u16 regex_read_text(const struct regex_reader *r, u16 state, struct str text);

#endif
