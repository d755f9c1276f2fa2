/* The packed form that every SIMD set shares: one output feature a 32-bit lane. A tile is TILE_N
 * output features; row r of a tile is TILE_N words, and word c holds 32 / bits consecutive packed
 * input features of output feature c, LSB first, unsigned. That is the layout GPTQ stores (with
 * rows n words apart), so a GPTQ matrix is used in place where its n fills whole tiles; everything
 * else is packed tile after tile, padded with zeros. Scales keep their type; zeros are fields of
 * `bits` along the output features.
 */
#ifndef ZIGCUDA_LINEAR_PACK_H
#define ZIGCUDA_LINEAR_PACK_H

#include "kernels/kernels.h"

enum { TILE_N = 64, UNIT_K = 8 /* packed k is a multiple of this */ };

size_t linear_pack_bytes(const struct weight *w);
void linear_pack(const struct weight *w, void *memory, struct packed *out, u32 part, u32 parts);

/* The same features in the same order. */
bool linear_same_order(const struct packed *a, const struct packed *b);

#endif
