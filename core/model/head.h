/* A head of 8 bits, made at the start of one that the files have in 16 or 32: for models whose
 * vocabulary is much of what a step reads. It becomes what compressed-tensors calls pack-quantized
 * (core/base/weight.h, WEIGHT_PACKED): symmetric, of each row HEAD_GROUP inputs (or fewer, as many
 * as divide them) with a scale in f16, the largest of them / 127; each is rounded to the nearest,
 * of two to the even one.
 */
#ifndef ZIGCUDA_HEAD_H
#define ZIGCUDA_HEAD_H

#include "core/model/model.h"

enum { HEAD_GROUP = 128 };

/* The rows of a head, on their way. */
struct head {
    struct weight from, to;
    u8 *values;
    u16 *scales;
};

/* m->head becomes one of 8 bits; `h` tells what is to be done before anybody reads it, which is
 * nothing (h->to.n 0) where it is quantized already, has no words (m->headless), or only_plan: then
 * there are no values. They lie in memory of their own, m->made. */
MUST enum err head_int8(struct arena *keep, struct model *m, bool only_plan, struct head *h,
                        struct err_text *e);

/* Rows [first, first + n) of it, by whichever thread. */
void head_rows(const struct head *h, u32 first, u32 n);

#endif
