#include "core/base/json_prefix.h"

#include "core/base/json.h"

enum state {
    VALUE, /* has to come, */
    FIRST, /* or the end of an array */
    FIRST_KEY,
    NEXT_KEY,
    COLON,
    STRING,
    ESCAPE,
    HEX,
    WORD,
    MINUS,
    ZERO,
    WHOLE,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
    BEHIND, /* a value */
    BROKEN
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* In a number; BEHIND: c is not of it. */
static u8 number(u8 state, char c)
{
    bool digit = is_digit(c), exponent = c == 'e' || c == 'E';
    switch ((enum state)state) {
    case MINUS:
        return c == '0' ? ZERO : digit ? WHOLE : BROKEN;
    case ZERO:
        return digit ? BROKEN : c == '.' ? POINT : exponent ? EXPONENT : BEHIND;
    case WHOLE:
        return digit ? WHOLE : c == '.' ? POINT : exponent ? EXPONENT : BEHIND;
    case POINT:
        return digit ? FRACTION : BROKEN;
    case FRACTION:
        return digit ? FRACTION : exponent ? EXPONENT : BEHIND;
    case EXPONENT:
        return c == '+' || c == '-' ? EXPONENT_SIGN : digit ? EXPONENT_DIGITS : BROKEN;
    case EXPONENT_SIGN:
        return digit ? EXPONENT_DIGITS : BROKEN;
    case EXPONENT_DIGITS:
        return digit ? EXPONENT_DIGITS : BEHIND;
    default:
        return BROKEN;
    }
}

static u8 string(struct json_prefix *j, char c)
{
    if (j->state == ESCAPE && c == 'u') {
        j->digits = 0;
        return HEX;
    }
    if (j->state == ESCAPE)
        return c && strchr("\"\\/bfnrt", c) ? STRING : BROKEN;
    if (j->state == HEX && !(is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')))
        return BROKEN;
    if (j->state == HEX)
        return ++j->digits == 4 ? STRING : HEX;
    if (c == '"')
        return j->key ? COLON : BEHIND;
    return c == '\\' ? ESCAPE : (u8)c < ' ' ? BROKEN : STRING;
}

static u8 open(struct json_prefix *j, bool object)
{
    if (j->depth == LIMIT_JSON_DEPTH)
        return BROKEN;
    j->objects = (j->objects & ~((u64)1 << j->depth)) | (u64)object << j->depth;
    j->depth++;
    return object ? FIRST_KEY : FIRST;
}

static u8 close(struct json_prefix *j, bool object)
{
    bool right = j->depth && (j->objects >> (j->depth - 1) & 1) == object;
    j->depth -= right;
    return right ? BEHIND : BROKEN;
}

static u8 value(struct json_prefix *j, char c)
{
    j->key = false;
    j->word = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
    if (c == '{' || c == '[')
        return open(j, c == '{');
    if (c == '"')
        return STRING;
    if (c == 't' || c == 'f' || c == 'n')
        return WORD;
    return c == '-' ? MINUS : c == '0' ? ZERO : is_digit(c) ? WHOLE : BROKEN;
}

static u8 behind(struct json_prefix *j, char c)
{
    if (c == '}' || c == ']')
        return close(j, c == '}');
    if (c != ',' || j->depth == 0)
        return BROKEN;
    return j->objects >> (j->depth - 1) & 1 ? NEXT_KEY : VALUE;
}

static u8 key(struct json_prefix *j, char c)
{
    j->key = true;
    return c == '"' ? STRING : c == '}' && j->state == FIRST_KEY ? close(j, true) : BROKEN;
}

/* Between values, keys and signs. */
static u8 next(struct json_prefix *j, char c)
{
    if (json_is_blank(c))
        return j->state;
    switch ((enum state)j->state) {
    case VALUE:
        return value(j, c);
    case FIRST:
        return c == ']' ? close(j, false) : value(j, c);
    case FIRST_KEY:
    case NEXT_KEY:
        return key(j, c);
    case COLON:
        return c == ':' ? VALUE : BROKEN;
    case BEHIND:
        return behind(j, c);
    default:
        return BROKEN;
    }
}

bool json_prefix_step(struct json_prefix *j, char c)
{
    if (j->state >= MINUS && j->state <= EXPONENT_DIGITS) {
        j->state = number(j->state, c);
        if (j->state == BEHIND)
            j->state = next(j, c);
    } else if (j->state == WORD) {
        j->state = c != *j->word ? BROKEN : *++j->word ? WORD : BEHIND;
    } else if (j->state == STRING || j->state == ESCAPE || j->state == HEX) {
        j->state = string(j, c);
    } else {
        j->state = next(j, c);
    }
    return j->state != BROKEN;
}

bool json_prefix_complete(const struct json_prefix *j)
{
    return j->depth == 0 && (j->state == BEHIND || j->state == ZERO || j->state == WHOLE ||
                             j->state == FRACTION || j->state == EXPONENT_DIGITS);
}

bool json_prefix_in_string(const struct json_prefix *j)
{
    return j->depth && (j->state == STRING || j->state == ESCAPE || j->state == HEX);
}
