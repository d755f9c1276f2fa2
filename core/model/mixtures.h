/* Layers with mixtures of experts (core/model/model.h): which of them have one, how many experts
 * and of what size, and how these are chosen. Part of config_parse.
 */
#ifndef ZIGCUDA_MIXTURES_H
#define ZIGCUDA_MIXTURES_H

#include "core/model/family.h"

/* For families whose row has mixtures, after mixers_read; room for the layers' experts is taken
 * from `keep`. Where the file has none, m is as if the family had none. */
MUST enum err mixtures_read(struct arena *keep, const struct fields *k, const struct family *f,
                            struct model *m, struct config *c);

#endif
