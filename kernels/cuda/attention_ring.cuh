/* Items of attention_few.cuh and the rings through which their keys and values come: what is in
 * shared memory and where, who does what, copies. See there.
 */
#ifndef ZIGCUDA_ATTENTION_RING_CUH
#define ZIGCUDA_ATTENTION_RING_CUH

#include "kernels/cuda/attention_bytes.cuh"
#include "kernels/cuda/attention_plan.cuh"

enum {
    SPLITS_KEPT = 8,
    SPLITS_BATCH = 16,
    PIECE_FRAGMENTS = 8,                         /* chunks of keys, pages of values */
    PIECE_BYTES = PIECE_FRAGMENTS * CHUNK_BYTES, /* of a warp */
    IMAGE_KEYS = 8,
    IMAGE_BYTES = CHUNK_BYTES / 2,   /* of a chunk */
    JOIN_DIMS = 32,                  /* of a split that is joined, at a time */
    JOIN_BYTES = JOIN_DIMS * 4 + 16, /* with m and l */
    LARGEST_STRIDE = 12,             /* floats: the banks of 8 rows' 16 bytes are apart */
    ANGLE_TOKENS = 4,                /* places of LIMIT_HEAD_DIM / ANGLE_TOKENS dimensions */
};

static_assert((int)FEW_TOKENS <= (int)IMAGE_KEYS, "the image");
static_assert((int)PIECE_FRAGMENTS == (int)SPLIT_PAGES, "a pass over the values is a piece");

/* wide: heads have more than 128 dimensions. low: units are those of splits_turn_one, and have no
 * rows from 8 on. fresh: those of splits_turn_fresh, of rows of up to FRESH_TOKENS tokens. teams: a
 * block goes through its items as one team of warps, or as two that have a stretch of the list each
 * and wait for nobody but themselves, so that one works while the other waits. */
template <bool WIDE, bool LOW, u32 TEAMS, bool FRESH = false> struct splits_way {
    static constexpr bool wide = WIDE, low = LOW, int8 = false, fresh = FRESH;
    static constexpr u32 teams = TEAMS, warps = GPU_WARPS / teams;
    static constexpr u32 threads = warps * 32, rows = low ? LOW_GROUP : ATTENTION_ROWS;
    static constexpr u32 pages = SPLIT_PAGES / warps; /* of a split, a warp's: w, w + warps */
    static constexpr u32 chunks = wide ? (u32)SPLITS_CHUNKS : (u32)GPU_WARPS;
    static constexpr u32 passes = chunks / warps; /* over the unit's output: a chunk a warp each */
    static constexpr u32 together = wide || teams > 1 ? 1 : 2; /* splits at a time, at most */
    static constexpr u32 batch = SPLITS_BATCH / teams;
    static constexpr u32 lane = 16, chunk = CHUNK_BYTES; /* a lane's bytes of a chunk, and all */
    static constexpr u32 images = fresh ? FRESH_TOKENS / IMAGE_KEYS : 1;
    static_assert(batch * SPLIT_PAGES <= threads, "a thread a page");
};
typedef splits_way<true, false, 1> splits_wide;
typedef splits_way<false, false, 1> splits_narrow;
typedef splits_way<false, true, 1> splits_low;
typedef splits_way<false, true, SPLITS_TEAMS> splits_teams;
typedef splits_way<false, false, 1, true> splits_fresh;

/* The same with pages of bytes. Splits go one at a time: in pairs they are a third more code. */
template <class way> struct splits_bytes : way {
    static constexpr bool int8 = true;
    static constexpr u32 together = 1;
    static constexpr u32 lane = 8, chunk = BYTES_CHUNK;
};

/* A way with pages of halves, or of bytes. */
template <class way, bool int8> struct splits_pages {
    typedef way type;
};
template <class way> struct splits_pages<way, true> {
    typedef splits_bytes<way> type;
};
template <class way, bool int8> using splits_of = typename splits_pages<way, int8>::type;

/* A fragment of queries, or of weights, as it lies in shared memory. */
template <bool low> struct splits_fragment {
    typedef uint4 type;
};
template <> struct splits_fragment<true> { /* rows g */
    typedef uint2 type;
};
GPU uint4 splits_a(uint4 f)
{
    return f;
}
GPU uint4 splits_a(uint2 f)
{
    return (uint4){f.x, 0, f.y, 0};
}

/* Of the block's teams; of the warps of a team; of its threads. */
template <class way> GPU u32 splits_team(void)
{
    return way::teams > 1 ? gpu_warp() / way::warps : 0;
}
template <class way> GPU u32 splits_warp(void)
{
    return way::teams > 1 ? gpu_warp() % way::warps : gpu_warp();
}
template <class way> GPU u32 splits_thread(void)
{
    return way::teams > 1 ? gpu_thread() % way::threads : gpu_thread();
}

/* The team's threads meet. */
template <class way> GPU void splits_sync(void)
{
    if constexpr (way::teams > 1)
        gpu_sync_team<way::threads>(splits_team<way>());
    else
        gpu_sync();
}

/* The team's place among those of all blocks. */
template <class way> GPU u32 splits_number(void)
{
    return splits_team<way>() * gpu_blocks() + gpu_block();
}

struct alignas(16) splits_item {
    u32 page[SPLIT_PAGES]; /* page * kv_heads + kv_head */
    struct attention_tile tile;
    u32 live;           /* bit p: a row sees something of page p */
    u32 pos;            /* of the split */
    u32 first_chunk;    /* of the output */
    u32 index;          /* in the list */
    u32 unit, splits;   /* index of the unit's first item; how many it has */
    u32 counter, units; /* shared units: whose counter is theirs; teams that share it */
    u32 row, row_index; /* of the step; index of its first item */
    u32 row_pos;        /* of the row's first token of this step: pages have what is before */
    u32 slot, flags;    /* of the row */
    bool begins;        /* first one of its unit in this stretch */
    bool writes;        /* who has it writes new keys and values to the row's pages */
    bool edge;          /* some row does not see all keys */
    bool mend;          /* pages may lack keys that are seen, or have others */
};

/* What stays from layer to layer, as it is the same in all that have one window. Of a team: */
struct splits_mine {
    struct splits_item first[SPLITS_KEPT]; /* its first items */
    const float *angle_freq;
    u32 angle_pos[ANGLE_TOKENS]; /* ~0: none */
    u32 from, to;                /* its stretch */
    u32 full_index, full_at;     /* what is copied next when the ring has been filled */
};

/* Of the block. */
struct splits_kept {
    struct splits_mine of[SPLITS_TEAMS];
    /* A team's part: cos [dims / 2] and sin [dims / 2] of as many tokens as there is room for, up
       to ANGLE_TOKENS; that at `pos` has place pos % tokens. They are those of `angle_freq` */
    float angles[LIMIT_HEAD_DIM];
    u32 window; /* of the layer that the items are for; ~0: none */
    u32 slots;  /* of a warp's ring: 1, 2, 4 or 6 pieces */
    bool pairs; /* splits of a unit go two at a time */
    struct attention_plan plan;
};

static_assert(sizeof(struct splits_kept) <= ATTENTION_KEPT_BYTES, "step_shared");

/* A unit that other teams have splits of, when this one has done its own. */
struct splits_told {
    struct attention_tile tile;
    u32 first_chunk, unit, splits;
    u32 counter, teams, rank; /* of the teams that share it: number, this one's place */
    u32 before;               /* the counter's value ahead of this team's word */
};

/* Of a team. */
template <class way> struct splits_work {
    struct splits_item items[2][way::batch];   /* batches behind the first, in turn */
    struct attention_row rows[ATTENTION_ROWS]; /* of the unit */
    /* of the pages of a split, or two */
    float largest[way::together][way::rows][LARGEST_STRIDE] __attribute__((aligned(16)));
    struct splits_told told[2]; /* a team shares two units at most */
};

template <class way> struct splits_shared {
    struct plan_shared list;
    struct splits_work<way> of[way::teams];
};

static_assert(sizeof(struct splits_shared<splits_narrow>) <= SPLITS_SHARED_BYTES,
              "attention_shared_bytes");
static_assert(ROUND_UP(sizeof(struct splits_shared<splits_teams>), (size_t)128) +
                      SPLITS_TEAMS * (SPLIT_PAGES * 32 * sizeof(uint2) +
                                      LOW_HEAD_DIM / 16 * (32 * sizeof(uint2) + 2 * IMAGE_BYTES)) +
                      2 * GPU_WARPS * PIECE_BYTES <=
                  LOW_SHARED_BYTES,
              "two pieces a warp");
static_assert(ROUND_UP(sizeof(struct splits_shared<splits_fresh>), (size_t)128) +
                      SPLITS_WEIGHTS_BYTES(LOW_HEAD_DIM) +
                      LOW_HEAD_DIM / 16 *
                          (32 * sizeof(uint4) + 2 * splits_fresh::images * IMAGE_BYTES) +
                      FRESH_TOKENS * LOW_HEAD_DIM * sizeof(float) + 2 * GPU_WARPS * PIECE_BYTES <=
                  ROWS_SHARED_BYTES - STEP_SHARED_BYTES,
              "two pieces a warp");
static_assert(LOW_SHARED_BYTES + STEP_SHARED_BYTES <= MID_SHARED_BYTES &&
                  LOW_SHARED_BYTES + STEP_SHARED_BYTES + ONE_RINGS_BYTES <= ONE_SHARED_BYTES,
              "their attention");

/* Behind it, a team's after the other's. */
template <class way> struct splits_places {
    typedef typename splits_fragment<way::low>::type fragment;
    fragment *weights; /* [split][page][32 lanes]; or work space to turn heads */
    fragment *queries; /* [chunk][32 lanes] */
    /* The image. A lane has 8 bytes of a chunk: key g, dimensions 4t .. 4t + 3; values of the keys
     * 2t and 2t + 1, dimension g and g + 8. Of pages of bytes: four bytes, then the key's scale, or
     * those of both keys. fresh: several, one behind the other, for 8 positions each. */
    u8 *k, *v;     /* [chunk]; v: the unit's chunks */
    float *angles; /* fresh: [position % FRESH_TOKENS][dims]: cos, then sin */
    u8 *ring;      /* of all warps */
};

/* A warp's ring, and what is copied into it. */
template <class way> struct splits_ring {
    u8 *base;               /* at this lane's bytes */
    u32 bytes;              /* of all slots */
    u32 next;               /* slot to be used, and then to be filled again; in bytes */
    const u8 *k, *v;        /* at this lane's bytes */
    u32 chunks, page_bytes; /* of a head; of one head's page */
    u32 k_pieces, pieces;   /* of an item: of keys, in all */
    u32 index, to;          /* first of the items to be copied next, in the stretch; its end */
    u32 count, at;          /* so many items, piece by piece in turn; which of all these pieces */
    const struct splits_kept *kept;
};

/* What a split yields, and what a unit has so far. */
template <class way> struct splits_sum {
    float o[way::passes][2][4];
    float m[2], l[2];
};

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

template <class way> GPU struct splits_work<way> *splits_work_of(void) {
    struct splits_shared<way> *all = (struct splits_shared<way> *)gpu_shared();
    return gpu_near(&all->of[splits_team<way>()]);
}

/* Bytes of weights, a team's. */
template <class way>
GPU u32 splits_weights(u32 chunks)
{
    return way::low ? way::together * SPLIT_PAGES * 32 * (u32)sizeof(uint2)
                    : SPLITS_WEIGHTS_BYTES(chunks * 16);
}

template <class way> GPU struct splits_places<way> splits_places_of(u32 chunks) {
    typedef typename splits_places<way>::fragment fragment;
    const u32 weights = splits_weights<way>(chunks), queries = chunks * 32 * (u32)sizeof(fragment),
              k = chunks * IMAGE_BYTES * way::images,
              v = MIN(chunks, (u32)SPLITS_CHUNKS) * IMAGE_BYTES * way::images,
              angles = way::fresh ? FRESH_TOKENS * LOW_HEAD_DIM * (u32)sizeof(float) : 0,
              all = weights + queries + k + v + angles;
    u8 *first = gpu_shared() + ROUND_UP(sizeof(struct splits_shared<way>), (size_t)128);
    u8 *mine = first + splits_team<way>() * all;
    struct splits_places<way> p;
    p.weights = (fragment *)mine;
    p.queries = (fragment *)(mine + weights);
    p.k = mine + weights + queries;
    p.v = p.k + k;
    p.angles = (float *)(p.v + v);
    p.ring = first + way::teams * all;
    return p;
}

/* Of the images, k or v, the one for `pos`. */
template <class way>
GPU u8 *splits_image(u8 *image, u32 chunks, u32 pos)
{
    return way::images > 1 ? image + pos / IMAGE_KEYS % way::images * chunks * IMAGE_BYTES : image;
}

template <class way> GPU struct splits_mine *splits_mine(struct splits_kept *kept)
{
    return &kept->of[splits_team<way>()];
}
template <class way> GPU const struct splits_mine *splits_mine(const struct splits_kept *kept)
{
    return &kept->of[splits_team<way>()];
}

/* The item at place `at` of the team's stretch. */
template <class way>
GPU const struct splits_item *splits_item(const struct splits_kept *kept, u32 at)
{
    const struct splits_item *behind = &splits_work_of<way>()->items[0][0];
    return gpu_near(at < SPLITS_KEPT ? splits_mine<way>(kept)->first + at
                                     : behind + (at - SPLITS_KEPT) % (2 * way::batch));
}

/* --- the list ------------------------------------------------------------------------------ */

/* Page p of an item, and what its tile sees. */
GPU void splits_fill_pages(const struct op_attention *op, const struct gpu_run *run,
                           struct splits_item *item, u32 slot, u32 row_pos,
                           const struct attention_tile *t, u32 pos, u32 p)
{
    u32 first = attention_seen_from(op, t->pos) / PAGE_KEYS, at = pos / PAGE_KEYS;
    u32 last = (t->pos + t->n - 1) / PAGE_KEYS, page = MIN(MAX(at + p, first), last), live = 0;
    page = gpu_global(run->state.pages)[(size_t)slot * run->state.pages_stride + page];
    item->page[p] = page * op->kv_heads + t->kv_head;
    if (p)
        return;
    for (u32 i = 0; i < SPLIT_PAGES; i++)
        live |= (u32)(at + i >= first && at + i <= last) << i;
    item->live = live;
    item->tile = *t;
    item->pos = pos;
    item->row_pos = row_pos;
    item->edge =
        pos < attention_seen_from(op, t->pos + t->n - 1) || pos + ATTENTION_SPLIT > t->pos + 1;
    item->mend = pos < attention_seen_from(op, t->pos) || pos + ATTENTION_SPLIT > row_pos;
}

/* Page p of an item of the list, number `in_row` of its row's. */
GPU void splits_fill_item(const struct op_attention *op, const struct gpu_run *run,
                          const struct attention_plan *plan, struct splits_item *item, u32 row_at,
                          u32 in_row, u32 index, u32 p)
{
    const struct gpu_row *row = gpu_global(gpu_near(run->step)->rows) + row_at;
    u32 first = attention_first_split(op, row), splits = attention_splits(op, row);
    u32 unit = in_row / splits, split = in_row % splits, pos = (first + split) * ATTENTION_SPLIT;
    u32 skipped = unit / plan->few_units * plan->tokens, in_tile = unit % plan->few_units;
    struct attention_tile t;
    t.token = row->first + skipped;
    t.n = MIN(plan->tokens, row->n - skipped);
    t.pos = row->pos + skipped;
    t.kv_head = in_tile % plan->units / plan->parts;
    t.part = in_tile % plan->parts;
    splits_fill_pages(op, run, item, row->slot, row->pos, &t, pos, p);
    if (p)
        return;
    item->first_chunk = in_tile / plan->units * SPLITS_CHUNKS;
    item->index = index;
    item->unit = index - split;
    item->splits = splits;
    if (plan->share) {
        item->counter = attention_team_of(plan, item->unit);
        item->units = attention_team_of(plan, item->unit + splits - 1) - item->counter + 1;
    }
    item->row = row_at;
    item->row_index = index - in_row;
    item->slot = row->slot;
    item->flags = row->flags;
    item->writes = skipped + t.n == row->n && in_tile % plan->parts == 0 && item->first_chunk == 0;
    item->begins = split == 0;
}

/* Page p of the item that stands `on` items behind another of the same unit. */
GPU void splits_go_on(const struct op_attention *op, const struct gpu_run *run,
                      const struct splits_item *before, struct splits_item *item, u32 on, u32 p)
{
    u32 pos = before->pos + on * ATTENTION_SPLIT;
    splits_fill_pages(op, run, item, before->slot, before->row_pos, &before->tile, pos, p);
    if (p)
        return;
    item->first_chunk = before->first_chunk;
    item->index = before->index + on;
    item->unit = before->unit;
    item->splits = before->splits;
    item->counter = before->counter;
    item->units = before->units;
    item->row = before->row;
    item->row_index = before->row_index;
    item->slot = before->slot;
    item->flags = before->flags;
    item->writes = before->writes;
    item->begins = false;
}

/* Items [first, first + n) of the list, none of which is behind `before`; n <= way::batch. */
template <class way>
GPU void splits_look_on(const struct op_attention *op, const struct gpu_run *run,
                        const struct attention_plan *plan, struct splits_item *items, u32 first,
                        u32 n, const struct splits_item *before)
{
    u32 i = splits_thread<way>() / SPLIT_PAGES, p = splits_thread<way>() % SPLIT_PAGES, its;
    const struct gpu_row *rows = gpu_global(gpu_near(run->step)->rows);
    struct splits_item *item = &items[i];
    if (i >= n)
        return;
    if (first + i < before->unit + before->splits) {
        splits_go_on(op, run, before, item, first + i - before->index, p);
        return;
    }
    u32 row = before->row, in_row = first + i - before->row_index;
    while (in_row >= (its = attention_items(op, plan, &rows[row], false))) {
        in_row -= its;
        row++;
    }
    splits_fill_item(op, run, plan, item, row, in_row, first + i, p);
}

/* The team's first items [first, first + n), n <= SPLITS_KEPT, from the list of rows. */
template <class way>
GPU void splits_look_up(const struct op_attention *op, const struct gpu_run *run,
                        const struct attention_plan *plan, struct splits_item *items, u32 first,
                        u32 n)
{
    u32 i = splits_thread<way>() / SPLIT_PAGES, p = splits_thread<way>() % SPLIT_PAGES, row;
    if (i >= n)
        return;
    u32 in_row = attention_find(run, first + i, &row);
    splits_fill_item(op, run, plan, &items[i], row, in_row, first + i, p);
    if (i == 0 && p == 0)
        items[0].begins = true;
}

/* --- the ring ------------------------------------------------------------------------------ */

/* This warp's chunk of the output in a pass; chunks or more: none. */
template <class way> GPU u32 splits_chunk(const struct splits_item *item, u32 pass)
{
    return item->first_chunk + pass * way::warps + splits_warp<way>();
}

/* A piece of bytes, at this lane's, has scales behind its fragments: of keys, each lane's own; of
 * values those of all pages, which who copies and who reads share. */
GPU u8 *splits_key_scales(u8 *piece)
{
    return piece + PIECE_FRAGMENTS * BYTES_CHUNK - gpu_lane() * 4;
}
GPU u8 *splits_value_scales(u8 *piece, u32 page)
{
    const u32 lane = gpu_lane();
    return piece + PIECE_FRAGMENTS * BYTES_CHUNK - lane * 8 + page * 32 + lane % 4 * 8;
}

/* This lane's part of a chunk; not `live`: zeros. */
template <class way> GPU void splits_copy_chunk(u8 *to, const u8 *from, bool live)
{
    if (way::int8)
        gpu_copy8(to, from, live ? 8 : 0);
    else
        gpu_copy16(to, from, live);
}

/* Chunks from `first` on of a page. */
template <class way>
GPU void splits_copy_keys(const struct splits_ring<way> *r, const struct splits_item *item,
                          u32 page, u32 first, u8 *to)
{
    bool live = item->live >> page & 1;
    const u8 *from = r->k + (u64)item->page[page] * r->page_bytes;
    if (way::int8)
        gpu_copy4(splits_key_scales(to), kv_scales(from - gpu_lane() * way::lane, r->chunks, true),
                  live);
    from += first * way::chunk;
    if (first + PIECE_FRAGMENTS <= r->chunks) {
#pragma unroll
        for (u32 i = 0; i < PIECE_FRAGMENTS; i++)
            splits_copy_chunk<way>(to + i * way::chunk, from + i * way::chunk, live);
        return;
    }
#pragma unroll 1
    for (u32 i = 0; first + i < r->chunks; i++)
        splits_copy_chunk<way>(to + i * way::chunk, from + i * way::chunk, live);
}

/* This warp's chunk of all pages, zeros where nothing is seen. */
template <class way>
GPU void splits_copy_values(const struct splits_ring<way> *r, const struct splits_item *item,
                            u32 pass, u8 *to)
{
    u32 c = splits_chunk<way>(item, pass), live = item->live;
    const u8 *from = r->v + c * way::chunk;
    uint4 a = gpu_load<uint4>(item->page), b = gpu_load<uint4>(item->page + 4);
    const u32 page[SPLIT_PAGES] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    if (c >= r->chunks)
        return;
#pragma unroll
    for (u32 i = 0; i < SPLIT_PAGES; i++)
        splits_copy_chunk<way>(to + i * way::chunk, from + (u64)page[i] * r->page_bytes,
                               live >> i & 1);
    if (way::int8) { /* four lanes a page */
        const u32 i = gpu_lane() / 4;
        const u8 *at = r->v - gpu_lane() * way::lane + (u64)item->page[i] * r->page_bytes;
        gpu_copy8(to + PIECE_FRAGMENTS * BYTES_CHUNK, kv_scales(at, r->chunks, false),
                  live >> i & 1 ? 8 : 0);
    }
}

/* How many splits go together from place `at` of the stretch's n on. */
template <class way> GPU u32 splits_together(const struct splits_kept *kept, u32 at, u32 n)
{
    if (way::together == 1)
        return 1;
    return kept->pairs && at + 1 < n && !splits_item<way>(kept, at + 1)->begins ? 2 : 1;
}

/* Starts the copies of the next piece. */
template <class way> GPU void splits_copy(struct splits_ring<way> *r, u8 *to)
{
    if (r->index < r->to) {
        u32 piece = r->at >> (r->count - 1);
        const struct splits_item *item =
            splits_item<way>(r->kept, r->index + (r->at & (r->count - 1)));
        if (piece >= r->k_pieces)
            splits_copy_values<way>(r, item, piece - r->k_pieces, to);
        else if (way::pages > 1)
            splits_copy_keys<way>(r, item, splits_warp<way>() + piece * way::warps, 0, to);
        else
            splits_copy_keys<way>(r, item, gpu_warp(), piece * PIECE_FRAGMENTS, to);
        if (++r->at == r->pieces * r->count) {
            r->at = 0;
            r->index += r->count;
            r->count = splits_together<way>(r->kept, r->index, r->to);
        }
    }
    gpu_copy_commit(); /* also an empty one: they are counted */
}

template <class way> GPU u32 splits_slots(const struct gpu_run *run, u32 chunks)
{
    u32 taken = (u32)(splits_places_of<way>(chunks).ring - gpu_shared());
    u32 slots = (splits_space(run) - taken) / (GPU_WARPS * PIECE_BYTES);
    return slots >= 6 ? 6 : slots == 1 ? 1 : slots & ~1u;
}

/* Pieces of an item's keys; in all. */
template <class way> GPU u32 splits_k_pieces(u32 chunks)
{
    return way::wide ? CEIL_DIV(chunks, (u32)PIECE_FRAGMENTS) : way::pages;
}

template <class way> GPU u32 splits_pieces(u32 chunks)
{
    return splits_k_pieces<way>(chunks) + way::passes;
}

/* What of a stretch is copied next when its ring is full. By one thread. Heads may be wide, where
 * way is not. */
template <class way> GPU void splits_keep_ring(struct splits_kept *kept)
{
    struct splits_mine *mine = splits_mine<way>(kept);
    u32 index = 0, at = kept->slots, n = mine->to - mine->from, chunks = kept->plan.chunks;
    u32 pieces = !way::low && !way::fresh && chunks > GPU_WARPS ? splits_pieces<splits_wide>(chunks)
                                                                : splits_pieces<way>(chunks);
    for (; index < n && at >= pieces * splits_together<way>(kept, index, n);) {
        u32 count = splits_together<way>(kept, index, n);
        at -= pieces * count;
        index += count;
    }
    mine->full_index = index;
    mine->full_at = index < n ? at : 0;
}

/* The ring of a stretch, full. Not `really`: its first copies were started before. */
template <class way>
GPU struct splits_ring<way> splits_ring_of(const struct op_attention *op,
                                           const struct splits_kept *kept, bool really) {
    const struct splits_mine *mine = splits_mine<way>(kept);
    struct splits_ring<way> r;
    r.kept = kept;
    r.chunks = kept->plan.chunks;
    r.page_bytes = PAGE_HEAD_BYTES(op->head_dim, way::int8);
    r.bytes = kept->slots * PIECE_BYTES;
    r.base = gpu_near(splits_places_of<way>(r.chunks).ring) + gpu_warp() * r.bytes +
             gpu_lane() * way::lane;
    r.next = 0;
    r.to = mine->to - mine->from;
    r.k = gpu_global((const u8 *)op->k) + gpu_lane() * way::lane;
    r.v = gpu_global((const u8 *)op->v) + gpu_lane() * way::lane;
    r.k_pieces = splits_k_pieces<way>(r.chunks);
    r.pieces = splits_pieces<way>(r.chunks);
    r.index = really ? 0 : mine->full_index;
    r.at = really ? 0 : mine->full_at;
    r.count = splits_together<way>(kept, r.index, r.to);
    for (u32 i = 0; really && i < r.bytes; i += PIECE_BYTES)
        splits_copy<way>(&r, r.base + i);
    return r;
}

/* The next n pieces, at this lane's bytes. At most slots - n copies may be open behind them. A
 * ring of one slot has no pairs; in others pairs begin at an even one. */
template <u32 n, class way>
GPU void splits_wait(const struct splits_ring<way> *r, u8 *piece[n])
{
    if (r->bytes == 6 * PIECE_BYTES)
        gpu_copy_wait<6 - n>();
    else if (r->bytes == 4 * PIECE_BYTES)
        gpu_copy_wait<4 - n>();
    else if (r->bytes == 2 * PIECE_BYTES)
        gpu_copy_wait<2 - n>();
    else
        gpu_copy_wait<0>();
    for (u32 i = 0; i < n; i++)
        piece[i] = r->base + r->next + i * PIECE_BYTES;
}

/* They are done with. */
template <u32 n, class way> GPU void splits_next(struct splits_ring<way> *r)
{
#pragma unroll
    for (u32 i = 0; i < n; i++) {
        splits_copy<way>(r, r->base + r->next);
        r->next = r->next + PIECE_BYTES == r->bytes ? 0 : r->next + PIECE_BYTES;
    }
}

#endif
