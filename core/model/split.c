#include "core/model/split_parts.h"
#include "core/model/unicode.h"

#define NO_MATCH SIZE_MAX

/* Where a match may come back to: a choice takes its other way, a run gives a character back. */
struct frame {
    u32 step;
    bool run;
    size_t at;
    size_t least, most; /* ends that a run may have */
};

/* A match on its way. */
struct walk {
    const struct split *p;
    struct str s;
    struct split_scan *scan;
    struct frame *frames; /* [LIMIT_SPLIT_FRAMES] */
    u32 base, n;          /* those from base on are of this match, the others of one around it */
    u32 step, len;        /* the step that is next; the length of the character at `at` */
    size_t at;
    u64 here; /* classes of that character */
};

/* The classes of the character at `at`, whose length goes to *len. */
static inline u64 look(const struct split *p, struct str s, size_t at, u32 *len)
{
    u32 cp, low = 0, n = p->zones_n;
    *len = 0;
    if (at >= s.n)
        return SPLIT_END;
    *len = unicode_next(s.p + at, &cp);
    if (cp < 0x80)
        return p->ascii[cp];
    while (n > 1) { /* the last zone that begins at cp or before it */
        u32 half = n / 2;
        low += p->zones[low + half] <= cp ? half : 0;
        n -= half;
    }
    return p->of[(size_t)low * unicode_kind_count + unicode_kind_of(cp)];
}

/* --- runs that came to nothing ---------------------------------------------------------------
 * What follows a run depends on its end alone. So where none of its ends helped, a run of the same
 * step that starts within it, and reaches the same last end, needs no second try. Without this a
 * blank that no line end follows would cost the square of a pattern like \s+$. */

enum { WORTH_KNOWING = 64 }; /* bytes of a run; shorter ones are tried again as quickly */

static bool known(const struct split_scan *scan, u32 step, size_t at)
{
    for (u32 i = 0; i < MIN(scan->known, (u32)COUNTOF(scan->known_at)); i++) {
        const struct split_known *k = &scan->known_at[i];
        if (k->step == step && at >= k->from && at < k->to)
            return true;
    }
    return false;
}

static void learn(struct walk *w, const struct frame *f)
{
    struct split_scan *scan = w->scan;
    if (w->p->steps[f->step].max == UINT32_MAX && f->most - f->least >= WORTH_KNOWING)
        scan->known_at[scan->known++ % COUNTOF(scan->known_at)] =
            (struct split_known){f->step, f->least, f->most};
}

/* --- matching ------------------------------------------------------------------------------- */

i64 split_steps(size_t text_bytes)
{
    return LIMIT_SPLIT_STEPS + 64 * (i64)text_bytes;
}

static inline void go(struct walk *w, u32 step, size_t at)
{
    w->step = step;
    w->at = at;
    w->here = look(w->p, w->s, at, &w->len);
}

static bool push(struct walk *w, struct frame f)
{
    if (w->n == LIMIT_SPLIT_FRAMES) {
        w->scan->budget->over = "LIMIT_SPLIT_FRAMES";
        return false;
    }
    w->frames[w->n++] = f;
    return true;
}

/* A run gives back characters up to one behind which the next step can begin. */
static bool give_back(struct walk *w, struct frame *f)
{
    u32 len;
    while (f->at > f->least) {
        f->at -= unicode_back(w->s.p + f->at);
        w->scan->budget->steps--;
        w->here = look(w->p, w->s, f->at, &len);
        if (w->here & w->p->steps[f->step + 1].first)
            return true;
    }
    return false;
}

/* Goes where another way is left; false when there is none. */
static bool back(struct walk *w)
{
    struct split_budget *budget = w->scan->budget;
    for (; w->n > w->base && !budget->over; w->n--) {
        struct frame *f = &w->frames[w->n - 1];
        if (--budget->steps < 0)
            budget->over = "LIMIT_SPLIT_STEPS";
        if (!f->run) {
            w->n--;
            go(w, f->step, f->at);
            return true;
        }
        if (give_back(w, f)) {
            go(w, f->step + 1, f->at);
            return true;
        }
        learn(w, f);
    }
    return false;
}

static inline bool run(struct walk *w, const struct split_step *s)
{
    size_t from = w->at, least = from;
    u32 count = 0, cp;
    if (w->scan->known && known(w->scan, w->step, from))
        return false;
    for (; (w->here & s->set) && count < s->max; count++)
        go(w, w->step, w->at + w->len);
    w->scan->budget->steps -= (i64)(w->at - from);
    if (count <= s->min || s->possessive)
        return count >= s->min;
    for (u32 i = 0; i < s->min; i++)
        least += unicode_next(w->s.p + least, &cp);
    return push(w, (struct frame){w->step, true, w->at, least, w->at});
}

/* The step before the one that is chosen, which is tried first where it can begin here. */
static inline bool choose(struct walk *w, const struct split_step *s)
{
    const struct split_step *way = s + (s->jump ? s->to : 1), *other = s + (s->jump ? 1 : s->to);
    if (!(w->here & way->first))
        way = other;
    else if ((w->here & other->first) &&
             !push(w, (struct frame){(u32)(other - w->p->steps), false, w->at, 0, 0}))
        return false;
    w->step = (u32)(way - w->p->steps) - 1;
    return true;
}

static size_t match(const struct walk *around, u32 step);

/* Look-ahead, and what is not taken back: a match of its own. */
static bool inner(struct walk *w, const struct split_step *s)
{
    size_t end = match(w, w->step + 1);
    w->step += (u32)s->to - 1;
    if (w->scan->budget->over)
        return false;
    if (s->op == SPLIT_AHEAD)
        return (end == NO_MATCH) == s->negated;
    if (end != NO_MATCH)
        go(w, w->step, end);
    return end != NO_MATCH;
}

/* End of the match of the steps from `step` on where `around` is, or NO_MATCH. */
static size_t match(const struct walk *around, u32 step)
{
    struct walk w = *around;
    w.base = w.n;
    w.step = step;
    for (;;) {
        const struct split_step *s = &w.p->steps[w.step];
        bool ok = true;
        switch ((enum split_op)s->op) {
        case SPLIT_ONE:
            if ((ok = w.here & s->set))
                go(&w, w.step, w.at + w.len);
            break;
        case SPLIT_RUN:
            ok = run(&w, s);
            break;
        case SPLIT_PEEK:
            ok = !(w.here & s->set) == s->negated;
            break;
        case SPLIT_AHEAD:
        case SPLIT_ATOM:
            ok = inner(&w, s);
            break;
        case SPLIT_CHOICE:
            ok = choose(&w, s);
            break;
        case SPLIT_JUMP:
            w.step += (u32)s->to - 1;
            break;
        case SPLIT_LINE_START:
            ok = w.at == 0 || (w.s.p[w.at - 1] == '\n' && w.at < w.s.n);
            break;
        case SPLIT_LINE_END:
            ok = w.at == w.s.n || w.s.p[w.at] == '\n';
            break;
        case SPLIT_MATCH:
            return w.at;
        }
        if (ok)
            w.step++;
        else if (!back(&w))
            return NO_MATCH;
    }
}

bool split_next(const struct split *p, struct str s, size_t from, struct split_scan *scan,
                size_t *start, size_t *end)
{
    struct frame frames[LIMIT_SPLIT_FRAMES];
    struct walk w = {.p = p, .s = s, .scan = scan, .frames = frames};
    for (go(&w, 0, from);; go(&w, 0, w.at + w.len)) {
        if (w.here & p->steps[0].first) {
            *start = w.at;
            *end = match(&w, 0);
            if (scan->budget->over)
                return false;
            if (*end != NO_MATCH && *end > from)
                return true;
        }
        if (w.at == s.n)
            return false;
    }
}
