/* Quantized weights: what quantization_config says, and the views of one linear layer's tensors.
 *
 * Formats: GPTQ (config.json, quantize_config.json or quant_config.json; AutoGPTQ, GPTQModel),
 * AWQ gemm (AutoAWQ), both as AutoRound labels them, compressed-tensors pack-quantized and
 * int-quantized; MXFP4 of gpt-oss's experts. Whatever the methods
 * leave to lists of module names (ignore, modules_to_not_convert, lm_head) is decided by which
 * tensors are there. Everything else that would change a result is honoured or refused.
 */
#ifndef ZIGCUDA_QUANT_H
#define ZIGCUDA_QUANT_H

#include "core/model/fields.h"
#include "core/model/safetensors.h"

enum quant_method { QUANT_NONE, QUANT_GPTQ, QUANT_AWQ, QUANT_PACKED, QUANT_INT8, QUANT_MXFP4 };

struct quant {
    enum quant_method method;
    u32 bits;
    u32 group;             /* input features a group; 0: one group a row */
    bool symmetric;        /* compressed-tensors: no zero points are stored */
    bool zero_plus_one;    /* GPTQ v1 */
    bool act_order;        /* rows may belong to groups out of order: desc_act, actorder group */
    bool act_order_said;   /* false: whatever g_idx holds is taken */
    bool int8_activations; /* W8A8 */
};

/* Reads a quantization_config object, or the root of a quantize_config.json. Refusals stick in k.
 */
void quant_read(const struct fields *k, struct quant *q);

/* "gptq 4-bit group 128" into out, for people. */
void quant_describe(const struct quant *q, enum dtype plain, char *out, size_t cap);

/* Where views come from and what errors are written to. */
struct binder {
    struct tensors *tensors;
    struct arena *keep;
    const struct quant *quant;
    const char *dir;
    const char *shape; /* the numbers of config.json that shapes come from, for messages */
    struct err_text *e;
};

/* The float tensor `name` of shape [n]; of [1][n]. */
MUST enum err bind_vector(struct binder *b, const char *name, u32 n, const struct tensor **out);
MUST enum err bind_row(struct binder *b, const char *name, u32 n, const struct tensor **out);

/* The linear layer `module` ("model.layers.0.mlp.up_proj") of n outputs and k inputs, plain or
 * quantized by which of its tensors are there; with a bias when `bias`. */
MUST enum err bind_linear(struct binder *b, const char *module, u32 n, u32 k, bool bias,
                          struct weight *out);

/* The float tensor `name` of shape [count][n][k], as one plain matrix of count * n rows. */
MUST enum err bind_stack(struct binder *b, const char *name, u32 count, u32 n, u32 k,
                         struct weight *out);

/* What gpt-oss has of its experts: NAME_blocks, NAME_scales and NAME_bias of `count` of them, each
 * [n][k], as one matrix of count * n rows. k is a multiple of MXFP4_GROUP. */
MUST enum err bind_mxfp4(struct binder *b, const char *name, u32 count, u32 n, u32 k,
                         struct weight *out);

#endif
