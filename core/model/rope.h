/* Rotary position embedding: the frequency tables that a config asks for.
 *
 * Types default, linear, llama3, yarn and longrope (papers: RoFormer arXiv 2104.09864, YaRN
 * 2309.00071, LongRoPE 2402.13753; Llama 3.1's own rule), Gemma 4's proportional and Hunyuan's
 * dynamic, in the arithmetic of the transformers library (f32, one rounding an operation). Anything
 * else is refused. Tables live in `keep`.
 */
#ifndef ZIGCUDA_ROPE_H
#define ZIGCUDA_ROPE_H

#include "core/model/fields.h"
#include "core/model/model.h"

/* What the config says outside the rope object. */
struct rope_setting {
    double theta;   /* used unless the object has rope_theta */
    double partial; /* likewise partial_rotary_factor: rotated share of a head */
    bool partial_allowed;
    u32 head_dim;
    u32 context;  /* max_position_embeddings */
    u32 original; /* top-level original_max_position_embeddings; 0: none */
    bool phi3;    /* the type names "su" and "yarn" mean longrope */
    bool mrope;   /* the type name "mrope" means default */
    bool turned;  /* norms are behind the rotation: its scale has to be 1 */
};

/* Builds the tables for the rope object k (an empty one: type default). A longrope has two: `out`
 * for sequences of at most *long_from positions and `out_long` beyond; otherwise *long_from is 0
 * and `out_long` equals `out`. Refusals stick in k. */
MUST enum err rope_build(struct arena *keep, const struct fields *k, const struct rope_setting *s,
                         struct rope *out, struct rope *out_long, u32 *long_from);

#endif
