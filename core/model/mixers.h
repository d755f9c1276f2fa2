/* Layers whose tokens see those before them through a state of fixed size, in place of attention:
 * gated delta nets, Mamba 2 and short convolutions (core/model/model.h). Part of config_parse.
 */
#ifndef ZIGCUDA_MIXERS_H
#define ZIGCUDA_MIXERS_H

#include "core/model/family.h"

/* May layers of the family be such? */
bool mixers_has(const struct family *f);

/* nemotron_h: how many blocks, that is mixers and MLPs, there are; refused where keys differ. */
u32 mixers_blocks(const struct fields *k);

/* Which layers of m are, and their shapes; room for their weights is taken from `keep`. At least
 * one layer has attention; of blocks m->layers_n becomes the number of layers; where all have it, m
 * is as if the family had no others. */
MUST enum err mixers_read(struct arena *keep, const struct fields *k, const struct family *f,
                          struct model *m, struct config *c);

#endif
