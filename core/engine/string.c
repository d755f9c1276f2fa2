#include "core/engine/string.h"

#include <string.h>

enum string_phase { /* a: characters so far, as far as they count; with a pattern b: its state, c:
                       what came of a character */
                    IN_STRING,
                    ESCAPE,
                    HEX_1,
                    HEX_2,
                    HEX_2_D, /* behind "\uD": no surrogates */
                    HEX_3,
                    HEX_4,
                    TAIL_1, /* bytes of a character that are missing; the next one is: */
                    TAIL_2,
                    TAIL_3,
                    TAIL_E0, /* A0 to BF */
                    TAIL_ED, /* 80 to 9F */
                    TAIL_F0, /* 90 to BF */
                    TAIL_F4  /* 80 to 8F */
};

static const struct grammar_node any_string = {
    .kind = GRAMMAR_STRING, .items = GRAMMAR_NONE, .max = GRAMMAR_NONE};

static const struct grammar_node *string_node(const struct grammar *g, u16 node)
{
    return node == GRAMMAR_NONE ? &any_string : &g->nodes[node]; /* none: a key of any name */
}

/* The phase behind the first byte of a character, or -1. */
static int lead(u8 c)
{
    if (c < 0x80)
        return c >= 0x20 ? IN_STRING : -1;
    if (c < 0xc2 || c > 0xf4)
        return -1;
    if (c < 0xe0)
        return TAIL_1;
    if (c < 0xf0)
        return c == 0xe0 ? TAIL_E0 : c == 0xed ? TAIL_ED : TAIL_2;
    return c == 0xf0 ? TAIL_F0 : c == 0xf4 ? TAIL_F4 : TAIL_3;
}

static bool is_hex(u8 c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static enum act string_byte(const struct grammar_node *n, struct grammar_frame *f, u8 c)
{
    switch ((enum string_phase)f->phase) {
    case IN_STRING:
        break;
    case ESCAPE:
        return c == 'u' ? phase(f, true, HEX_1) : phase(f, memchr("\"\\/bfnrt", c, 8), IN_STRING);
    case HEX_1:
        return phase(f, is_hex(c), c == 'd' || c == 'D' ? HEX_2_D : HEX_2);
    case HEX_2:
        return phase(f, is_hex(c), HEX_3);
    case HEX_2_D:
        return phase(f, c >= '0' && c <= '7', HEX_3);
    case HEX_3:
        return phase(f, is_hex(c), HEX_4);
    case HEX_4:
        return phase(f, is_hex(c), IN_STRING);
    case TAIL_1:
        return phase(f, c >= 0x80 && c <= 0xbf, IN_STRING);
    case TAIL_2:
        return phase(f, c >= 0x80 && c <= 0xbf, TAIL_1);
    case TAIL_3:
        return phase(f, c >= 0x80 && c <= 0xbf, TAIL_2);
    case TAIL_E0:
        return phase(f, c >= 0xa0 && c <= 0xbf, TAIL_1);
    case TAIL_ED:
        return phase(f, c >= 0x80 && c <= 0x9f, TAIL_1);
    case TAIL_F0:
        return phase(f, c >= 0x90 && c <= 0xbf, TAIL_2);
    case TAIL_F4:
        return phase(f, c >= 0x80 && c <= 0x8f, TAIL_2);
    }
    if (c == '"')
        return f->a >= n->min ? ENDED : REFUSED;
    if (n->max != GRAMMAR_NONE && f->a >= n->max)
        return REFUSED;
    f->a = count_on(n, f->a);
    int next = c == '\\' ? (int)ESCAPE : lead(c);
    return phase(f, next >= 0, (u8)next);
}

static u32 escaped(u8 c)
{
    static const char plain[][2] = {
        {'b', '\b'}, {'f', '\f'}, {'n', '\n'}, {'r', '\r'}, {'t', '\t'}};
    for (u32 i = 0; i < COUNTOF(plain); i++)
        if (c == plain[i][0])
            return (u32)plain[i][1];
    return c;
}

/* The bits of a character that a byte adds to those in f->c; was: the phase before it. */
static u32 character(const struct grammar_frame *f, u8 was, u8 c)
{
    u32 digit = is_digit(c) ? (u32)c - '0' : (c | 0x20u) - 'a' + 10;
    switch ((enum string_phase)was) {
    case IN_STRING:
        return c == '\\' ? 0 : c < 0x80 ? c : c < 0xe0 ? c & 0x1f : c < 0xf0 ? c & 0x0f : c & 7;
    case ESCAPE:
        return c == 'u' ? 0 : escaped(c);
    case HEX_1:
    case HEX_2:
    case HEX_2_D:
    case HEX_3:
    case HEX_4:
        return (u32)f->c << 4 | digit;
    default:
        return (u32)f->c << 6 | (c & 0x3f);
    }
}

/* How many bits are missing in a phase. */
static u32 bits_left(u8 phase)
{
    static const u8 left[] = {
        [ESCAPE] = 16, [HEX_1] = 16,   [HEX_2] = 12,  [HEX_2_D] = 12, [HEX_3] = 8,
        [HEX_4] = 4,   [TAIL_1] = 6,   [TAIL_2] = 12, [TAIL_E0] = 12, [TAIL_ED] = 12,
        [TAIL_3] = 18, [TAIL_F0] = 18, [TAIL_F4] = 18};
    return left[phase];
}

/* How many characters may follow, and have to. */
static struct regex_room room_of(const struct grammar_node *n, const struct grammar_frame *f)
{
    return (struct regex_room){.most = n->max == GRAMMAR_NONE ? UINT32_MAX : (u32)n->max - f->a,
                               .least = f->a < n->min ? (u32)n->min - f->a : 0};
}

/* Goes on with the pattern: where a character is whole by it, else where it may become whole. */
static bool matches(const struct grammar *g, const struct grammar_node *n, struct grammar_frame *f,
                    u8 was, u8 c)
{
    u32 bits = character(f, was, c), left = bits_left(f->phase);
    struct regex_room room = room_of(n, f);
    if (left == 0) {
        f->c = 0;
        f->b = regex_next(&g->patterns, n->items, f->b, bits);
        return f->b != REGEX_DEAD && regex_fits(regex_state_of(&g->patterns, n->items, f->b), room);
    }
    f->c = (u16)bits;
    u32 low = bits << left, high = low + (1u << left) - 1;
    low = f->phase == TAIL_E0 ? 0x800 : f->phase == TAIL_F0 ? 0x10000 : low;
    high = low == 0xd000 && left == 12 ? 0xd7ff : MIN(high, 0x10ffffu);
    return regex_any(&g->patterns, n->items, f->b, low, high, room);
}

enum act string_step(const struct grammar *g, struct grammar_frame *f, u8 c)
{
    const struct grammar_node *n = string_node(g, f->node);
    u8 was = f->phase;
    enum act act = string_byte(n, f, c);
    if (act == REFUSED || n->items == GRAMMAR_NONE)
        return act;
    if (act == ENDED)
        return regex_state_of(&g->patterns, n->items, f->b).least ? REFUSED : ENDED;
    return matches(g, n, f, was, c) ? TAKEN : REFUSED;
}

bool string_text(const struct grammar *g, const struct grammar_frame *f, struct grammar_text *text)
{
    if (f->kind != GRAMMAR_STRING || f->phase != IN_STRING)
        return false;
    const struct grammar_node *n = string_node(g, f->node);
    *text = (struct grammar_text){.room = room_of(n, f), .pattern = n->items, .state = f->b};
    return true;
}
