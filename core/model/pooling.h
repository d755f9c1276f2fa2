/* What the files of sentence-transformers in a model folder say of embeddings: modules.json,
 * 1_Pooling/config.json and sentence_bert_config.json. Only one way is computed: the last token's
 * hidden state behind the final norm, normalised or not. Anything else is no error of the folder,
 * which may have other uses: embedding.refused then says what and where.
 */
#ifndef ZIGCUDA_POOLING_H
#define ZIGCUDA_POOLING_H

#include "core/model/model.h"

/* *pools: the folder was made for embeddings. Without such files `out` stays as it is; what it
 * refuses already stays refused. `scratch` is as before when this returns. */
MUST enum err pooling_read(struct arena *keep, struct arena *scratch, const char *dir,
                           struct embedding *out, bool *pools, struct err_text *e);

#endif
