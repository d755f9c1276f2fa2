/* A device that computes nothing, and requests of which it is known what they get from it: for
 * tests of the engine.
 */
#ifndef ZIGCUDA_ENGINE_FAKE_H
#define ZIGCUDA_ENGINE_FAKE_H

#include "core/engine/engine.h"
#include "tests/unit/unit.h"

/* A device whose "model" is a hash of every token it can reach through the page table: a wrong
 * page, a stale prefix or a mixed-up row changes the output. */
enum {
    VOCAB = 997,
    PAGES = 40,
    SLOTS = 6,
    STEP = 48,
    CONTEXT = 160,
    QUEUE = 16,
    REQUESTS = 300,
    HIDDEN = 3,
    CHECKPOINTS = 4
};

extern struct fake {
    struct device device;
    u32 page_tokens[PAGES][LIMIT_PAGE_TOKENS];
    u32 slot_prompt[SLOTS], slot_last[SLOTS];
    struct fake_state { /* of models with delta nets: of so many tokens, and their hash */
        u32 n, hash;
    } slot_state[SLOTS], kept_state[CHECKPOINTS];
    u32 kept, taken;
    struct fake_flight {
        struct step_result results[STEP];
        u32 n_results, delay;
        const struct step *step; /* whose masks are not there yet; else NULL */
    } flights[2];
    u32 submitted, polled, fail_at, guesses; /* of rows that have some */
    u32 late;                                /* steps that had late masks */
    u32 most;                                /* tokens of a step that has some */
    u64 now_ns;
} fake;

extern u32 depth;                      /* of the device: every test runs with 1 and 2 */
extern u32 words, drafts;              /* tokens that it says; engine_config.drafts */
extern const struct tokenizer *speaks; /* their texts, in tests of grammars */
extern u32 samples;
extern u32 checkpoints; /* not 0: its model has delta nets */

struct wish {
    u32 prompt[CONTEXT], n_prompt, max_tokens, got[CONTEXT], n_got, cached;
    u32 likely[CONTEXT], n_likely;
    u64 id, deadline_ns, after;
    i32 priority;
    bool no_answer, embeds, grows;
    const struct grammar *grammar;
    float vector[HIDDEN];
    enum finish finish;
    u32 place; /* among those who have ended, from 1 */
};

extern struct wish *wishes;
extern u32 ended;
extern struct engine *cancels_others; /* who ends takes the first of `wishes` along */

extern u32 random_state;

bool crowd(struct engine *g, u32 n, void (*make)(struct wish *w, u32 i), u32 *busy);
u32 draw(void);
void fill(struct wish *w, u32 seed);
struct engine *fresh_engine(struct model *m);
u32 masked_reference(const u32 *tokens, u32 n, const u64 *mask);
void predict(struct wish *w, u32 n, u32 every);
bool same_as_alone(const struct wish *w);
enum err submit(struct engine *g, struct wish *w);

#endif
