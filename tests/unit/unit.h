/* Unit tests: a named table of functions in one binary. A test calls CHECK; the first failure
 * prints where and ends that test. `unit NAME...` runs the tests whose names start so.
 */
#ifndef ZIGCUDA_UNIT_H
#define ZIGCUDA_UNIT_H

#include "core/base/arena.h"
#include "core/base/base.h"
#include "core/base/err.h"

#include <stdio.h>

void unit_failed(const char *file, int line, const char *what);
bool unit_has_failed(void);
extern struct arena unit_arena; /* 256 MiB, emptied before each test */

/* A copy of s that ends where readable memory ends: reading past it is a crash. At most 16 MiB; the
 * next call overwrites it. */
struct str unit_guarded(struct str s);

/* Writes a file under `root`, making its folders. */
bool unit_put(const char *root, const char *path, const char *text);

/* Takes a file away, and the folders above it that are empty then. */
void unit_drop(const char *root, const char *path);

struct grammar;
/* 1: a whole text of the grammar; 0: the beginning of one; -1: none. */
int unit_reads(const struct grammar *g, const char *text);

#define CHECK(cond)                                 \
    do {                                            \
        if (!(cond)) {                              \
            unit_failed(__FILE__, __LINE__, #cond); \
            return;                                 \
        }                                           \
    } while (0)

/* One row a test: TEST(function). */
#define TEST(name) void name(void);
#include "tests/unit/tests.def"
#undef TEST

#endif
