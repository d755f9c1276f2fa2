/* Memory: bump arenas over one mapping each, a plan that says what will be taken, and the seal.
 *
 * Boot runs in three acts. (1) Metadata is read into the boot arena and throw-away work (JSON
 * trees) into a scratch arena, both reserved as address space and touched as needed. (2) Every
 * module adds its needs to the plan, which is printed as a table, checked against what the box
 * has, and taken in one mapping a place. (3) memory_seal(): scratch is unmapped, and from then on
 * no arena can be opened and a sealed one gives nothing; both are assertion failures. Work space of
 * requests is an arena_over() planned memory, which is reset instead. Whoever holds an arena owns
 * its memory; single pieces are never freed.
 */
#ifndef ZIGCUDA_ARENA_H
#define ZIGCUDA_ARENA_H

#include "core/base/base.h"
#include "core/base/err.h"

struct arena {
    const char *name; /* for messages: "boot", "scratch", "host" */
    u8 *base;
    size_t cap_bytes, used_bytes, peak_bytes;
    bool sealed;
};

/* Maps cap_bytes of zeroed address space; pages are taken when first touched, or all at once when
 * `take`: then too little memory shows here. */
MUST enum err arena_open(struct arena *a, const char *name, size_t cap_bytes, bool take,
                         struct err_text *e);

/* Takes all pages of an arena opened without `take`, and may do so beside who uses it. Gigabytes
 * take seconds, so between() is called before each piece, of a millisecond or two; in between other
 * threads may map memory. */
#define ARENA_PIECE_BYTES (4 * MIB)
void arena_populate(struct arena *a, void (*between)(void));

/* The error of an mmap. Where RLIMIT_AS bounds address space it says so: far more of that is
 * reserved here than is ever touched. */
enum err memory_unmapped(struct err_text *e, size_t bytes, const char *what);

/* An arena over memory somebody else owns; the memory must be zeroed. */
struct arena arena_over(const char *name, void *base, size_t cap_bytes);

/* Zeroed memory, aligned (a power of two); NULL when the arena is full. */
void *arena_alloc(struct arena *a, size_t bytes, size_t align);

/* The same with whatever bytes an arena_reset left there: for buffers sized by a limit, of which
 * little is used. To be written before it is read. */
void *arena_take(struct arena *a, size_t bytes, size_t align);

/* n objects of a type, with the product checked; NULL when full. */
#define ARENA_NEW(a, type, n) ((type *)arena_array((a), (n), sizeof(type), _Alignof(type)))
void *arena_array(struct arena *a, size_t n, size_t size, size_t align);

/* Bytes copied and NUL-terminated; p is NULL when full. */
struct str arena_str(struct arena *a, struct str s);

/* The error of a full arena: names it, its ceiling and where that is declared. */
enum err arena_full(const struct arena *a, const char *what, struct err_text *e);

/* Forget everything allocated since used_bytes was `mark`; the memory is zeroed when reused. */
void arena_reset(struct arena *a, size_t mark);

/* Unmaps an arena opened by arena_open. */
void arena_close(struct arena *a);

/* --- the plan ------------------------------------------------------------------------------ */

enum place { PLACE_HOST, PLACE_PINNED, PLACE_DEVICE, PLACE_FILE, PLACE_COUNT };

struct plan_row {
    enum place place;
    const char *what;   /* "KV cache" */
    char detail[64];    /* "256 pages of 16 tokens, f16" */
    const char *option; /* the option that changes it, or "" */
    size_t bytes;
};

struct plan {
    struct plan_row rows[48];
    u32 n;
};

void plan_add(struct plan *p, enum place place, size_t bytes, const char *what, const char *option,
              const char *detail_fmt, ...) PRINTF_LIKE(6, 7);
size_t plan_total(const struct plan *p, enum place place);

/* From here on this arena gives no memory. */
void arena_seal(struct arena *a);

/* From here on no arena can be opened. */
void memory_seal(void);

#endif
