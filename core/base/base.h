/* The words every file shares: integer names, byte slices, assertions that stay on in release,
 * checked size arithmetic. Owns nothing, allocates nothing.
 */
#ifndef ZIGCUDA_BASE_H
#define ZIGCUDA_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

/* A span of bytes that somebody else owns. Not NUL-terminated. */
struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})
#define STR_ARG(s) (int)((s).n > 512 ? 512 : (s).n), (s).p /* for "%.*s"; long values are cut */

#define COUNTOF(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define ROUND_UP(a, b) (CEIL_DIV(a, b) * (b))
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define MUST __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define NORETURN __attribute__((noreturn))
#define INLINE static inline __attribute__((always_inline))

/* A broken assertion is a bug of ours: say where and stop. Never used on input. */
#define ASSERT(cond) ((cond) ? (void)0 : assert_failed(#cond, __FILE__, __LINE__))
NORETURN void assert_failed(const char *cond, const char *file, int line);

struct str str_of(const char *z); /* of a NUL-terminated string */
bool str_eq(struct str a, struct str b);
bool str_is(struct str a, const char *z);
bool str_starts(struct str a, struct str prefix);
bool str_ends(struct str a, struct str suffix);

/* For tables of names. The kernel's random bytes for this process seed it: nobody outside can
 * choose names that meet. */
u64 str_hash(struct str s);

/* a * b and a + b into *out; false when the result does not fit. */
static inline MUST bool size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline MUST bool size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* n bytes as BASE64_BYTES(n) letters, and a 0 behind them. */
#define BASE64_BYTES(n) (((n) + 2) / 3 * 4)
void base64(char *out, const u8 *in, size_t n);

/* Levenshtein distance, for "did you mean"; at most 64 bytes of each are looked at. */
u32 str_distance(struct str a, struct str b);

#endif
