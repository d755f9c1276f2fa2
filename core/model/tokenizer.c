#include "core/model/tokenizer.h"

#include "core/base/utf8.h"
#include "core/model/nfc.h"
#include "core/model/tokenizer_parts.h"
#include "core/model/unicode.h"

/* A text on its way: added tokens cut it, the normalizers rewrite the pieces between, the
 * pre-tokenizers cut those, and each word goes through BPE. Every stage hands its pieces to the
 * next by a call, so nothing is listed; memory is a stack over the caller's work span. */
struct encoder {
    const struct tokenizer *t;
    bool specials_are_text;
    u8 *work;
    size_t used, cap;
    u32 *ids;
    u32 ids_cap;
    size_t n; /* may pass ids_cap: then nothing more is written */
    struct split_budget budget;
};

static void *take(struct encoder *x, size_t bytes)
{
    void *p = x->work + x->used;
    x->used += ROUND_UP(bytes, (size_t)16);
    ASSERT(x->used <= x->cap); /* tokenizer_work_bytes is wrong */
    return p;
}

static void emit(struct encoder *x, u32 id)
{
    if (x->n < x->ids_cap)
        x->ids[x->n] = id;
    x->n++;
}

/* --- normalizers ---------------------------------------------------------------------------- */

static size_t growth_of(struct str pattern, struct str content)
{
    return pattern.n < content.n ? CEIL_DIV(content.n, pattern.n) : 1;
}

/* Most bytes a step makes of n. */
static size_t normal_bound(const struct normal_step *s, size_t n)
{
    switch (s->kind) {
    case NORMAL_NFC:
        return n * NFC_GROWTH;
    case NORMAL_PREPEND:
        return n + s->content.n;
    case NORMAL_REPLACE:
        return n * growth_of(s->pattern, s->content);
    }
    return n;
}

size_t tokenizer_normal_bytes(const struct tokenizer *t, size_t n, size_t *result_bytes)
{
    size_t total = 0;
    for (u32 i = 0; i < t->normal_n; i++) {
        if (t->normal[i].kind == NORMAL_NFC)
            total += n * NFC_WORK_WORDS * sizeof(u32) + 16;
        n = normal_bound(&t->normal[i], n);
        total += n + 16;
    }
    *result_bytes = n;
    return total;
}

static size_t replace(struct str s, struct str pattern, struct str content, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        if (s.n - i >= pattern.n && memcmp(s.p + i, pattern.p, pattern.n) == 0) {
            memcpy(out + n, content.p, content.n);
            n += content.n;
            i += pattern.n;
        } else {
            out[n++] = s.p[i++];
        }
    }
    return n;
}

struct str tokenizer_normalize(const struct tokenizer *t, struct str s, u8 *work, size_t *used)
{
    for (u32 i = 0; i < t->normal_n && s.n; i++) {
        const struct normal_step *step = &t->normal[i];
        char *out = (char *)work + *used;
        size_t n = 0, more = 0;
        if (step->kind == NORMAL_NFC) {
            if (nfc_is_plain(s))
                continue;
            more = s.n * NFC_WORK_WORDS * sizeof(u32);
            n = nfc_normalize(s, out + ROUND_UP(more, (size_t)16), (u32 *)(void *)out);
            memmove(out, out + ROUND_UP(more, (size_t)16), n);
        } else if (step->kind == NORMAL_PREPEND) {
            memcpy(out, step->content.p, step->content.n);
            memcpy(out + step->content.n, s.p, s.n);
            n = step->content.n + s.n;
        } else {
            n = replace(s, step->pattern, step->content, out);
        }
        *used += ROUND_UP(n, (size_t)16);
        s = (struct str){out, n};
    }
    return s;
}

/* --- words ---------------------------------------------------------------------------------- */

static void encode_word(struct encoder *x, struct str word, size_t chars)
{
    size_t mark = x->used, room = x->n < x->ids_cap ? x->ids_cap - x->n : 0;
    size_t symbols = bpe_symbols_max(&x->t->bpe, word.n, chars);
    void *work = take(x, bpe_work_bytes(symbols));
    x->n += bpe_encode(&x->t->bpe, word, work, x->ids + MIN(x->n, x->ids_cap), room);
    x->used = mark;
}

/* The bytes 21-7E, A1-AC and AE-FF stand for themselves, the other 68 for U+0100 onwards
 * (GPT-2's bytes_to_unicode). */
u32 byte_char(u8 b)
{
    if (b < 0x21)
        return 0x100u + b;
    if (b >= 0x7f && b <= 0xa0)
        return 0x121u + (b - 0x7fu);
    return b == 0xad ? 0x143u : b;
}

int char_byte(u32 cp)
{
    if (cp >= 0x100 && cp <= 0x120)
        return (int)(cp - 0x100);
    if (cp >= 0x121 && cp <= 0x142)
        return (int)(cp - 0x121 + 0x7f);
    if (cp == 0x143)
        return 0xad;
    bool own = (cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xff);
    return own && cp != 0xad ? (int)cp : -1;
}

static void pre_tokenize(struct encoder *x, struct str s, u32 step, bool first);

/* A piece in the alphabet of bytes. */
static void bytes_piece(struct encoder *x, struct str s, u32 step, bool first)
{
    size_t mark = x->used, n = 0;
    char *out = take(x, 2 * s.n);
    for (size_t i = 0; i < s.n; i++) {
        u32 cp = byte_char((u8)s.p[i]);
        if (cp < 0x80) {
            out[n++] = (char)cp;
        } else {
            out[n++] = (char)(0xc0 | cp >> 6);
            out[n++] = (char)(0x80 | (cp & 0x3f));
        }
    }
    if (step + 1 == x->t->pre_n)
        encode_word(x, (struct str){out, n}, s.n);
    else
        pre_tokenize(x, (struct str){out, n}, step + 1, first);
    x->used = mark;
}

/* --- splits --------------------------------------------------------------------------------- */

typedef void piece_fn(struct encoder *x, struct str s, u32 step, bool first);

/* A text that a split cuts: matches and what lies between them, each joined to those before it or
 * handed on. */
struct cutting {
    struct encoder *x;
    struct str s;
    u32 step;
    bool first, match; /* is what waits one? */
    size_t from, to;   /* what waits */
    piece_fn *piece;
};

static bool joins(enum behavior behavior, bool before, bool match)
{
    switch (behavior) {
    case ISOLATED:
    case REMOVED:
        return false;
    case CONTIGUOUS:
        return before == match;
    case MERGED_WITH_PREVIOUS:
        return match && !before;
    case MERGED_WITH_NEXT:
        return before && !match;
    }
    return false;
}

static void hand_on(struct cutting *c)
{
    bool gone = c->match && c->x->t->pre[c->step].behavior == REMOVED;
    if (c->from < c->to && !gone)
        c->piece(c->x, (struct str){c->s.p + c->from, c->to - c->from}, c->step,
                 c->first && c->from == 0);
}

static void next_span(struct cutting *c, size_t from, size_t to, bool match)
{
    const struct pre_step *p = &c->x->t->pre[c->step];
    match ^= p->invert;
    if (from == 0 || !joins(p->behavior, c->match, match)) {
        hand_on(c);
        c->from = from;
    }
    c->to = to;
    c->match = match;
}

static void cut_by_split(struct encoder *x, struct str s, u32 step, bool first, piece_fn *piece)
{
    struct cutting c = {.x = x, .s = s, .step = step, .first = first, .piece = piece};
    struct split_scan scan = {.budget = &x->budget};
    size_t at = 0, start, end;
    while (at < s.n && split_next(x->t->pre[step].split, s, at, &scan, &start, &end)) {
        if (at < start)
            next_span(&c, at, start, false);
        next_span(&c, start, end, true);
        at = end;
    }
    if (x->budget.over)
        return;
    if (at < s.n)
        next_span(&c, at, s.n, false);
    hand_on(&c);
}

static void next_step(struct encoder *x, struct str s, u32 step, bool first)
{
    pre_tokenize(x, s, step + 1, first);
}

static void pre_split(struct encoder *x, struct str s, u32 step, bool first)
{
    cut_by_split(x, s, step, first, next_step);
}

static void pre_bytes(struct encoder *x, struct str s, u32 step, bool first)
{
    const struct pre_step *p = &x->t->pre[step];
    size_t mark = x->used;
    if (p->prepend == PREPEND_ALWAYS && s.p[0] != ' ') {
        char *copy = take(x, s.n + 1);
        copy[0] = ' ';
        memcpy(copy + 1, s.p, s.n);
        s = (struct str){copy, s.n + 1};
    }
    if (p->split)
        cut_by_split(x, s, step, first, bytes_piece);
    else
        bytes_piece(x, s, step, first);
    x->used = mark;
}

static void pre_metaspace(struct encoder *x, struct str s, u32 step, bool first)
{
    const struct pre_step *p = &x->t->pre[step];
    size_t mark = x->used, n = p->mark.n;
    char *out = take(x, s.n * p->mark.n + p->mark.n), *from = out + n;
    n = replace(s, STR(" "), p->mark, from);
    bool marked = n >= p->mark.n && memcmp(from, p->mark.p, p->mark.n) == 0;
    if (!marked && (p->prepend == PREPEND_ALWAYS || (p->prepend == PREPEND_FIRST && first))) {
        memcpy(out, p->mark.p, p->mark.n);
        from = out;
        n += p->mark.n;
    }
    for (size_t at = 0, end; at < n; at = end) { /* a cut before every mark */
        end = at + 1;
        while (end < n &&
               !(p->each && n - end >= p->mark.n && memcmp(from + end, p->mark.p, p->mark.n) == 0))
            end++;
        pre_tokenize(x, (struct str){from + at, end - at}, step + 1, first && at == 0);
    }
    x->used = mark;
}

/* Steps from `step` on, over a piece that is not empty; `first`: it starts where the text does. */
static void pre_tokenize(struct encoder *x, struct str s, u32 step, bool first)
{
    if (step == x->t->pre_n) {
        encode_word(x, s, s.n);
        return;
    }
    static piece_fn *const steps[] = {
        [PRE_SPLIT] = pre_split,
        [PRE_METASPACE] = pre_metaspace,
        [PRE_BYTES] = pre_bytes,
    };
    steps[x->t->pre[step].kind](x, s, step, first);
}

/* --- added tokens --------------------------------------------------------------------------- */

/* The first of at[lo .. hi) whose byte at `depth` is not below `byte`. */
static u32 added_bound(const struct added_set *set, u32 lo, u32 hi, size_t depth, u32 byte)
{
    while (lo < hi) {
        u32 mid = lo + (hi - lo) / 2;
        if ((u8)set->at[mid]->pattern.p[depth] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest added token that starts at p, or NULL. */
static const struct added *added_at(const struct added_set *set, const char *p, size_t n)
{
    const struct added *longest = NULL;
    u32 lo = set->first[(u8)p[0]], hi = set->first[(u8)p[0] + 1];
    for (size_t depth = 1; lo < hi; depth++) { /* at[lo .. hi) begin with depth bytes of p */
        if (set->at[lo]->pattern.n == depth)
            longest = set->at[lo++];
        if (depth == n)
            break;
        lo = added_bound(set, lo, hi, depth, (u8)p[depth]);
        hi = added_bound(set, lo, hi, depth, (u8)p[depth] + 1u);
    }
    return longest;
}

static bool word_beside(struct str s, size_t from, size_t to)
{
    u32 cp;
    bool before = false, behind = false;
    if (from > 0) {
        unicode_next(s.p + from - unicode_back(s.p + from), &cp);
        before = unicode_of(cp).bits & UNICODE_WORD;
    }
    if (to < s.n) {
        unicode_next(s.p + to, &cp);
        behind = unicode_of(cp).bits & UNICODE_WORD;
    }
    return before || behind;
}

static size_t blank_start(struct str s, size_t at, size_t least)
{
    while (at > least) {
        u32 cp, len = unicode_back(s.p + at);
        unicode_next(s.p + at - len, &cp);
        if (!(unicode_of(cp).bits & UNICODE_BLANK))
            break;
        at -= len;
    }
    return at;
}

static size_t blank_end(struct str s, size_t at)
{
    for (u32 cp, len; at < s.n; at += len) {
        len = unicode_next(s.p + at, &cp);
        if (!(unicode_of(cp).bits & UNICODE_BLANK))
            break;
    }
    return at;
}

/* Cuts s at the tokens of a set: leftmost, longest, not overlapping. A token that its flags rule
 * out is passed over, not tried shorter. What rstrip swallows is not searched again for pieces,
 * but is for tokens, and a token found in there sets the end of the last piece back: all as
 * AddedVocabulary::find_matches does. */
static void cut(struct encoder *x, const struct added_set *set, struct str s, bool first,
                void (*piece)(struct encoder *, struct str, bool))
{
    size_t done = 0, blank_known = 0;
    for (size_t at = 0; at < s.n && set->n;) {
        const struct added *a = added_at(set, s.p + at, s.n - at);
        if (!a) {
            at++;
            continue;
        }
        size_t from = at, to = at + a->pattern.n;
        at = to;
        if ((x->specials_are_text && a->special) || (a->single_word && word_beside(s, from, to)))
            continue;
        if (a->lstrip)
            from = MAX(blank_start(s, from, MIN(done, from)), done);
        if (a->rstrip) { /* blanks are walked once, however many tokens lie in them */
            to = to < blank_known ? blank_known : blank_end(s, to);
            blank_known = MAX(blank_known, to);
        }
        if (done < from)
            piece(x, (struct str){s.p + done, from - done}, first && done == 0);
        if (from < to) /* an lstrip that finds all of it swallowed leaves nothing */
            emit(x, a->id);
        done = to;
    }
    if (done < s.n)
        piece(x, (struct str){s.p + done, s.n - done}, first && done == 0);
}

static void normal_piece(struct encoder *x, struct str s, bool first)
{
    pre_tokenize(x, s, 0, first);
}

static void raw_piece(struct encoder *x, struct str s, bool first)
{
    size_t mark = x->used;
    s = tokenizer_normalize(x->t, s, x->work, &x->used);
    ASSERT(x->used <= x->cap);
    cut(x, &x->t->normalized, s, first, normal_piece);
    x->used = mark;
}

/* --- outside -------------------------------------------------------------------------------- */

size_t tokenizer_work_bytes(const struct tokenizer *t, size_t text_bytes)
{
    static struct tokenizer byte_level; /* 6 KB that a constant would add to the file */
    byte_level.pre[0].kind = PRE_BYTES;
    byte_level.pre_n = 1;
    t = t ? t : &byte_level;
    size_t n, total = tokenizer_normal_bytes(t, text_bytes, &n), chars = n;
    for (u32 i = 0; i < t->pre_n; i++) {
        const struct pre_step *p = &t->pre[i];
        if (p->kind == PRE_METASPACE) {
            n = chars = n * p->mark.n + p->mark.n;
            total += n + 16;
        }
        if (p->kind == PRE_BYTES) {
            total += n + 1 + 2 * (n + 1) + 32;
            chars = n + 1;
            n = 2 * chars;
            if (i + 1 < t->pre_n) /* steps behind it do not count characters */
                chars = n;
        }
    }
    return total + bpe_work_bytes(bpe_symbols_max(&t->bpe, n, chars)) + 64;
}

enum err tokenizer_encode(const struct tokenizer *t, struct str text, u32 flags, void *work,
                          size_t work_bytes, u32 *ids, u32 cap, u32 *n, struct err_text *e)
{
    ASSERT(((uintptr_t)work & 15) == 0 && work_bytes >= tokenizer_work_bytes(t, text.n));
    if (!utf8_valid(text))
        return err_set(e, ERR_REQUEST, "the text is not valid UTF-8");
    struct encoder x = {
        .t = t,
        .specials_are_text = flags & ENCODE_NO_SPECIAL_TEXT,
        .work = work,
        .cap = work_bytes,
        .ids = ids,
        .ids_cap = cap,
        .budget = {.steps = split_steps(text.n)},
    };
    for (u32 i = 0; (flags & ENCODE_ADD_SPECIAL) && i < t->before_n; i++)
        emit(&x, t->before[i]);
    cut(&x, &t->raw, text, true, raw_piece);
    for (u32 i = 0; (flags & ENCODE_ADD_SPECIAL) && i < t->behind_n; i++)
        emit(&x, t->behind[i]);
    if (x.budget.over)
        return err_set(e, ERR_REQUEST,
                       "the tokenizer's split patterns take more than %s of config/limits.h on "
                       "this text",
                       x.budget.over);
    if (x.n > cap)
        return err_set(e, ERR_LIMIT, "the text has %zu tokens; there is room for %u", x.n, cap);
    *n = (u32)x.n;
    return ERR_OK;
}

u32 tokenizer_vocab(const struct tokenizer *t)
{
    return t->bpe.vocab.n;
}

u32 tokenizer_before(const struct tokenizer *t)
{
    return t->before_n;
}

u32 tokenizer_pieces(const struct tokenizer *t)
{
    u32 n = t->bpe.model_n;
    for (u32 i = 0; i < t->before_n; i++)
        n = MAX(n, t->before[i] + 1);
    for (u32 i = 0; i < t->behind_n; i++)
        n = MAX(n, t->behind[i] + 1);
    return n;
}

i64 tokenizer_id(const struct tokenizer *t, struct str content)
{
    u32 id = vocab_find(&t->bpe.vocab, content);
    return id == UINT32_MAX ? -1 : (i64)id;
}

const struct added *tokenizer_added(const struct tokenizer *t, u32 id)
{
    if (id >= t->bpe.vocab.n || !t->is_added[id])
        return NULL;
    u32 lo = 0, hi = t->added_n;
    while (lo + 1 < hi) {
        u32 mid = (lo + hi) / 2;
        if (t->added[mid].id <= id)
            lo = mid;
        else
            hi = mid;
    }
    return &t->added[lo];
}

bool tokenizer_is_special(const struct tokenizer *t, u32 id)
{
    const struct added *a = tokenizer_added(t, id);
    return a && a->special;
}

struct str tokenizer_content(const struct tokenizer *t, u32 id)
{
    return id < t->bpe.vocab.n ? vocab_str(&t->bpe.vocab, id) : (struct str){"", 0};
}

struct str tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

struct str tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

struct str tokenizer_unk(const struct tokenizer *t)
{
    return t->unk;
}

struct str tokenizer_pad(const struct tokenizer *t)
{
    return t->pad;
}
