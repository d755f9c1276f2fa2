/* What the matrix tests and their benchmark share. Memory is one arena of the program. */
#ifndef ZIGCUDA_OPS_H
#define ZIGCUDA_OPS_H

#include "core/base/arena.h"
#include "kernels/cpu/linear.h"

#include <stdio.h>

struct ops_case {
    const char *name;
    enum weight_kind kind;
    u32 bits, n, k, group; /* group 0: one a row */
    enum dtype type;       /* of scales, bias and plain weights */
    bool bias, zeros, v1, act_order, w8a8;
    u32 row_step; /* MXFP4 */
};

/* A matrix ready to be multiplied by m rows. */
struct ops_run {
    const struct linear_ops *ops;
    const struct weight *w;
    struct packed *packed;
    struct activations a;
    void *scratch;
};

void *ops_alloc(size_t bytes); /* zeroed, 64-byte aligned */
size_t ops_mark(void);
void ops_reset(size_t mark);
u64 ops_random(u64 *state);
float ops_normal(u64 *state);
struct weight ops_weight(const struct ops_case *c, u64 seed);
struct ops_run ops_start(const struct linear_ops *ops, const struct weight *w, const float *x,
                         u32 m, u32 parts);
int ops_bench(int argc, char **argv);

#endif
