/* Pages of the KV cache and what is in them: who holds a page, and which prompt prefixes can be
 * found again. Only numbers live here; the bytes of a page are the device's.
 *
 * A page holds LIMIT_PAGE_TOKENS positions of one sequence in all layers. A full page can be
 * committed: then it is found again by (parent page, its tokens), compared token by token and
 * never by a hash alone, so one caller's text can not reach another's. `salt` separates worlds
 * whose KV differs for the same tokens (rotation by the long form, later adapters). Pages nobody
 * holds stay findable until their memory is needed; the longest unused goes first, children before
 * their parents. All functions are O(pages asked for).
 */
#ifndef ZIGCUDA_KV_H
#define ZIGCUDA_KV_H

#include "config/limits.h"
#include "core/base/arena.h"

#define KV_NO_PAGE UINT32_MAX
#define KV_NO_CHECKPOINT UINT32_MAX /* so 1 + it is 0, none of a device's */

struct kv_page;

/* Of models with states (delta nets, short convolutions): the state behind a page, which the device
 * keeps. A prefix can be gone on with only behind a page that has one. */
struct kv_checkpoint {
    u32 page; /* KV_NO_PAGE: of none yet, while it is written; or free */
    bool taken;
    u64 used; /* when, by kv.uses */
};

struct kv {
    struct kv_page *pages; /* [n] */
    u32 n;
    u32 *table; /* [table_n] page by hash of (parent, salt, tokens), open addressing */
    u32 table_n;
    u32 first_idle, last_idle; /* pages nobody holds, longest unused first */
    u32 idle;                  /* how many */
    bool keep;                 /* prefix cache on */
    struct kv_checkpoint *checkpoints;
    u32 n_checkpoints; /* 0: pages are all that a prefix needs */
    u64 uses;
    u32 round;         /* of kv_ends_begin */
    u64 hits, lookups; /* in pages */
};

size_t kv_bytes(u32 pages, u32 checkpoints);

/* An empty cache of `pages` pages; `keep` turns prefix reuse on. */
MUST enum err kv_open(struct kv *kv, struct arena *a, u32 pages, u32 checkpoints, bool keep,
                      struct err_text *e);

/* Pages that could be had now. */
u32 kv_available(const struct kv *kv);

/* Finds the longest committed prefix of tokens[n], in whole pages, at most cap; holds each page
 * found and writes them to pages[]. Returns how many. */
u32 kv_match(struct kv *kv, u32 salt, const u32 *tokens, u32 n, u32 *pages, u32 cap);

/* The same, up to the last page that has a checkpoint, which goes to *checkpoint, KV_NO_CHECKPOINT
 * where there is none. *seen: pages that are there, those without one, too. */
u32 kv_match_checkpoint(struct kv *kv, u32 salt, const u32 *tokens, u32 n, u32 *pages, u32 cap,
                        u32 *checkpoint, u32 *seen);

/* A checkpoint that is free, or that nobody has used for longest; KV_NO_CHECKPOINT: all are being
 * written. Then, when the state is there, it becomes that of a committed page, or free again
 * (KV_NO_PAGE). */
u32 kv_checkpoint_take(struct kv *kv);
void kv_checkpoint_give(struct kv *kv, u32 checkpoint, u32 page);

/* Holds n fresh pages; all or none. */
MUST bool kv_take(struct kv *kv, u32 n, u32 *pages);

/* `page` (held by the caller, filled with tokens[LIMIT_PAGE_TOKENS], following `parent` or
 * KV_NO_PAGE) becomes findable. When the same block is there already, the caller's page is given
 * back and the other one is held instead. Returns the page to use from now on. */
u32 kv_commit(struct kv *kv, u32 page, u32 parent, u32 salt, const u32 *tokens);

/* Gives pages[n] (in sequence order) back. */
void kv_release(struct kv *kv, const u32 *pages, u32 n);

/* How many pages would be idle if their holders ended one after another: kv_ends_begin, then for
 * each the pages that it alone or with those before it holds. */
void kv_ends_begin(struct kv *kv);
u32 kv_ends(struct kv *kv, const u32 *pages, u32 n);

/* Every page is idle or held, the idle list is whole, no idle parent waits behind its child: a
 * checker for tests and simulations. */
bool kv_consistent(const struct kv *kv);

#endif
