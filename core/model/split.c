#include "core/model/split.h"

#include "core/model/split_parts.h"
#include "core/model/unicode.h"

#define NO_MATCH SIZE_MAX

/* Where a match is: the step that is next, and the character that it looks at. */
struct point {
    const struct split_step *step;
    size_t at;
    u64 here;   /* classes of the character */
    size_t len; /* its bytes */
};

/* Where it may come back to: a choice takes its other way, a run gives a character back. */
struct frame {
    const struct split_step *step;
    bool run;
    size_t at;
    size_t from, least, most; /* where a run begins, and ends that it may have */
};

struct walk {
    const struct split *p;
    struct str s;
    struct split_scan *scan;
    struct frame *frames; /* [LIMIT_SPLIT_FRAMES] */
    u32 n;
    i64 steps;                     /* left of the budget */
    const struct split_step *step; /* where to go on, */
    size_t at;                     /* and from which byte */
};

/* A character: its classes and its bytes. */
struct seen {
    u64 here;
    size_t len;
};

static struct seen look_far(const struct split *p, const char *at)
{
    u32 cp, len = unicode_next(at, &cp), low = 0, n = p->zones_n;
    while (n > 1) { /* the last zone that begins at cp or before it */
        u32 half = n / 2;
        low += p->zones[low + half] <= cp ? half : 0;
        n -= half;
    }
    return (struct seen){p->of[(size_t)low * unicode_kind_count + unicode_kind_of(cp)], len};
}

static inline struct seen look(const struct split *p, struct str s, size_t at)
{
    if (at >= s.n)
        return (struct seen){SPLIT_END, 0};
    u8 c = (u8)s.p[at];
    return c < 0x80 ? (struct seen){p->ascii[c], 1} : look_far(p, s.p + at);
}

/* --- runs that came to nothing ---------------------------------------------------------------
 * What follows a run depends on its end alone. So where none of its ends helped, a run of the same
 * step that starts within it, and reaches the same last end, needs no second try. Without this a
 * blank that no line end follows would cost the square of a pattern like \s+$. */

enum { WORTH_KNOWING = 64 }; /* bytes of a run; shorter ones are tried again as quickly */

static bool known(const struct split_scan *scan, const struct split_step *step, size_t at)
{
    for (u32 i = 0; i < COUNTOF(scan->known); i++) {
        const struct split_known *k = &scan->known[i];
        if (k->step == step && at >= k->from && at < k->to)
            return true;
    }
    return false;
}

static void learn(struct split_scan *scan, const struct frame *f)
{
    if (f->step->max != UINT32_MAX || f->most - f->from < WORTH_KNOWING)
        return;
    scan->known[scan->known_n++ % COUNTOF(scan->known)] =
        (struct split_known){f->step, f->from, f->most};
    scan->known_end = MAX(scan->known_end, f->most);
}

/* --- matching ------------------------------------------------------------------------------- */

i64 split_steps(size_t text_bytes)
{
    return LIMIT_SPLIT_STEPS + 64 * (i64)text_bytes;
}

/* Where w is to go on. */
static inline struct point here(const struct walk *w)
{
    struct seen c = look(w->p, w->s, w->at);
    return (struct point){w->step, w->at, c.here, c.len};
}

static bool go(struct walk *w, const struct split_step *step, size_t at)
{
    w->step = step;
    w->at = at;
    return true;
}

/* Room for a frame to come back by, or NULL. */
static inline struct frame *push(struct walk *w, const struct split_step *step, size_t at)
{
    struct frame *f = &w->frames[w->n];
    if (w->n == LIMIT_SPLIT_FRAMES) {
        w->scan->budget->over = "LIMIT_SPLIT_FRAMES";
        return NULL;
    }
    f->step = step;
    f->at = at;
    w->n++;
    return f;
}

static bool push_run(struct walk *w, const struct split_step *s, size_t from, size_t least,
                     size_t most)
{
    struct frame *f = push(w, s, most);
    u32 cp;
    if (!f)
        return false;
    for (u32 i = 0; i < s->min && !s->possessive; i++)
        least += unicode_next(w->s.p + least, &cp);
    f->run = true;
    f->from = from;
    f->least = s->possessive ? most : least;
    f->most = most;
    return true;
}

/* A run gives back characters up to one with which the next step can begin. */
static bool give_back(struct walk *w, struct frame *f)
{
    const struct split_step *next = f->step + f->step->to;
    while (f->at > f->least) {
        f->at -= unicode_back(w->s.p + f->at);
        w->steps--;
        if (look(w->p, w->s, f->at).here & next->first)
            return go(w, next, f->at);
    }
    return false;
}

/* Goes where another way is left, by one of the frames from `base` on. */
static bool back(struct walk *w, u32 base)
{
    struct split_budget *budget = w->scan->budget;
    if (--w->steps < 0)
        budget->over = "LIMIT_SPLIT_STEPS";
    for (; w->n > base && !budget->over; w->n--) {
        struct frame *f = &w->frames[w->n - 1];
        if (!f->run) {
            w->n--;
            return go(w, f->step, f->at);
        }
        if (give_back(w, f))
            return true;
        learn(w->scan, f);
    }
    return false;
}

static inline bool run(struct walk *w, struct point *now)
{
    const struct split_step *s = now->step;
    const struct split *p = w->p;
    struct str text = w->s;
    size_t from = now->at, at = from;
    struct seen c = {now->here, now->len};
    u32 count = 0;
    now->step += s->to;
    if (!(c.here & (s->set | s->lead)))
        return s->min == 0;
    if (from < w->scan->known_end && known(w->scan, s, from))
        return false;
    if (c.here & s->lead)
        c = look(p, text, at += c.len);
    size_t least = at;
    for (; (c.here & s->set) && count < s->max; count++)
        c = look(p, text, at += c.len);
    w->steps -= (i64)(at - from);
    now->at = at;
    now->here = c.here;
    now->len = c.len;
    if (count <= s->min || (s->possessive && at - from < WORTH_KNOWING))
        return count >= s->min;
    return push_run(w, s, from, least, at);
}

/* Goes the way that is tried first, where it can begin here. Where the match is certain from here
 * on, what could be taken back before (from `base` on) never will be: loops need no more frames. */
static inline bool choose(struct walk *w, struct point *now, u32 base)
{
    const struct split_step *s = now->step;
    if (s->sure)
        w->n = base;
    const struct split_step *way = s + (s->jump ? s->to : 1), *other = s + (s->jump ? 1 : s->to);
    if (!(now->here & way->first)) {
        now->step = other;
        return true;
    }
    now->step = way;
    if (!(now->here & other->first))
        return true;
    struct frame *f = push(w, other, now->at);
    if (f)
        f->run = false;
    return f;
}

/* End of the match from where w is to go on, or NO_MATCH. */
static size_t match(struct walk *w);

/* Look-ahead, and what is not taken back: a match of its own. */
static bool inner(struct walk *w, const struct split_step *s, size_t at)
{
    u32 n = w->n;
    go(w, s + 1, at);
    size_t end = match(w);
    w->n = n;
    if (w->scan->budget->over || (end == NO_MATCH) != s->negated)
        return false;
    return go(w, s + s->to, s->op == SPLIT_AHEAD ? at : end);
}

/* The steps that are rare. */
static bool take(struct walk *w, const struct split_step *s, struct seen c, size_t at)
{
    bool ok = false;
    w->steps--;
    switch ((enum split_op)s->op) {
    case SPLIT_ONE:
        return (c.here & s->set) && go(w, s + 1, at + c.len);
    case SPLIT_AHEAD:
    case SPLIT_ATOM:
        return inner(w, s, at);
    case SPLIT_JUMP:
        return go(w, s + s->to, at);
    case SPLIT_PEEK:
        ok = ((c.here & s->set) != 0) != s->negated;
        break;
    case SPLIT_LINE_START:
        ok = at == 0 || (w->s.p[at - 1] == '\n' && at < w->s.n);
        break;
    case SPLIT_LINE_END:
        ok = at == w->s.n || w->s.p[at] == '\n';
        break;
    case SPLIT_RUN:
    case SPLIT_CHOICE:
    case SPLIT_MATCH:
        break;
    }
    return ok && go(w, s + 1, at);
}

static size_t match(struct walk *w)
{
    u32 base = w->n;
    for (struct point now = here(w);;) {
        const struct split_step *s = now.step;
        if (s->op == SPLIT_MATCH)
            return now.at;
        if (s->op == SPLIT_RUN ? run(w, &now) : s->op == SPLIT_CHOICE && choose(w, &now, base))
            continue;
        bool rare = s->op != SPLIT_RUN && s->op != SPLIT_CHOICE;
        if (!(rare && take(w, s, (struct seen){now.here, now.len}, now.at)) && !back(w, base))
            return NO_MATCH;
        now = here(w);
    }
}

bool split_next(const struct split *p, struct str s, size_t from, struct split_scan *scan,
                size_t *start, size_t *end)
{
    struct frame frames[LIMIT_SPLIT_FRAMES];
    struct split_budget *budget = scan->budget;
    struct walk w = {.p = p, .s = s, .scan = scan, .frames = frames, .steps = budget->steps};
    bool found = false;
    for (size_t at = from; !found && !budget->over;) {
        struct seen c = look(p, s, at);
        go(&w, p->steps + (at < s.n && s.p[at] >= 0 ? p->start[(u8)s.p[at]] : 0), at);
        if (c.here & w.step->first) {
            w.n = 0;
            *start = at;
            *end = match(&w);
            found = *end != NO_MATCH && *end > from && !budget->over;
        }
        if (at == s.n)
            break;
        at += c.len;
    }
    budget->steps = w.steps;
    return found;
}
