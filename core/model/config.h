/* config.json and generation_config.json -> struct model, without its weights.
 *
 * Families: those of family.c, and the text part of mistral3 and gemma3, in the forms that
 * transformers 4 and 5 write. A key that is missing takes the default of the transformers class;
 * those that give the shape must be there, unless models are known without.
 * Whatever changes the arithmetic and is not computed exactly is refused with file, key and value.
 * Sizes are bounded by config/limits.h.
 */
#ifndef ZIGCUDA_CONFIG_H
#define ZIGCUDA_CONFIG_H

#include "core/model/model.h"
#include "core/model/quant.h"

/* Where norms are: before attention and MLP (under other names, lfm2), behind both (olmo2), or
 * either (gemma 2 and 3; under other names, glm4); or before each block (nemotron_h). */
enum norms { NORMS_BEFORE, NORMS_LFM2, NORMS_AFTER, NORMS_AROUND, NORMS_GLM, NORMS_BLOCKS };

/* What the weights must be like, beside the shapes in struct model. */
struct config {
    bool qkv_bias, o_bias, mlp_bias;
    bool fused;               /* as struct model's n_qkv and n_gate_up say */
    bool gpt_oss;             /* attention has sinks; experts have biases and are of MXFP4 */
    bool values_are_keys;     /* of layers that see all: v is what k's matrix makes */
    bool gemma4;              /* there is a scale a layer, and mixtures have norms of their own */
    bool shared_mlp;          /* MLPs are called as granitemoehybrid's */
    bool conv_bias;           /* of Mamba's convolutions */
    u32 block[LIMIT_LAYERS];  /* the number of a layer in names of tensors */
    bool blocks;              /* nemotron_h: that is its mixer's, and its MLP has the next */
    bool mixed[LIMIT_LAYERS]; /* of these: it is a mixture of experts */
    bool router_bias;         /* experts are chosen by sigmoids and a bias */
    u32 more_layers; /* of the file, behind the model's own, which guess tokens further on: they
                        change no result, and are not computed */
    enum norms norms;
    bool rounds_embed_scale; /* gemma: to the type of the embedding */
    bool sees;               /* the language model is the text part of a larger one */
    bool headless; /* architectures names a classifier, a reward model or a bare model only */
    bool bare;     /* and that is a bare model: "Qwen3Model" */
    struct quant quant;
};

/* Fills m from the text of config.json. Tables and layers live in `keep`; `scratch` is as before
 * when this returns. `path` names the file in messages. */
MUST enum err config_parse(struct arena *keep, struct arena *scratch, struct str text,
                           const char *path, struct model *m, struct config *c, struct err_text *e);

/* Adds generation_config.json: end ids and sampling defaults. After config_parse. */
MUST enum err config_generation_parse(struct arena *scratch, struct str text, const char *path,
                                      struct model *m, struct err_text *e);

/* Adds the end token that tokenizer_config.json names, where its id stands there too. */
MUST enum err config_tokenizer_parse(struct arena *scratch, struct str text, const char *path,
                                     struct model *m, struct err_text *e);

/* A separate quantize_config.json. */
MUST enum err config_quant_parse(struct arena *scratch, struct str text, const char *path,
                                 struct quant *q, struct err_text *e);

#endif
