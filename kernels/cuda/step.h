/* What the host and the GPU kernels share: packed matrices, the list of operations of a step, and
 * the description of one step. Compiled as C and as CUDA C++.
 *
 * A step runs as one cooperative launch of the kernel `step` with one thread block a
 * multiprocessor: every block walks the same list of operations, made once at load with fixed
 * addresses, and all blocks meet after each (or wait for rows instead, see NOT_YET). (Steps of
 * few tokens take two launches: `decode`, and `step` to sample; so do on Hopper those of one by
 * `one_token`, and those of up to MID_TOKENS by `mid_..`. Those of more take several there,
 * and others that `mid_..` cannot do alone: the kernels `prefill_..`, or it, for what is between
 * attention and attention.) What changes from step to step stands in struct gpu_step and the arrays
 * behind it, which the host sends ahead. The same kernel runs any stretch of the list, so that one
 * operation can be timed or tested alone.
 *
 * Same request, same bits. The result of a token depends on nothing but that token's own inputs:
 * not on its neighbours, on the number of tokens, on how many multiprocessors there are or on which
 * of the ways below computes it. Where an operation has several ways (few tokens, many tokens), all
 * sum in one order:
 *   linear     y[n] = factor * sum over slices s = 0..7 in order of x_scale[s] * P_s, plus bias,
 *              where P_s = sum over the groups of slice s in order, fma(scale[n][group], A, P_s),
 *              and A = the tensor core's sum from 0, 16 packed inputs at a time in order, of
 *              (q - zero) * x over a group. With INT4 it is exact (below), in any order, of
 *              whatever numbers. Halves have no scales: P_s is the tensor core's sum over the
 * slice. attention  by splits of ATTENTION_SPLIT positions (absolute, from 0): within a split the
 * scores of all its keys, their maximum m, weights exp(s - m) rounded to half, their sum l and O =
 * sum of weight * v, both as the tensor core adds them, page after page; then the splits in order,
 * by m' = max(m, m_s), l = l exp(m - m') + l_s exp(m_s - m'), O alike. Where the head has a sink,
 * l += exp(sink - m) at the end. The row is O / l.
 *
 * Numbers: activations between operations are f32; what enters a tensor core is half, each slice of
 * a token's row scaled by a power of two of its own, 1 / x_scale, so that its largest magnitude
 * lies in [2^13, 2^14): full half precision for everything within 2^-27 of the largest. Where it
 * meets INT4, in [2^-12, 2^-11): so all halves are multiples of 2^-24, the smallest half, and at
 * most 2^13 of them; |q - zero| <= 16; and sums of 128 products are multiples of 2^-24 up to 1,
 * which f32 and 24 bits of an integer hold exactly. What is within 2^-3 of the largest has full
 * half precision, and the rest is as near to its value as that: a slice in 14 bits. So a slice can
 * be made without the others; what depends on the whole row, the root mean square of a norm, is
 * `factor`. KV pages are half, or bytes that stand for halves.
 */
#ifndef ZIGCUDA_CUDA_STEP_H
#define ZIGCUDA_CUDA_STEP_H

#include "config/limits.h"
#include "core/base/base.h"
#include "core/base/weight.h"

enum {
    GPU_THREADS = 256, /* of a thread block */
    GPU_WARPS = GPU_THREADS / 32,
    MATRIX_SLICES =
        8, /* parts of the packed inputs, summed apart: one a warp when tokens are few */
    MATRIX_K_UNIT = 128, /* packed inputs are padded to a multiple of this */
    FEW_TOKENS = 8,      /* up to so many, each block prepares a linear's input for itself */
    MID_TOKENS = 128,    /* steps of up to so many that `decode` does not take: by `mid_..`, where
                            there are these and they can do it */
    PREFILL_TOKENS = 64, /* others of more: by the kernels `prefill_..`, where there are any */
    PREFILL_THREADS = GPU_THREADS + 128, /* of their thread blocks, and those of `mid_..` */
    PREFILL_SHARED_BYTES = 180 << 10,    /* dynamic shared memory that they need at the least */
    MID_SHARED_BYTES = 144 << 10,        /* and `mid_..`; */
    ROWS_SHARED_BYTES = 160 << 10,       /* `mid_.._rows` */
    LOW_HEAD_DIM = 128,                  /* attention_is_low */
    LOW_GROUP = 8,
    FRESH_TOKENS = 64,              /* of a row, at most, in attention of `mid_.._rows` */
    GROUP_SHARED_BYTES = 172 << 10, /* `prefill_attention` */
    GROUP_TOKENS = 64,         /* in steps where a row has so many, it takes those of many tokens */
    NEAR_ROW_FEATURES = 16384, /* features of a row that a block holds in registers, */
    NEAR_NORM_FEATURES = 8192, /* and of one with a norm */
    ATTENTION_SPLIT = 128,     /* positions */
    ATTENTION_ROWS = 16,       /* query rows (token, head) of one tensor-core tile */
    SPLITS_TEAMS = 2,          /* of a block's warps in attention of few tokens, at most */
};

/* --- matrices ------------------------------------------------------------------------------ */

enum matrix_kind {
    MATRIX_INT4,
    MATRIX_INT8,
    MATRIX_HALF,
    MATRIX_FP4 /* of experts, and with scales of bf16, alone */
};

/* What a matrix of a kind has: of FP4 nobody has to ask. */
#define MATRIX_IS_FINE(of_kind, m) \
    ((of_kind) == MATRIX_FP4 || ((of_kind) != MATRIX_HALF && (m)->group == 32))
#define MATRIX_HAS_ZEROS(of_kind, m) ((of_kind) != MATRIX_FP4 && (m)->zeros)
#define MATRIX_SCALES(of_kind, m) ((of_kind) == MATRIX_FP4 ? +DTYPE_BF16 : (m)->scale_type)

/* A value has 4 << this bits. */
#define MATRIX_SHIFT(kind) ((kind) == MATRIX_FP4 ? +MATRIX_INT4 : (kind))

/* A weight matrix as `pack` writes it. Outputs are padded to a multiple of 16 with zeros, packed
 * inputs to a multiple of MATRIX_K_UNIT.
 *
 * data: chunks of 512 bytes, [n / 16][k / K] with K = 64 (INT4), 32 (INT8), 16 (HALF) inputs. Lane
 * i of a warp reads 16 bytes at 16 i: its a-fragments (gpu_mma) of K / 16 consecutive tiles of 16
 * outputs x 16 inputs. HALF: the four words a[0..3]. INT8: two tiles, each two words; byte order
 * within a tile: a[0] low, a[0] high, a[1] low, a[1] high, a[2].. a[3].. (values q + 128 for
 * signed). INT4: one word a tile; its nibbles, lowest first: a[0] low, a[1] low, a[2] low, a[3]
 * low, a[0] high, a[1] high, a[2] high, a[3] high (so that (word >> 4 i) & 0x000f000f is a[i]).
 * FP4: the same, but a[0] low, a[2] low, a[0] high, a[2] high, and so a[1], a[3].
 *
 * Quantised values are stored unsigned (INT4 0..15, INT8 0..255) with zeros in the same form. FP4
 * is a nibble of MXFP4 as it is in the file, and scales are 2^14 times too large: a nibble's bits
 * are those of a half which is as much too small (linear_weight.cuh). */
struct matrix {
    const u8 *data;
    const void *scales; /* INT4, INT8: [n / 16][groups][8][2] of scale_type (f16, bf16 or f32),
                           rows g and g + 8 side by side;
                           HALF: f32 [n rounded up to 16], a power of two: w = scale * half */
    const u8 *zeros;    /* [n / 16][groups][8][2]; NULL: 2^(bits - 1) everywhere */
    const float *bias;  /* [n] or NULL */
    u32 kind;           /* enum matrix_kind */
    u32 scale_type;     /* enum dtype */
    u32 n, k;           /* outputs; packed inputs, padded */
    u32 group, groups;  /* packed inputs to a scale: 128 where the file's groups are multiples of
                           that (theirs are repeated), else and for f32 32; k / group.
                           Padding's are 0 */
    u32 slice; /* packed inputs of a slice, a multiple of 128; the last may have fewer, or none */
};

/* Packed input i is feature order[i] of the row; ORDER_NONE: padding, always 0. Act-order sorts
 * features by group; groups that are no multiple of 32 are padded. */
#define ORDER_NONE 0xffffffffu

enum { PREPARED_GROUP_BYTES = 264 }; /* 128 inputs of a row, at most */

enum input_kind {
    INPUT_ROWS, /* x as it is */
    INPUT_NORM, /* rmsnorm: x * norm, times rsqrt(mean(x^2) + eps), which is the row's factor */
};

/* The rows that enter a linear. */
struct input {
    const float *x; /* [token][stride] */
    const float *norm;
    const u32 *order; /* [k] or NULL: packed input i is feature i, padding beyond `features` */
    /* Where all blocks leave halves when they do not prepare for themselves: [step_tokens / T
     * rounded up][k / 8][T tokens][8 inputs], so that 128 bytes are one of the 8 x 8 tiles that
     * ldmatrix and wgmma read from shared memory. T is 32, on Hopper in `step` 8, in the kernels
     * `prefill_..` 128 and in `mid_..` 16, 32 or 64, so that what they want of a tile is copied as
     * one. With 16 it leaves bytes: an input of n 2^-24 is low + 128 high = n, both signed, and 128
     * of them are [8][tokens / 8][high, low][8 tokens][16 inputs], in the order 0, 8, 1, 9, 2, 10,
     * .. of INT4's nibbles; then i32 [16 tokens]: the sum of these n. With 32 there are f32 behind
     * 128 of them, [T / 2][2][2 tokens]: of INT4, -8 times their sum, times 2^-24 and times 2^-20.
     * `prefill_experts`: experts_prepared_rows. Aligned to 16. */
    u16 *prepared;
    float *prepared_scale;  /* [step_tokens rounded up to 128][MATRIX_SLICES] */
    float *prepared_factor; /* [step_tokens] */
    u32 kind, stride, features, k;
    u32 room; /* k at least: tiles of 16 to 64 tokens lie so far apart, and so does a token's input
                 of whatever linear from that of others */
    float eps;
    u32 int8;    /* W8A8: the row is rounded to integers of scale absmax / 127, to nearest even;
                    this is its factor then, and its slices have scale 1 */
    u32 group;   /* INT4: that of all parts, which are INT4; 0: none of them is */
    u32 wanted;  /* 1: row i is that of token wants[i], and there are n_wants rows */
    u32 awaited; /* 1: in `one_token` and `mid_..`, the rows are (NOT_YET) */
};

/* --- operations ---------------------------------------------------------------------------- */

/* Awaited rows: each value tells for itself. The places that it will have hold NOT_YET, as no value
 * does, until it is there. Who needs a row asks for it until it is whole; the blocks do not meet.
 * In `one_token` all that operations write in a step has places of its own, which its first one
 * clears; in `mid_..`, whose blocks meet when they have prepared a linear's rows, a linear behind
 * those that read a row clears it. */
#define NOT_YET 0xffffffffu

enum op_kind {
    OP_CLEAR,    /* places hold NOT_YET afterwards */
    OP_EMBED,    /* x = row of the embedding matrix * scale, for every token */
    OP_LINEAR,   /* prepares its rows first, see struct input */
    OP_ADD_NORM, /* x += rmsnorm(y) * norm */
    OP_ROPE,     /* qk-norm, rotation, and k and v into their pages */
    OP_ATTENTION,
    OP_GATE,     /* h = act(gate) * up, where they could not be one linear; ACT_RELU by `step` and
                    `decode` */
    OP_SAMPLE,   /* logits -> token of each wanted row, logprobs; marks the step as done */
    OP_ROUTE,    /* these by `step` and `decode`: what each token thinks of each expert */
    OP_CHOOSE,   /* its experts, and the tokens of each expert */
    OP_EXPERTS,  /* a linear of each pair of a token and an expert */
    OP_MIX,      /* x += what a token's experts say */
    OP_NORM,     /* these by `step` and `decode`: x = rmsnorm(y) * norm, where y may be x */
    OP_PAIRS,    /* pairs of neighbours x0 y0 x1 y1 .. of q and k -> halves x0 x1 .. y0 y1 .. */
    OP_SHARED,   /* x += sigmoid(share rmsnorm(x)) * y */
    OP_SHORT,    /* a short convolution, by `decode`, and alone in a launch of `delta` */
    OP_JUDGE,    /* by `step`: as OP_CHOOSE, with a bias, by sigmoids or a softmax
                    (core/model/model.h, struct mixture) */
    OP_QUERIES,  /* these by `delta`: of gated attention, rows without their gates */
    OP_GATES,    /* out *= sigmoid(gate) */
    OP_CONVOLVE, /* a gated delta net, or Mamba 2: q, k, v and weights of heads, */
    OP_DELTA,    /* S^T q + skip v of each head, and S, which stays with the slot, */
    OP_DELTA_END,
    /* norm and gates of these, and what the convolution of a later step sees of the inputs */
    OP_KINDS
};

enum output_kind {
    OUTPUT_STORE, /* y = v */
    OUTPUT_ADD,   /* y += v */
    OUTPUT_GATE,  /* outputs of a block of 16: 8 gates, then their 8 ups; y[8 block + i] =
                     act(gate) * up, in OP_EXPERTS alone that of ACT_GPT_OSS */
};

struct op_clear {
    float *places;
    u32 n; /* a multiple of 4 */
};

struct op_embed {
    struct matrix embed; /* HALF: element (row j, input i) is looked up in the packed form */
    float *x;            /* [token][stride] */
    u32 stride, hidden;
    float scale;
};

enum {
    LINEAR_PARTS = 3,
    LINEAR_PARTIALS = 8 << 20, /* floats of op_linear.partial */
    LINEAR_COUNTERS = 65536,   /* of op_linear.arrived */
};

struct op_linear {
    struct input in;
    struct matrix part[LINEAR_PARTS]; /* of one input; outputs side by side */
    u32 parts;
    u32 at[LINEAR_PARTS]; /* first column of the part in y */
    u32 output;           /* enum output_kind */
    u32 y_stride;
    float *y;
    const float *old; /* OUTPUT_ADD: y = old + v, of y's stride; where y is not awaited, y itself */
    float *clear;     /* awaited rows, set to NOT_YET: [tokens][clear_stride]; or NULL */
    u32 clear_stride;
    float *partial; /* work space for sums of slices, f32 [LINEAR_PARTIALS]; linear_many.cuh */
    u32 *arrived;   /* [LINEAR_COUNTERS] counters of zero, left at zero */
    float *awaited; /* the same for `mid_..`, awaited: NOT_YET, and left so */
    u32 activation; /* enum activation */
    float softcap;  /* 0: none; logits */
};

/* The kernels `mid_..`: one for each tile of tokens, of INT4 16, 32, 64 and two of these, of INT8
 * 32 and 64, since in one for all the compiler works out at its beginning what any of them may
 * want, has no registers for it, and steps take 2 % longer; of halves, whose products take few, one
 * for tiles of 64 in strips of 32. */
enum { MID_16, MID_32, MID_64, MID_INT8_32, MID_INT8_64, MID_HALF, MID_KERNELS };
#define MID_NAMES                                                              \
    {                                                                          \
        "mid_16", "mid_32", "mid_64", "mid_int8_32", "mid_int8_64", "mid_half" \
    }
static inline u32 mid_kernel(u32 kind, u32 tokens)
{
    return kind == MATRIX_HALF   ? MID_HALF
           : kind == MATRIX_INT8 ? MID_INT8_32 + (tokens > 32)
           : tokens <= 16        ? MID_16
                                 : MID_32 + (tokens > 32);
}

/* Can those for matrices of this kind compute it? */
static inline bool linear_is_mid(const struct op_linear *op, u32 kind)
{
    for (u32 i = 0; i < op->parts; i++)
        if (op->part[i].kind != kind || (kind != MATRIX_HALF && op->part[i].group != 128))
            return false;
    return true;
}

/* Can the kernel `one_token`? Its matrices are halves or INT4 that `mid_..` can do, and its input
 * is in order and fits a block's registers. */
static inline bool linear_is_one(const struct op_linear *op)
{
    const struct input *in = &op->in;
    const u32 most = in->kind == INPUT_NORM ? NEAR_NORM_FEATURES : NEAR_ROW_FEATURES;
    const size_t places = (size_t)in->x | (size_t)in->norm | in->stride * 4 | in->features * 4;
    return (linear_is_mid(op, MATRIX_HALF) || linear_is_mid(op, MATRIX_INT4)) && !in->order &&
           places % 16 == 0 && in->k <= most;
}

/* x = (x + norm(y)) * scale; OP_NORM: x = norm(y) * scale. */
struct op_add_norm {
    float *x;
    const float *y, *norm;  /* norm: [hidden], or NULL: ones */
    u32 x_stride, y_stride; /* of tokens */
    u32 heads, hidden;      /* of a token [heads][hidden], each for itself */
    float eps, scale;
};

/* h = act(gate) * up, where they may be one, and h both. */
struct op_gate {
    const float *gate, *up;
    float *h;
    u32 in_stride, h_stride, n, activation;
};

struct op_pairs {
    float *x; /* [token][stride]: heads, of which the first dims count */
    u32 stride, heads, head_dim, dims;
};

struct op_shared {
    float *x;           /* [token][stride] */
    const float *y;     /* [token][stride] */
    const float *norm;  /* [hidden] */
    const float *share; /* [hidden] */
    u32 stride, hidden;
    float eps;
};

/* Angles: cos and sin of position * freq[i], times scale. */
struct gpu_rope {
    const float *freq; /* [dims / 2] */
    u32 dims;          /* 0: none */
    float scale;
};

/* KV pages of a layer: [page][kv_head] blocks of 16 positions x dim halves, dim = head_dim rounded
 * up to 16, in the order in which lanes want b-fragments (gpu_mma); attention_tile.cuh has the
 * formulas. k: for scores, k = dimension, n = key; v: for outputs, k = key, n = dimension. Or of
 * bytes, with a scale, a half, for each position: attention_bytes.cuh. */
#define PAGE_HEAD_BYTES(head_dim, int8) /* of such a block, of keys or of values */ \
    (LIMIT_PAGE_TOKENS * (u32)sizeof(u16) *                                         \
     ((int8) ? ROUND_UP(head_dim, 16u) / 2 + 1 : ROUND_UP(head_dim, 16u)))

struct op_attention { /* OP_ROPE and OP_ATTENTION */
    float *qkv; /* [token][stride]: q heads, k heads, v heads; OP_ROPE turns each q head into halves
                   and their scale, in its place. stride is even. In `decode` and `mid_..`, and
                   where all rows have one token, OP_ATTENTION does all that OP_ROPE does, with
                   the same bits */
    u8 *k, *v;
    const float *norm_q, *norm_k;     /* [head_dim] or NULL */
    const float *turned_q, *turned_k; /* [head_dim], 128, or NULL: what heads are multiplied by once
                                         they are rotated */
    struct gpu_rope rope, rope_long;
    float *out;     /* [token][out_stride]: heads x head_dim */
    float *partial; /* [partial_rows][dim + 4]: O, m, l of query rows and splits that another team
                       finishes. Any number of rows works; where they do not suffice, fewer share
                       a sequence: 16 a split of the longest sequence, times KV heads, times
                       two or more, is good */
    u32 *arrived;   /* SPLITS_TEAMS counters a block: zero before the first step; then all but the
                       highest bit are left at zero */
    u32 partial_rows;
    u32 stride, out_stride, heads, kv_heads, head_dim, window;
    float eps, scale, softcap;
    u32 awaited;        /* 1: in `one_token` and `mid_..`, qkv is (NOT_YET) */
    u32 int8;           /* 1: pages are of bytes */
    const float *sinks; /* [heads] or NULL: scores, times log2(e), of a key whose value is 0 */
    const float *query_scale; /* or NULL: scores of a query at position p are multiplied by entry
                                 floor(p * query_part) */
    float query_part;
};

enum { SPLITS_SHARED_BYTES = 6656, ATTENTION_KEPT_BYTES = 4096 }; /* attention_few.cuh */

enum { FEW_TILES = 4 }; /* of ATTENTION_ROWS query rows: attention of more goes the way of many */

/* Tokens of a tile; group: heads of a KV head. */
#define ATTENTION_TILE_TOKENS(group) MAX(ATTENTION_ROWS / (group), 1u)

/* Can the kernel `prefill_attention` compute it? */
static inline u32 attention_is_grouped(u32 head_dim)
{
    return head_dim == 64 || head_dim == 128;
}

/* Can attention of rows of one token be that of `mid_..` and `one_token`? They turn a head in a
 * warp, four dimensions a lane. dims: of a head, that rotate. */
static inline u32 attention_is_low(u32 heads, u32 kv_heads, u32 head_dim, u32 dims)
{
    return heads / kv_heads <= LOW_GROUP && head_dim <= LOW_HEAD_DIM && head_dim % 4 == 0 &&
           dims % 8 == 0;
}

/* What it then needs of shared memory at the least. */
enum { LOW_SHARED_BYTES = 88448 };

/* Weights of a split, or, where heads are small, of two. */
#define SPLITS_WEIGHTS_BYTES(dim) ((dim) <= 128 ? 8192u : 4096u)

/* What OP_ATTENTION of `decode` needs of shared memory at the least, rings included: work space,
 * weights, queries, new keys and values, one piece of keys. (OP_ROPE of `step` needs 50 KiB, which
 * every card has.) With 256 dimensions that and STEP_SHARED_BYTES are the 64 KiB of sm_75. */
static inline u32 attention_shared_bytes(u32 head_dim)
{
    u32 dim = ROUND_UP(head_dim, 16u), kept;
    kept = SPLITS_SHARED_BYTES + SPLITS_WEIGHTS_BYTES(dim) + dim * 32;
    return ROUND_UP(kept + dim * 16 + MIN(dim, 256u) * 16 + 32768, 128u);
}

enum {
    SAMPLE_BUCKETS = 1024,          /* of distance to a row's largest value */
    SAMPLE_SHARED_BYTES = 24 << 10, /* what OP_SAMPLE needs of gpu_run.shared_bytes at the least */
};

/* What the choice of a row's token goes by, and what its logprobs. */
enum sample_sides { SAMPLE_DRAW, SAMPLE_LOGPROBS, SAMPLE_SIDES };

struct sample_side {
    u64 best;  /* key of the largest value, or of the best score */
    u64 total; /* mass of all */
    u64 mass[SAMPLE_BUCKETS];
    u32 count[SAMPLE_BUCKETS];
};

/* --- gated delta nets ---------------------------------------------------------------------- */

/* OP_QUERIES and OP_GATES */
struct op_gated {
    const float *in; /* [token][in_stride]: of each head its query, then as many gates; behind them
                        keys and values */
    float *out;      /* [token][out_stride]: heads; of OP_QUERIES keys and values, too */
    u32 in_stride, out_stride, heads, kv_heads, head_dim;
};

/* Where a part of a token's row begins: of the first key head, and how far it is to the next. What
 * is of value heads lies side by side for those of a key head. */
struct delta_columns {
    u32 at, step;
};

/* OP_CONVOLVE, OP_DELTA and OP_DELTA_END: core/model/model.h, struct delta_net. What rows have is
 * aligned to 16. Mamba's norm, where it is of a token's heads together, is that of the linear which
 * takes `out`. OP_SHORT, of no heads: in is b, c and x, [channels] each, out [channels]. */
struct op_delta {
    const float *in; /* [token][stride]: products, see struct delta_columns */
    float *mixed;    /* [token][mixed_stride]: q, k, v as channels are; weights, [value_heads][4]:
                        decay; beta, of Mamba dt; what S^T k is multiplied by, decay or 0, before
                        it is taken from v; skip or 0 */
    float *out;      /* [token][out_stride]: [value_heads][value_dim] */
    float *state;    /* [slot][state_stride]: delta.cuh. Not read of a row at position 0 */
    const float *conv, *conv_bias; /* [taps][channels]; [channels], or NULL */
    const float *a_log, *dt_bias;  /* [value_heads] */
    const float *norm, *skip;      /* [value_dim], of Mamba [value_heads][value_dim], or NULL; of
                                      Mamba [value_heads], else NULL */
    struct delta_columns q, k, v, z, b, a;
    u32 stride, mixed_stride, out_stride, state_stride, channels;
    u32 key_heads, value_heads, shared, key_dim, value_dim, taps; /* shared: value_heads of a
                                                                     key_head */
    u32 norm_n; /* so many of what a token has of `out` have a norm to themselves: whole heads, of
                   delta nets one */
    float eps;
};

/* Tokens of a row that a block has near at a time, and floats of each; twice. */
enum {
    DELTA_UNIT = 16, /* dims of heads are multiples of it */
    DELTA_TOKENS = 16,
    DELTA_NEAR_FLOATS = 2 * LIMIT_DELTA_DIM + 84,
    DELTA_SHARED_BYTES = 2 * DELTA_TOKENS * DELTA_NEAR_FLOATS * 4,
};

/* --- experts ------------------------------------------------------------------------------- */

/* One of a token's experts. A token's routes lie in the order of the experts. */
struct route {
    u32 expert, nth; /* of the expert's pairs */
    float share;
    u32 unused;
};

/* Which experts take which tokens. Pairs are numbered expert after expert: the first of an expert
 * is that of all before it; within an expert in whatever order. */
struct routes {
    float *logits;           /* [step_tokens][experts] */
    u32 *count;              /* [experts] */
    u32 *token;              /* [experts][step_tokens] */
    struct route *route;     /* [step_tokens][used] */
    u32 experts, used, room; /* room: step_tokens */
    u32 renormalized;        /* shares are divided by their sum */
};

struct op_route { /* OP_ROUTE: logits of the normed rows, in f32; OP_CHOOSE, OP_JUDGE */
    struct routes routes;
    struct input in;          /* INPUT_NORM; features, stride: multiples of 4 */
    const float *router;      /* [experts][features] */
    const float *bias;        /* [experts]; NULL: OP_JUDGE is not what chooses */
    float scale, least;       /* OP_JUDGE: shares are multiplied by scale; least is added to the sum
                                 that they are divided by */
    const float *router_bias; /* [experts] or NULL: is added to the logits */
    const float *by_expert;   /* [experts] or NULL: OP_CHOOSE; shares are multiplied by it */
    u32 softmax;              /* 1: OP_JUDGE; in place of sigmoids */
};

struct op_experts {
    struct input in;      /* rows of tokens, or of pairs; prepared for each pair. order:
                             [experts][k] or NULL; room: k */
    struct matrix matrix; /* all experts below one another */
    struct routes routes;
    u32 units;    /* of 16 outputs, of each expert */
    u32 paired;   /* 1: a row is a pair */
    u32 few_rows; /* pairs of a tile where these are few: experts_few_rows */
    u32 output;   /* OUTPUT_STORE or OUTPUT_GATE */
    u32 activation, y_stride;
    float *y;         /* [pair][y_stride] */
    float *partial;   /* see struct op_linear */
    const float *old; /* `one_experts`: OUTPUT_ADD, y = old + what the experts say, by their shares;
                         there is no OP_CHOOSE and no OP_MIX */
};

/* Can the kernel `one_experts` compute these? An expert's down projection has slices of 128. It has
 * no biases, and none of ACT_GPT_OSS, which come together. */
static inline bool route_is_one(const struct op_route *op)
{
    const struct input *in = &op->in;
    const size_t places = (size_t)in->x | (size_t)in->norm | (size_t)op->router | in->stride * 4;
    return places % 16 == 0 && in->features % 4 == 0 && in->k <= 4 * 4 * GPU_THREADS &&
           op->routes.used <= FEW_TOKENS && !op->router_bias;
}
static inline bool experts_is_one(const struct op_experts *op)
{
    const struct input *in = &op->in;
    const struct matrix *m = &op->matrix;
    const size_t places = (size_t)in->x | (size_t)in->norm | in->stride * 4 | in->features * 4;
    return (m->kind == MATRIX_HALF || (m->kind == MATRIX_INT4 && m->group == 128)) && !in->order &&
           places % 16 == 0 && in->k <= NEAR_NORM_FEATURES && (!op->paired || m->slice == 128) &&
           !m->bias && op->activation != ACT_GPT_OSS;
}

/* Rows of a pair each: can a lane hold its part of a slice of one? op: struct op_experts. */
enum { EXPERTS_SLICE = 14 * 128, EXPERTS_NORMED = 8 * 128 };
#define EXPERTS_HOLD_ROWS(op)             \
    (!(op)->in.order && !(op)->in.int8 && \
     (op)->matrix.slice <= ((op)->in.kind == INPUT_NORM ? +EXPERTS_NORMED : +EXPERTS_SLICE))

/* Can the kernel `prefill_experts` compute these? It has no biases either; or
 * `prefill_experts_fp4`? */
static inline bool experts_are_broad(const struct op_experts *op)
{
    const bool plain = !op->matrix.bias && op->activation != ACT_GPT_OSS;
    return EXPERTS_HOLD_ROWS(op) &&
           (op->matrix.kind == MATRIX_FP4 || (op->matrix.kind == MATRIX_INT4 && plain));
}

/* Rows of struct input.prepared: tiles have up to EXPERTS_TILE pairs of an expert, and so many rows
 * for themselves. */
enum { EXPERTS_TILE = 128 };
static inline u32 experts_prepared_rows(u32 experts, u32 pairs)
{
    return (pairs / EXPERTS_TILE + MIN(experts, pairs)) * EXPERTS_TILE;
}

struct op_mix {
    struct routes routes;
    float *x;       /* [token][x_stride] */
    const float *y; /* [pair][y_stride] */
    u32 x_stride, y_stride, hidden;
    u32 stores; /* 1: what was in x does not count */
};

/* Where the blocks bring together what they found in a row (sample.cuh); zero, and left at zero. */
struct sample_work {
    struct sample_side side[SAMPLE_SIDES];
    u64 score; /* key of the best score */
    u64 entropy;
    u32 arrived; /* tokens that blocks are done with */
    u32 listed[SAMPLE_SIDES];
    u32 unused;
};

struct op_sample {
    const float *logits;            /* [want][stride] */
    float *z;                       /* [want][stride] work space */
    u32 *list;                      /* [want][SAMPLE_SIDES][stride] work space */
    struct sample_work *work;       /* [want] */
    u32 *arrived;                   /* a counter of zero, left at zero */
    const u32 *masks;               /* [masks][mask_stride], bits: which tokens may come */
    u32 stride, vocab, mask_stride; /* stride is even */
};

struct op {
    u32 kind __attribute__((aligned(16)));
    u32 ahead; /* `step`: index of the next linear, whose first weights are asked for early; 0: none
                */
    union {
        struct op_clear clear;
        struct op_embed embed;
        struct op_linear linear;
        struct op_add_norm add_norm;
        struct op_pairs pairs;
        struct op_shared shared;
        struct op_gate gate;
        struct op_route route;
        struct op_experts experts;
        struct op_mix mix;
        struct op_attention attention;
        struct op_gated gated;
        struct op_delta delta;
        struct op_sample sample;
    };
};

/* --- one step ------------------------------------------------------------------------------ */

enum {
    ROW_FOLLOWS = 1, /* its one token is the one that its slot sampled last; tokens[] is not read */
    ROW_ROPE_LONG = 2, /* rotated by rope_long */
};

struct gpu_row {
    u32 slot, first, n, pos, flags, outputs;
};

/* Query tokens of one row that share tensor-core tiles: consecutive ones. */
struct gpu_tile {
    u32 row, token, n; /* token: index in the step */
};

struct gpu_want { /* a token whose logits are computed */
    u32 token, row;
    u32 result; /* index of its result, or ~0: only the logits are wanted */
    u16 nth;    /* of its row's results */
    u16 mask;   /* its number in op_sample.masks, from 1; 0: whichever token may come */
};
enum {
    WANT_GIVEN = 0xffff
}; /* for a mask: the result has the token, whose probability is wanted */

/* As core/engine/device.h's struct sampling, one a slot; stays while the slot's sequence does. */
struct gpu_sampling {
    float temperature, top_p, min_p, typical_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    u32 top_k, min_tokens, n_stop, n_bias, logprobs, top_logprobs;
    u32 seed[2];
    u32 stop[2 * LIMIT_STOP_IDS];
    u32 bias_id[LIMIT_LOGIT_BIAS];
    float bias[LIMIT_LOGIT_BIAS];
};

struct gpu_result { /* pinned host memory */
    u32 slot, token;
    float logprob;
    u32 n_top;
    u32 top_id[LIMIT_LOGPROBS];
    float top[LIMIT_LOGPROBS];
};

/* Copied to the device before each step, with the arrays behind it. */
struct gpu_step {
    u32 n_rows __attribute__((aligned(16))); /* it is copied by 16 bytes */
    u32 n_tokens, n_tiles, n_wants;
    u32 serial;     /* written to *done when the step's results are out */
    u32 max_splits; /* most ATTENTION_SPLITs of positions that a row of this step sees */
    const struct gpu_row *rows;
    const u32 *tokens;    /* [n_tokens] */
    const u32 *token_row; /* [n_tokens] */
    const struct gpu_tile *tiles;
    const struct gpu_want *wants;
    struct gpu_result *results; /* host memory */
    u64 *stamps;                /* host memory [2], or NULL: the card's clock in ns when the step
                                   began with OP_EMBED, and when its results were there */
    u32 *done;                  /* host memory */
};

/* What stays from step to step. */
struct gpu_state {
    const u32 *pages; /* [slot][pages_stride]: page table; position p lies in entry p / 16 */
    u32 pages_stride;
    u32 vocab;
    struct gpu_sampling *sampling; /* [slot] */
    u32 *last;                     /* [slot] token sampled last */
    u16 *output_counts;            /* [slot][vocab] */
    u8 *prompt_seen;               /* [slot][vocab] */
    u32 *barrier;                  /* a word: gpu_grid_arrive */
};

enum {
    DECODE_WORK_BYTES = 21248,
    FEW_RING_BYTES = 21504, /* of a warp: weights on their way */
    FEW_RINGS_PARTS = 4,    /* where that does not fit, a half of it, or a quarter */
};

/* Of `one_token`, behind all other shared memory: barriers, then a ring a warp. */
enum {
    ONE_SPANS = 4, /* of 128 inputs of INT4, in a slot */
    ONE_SLOTS = 4, /* of a ring */
    ONE_SLOT_BYTES = ONE_SPANS * (1024 + 32 + 16),
    ONE_HEAD_BYTES = ROUND_UP((GPU_WARPS * ONE_SLOTS * 2 + 1) * sizeof(u64), (size_t)128),
    ONE_RINGS_BYTES = ONE_HEAD_BYTES + GPU_WARPS * ONE_SLOTS * ONE_SLOT_BYTES,
    /* in front of shared memory, behind the row: as `decode`, and sums of the row's groups */
    ONE_WORK_BYTES = DECODE_WORK_BYTES + NEAR_ROW_FEATURES / 128 * sizeof(i32),
    ONE_SHARED_BYTES = 227 << 10, /* dynamic shared memory that it needs at the least */
    ONE_ROUTES_BYTES = 128,       /* of `one_experts`, behind the rings */
};

/* A row in shared memory: two bytes an input. Neighbouring rows begin in different banks. */
#define FEW_ROW_BYTES(k) ((k)*2 + 64)

enum { EXPERTS_PLACES_BYTES = 2 * (LIMIT_EXPERTS + 1) * sizeof(u32) };

/* What OP_ROUTE needs of shared memory beside a row; and `prefill_experts`. */
enum { EXPERTS_ROUTE_BYTES = 512, EXPERTS_BROAD_BYTES = 200 << 10 };

/* What OP_EXPERTS of few pairs needs of shared memory, of tiles of so many and with rings of so
 * many bytes a warp, FEW_RING_BYTES / FEW_RINGS_PARTS at the least. */
#define EXPERTS_FEW_BYTES(rows, k, ring) \
    ((rows)*FEW_ROW_BYTES(k) + DECODE_WORK_BYTES + EXPERTS_PLACES_BYTES + GPU_WARPS * (ring))

/* Of few pairs INT4 is multiplied as bytes, two columns a pair. op: struct op_experts. */
#define EXPERTS_ARE_BYTES(op) ((op)->matrix.kind == MATRIX_INT4)

/* Pairs of its tiles, in so many bytes; 0: it does not fit. */
static inline u32 experts_few_rows(const struct op_experts *op, u32 shared_bytes)
{
    const u32 ring = FEW_RING_BYTES / FEW_RINGS_PARTS;
    u32 rows = EXPERTS_ARE_BYTES(op) ? FEW_TOKENS / 2 : FEW_TOKENS;
    while (rows && EXPERTS_FEW_BYTES(rows, op->in.k, ring) > shared_bytes)
        rows /= 2;
    return rows;
}

/* What operations other than linears need of gpu_run.shared_bytes at the least. */
static inline u32 step_least_bytes(u32 head_dim)
{
    return MAX(attention_shared_bytes(head_dim), (u32)SAMPLE_SHARED_BYTES);
}

/* gpu_run.ring_bytes for a step of so many tokens by the kernel `decode`; 0: it does not fit.
 * k_max: the largest input.k of its linears; least: what other operations need, which may use the
 * rings' memory too, as nothing is on its way there meanwhile; shared_bytes: what is there for
 * rings and all else. */
static inline u32 decode_ring_bytes(u32 tokens, u32 k_max, u32 least, u32 shared_bytes)
{
    size_t linear = (size_t)tokens * FEW_ROW_BYTES(k_max) + DECODE_WORK_BYTES;
    for (u32 bytes = FEW_RING_BYTES; bytes >= FEW_RING_BYTES / FEW_RINGS_PARTS; bytes /= 2)
        if (tokens <= FEW_TOKENS && least <= shared_bytes &&
            linear + GPU_WARPS * bytes <= shared_bytes)
            return bytes;
    return 0;
}

/* The parameter of the kernels `step`, `decode`, `delta`, `one_..`, `mid_..` and `prefill_..`:
 * operations [first, last) of ops. */
struct gpu_run {
    const struct op *ops;
    const struct gpu_step *step;
    struct gpu_state state;
    u32 first, last;
    u32 shared_bytes; /* of dynamic shared memory for operations, a multiple of 128; the launch has
                         the rings and STEP_SHARED_BYTES more; `one_token` ONE_RINGS_BYTES, too */
    u32 ring_bytes;   /* `decode`: of a warp */
    u32 many_apart;   /* `step`: OP_ATTENTION leaves rows of many tokens to `prefill_attention` */
};

/* Behind the shared memory of operations: copies that are near. */
struct step_shared {
    struct op op[2], ahead; /* operation i in op[i % 2]; the next linear, or of `mid_..` its
                               barriers */
    struct gpu_step step;
    struct gpu_run run; /* whose step is the one above */
    u64 barriers[15];   /* `step`: struct wide_barriers; `decode`: the first, the blocks have met */
    u8 attention[ATTENTION_KEPT_BYTES] __attribute__((aligned(16))); /* from layer to layer */
};

enum { STEP_SHARED_BYTES = ROUND_UP(sizeof(struct step_shared), (size_t)128) };

/* --- packing ------------------------------------------------------------------------------- */

enum { PACK_SHARED_BYTES = 64 }; /* dynamic shared memory of a launch of `pack` */

/* The parameter of the kernel `pack`: any grid of GPU_THREADS. Writes the outputs [0, from.n) of a
 * matrix from one weight in its file form (core/base/weight.h describes the forms; data, zeros,
 * scales, bias are device copies of the file's bytes, at any alignment). Output j goes to row
 * (j / run) * step + at + j % run: run = step = 16 for a matrix of its own; 8, 16 and at = 0 or 8
 * for gate and up side by side. Padding is written too: rows of to.n rounded up, by whoever has at
 * = 0 or 8 beyond its own outputs. */
struct gpu_pack {
    struct weight from; /* group_index is not read: `order` says it all */
    struct matrix to;
    const u32 *order; /* [to.k] or NULL */
    u32 run, step, at;
    u32 stride; /* outputs side by side in the file (GPTQ, AWQ): from.n, or more: it is a part */
    u32 group;  /* packed inputs of a group of the file: a multiple of to.group, or at least to.k */
};

/* The parameter of the kernel `read_all`: reads bytes, a multiple of 16, and does nothing else; the
 * roof of decode. *sink is written only to keep the loads. */
struct gpu_read {
    const u8 *data;
    u64 bytes;
    u32 *sink;
};

#endif
