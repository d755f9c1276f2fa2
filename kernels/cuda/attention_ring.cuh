/* Items of attention_few.cuh and the rings through which their keys and values come: what is in
 * shared memory and where, who does what, copies. See there.
 */
#ifndef ZIGCUDA_ATTENTION_RING_CUH
#define ZIGCUDA_ATTENTION_RING_CUH

#include "kernels/cuda/attention_plan.cuh"

enum {
    SPLITS_BATCH = 8,
    SPLITS_KEPT = 4,
    SPLITS_PASSES = 2, /* over the output's dimensions: 8 chunks each, a warp one */
    PIECE_FRAGMENTS = 4,
    PIECE_BYTES = PIECE_FRAGMENTS * CHUNK_BYTES, /* of a warp */
    IMAGE_BYTES = CHUNK_BYTES / 2,               /* of a chunk: 8 keys */
};

static_assert(SPLITS_PASSES * GPU_WARPS == SPLITS_CHUNKS, "a unit's output");
static_assert(SPLITS_BATCH * SPLIT_PAGES <= GPU_THREADS, "a thread a page");
static_assert((int)FEW_TOKENS <= 8, "the image");

struct alignas(16) splits_item {
    u32 page[SPLIT_PAGES]; /* page * kv_heads + kv_head */
    struct attention_tile tile;
    u32 pos;          /* of the split */
    u32 first_chunk;  /* of the output */
    u32 index;        /* in the list */
    u32 unit, splits; /* index of the unit's first item; how many it has */
    u32 row_pos;      /* of the row's first token of this step: pages have what is before */
    u32 slot, flags;  /* of the row */
    bool begins;      /* first one of its unit in this block */
    bool writes;      /* its block writes new keys and values to the row's pages */
};

/* What stays from layer to layer, as it is the same in all that have one window. */
struct splits_kept {
    struct splits_item first[SPLITS_KEPT]; /* all items of the block, when there are no more */
    u32 window;                            /* of the layer that this is for; ~0: none */
    struct attention_plan plan;
    u32 from, to; /* the block's stretch */
};

static_assert(sizeof(struct splits_kept) <= ATTENTION_KEPT_BYTES, "step_shared");

struct splits_shared {
    struct plan_shared list;
    struct splits_item items[2][SPLITS_BATCH];    /* batches in turn */
    struct attention_row rows[2][ATTENTION_ROWS]; /* of units in turn */
    float largest[SPLIT_PAGES][ATTENTION_ROWS];
    float angles[LIMIT_HEAD_DIM]; /* of a token: cos [dims / 2], sin [dims / 2] */
    u32 token;                    /* that one; ~0: none */
    u32 last;
};

static_assert(sizeof(struct splits_shared) <= SPLITS_SHARED_BYTES, "attention_shared_bytes");

/* Behind it. */
struct splits_places {
    uint4 *weights; /* a-fragments [page][32 lanes]; or work space to turn heads */
    uint4 *queries; /* a-fragments [chunk][32 lanes] */
    /* The image. A lane has 8 bytes of a chunk: key g, dimensions 4t .. 4t + 3; values of the keys
     * 2t and 2t + 1, dimension g and g + 8. */
    u8 *k, *v; /* [chunk]; v: the unit's chunks */
    u8 *ring;
};

/* A warp's ring, and what is copied into it. */
struct splits_ring {
    u8 *base;             /* at this lane's 16 bytes */
    u32 bytes;            /* 1, 2, 4, 6, 8 or 12 slots of PIECE_BYTES */
    u32 next, fill;       /* slot to be used, to be filled; in bytes */
    const u8 *k, *v;      /* at this lane's 16 bytes */
    u32 chunks;           /* of head_dim */
    u32 k_pieces, pieces; /* of an item: of keys, in all */
    u32 index, to, at; /* item to be copied next, relative to the stretch; its end; piece of it */
    const struct splits_item *item;
    const u8 *keys; /* of the item, for this warp */
};

/* What a split yields, and what a unit has so far. */
template <u32 passes> struct splits_sum {
    float o[passes][2][4];
    float m[2], l[2];
};

GPU struct splits_shared *splits_shared(void)
{
    return gpu_near((struct splits_shared *)gpu_shared());
}

GPU struct splits_places splits_places(u32 chunks)
{
    struct splits_places p;
    p.weights = (uint4 *)(gpu_shared() + SPLITS_SHARED_BYTES);
    p.queries = p.weights + SPLIT_PAGES * 32;
    p.k = (u8 *)(p.queries + chunks * 32);
    p.v = p.k + chunks * IMAGE_BYTES;
    p.ring = p.v + MIN(chunks, (u32)SPLITS_CHUNKS) * IMAGE_BYTES;
    return p;
}

/* Shared memory for attention: the rings of linears have nothing in them yet. */
GPU u32 splits_space(const struct gpu_run *run)
{
    return run->shared_bytes + GPU_WARPS * run->ring_bytes;
}

GPU struct splits_kept *splits_kept(const struct gpu_run *run)
{
    struct step_shared *near = (struct step_shared *)(gpu_shared() + splits_space(run));
    return gpu_near((struct splits_kept *)near->attention);
}

/* The item at place `at` of the block's stretch. */
GPU const struct splits_item *splits_item(u32 at)
{
    return &splits_shared()->items[at / SPLITS_BATCH % 2][at % SPLITS_BATCH];
}

/* --- the list ------------------------------------------------------------------------------ */

/* Items [first, first + n) of the list; n <= SPLITS_BATCH. [from, ..) is the block's stretch. */
GPU void splits_look_up(const struct op_attention *op, const struct gpu_run *run,
                        const struct attention_plan *plan, struct splits_item *items, u32 first,
                        u32 n, u32 from)
{
    u32 i = gpu_thread() / SPLIT_PAGES, p = gpu_thread() % SPLIT_PAGES, at;
    if (i >= n)
        return;
    u32 rest = attention_find(run, first + i, &at);
    const struct gpu_row *row = gpu_global(gpu_near(run->step)->rows) + at;
    u32 splits = attention_splits(op, row), unit = rest / splits, split = rest % splits;
    u32 skipped = unit / plan->few_units * plan->tokens, in_tile = unit % plan->few_units;
    struct splits_item *item = &items[i];
    struct attention_tile t;
    t.token = row->first + skipped;
    t.n = MIN(plan->tokens, row->n - skipped);
    t.pos = row->pos + skipped;
    t.kv_head = in_tile % plan->units / plan->parts;
    t.part = in_tile % plan->parts;
    u32 pos = (attention_first_split(op, row) + split) * ATTENTION_SPLIT;
    u32 seen_first = attention_seen_from(op, t.pos) / PAGE_KEYS;
    u32 seen_last = (t.pos + t.n - 1) / PAGE_KEYS;
    u32 page = MIN(MAX(pos / PAGE_KEYS + p, seen_first), seen_last);
    page = gpu_global(run->state.pages)[(size_t)row->slot * run->state.pages_stride + page];
    item->page[p] = page * op->kv_heads + t.kv_head;
    if (p)
        return;
    item->tile = t;
    item->pos = pos;
    item->first_chunk = in_tile / plan->units * SPLITS_CHUNKS;
    item->index = first + i;
    item->unit = first + i - split;
    item->splits = splits;
    item->row_pos = row->pos;
    item->slot = row->slot;
    item->flags = row->flags;
    item->begins = split == 0 || first + i == from;
    item->writes = skipped + t.n == row->n && in_tile % plan->parts == 0 && item->first_chunk == 0;
}

/* --- the ring ------------------------------------------------------------------------------ */

/* This warp's chunk of the output in a pass; chunks or more: none. */
GPU u32 splits_chunk(const struct splits_item *item, u32 pass)
{
    return item->first_chunk + pass * GPU_WARPS + gpu_warp();
}

GPU void splits_copy_keys(const struct splits_ring *r, u8 *to)
{
    u32 first = r->at * PIECE_FRAGMENTS;
    const u8 *from = r->keys + first * CHUNK_BYTES;
    if (first + PIECE_FRAGMENTS <= r->chunks) {
#pragma unroll
        for (u32 i = 0; i < PIECE_FRAGMENTS; i++)
            gpu_copy16(to + i * CHUNK_BYTES, from + i * CHUNK_BYTES);
        return;
    }
#pragma unroll 1
    for (u32 i = 0; first + i < r->chunks; i++)
        gpu_copy16(to + i * CHUNK_BYTES, from + i * CHUNK_BYTES);
}

GPU void splits_copy_values(const struct splits_ring *r, u8 *to)
{
    u32 i = r->at - r->k_pieces, c = splits_chunk(r->item, i / 2), bytes = r->chunks * CHUNK_BYTES;
    uint4 page = gpu_load<uint4>(r->item->page + i % 2 * PIECE_FRAGMENTS);
    const u8 *from = r->v + c * CHUNK_BYTES;
    if (c >= r->chunks)
        return;
    gpu_copy16(to, from + (size_t)page.x * bytes);
    gpu_copy16(to + CHUNK_BYTES, from + (size_t)page.y * bytes);
    gpu_copy16(to + 2 * CHUNK_BYTES, from + (size_t)page.z * bytes);
    gpu_copy16(to + 3 * CHUNK_BYTES, from + (size_t)page.w * bytes);
}

GPU void splits_enter(struct splits_ring *r)
{
    if (r->index >= r->to)
        return;
    r->item = splits_item(r->index);
    r->keys = r->k + (size_t)r->item->page[gpu_warp()] * (r->chunks * CHUNK_BYTES);
}

/* Starts the copies of the next piece, or if not `really`, goes past it: they were started. */
GPU void splits_copy(struct splits_ring *r, bool really)
{
    if (r->index < r->to) {
        if (really && r->at < r->k_pieces)
            splits_copy_keys(r, r->base + r->fill);
        else if (really)
            splits_copy_values(r, r->base + r->fill);
        if (++r->at == r->pieces) {
            r->at = 0;
            r->index++;
            splits_enter(r);
        }
    }
    if (really)
        gpu_copy_commit(); /* also an empty one: they are counted */
    r->fill = r->fill + PIECE_BYTES == r->bytes ? 0 : r->fill + PIECE_BYTES;
}

/* The ring of a stretch, full. */
template <bool wide>
GPU struct splits_ring splits_ring(const struct op_attention *op, const struct gpu_run *run,
                                   const struct splits_kept *kept, bool really)
{
    struct splits_ring r;
    u32 chunks = kept->plan.chunks, slots;
    u8 *base = splits_places(chunks).ring;
    slots = (splits_space(run) - (u32)(base - gpu_shared())) / (GPU_WARPS * PIECE_BYTES);
    slots = slots >= 12 ? 12 : slots >= 8 ? 8 : slots == 1 ? 1 : slots & ~1u;
    r.bytes = slots * PIECE_BYTES;
    r.base = gpu_near(base) + gpu_warp() * r.bytes + gpu_lane() * 16;
    r.next = r.fill = r.index = r.at = 0;
    r.to = kept->to - kept->from;
    r.k = gpu_global((const u8 *)op->k) + gpu_lane() * 16;
    r.v = gpu_global((const u8 *)op->v) + gpu_lane() * 16;
    r.chunks = chunks;
    r.k_pieces = CEIL_DIV(chunks, (u32)PIECE_FRAGMENTS);
    r.pieces = r.k_pieces + (wide ? 4 : 2);
    splits_enter(&r);
#pragma unroll 1
    for (u32 i = 0; i < slots; i++)
        splits_copy(&r, really);
    return r;
}

/* The piece to be used, at this lane's 16 bytes. At most slots - 1 copies may be open behind it. */
GPU const u8 *splits_wait(const struct splits_ring *r)
{
    if (r->bytes == 12 * PIECE_BYTES)
        gpu_copy_wait<11>();
    else if (r->bytes == 4 * PIECE_BYTES)
        gpu_copy_wait<3>();
    else if (r->bytes >= 6 * PIECE_BYTES) /* or 8: a little early */
        gpu_copy_wait<5>();
    else if (r->bytes == 2 * PIECE_BYTES)
        gpu_copy_wait<1>();
    else
        gpu_copy_wait<0>();
    return r->base + r->next;
}

/* It is done with. */
GPU void splits_next(struct splits_ring *r)
{
    r->next = r->next + PIECE_BYTES == r->bytes ? 0 : r->next + PIECE_BYTES;
    splits_copy(r, true);
}

#endif
