/* From a folder's tensors to the weights and vectors of its model, by the names that its family
 * gives them. Part of model_open.
 */
#ifndef ZIGCUDA_BIND_H
#define ZIGCUDA_BIND_H

#include "core/model/config.h"
#include "core/model/safetensors.h"

struct names;

/* A folder that is being opened. */
struct opening {
    const char *dir;
    struct arena *keep, *scratch;
    struct model *m;
    struct config config;
    const struct names *names; /* set by bind_model */
    struct tensors tensors;
    bool pools; /* the folder was made for embeddings */
    struct err_text *e;
};

/* Fills o->m's weights from o->tensors as o->config says. Refuses what is missing, of another
 * shape, or left over. */
MUST enum err bind_model(struct opening *o);

#endif
