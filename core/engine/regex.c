#include "core/engine/regex.h"

#include "core/base/utf8.h"
#include "core/engine/regex_code.h"

enum { WORDS = LIMIT_REGEX_CODE / 64, SLOTS = 2 * LIMIT_REGEX_STATES };

/* A state is a set of steps of the program: of those that wait for a character or for the end. */
struct steps {
    u64 w[WORDS];
};

static struct maker {
    struct regex_program program;
    struct steps states[LIMIT_REGEX_STATES];
    u16 slots[SLOTS];                 /* by what a state is made of: its number + 1 */
    u64 in[LIMIT_REGEX_ZONES];        /* the sets that the characters of a zone are in */
    u64 classes[LIMIT_REGEX_CLASSES]; /* and those of a class */
    struct regex_tables *t;
    struct regex *r;
    struct regex_fault *fault;
    u32 n;         /* states */
    bool anchored; /* no match begins behind the first character */
} maker;

static bool too_many(struct maker *m, const char *what, u32 limit)
{
    *m->fault = (struct regex_fault){.what = what, .limit = limit};
    return false;
}

/* --- classes ---------------------------------------------------------------------------------- */

static bool add_zone(struct maker *m, u32 from)
{
    u32 *zones = m->t->zones + m->r->zone, i = m->r->n_zones;
    while (i && zones[i - 1] > from)
        i--;
    if (from > 0x10ffff || (i && zones[i - 1] == from))
        return true;
    if (m->r->zone + m->r->n_zones == LIMIT_REGEX_ZONES)
        return too_many(m, "spans of characters", LIMIT_REGEX_ZONES);
    memmove(zones + i + 1, zones + i, (m->r->n_zones - i) * sizeof *zones);
    zones[i] = from;
    m->r->n_zones++;
    return true;
}

/* Characters between two ends of spans are in the same sets; zones in the same sets are a class. */
static bool make_zones(struct maker *m)
{
    const struct regex_program *p = &m->program;
    bool room = add_zone(m, 0);
    for (u32 i = 0; room && i < p->n_spans; i++)
        room = add_zone(m, p->spans[i].low) && add_zone(m, p->spans[i].high + 1);
    if (!room)
        return false;
    u32 *zones = m->t->zones + m->r->zone, n = 0;
    for (u32 z = 0; z < m->r->n_zones; z++) {
        u32 kind = 0;
        m->in[z] = 0;
        for (u32 i = 0; i < p->n_sets; i++)
            for (u32 k = 0; k < p->sets[i].n; k++) {
                const struct regex_span *s = &p->spans[p->sets[i].first + k];
                m->in[z] |= (u64)(s->low <= zones[z] && zones[z] <= s->high) << i;
            }
        while (kind < n && m->classes[kind] != m->in[z])
            kind++;
        if (kind == n && n == LIMIT_REGEX_CLASSES)
            return too_many(m, "classes of characters", LIMIT_REGEX_CLASSES);
        n += kind == n;
        m->classes[kind] = m->in[z];
        zones[z] = zones[z] << 8 | kind;
    }
    m->r->n_classes = (u16)n;
    return true;
}

/* --- states ----------------------------------------------------------------------------------- */

static bool has(const struct steps *s, u32 i)
{
    return s->w[i / 64] >> i % 64 & 1;
}

static void mark(struct steps *s, u32 i)
{
    s->w[i / 64] |= (u64)1 << i % 64;
}

/* What can be reached from a step without a character; `seen` are those that were. */
static void reach(const struct maker *m, u32 from, bool start, bool end, struct steps *seen)
{
    u16 stack[LIMIT_REGEX_CODE];
    u32 n = 0;
    if (has(seen, from))
        return;
    mark(seen, from);
    stack[n++] = (u16)from;
    while (n) {
        u32 at = stack[--n];
        const struct regex_code *c = &m->program.code[at];
        u32 to[2] = {at + 1, (u32)((i32)at + c->to)};
        bool jumps = c->op == REGEX_SPLIT || c->op == REGEX_JUMP;
        bool goes =
            c->op == REGEX_SPLIT || (c->op == REGEX_START && start) || (c->op == REGEX_END && end);
        for (u32 i = !goes; i < 1u + jumps; i++)
            if (!has(seen, to[i])) {
                mark(seen, to[i]);
                stack[n++] = (u16)to[i];
            }
    }
}

/* Only what waits: so that states that mean the same are the same. Where the pattern has matched
 * nothing else matters. */
static void reduce(const struct maker *m, struct steps *s)
{
    u32 match = m->program.n - 1;
    bool matched = has(s, match);
    for (u32 i = 0; i < m->program.n; i++) {
        u8 op = m->program.code[i].op;
        if (matched ? i != match : op != REGEX_SET && op != REGEX_END)
            s->w[i / 64] &= ~((u64)1 << i % 64);
    }
}

/* The number of a state, which may be new. */
static bool state_of(struct maker *m, const struct steps *s, u16 *number)
{
    u64 hash = 0;
    for (u32 i = 0; i < WORDS; i++)
        hash = (hash ^ s->w[i]) * 0x9e3779b97f4a7c15u;
    u32 slot = (u32)(hash >> 40) % SLOTS;
    for (; m->slots[slot]; slot = (slot + 1) % SLOTS)
        if (memcmp(&m->states[m->slots[slot] - 1], s, sizeof *s) == 0) {
            *number = (u16)(m->slots[slot] - 1);
            return true;
        }
    if (m->r->state + m->n == LIMIT_REGEX_STATES)
        return too_many(m, "states", LIMIT_REGEX_STATES);
    if (m->r->cell + (m->n + 1) * m->r->n_classes > LIMIT_REGEX_CELLS)
        return too_many(m, "states and classes of characters", LIMIT_REGEX_CELLS);
    *number = (u16)m->n++;
    m->states[*number] = *s;
    m->slots[slot] = (u16)(*number + 1);
    return true;
}

static bool make_cell(struct maker *m, const struct steps *from, u32 kind, u16 *cell)
{
    struct steps to = {0};
    u32 match = m->program.n - 1;
    if (has(from, match))
        mark(&to, match);
    for (u32 w = 0; w < WORDS; w++)
        for (u64 left = from->w[w]; left; left &= left - 1) {
            u32 i = w * 64 + (u32)__builtin_ctzll(left);
            const struct regex_code *c = &m->program.code[i];
            if (c->op == REGEX_SET && m->classes[kind] >> c->set & 1)
                reach(m, i + 1, false, false, &to);
        }
    if (!m->anchored)
        reach(m, 0, false, false, &to);
    reduce(m, &to);
    return state_of(m, &to, cell);
}

/* Does a text fit that ends here? */
static bool accepts(const struct maker *m, u32 state)
{
    struct steps at_end = {0};
    u32 match = m->program.n - 1;
    if (state == 0)
        reach(m, 0, true, true, &at_end);
    for (u32 i = 0; i < match; i++)
        if (has(&m->states[state], i) && m->program.code[i].op == REGEX_END)
            reach(m, i, false, true, &at_end);
    return has(&m->states[state], match) || has(&at_end, match);
}

static bool make_states(struct maker *m)
{
    struct steps first = {0}, later = {0};
    u16 number;
    memset(m->slots, 0, sizeof m->slots);
    m->n = 0;
    reach(m, 0, false, false, &later);
    reduce(m, &later);
    m->anchored = memcmp(&later, &(struct steps){0}, sizeof later) == 0;
    reach(m, 0, true, false, &first);
    reduce(m, &first);
    /* The first one is not looked up later: it alone is where the text begins. */
    if (!state_of(m, &first, &number))
        return false;
    memset(m->slots, 0, sizeof m->slots);
    for (u32 s = 0; s < m->n; s++) {
        u16 *cells = m->t->cells + m->r->cell + s * m->r->n_classes;
        for (u32 kind = 0; kind < m->r->n_classes; kind++)
            if (!make_cell(m, &m->states[s], kind, &cells[kind]))
                return false;
    }
    return true;
}

/* --- how far it is to an end -------------------------------------------------------------------
 */

static struct regex_state measured(const struct maker *m, u32 s)
{
    const struct regex_state *all = m->t->states + m->r->state;
    const u16 *cells = m->t->cells + m->r->cell + s * m->r->n_classes;
    struct regex_state here = all[s];
    for (u32 i = 0; i < m->r->n_classes; i++) {
        const struct regex_state *to = &all[cells[i]];
        if (to->least == REGEX_DEAD)
            continue;
        here.least = (u16)MIN(here.least, to->least + 1u);
        here.most = (u16)MAX(here.most, MIN(to->most + 1u, REGEX_ENDLESS));
    }
    if (here.most > m->n) /* it comes by a state again */
        here.most = REGEX_ENDLESS;
    return here;
}

/* Until nothing changes: each state takes from those that follow it, the last ones first. */
static void measure(struct maker *m)
{
    struct regex_state *all = m->t->states + m->r->state;
    bool changed = true;
    for (u32 s = 0; s < m->n; s++)
        all[s] = (struct regex_state){.least = accepts(m, s) ? 0 : REGEX_DEAD};
    while (changed) {
        changed = false;
        for (u32 s = m->n; s-- > 0;) {
            struct regex_state now = measured(m, s);
            changed = changed || memcmp(&now, &all[s], sizeof now) != 0;
            all[s] = now;
        }
    }
    u16 *cells = m->t->cells + m->r->cell;
    for (u32 i = 0; i < m->n * m->r->n_classes; i++)
        if (all[cells[i]].least == REGEX_DEAD)
            cells[i] = REGEX_DEAD;
}

/* --- patterns --------------------------------------------------------------------------------- */

bool regex_add(struct regex_tables *t, struct str source, u16 *number, struct regex_fault *fault)
{
    struct maker *m = &maker;
    for (u16 i = 0; i < t->n; i++)
        if (str_eq(t->of[i].source, source)) {
            *number = i;
            return true;
        }
    m->t = t;
    m->fault = fault;
    if (t->n == LIMIT_REGEX_PATTERNS)
        return too_many(m, "different patterns", LIMIT_REGEX_PATTERNS);
    m->r = &t->of[t->n];
    *m->r = (struct regex){
        .source = source, .state = t->n_states, .cell = t->n_cells, .zone = t->n_zones};
    if (!regex_read(&m->program, source)) {
        *fault = (struct regex_fault){m->program.fault, m->program.fault_at, m->program.limit};
        return false;
    }
    if (!make_zones(m) || !make_states(m))
        return false;
    measure(m);
    if (t->states[m->r->state].least == REGEX_DEAD) {
        *fault = (struct regex_fault){.what = "no text matches it"};
        return false;
    }
    *number = t->n++;
    t->n_states += (u16)m->n;
    t->n_cells += (u16)(m->n * m->r->n_classes);
    t->n_zones += m->r->n_zones;
    return true;
}

/* --- texts ------------------------------------------------------------------------------------ */

struct regex_state regex_state_of(const struct regex_tables *t, u16 number, u16 state)
{
    return t->states[t->of[number].state + state];
}

/* The zone of a character. */
static u32 zone_of(const struct regex_tables *t, const struct regex *r, u32 cp)
{
    const u32 *zones = t->zones + r->zone;
    u32 low = 0, high = r->n_zones;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (zones[middle] >> 8 <= cp)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static u16 behind(const struct regex_tables *t, const struct regex *r, u16 state, u32 zone)
{
    u32 kind = t->zones[r->zone + zone] & 0xff;
    return t->cells[r->cell + state * r->n_classes + kind];
}

u16 regex_next(const struct regex_tables *t, u16 number, u16 state, u32 cp)
{
    const struct regex *r = &t->of[number];
    return behind(t, r, state, zone_of(t, r, cp));
}

bool regex_fits(struct regex_state s, struct regex_room room)
{
    return s.least <= room.most && (s.most == REGEX_ENDLESS || s.most >= room.least);
}

bool regex_any(const struct regex_tables *t, u16 number, u16 state, u32 low, u32 high,
               struct regex_room room)
{
    const struct regex *r = &t->of[number];
    for (u32 z = zone_of(t, r, low); z < r->n_zones && t->zones[r->zone + z] >> 8 <= high; z++) {
        u16 to = behind(t, r, state, z);
        if (to != REGEX_DEAD && regex_fits(t->states[r->state + to], room))
            return true;
    }
    return false;
}

void regex_open(struct regex_reader *r, const struct regex_tables *t, u16 number)
{
    const struct regex *of = &t->of[number];
    *r = (struct regex_reader){
        .t = t, .number = number, .n_classes = of->n_classes, .cells = t->cells + of->cell};
    for (u32 c = 0; c < COUNTOF(r->ascii); c++)
        r->ascii[c] = (u8)t->zones[of->zone + zone_of(t, of, c)];
}

u16 regex_read_text(const struct regex_reader *r, u16 state, struct str text)
{
    for (size_t i = 0; i < text.n && state != REGEX_DEAD;) {
        u32 cp = (u8)text.p[i], n = 1;
        if (cp < COUNTOF(r->ascii)) {
            state = r->cells[state * r->n_classes + r->ascii[cp]];
        } else {
            n = utf8_decode(text.p + i, text.n - i, &cp);
            state = n ? regex_next(r->t, r->number, state, cp) : REGEX_DEAD;
        }
        i += n;
    }
    return state;
}
