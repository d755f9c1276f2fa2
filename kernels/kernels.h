/* What the CPU backend computes with: one kernel set per instruction set, chosen at boot from the
 * CPU's features. Compute only: no allocation, no I/O, no threads. The scalar set is the reference
 * that the others are held against (tests/ops).
 *
 * Same request, same bits. Within one set every output element is summed in one order, whatever the
 * number of rows m, the split over threads or the chunking. Threads split a matrix by output
 * features in multiples of `tile_n`, so a thread never shares a sum.
 *
 * Activations are row-major f32 [m][k]. A set with activation_bits 8 first quantises each row in
 * blocks of at most ACT_BLOCK features that share a weight scale (scale = absmax / 127, round to
 * nearest even) and computes exact integer dot products inside a block. Matrices with
 * weight.int8_activations have their rows quantised as a whole, in every set. Plain matrices
 * (f32, f16, bf16) take f32 activations in every set.
 */
#ifndef ZIGCUDA_KERNELS_H
#define ZIGCUDA_KERNELS_H

#include "config/limits.h"
#include "core/base/base.h"
#include "core/base/weight.h"

enum { ACT_BLOCK = 128 };

/* A weight matrix as a kernel set wants it, made by ops->pack. Only the kernels look inside
 * (kernels/cpu/linear_pack.h describes the packed form). */
struct packed {
    const struct weight *w;
    const u8 *data;   /* packed tiles; in the model file where the stored form is used in place */
    const u32 *order; /* act-order: packed input i is feature order[i]; NULL: i */
    u32 k;            /* packed input features */
    u32 group, block; /* of them, how many share a weight scale; and an activation scale */
    size_t tile_bytes, group_bytes, head_bytes;
};

/* Input rows prepared once and used by several matrices of the same k. */
struct activations {
    const float *x; /* [m][k] */
    u32 m, k;
    u32 x_stride;   /* floats between rows */
    void *prepared; /* act_bytes(m, k) bytes, 64-byte aligned; written by act_prepare */
};

struct linear_ops {
    u32 activation_bits; /* 32 or 8 */
    u32 tile_n;          /* threads split n in multiples of this */
    /* Own memory that this matrix needs (0: used in place), and making it: `part` of `parts` runs
     * in parallel on different threads; parts write disjoint memory, part 0 also fills *out. `w`
     * and `memory` (64-byte aligned) must outlive *out. */
    size_t (*pack_bytes)(const struct weight *w);
    void (*pack)(const struct weight *w, void *memory, struct packed *out, u32 part, u32 parts);
    /* Prepares rows [m0, m1) of a for w, act_bytes(1, k) bytes each. Needed before every matmul,
     * unless the same rows were prepared for a matrix p with act_shared(p, w). */
    size_t (*act_bytes)(u32 m, u32 k);
    void (*act_prepare)(struct activations *a, const struct packed *w, u32 m0, u32 m1);
    bool (*act_shared)(const struct packed *p, const struct packed *w);
    /* y[i][j] = sum_k W[j][k] x[i][k] + bias[j] for i < m and n0 <= j < n1; y_stride floats between
     * rows; n0 is a multiple of tile_n, n1 too unless it is w->n (of a plain matrix both are any).
     * `scratch` is per thread, scratch_bytes(k) bytes, 64-byte aligned. */
    size_t (*scratch_bytes)(u32 k);
    void (*matmul)(const struct packed *w, const struct activations *a, float *y, u32 y_stride,
                   u32 n0, u32 n1, void *scratch);
    /* Row j of the (unpacked) matrix as f32: y[k]. Embedding lookup. */
    void (*row)(const struct packed *w, u32 j, float *y);
};

/* KV cache of one layer: pages of LIMIT_PAGE_TOKENS positions, f16, f32 or int8. Keys lie
 * transposed, so that a vector holds one dimension of a page's keys and a score needs no sum across
 * lanes:
 *   k: [page][kv_head][dim][LIMIT_PAGE_TOKENS]    v: [page][kv_head][LIMIT_PAGE_TOKENS][dim]
 * with dim = kv_dim(head_dim); what is past head_dim is zero.
 *
 * int8: a key or value x[head_dim] is signed bytes, x * 127 / max |x| rounded to nearest even,
 * times a scale, max |x| / 127 (0 where all are 0). The f32 scales of a KV head's LIMIT_PAGE_TOKENS
 * positions lie behind its bytes in each page. A score is (sum of q * byte) * scale; a weight is
 * multiplied by the scale before the bytes of a value. */
struct kv_layer {
    void *k, *v;
    enum dtype type; /* DTYPE_F16, DTYPE_F32 or DTYPE_I8 */
    u32 kv_heads, head_dim;
};

static inline u32 kv_dim(u32 head_dim)
{
    return ROUND_UP(head_dim, 16u);
}

/* Of the keys, or the values, of one KV head in a page. All parts begin at multiples of 64 bytes.
 */
static inline size_t kv_head_bytes(enum dtype type, u32 head_dim)
{
    size_t n = (size_t)LIMIT_PAGE_TOKENS * kv_dim(head_dim);
    return type == DTYPE_I8 ? n + LIMIT_PAGE_TOKENS * sizeof(float)
                            : n * (type == DTYPE_F16 ? sizeof(u16) : sizeof(float));
}

_Static_assert(LIMIT_PAGE_TOKENS * sizeof(float) % 64 == 0, "int8 pages are not aligned");

enum { ATTENTION_TOKENS = 16 }; /* consecutive query tokens of one attention call, at most */

/* `tokens` query tokens of one sequence at positions pos, pos + 1, ...; keys up to their own
 * position are in the pages. */
struct attention_args {
    const float *q; /* [tokens][heads][head_dim], q_stride floats between tokens */
    float *out;     /* the same, out_stride floats between tokens */
    u32 q_stride, out_stride;
    const struct kv_layer *kv;
    const u32 *pages; /* page table of the sequence */
    u32 pos, tokens;
    u32 window;         /* keys seen: p - window < j <= p; 0: all */
    u32 group;          /* query heads a KV head */
    const float *sinks; /* [heads], or NULL: exp(sinks[head] - the largest score) is added to the
                           sum that weights are divided by */
    float scale,
        softcap; /* scores s -> softcap * tanh(s * scale / softcap); softcap 0: s * scale */
};

/* Memory of one attention call of `rows` = tokens * group query rows, 64-byte aligned. */
static inline size_t attention_scratch_bytes(u32 rows, u32 head_dim)
{
    size_t row = 2 * kv_dim(head_dim) + 32, page = 2 * LIMIT_PAGE_TOKENS * kv_dim(head_dim);
    return (ROUND_UP(rows, 8u) * row + page) * sizeof(float);
}

/* Consecutive tokens of one head of a gated delta net, or of Mamba 2. */
struct delta_args {
    float *state;              /* [key_dim][value_dim] */
    const float *q, *k;        /* [tokens][key_dim] */
    const float *v;            /* [tokens][value_dim] */
    float *y;                  /* [tokens][value_dim], y_stride floats between tokens */
    const float *decay, *beta; /* [tokens] */
    u32 tokens, key_dim, value_dim, y_stride;
    bool mamba;
};

/* Everything between the matrices. Each result element is computed in one fixed order, so rows may
 * be cut into calls at will; rmsnorm and attention give the same bits for a row alone or in a block
 * of rows. */
struct vector_ops {
    /* y = x * rsqrt(mean(x^2) + eps) * w; y may be x. */
    void (*rmsnorm)(float *y, const float *x, const float *w, u32 n, float eps);
    void (*add)(float *y, const float *x, u32 n); /* y += x */
    void (*scale)(float *y, float factor, u32 n); /* y *= factor */
    /* Half-split rotation of x[heads][head_dim] by cs: cos[dims/2] then sin[dims/2]. */
    void (*rope)(float *x, const float *cs, u32 dims, u32 head_dim, u32 heads);
    /* k[head_dim] and v[head_dim] into place `at` of `page`; f16 and int8 saturate at the largest
     * f16, 65504. A NaN makes an int8 key or value NaN as a whole: its scale is. */
    void (*kv_write)(const struct kv_layer *kv, const float *k, const float *v, u32 page, u32 at,
                     u32 kv_head);
    /* The query heads of one KV head. Keys and values at positions not seen are never used. */
    void (*attention)(const struct attention_args *a, u32 kv_head, void *scratch);
    /* gate = act(gate) * up, which may be one; ACT_GPT_OSS: see core/base/weight.h */
    void (*gate)(float *gate, const float *up, u32 n, enum activation act);
    void (*read)(const void *p, size_t n);       /* memory, for benchmarks: kernels/cpu/read.h */
    void (*softcap)(float *x, u32 n, float cap); /* x = cap * tanh(x / cap) */
    /* Of gated delta nets (core/model/model.h, struct delta_net); n and dimensions are multiples of
     * 16. y = silu(sum over j of w[j] x[j]), `taps` rows of n; rows of w lie w_stride apart. Of
     * short convolutions (silu false) the sums as they are. */
    void (*conv)(float *y, const float *const *x, const float *w, u32 w_stride, u32 taps, u32 n,
                 bool silu);
    /* Token by token: state *= decay; state += k (beta (v - state^T k))^T, or of Mamba 2 k (beta
     * v)^T; y = state^T q. */
    void (*delta)(const struct delta_args *a);
};

/* The angles of one position for rope: cos then sin of pos * freq[i] (in f32), times scale. One
 * function for all sets: it is not worth vectors. */
void vector_rope_table(float *cs, const float *freq, u32 dims, u32 pos, float scale);

struct kernel_set {
    const char *name;  /* "avx512-vnni" */
    const char *needs; /* features, for `zigcuda info` */
    const struct linear_ops *linear;
    const struct vector_ops *vector;
    bool (*supported)(void);
};

/* All sets of this build for this architecture, best first; the last is the scalar reference and
 * always supported. NULL-terminated. */
extern const struct kernel_set *const kernel_sets[];

/* The set named `name` ("auto" or NULL: the first supported one whose activation_bits match:
 * 0: any, 8 or 32). NULL when there is none: unknown name, or a set this CPU cannot run. */
const struct kernel_set *kernels_choose(const char *name, u32 activation_bits);

/* CPU features as text, for `zigcuda info`. */
void kernels_describe_cpu(char *out, size_t cap);

#endif
