/* The packed form that every SIMD set shares: one output feature a 32-bit lane, and all bytes of a
 * tile in the order in which they are read.
 *
 * A tile is TILE_N output features. It holds its groups of input features one after another, and a
 * group is
 *
 *     scales [TILE_N]      f32, f16, bf16 or E8M0 as stored
 *     zeros  [TILE_N]      u8; absent when every zero is 2^(bits-1), and of MXFP4
 *     words  [rows][TILE_N] u32: row r, word c: 32 / bits consecutive input features of output
 *                          feature c, LSB first, unsigned
 *
 * Output features beyond n and input features beyond k are zero bits. Act-order is undone: packed
 * input features are sorted by group. Only plain matrices are used in place. GPTQ's stored layout
 * has the same words in rows n words apart and was tried in place too: reading it that way reached
 * 60-75 % of the read bandwidth, the tiles 90-98 % (tests/bench/results/linear.md).
 */
#ifndef ZIGCUDA_LINEAR_PACK_H
#define ZIGCUDA_LINEAR_PACK_H

#include "kernels/kernels.h"

enum { TILE_N = 64, UNIT_K = 8 /* packed k and group are multiples of this */ };

size_t linear_pack_bytes(const struct weight *w);
void linear_pack(const struct weight *w, void *memory, struct packed *out, u32 part, u32 parts);

/* The same features in the same order. */
bool linear_same_order(const struct packed *a, const struct packed *b);

#endif
