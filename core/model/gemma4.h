/* What config.json says of Gemma 4 alone: layers that see all have heads of another size than those
 * that see a window; the last layers see the keys and values of earlier ones; inputs for each
 * layer.
 */
#ifndef ZIGCUDA_GEMMA4_H
#define ZIGCUDA_GEMMA4_H

#include "core/model/family.h"

/* After the windows of m's layers have been read. Refusals stick in k. */
void gemma4_read(const struct fields *k, const struct family *f, struct model *m, struct config *c);

#endif
