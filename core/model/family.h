/* What config.json's model_type says: a row a family, with what its transformers class does when a
 * key is missing, and which keys it knows. config.c makes a struct model of that and the keys.
 */
#ifndef ZIGCUDA_FAMILY_H
#define ZIGCUDA_FAMILY_H

#include "core/model/config.h"
#include "core/model/fields.h"

/* Which layers see a window only. */
enum windows {
    WINDOWS_NONE,
    WINDOWS_ALL,     /* every layer, when sliding_window is given */
    WINDOWS_QWEN,    /* use_sliding_window: from layer max_window_layers on */
    WINDOWS_SMOLLM3, /* use_sliding_window: the layers without rope */
    WINDOWS_PATTERN, /* all but every n-th */
    WINDOWS_LISTED,  /* those that layer_types says, else every layer, when sliding_window is given
                      */
    WINDOWS_EXAONE4, /* the same, else all but every n-th; then those that see all do not rotate */
    WINDOWS_UNSURE,  /* use_sliding_window: versions of transformers differ in which layers */
};

struct family {
    const char *name;
    u32 heads, vocab, context;  /* 0: the key has to be there */
    u32 kv_heads;               /* 0: as many as heads */
    u32 head_dim;               /* 0: hidden / heads */
    double theta, eps, partial; /* partial: default of partial_rotary_factor; 0: whole heads */
    enum windows windows;
    u32 window;  /* default of sliding_window; 0: none */
    u32 pattern; /* every n-th layer is full */
    double attention_softcap, logit_softcap;
    bool tied;
    bool attention_bias_key, mlp_bias_key; /* the class knows the key */
    bool attention_bias, plain_o;          /* its default; it is not for o */
    bool qkv_bias;                         /* always */
    const char *qkv_bias_key;              /* unless this is false */
    const char *o_bias_key;                /* for o there is this */
    const char *bias_key;                  /* this one is for all of them */
    enum qk_norm qk_norm;
    const char *qk_norm_key; /* only where this is true */
    enum norms norms;
    bool fused, fused_gate_up, local_rope, nope, rope_pairs;
    bool plus_one;   /* norms of 1 + w */
    bool gemma;      /* scaled embedding, norms of 1 + w, tanh-GELU; and with NORMS_AROUND
                        query_pre_attn_scalar and softcaps */
    bool gemma4;     /* scaled embedding, tanh-GELU, a softcap of logits, and what gemma4.h reads */
    bool own_inputs; /* the default of hidden_size_per_layer_input is 256 */
    bool multipliers;    /* of embedding, attention, what is added to x, logits */
    bool minicpm;        /* the same by other keys; some are sparse beyond a length */
    bool granite_hybrid; /* some layers may be Mamba 2, all or none of the others rotate; MLPs go by
                            keys and names of their own */
    bool blocks;        /* nemotron_h: mixers and MLPs, these without gates, are blocks that come in
                           any order, and num_hidden_layers counts them; nothing rotates */
    bool query_scaling; /* of queries beyond the positions of training */
    bool mrope;         /* positions are of time, height and width: of text all three are the same,
                           and which dimensions go by which makes no difference */
    enum mixtures {
        MIXTURES_NONE,
        MIXTURES_MIXTRAL, /* all layers; experts of intermediate_size, always renormalized */
        MIXTURES_OLMOE,   /* the same, but a key says whether renormalized */
        MIXTURES_QWEN,    /* keys say in which layers, of what size, whether renormalized */
        MIXTURES_GLM,     /* the same by other keys; chosen by sigmoids and a bias, and beside them
                             one that all tokens take as it is */
        MIXTURES_GEMMA4,  /* a key says whether there are any; beside the plain MLP */
        MIXTURES_ERNIE,   /* the same by other keys; chosen by a softmax and a bias */
        MIXTURES_LFM2,    /* as GLM's, without the one that all take */
        MIXTURES_GRANITE_HYBRID, /* all layers, or none; as Mixtral's, beside the plain MLP */
        MIXTURES_NEMOTRON, /* as GLM's, but without gates, and blocks say which layers have any */
        MIXTURES_GPT_OSS,  /* as Mixtral's, of MXFP4, with biases; and attention has sinks */
    } mixtures;
    bool shared_expert; /* of Qwen's: beside those, one that all tokens take, gated */
    bool delta;         /* three of four layers are gated delta nets; attention is gated */
    bool joined_delta;  /* see struct delta_shape */
    bool short_conv;    /* some layers are short convolutions; norms, MLPs and what attention
                           gives have names of their own, and so have keys of the config */
    bool renormalized;  /* whatever the key says */
    const char *activation_key; /* NULL: hidden_act */
    const char *eps_key;        /* NULL: rms_norm_eps */
};

/* The epsilon of the model's norms, as the file says it. */
double family_eps(const struct fields *k, const struct family *f);

/* The row of a model_type, which k has or lacks; refused where there is none. */
const struct family *family_find(const struct fields *k, struct str type);

#endif
