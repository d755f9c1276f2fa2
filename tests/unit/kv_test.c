#include "core/engine/kv.h"
#include "core/engine/sched.h"
#include "tests/unit/unit.h"

enum { PAGE = LIMIT_PAGE_TOKENS };

static struct kv fresh(u32 pages, u32 checkpoints)
{
    struct kv kv = {0};
    struct err_text e = {0};
    if (kv_open(&kv, &unit_arena, pages, checkpoints, true, &e) != ERR_OK)
        unit_failed(__FILE__, __LINE__, e.text);
    return kv;
}

void kv_finds_prefixes(void)
{
    struct kv kv = fresh(8, 0);
    u32 tokens[4 * PAGE], pages[4], got[4];
    for (u32 i = 0; i < COUNTOF(tokens); i++)
        tokens[i] = i;
    CHECK(kv_take(&kv, 3, pages));
    u32 parent = KV_NO_PAGE;
    for (u32 i = 0; i < 3; i++)
        parent = pages[i] = kv_commit(&kv, pages[i], parent, 0, tokens + i * PAGE);
    CHECK(kv_match(&kv, 0, tokens, 4 * PAGE, got, 4) == 3);
    CHECK(memcmp(got, pages, sizeof *got * 3) == 0);
    CHECK(kv_match(&kv, 1, tokens, 4 * PAGE, got, 4) == 0); /* another salt */
    kv_release(&kv, got, 3);
    kv_release(&kv, pages, 3);
    CHECK(kv_available(&kv) == 8 && kv_consistent(&kv));
    tokens[PAGE] = 999; /* the second block differs */
    CHECK(kv_match(&kv, 0, tokens, 3 * PAGE - 1, got, 4) == 1);
    kv_release(&kv, got, 1);
    /* the same block computed twice becomes one page */
    u32 twin[1];
    tokens[PAGE] = PAGE;
    CHECK(kv_take(&kv, 1, twin));
    CHECK(kv_commit(&kv, twin[0], KV_NO_PAGE, 0, tokens) == pages[0]);
    CHECK(kv_available(&kv) == 7 && kv_consistent(&kv));
}

/* Four pages, of which the second and the last have a checkpoint; then others want these. */
void kv_goes_on_from_checkpoints(void)
{
    struct kv kv = fresh(8, 2);
    u32 tokens[4 * PAGE], pages[4], got[4], checkpoint, seen, parent = KV_NO_PAGE;
    for (u32 i = 0; i < COUNTOF(tokens); i++)
        tokens[i] = i;
    CHECK(kv_take(&kv, 4, pages));
    for (u32 i = 0; i < 4; i++)
        parent = pages[i] = kv_commit(&kv, pages[i], parent, 0, tokens + i * PAGE);
    CHECK(kv_match_checkpoint(&kv, 0, tokens, 4 * PAGE, got, 4, &checkpoint, &seen) == 0);
    CHECK(seen == 4 && checkpoint == KV_NO_CHECKPOINT && kv.hits == 0);
    u32 second = kv_checkpoint_take(&kv), last = kv_checkpoint_take(&kv);
    CHECK(second != last && kv_checkpoint_take(&kv) == KV_NO_CHECKPOINT); /* both are written */
    kv_checkpoint_give(&kv, second, pages[1]);
    kv_checkpoint_give(&kv, last, pages[3]);
    CHECK(kv_consistent(&kv));
    CHECK(kv_match_checkpoint(&kv, 0, tokens, 4 * PAGE, got, 4, &checkpoint, &seen) == 4);
    CHECK(checkpoint == last && seen == 4);
    kv_release(&kv, got, 4);
    CHECK(kv_match_checkpoint(&kv, 0, tokens, 4 * PAGE - 1, got, 4, &checkpoint, &seen) == 2);
    CHECK(checkpoint == second && seen == 3 && kv.hits == 6);
    kv_release(&kv, got, 2);
    CHECK(kv_checkpoint_take(&kv) == last); /* the one that was used longer ago */
    CHECK(kv_match_checkpoint(&kv, 0, tokens, 4 * PAGE, got, 4, &checkpoint, &seen) == 2);
    kv_release(&kv, got, 2);
    kv_checkpoint_give(&kv, last, pages[1]); /* which has one */
    CHECK(kv_checkpoint_take(&kv) == last && kv_consistent(&kv));
    kv_checkpoint_give(&kv, last, KV_NO_PAGE);
    kv_release(&kv, pages, 4);
    CHECK(kv_take(&kv, 4, got) && kv_take(&kv, 4, pages)); /* all pages anew */
    CHECK(kv_consistent(&kv) && !kv.checkpoints[second].taken);
}

/* A model of the cache: many sequences with few distinct tokens, so that prefixes coincide. */
void kv_random_walk(void)
{
    enum { PAGES = 24, SEQS = 8, BLOCKS = 6 };
    struct kv kv = fresh(PAGES, 0);
    u64 seed = 88172645463325252u;
    struct {
        u32 n, committed, pages[BLOCKS], tokens[BLOCKS * PAGE];
    } seqs[SEQS] = {0};
    for (u32 round = 0; round < 20000; round++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        u32 k = (u32)(seed >> 20) % SEQS;
        if (seqs[k].n && seqs[k].committed < seqs[k].n) {
            u32 i = seqs[k].committed++;
            seqs[k].pages[i] =
                kv_commit(&kv, seqs[k].pages[i], i ? seqs[k].pages[i - 1] : KV_NO_PAGE, 0,
                          seqs[k].tokens + i * PAGE);
        } else if (seqs[k].n) {
            kv_release(&kv, seqs[k].pages, seqs[k].n);
            seqs[k].n = 0;
        } else {
            u32 n = 1 + (u32)(seed >> 40) % BLOCKS;
            memset(seqs[k].tokens, 0, sizeof seqs[k].tokens);
            for (u32 i = 0; i < n; i++)
                seqs[k].tokens[i * PAGE] = (u32)(seed >> (8 + 2 * i)) & 1;
            u32 found = kv_match(&kv, 0, seqs[k].tokens, n * PAGE, seqs[k].pages, n);
            if (kv_take(&kv, n - found, seqs[k].pages + found)) {
                seqs[k].n = n;
                seqs[k].committed = found;
            } else {
                kv_release(&kv, seqs[k].pages, found);
            }
        }
        if (!kv_consistent(&kv))
            CHECK(!"consistent");
    }
    CHECK(kv.hits > 1000);
    for (u32 k = 0; k < SEQS; k++)
        kv_release(&kv, seqs[k].pages, seqs[k].n);
    CHECK(kv_available(&kv) == PAGES && kv_consistent(&kv));
}

void sched_decodes_first(void)
{
    struct sched_seq seqs[] = {
        {100, false, 0, 0}, {1, true, 0, 0}, {30, false, 0, 0}, {1, true, 0, 0}};
    u32 take[4];
    CHECK(sched_plan(seqs, 4, (struct sched_budget){64, 16, 0, 0, 0, {{0, 0}}}, take) == 18);
    CHECK(take[0] == 12 && take[1] == 1 && take[2] == 4 && take[3] == 1);
    seqs[1] = (struct sched_seq){10, false, 0, 0};
    seqs[3] = (struct sched_seq){5, false, 0, 0};
    CHECK(sched_plan(seqs, 4, (struct sched_budget){64, 16, 0, 0, 0, {{0, 0}}}, take) == 64);
    CHECK(take[0] == 48 && take[1] == 10 && take[2] == 1 && take[3] == 5);
    CHECK(sched_plan(seqs, 4, (struct sched_budget){200, 16, 0, 0, 0, {{0, 0}}}, take) == 145);
    CHECK(take[0] == 100 && take[1] == 10 && take[2] == 30 && take[3] == 5);
    CHECK(sched_plan(seqs, 1, (struct sched_budget){64, 16, 0, 0, 0, {{0, 0}}}, take) == 64 &&
          take[0] == 64);
    CHECK(sched_plan(seqs + 3, 1, (struct sched_budget){64, 16, 0, 0, 0, {{0, 0}}}, take) == 5 &&
          take[0] == 5);
    struct sched_seq late[] = {{8, false, 0, 0},
                               {90, false, 0, 0}}; /* what the first leaves goes behind it */
    CHECK(sched_plan(late, 2, (struct sched_budget){64, 16, 0, 0, 0, {{0, 0}}}, take) == 64);
    CHECK(take[0] == 8 && take[1] == 56);
    struct sched_seq put_off[] = {{8, false, 0, 0}, {0, false, 0, 0}, {3, false, 0, 0}};
    CHECK(sched_plan(put_off, 3, (struct sched_budget){64, 16, 0, 0, 0, {{0, 0}}}, take) == 11);
    CHECK(take[0] == 8 && take[1] == 0 && take[2] == 3);
    put_off[0].left = 0;
    CHECK(sched_plan(put_off, 3, (struct sched_budget){64, 16, 0, 0, 0, {{0, 0}}}, take) == 3 &&
          take[2] == 3);
    struct sched_seq tiles[] = {{1, true, 0, 0}, {1, true, 0, 0}, {500, false, 0, 0}};
    CHECK(sched_plan(tiles, 3, (struct sched_budget){200, 64, 32, 0, 0, {{0, 0}}}, take) == 64 &&
          take[2] == 62);
    CHECK(sched_plan(tiles, 3, (struct sched_budget){200, 17, 32, 0, 0, {{0, 0}}}, take) == 19 &&
          take[2] == 17);
    CHECK(sched_plan(tiles, 3, (struct sched_budget){200, 50, 32, 0, 0, {{0, 0}}}, take) == 32 &&
          take[2] == 30);
    CHECK(sched_plan(tiles, 3, (struct sched_budget){200, 61, 32, 0, 0, {{0, 0}}}, take) == 63 &&
          take[2] == 61);
    struct sched_seq long_one[] = {{9000, false, 30000, 0}, {50, false, 0, 0}, {1, true, 0, 0}};
    const struct sched_budget even = {512, 128, 0, 1000, 32, {{0, 0}}}; /* 30000 counts as 15.5 */
    CHECK(sched_plan(long_one, 1, even, take) == 32 && take[0] == 32);
    CHECK(sched_plan(long_one, 2, even, take) == 50 + 32 && take[1] == 50);
    CHECK(sched_plan(long_one, 3, even, take) == 32 + 32 + 1 && take[1] == 32 && take[2] == 1);
    const struct sched_budget on_card = {512, 128, 32, 10000, 64, {{0, 0}}}; /* as 2 */
    CHECK(sched_plan(long_one, 1, on_card, take) == 256 && take[0] == 256);
    long_one[0].pos = 25000; /* 1.75: 292, of which 64 */
    CHECK(sched_plan(long_one, 1, on_card, take) == 256);
    long_one[0].pos = 10000;
    CHECK(sched_plan(long_one, 1, on_card, take) == 512);
    long_one[0].pos = 1000000; /* no fewer than 64 */
    CHECK(sched_plan(long_one, 1, on_card, take) == 64);
    CHECK(sched_plan(long_one, 3, on_card, take) == 64 + 31 + 1);
    CHECK(sched_plan(long_one, 1, (struct sched_budget){5, 2, 0, 10000, 64, {{0, 0}}}, take) == 5);
    struct sched_seq deep[] = {{500, false, 90000, 0}, {1000, false, 90000, 0}, {3, false, 0, 0}};
    CHECK(sched_plan(deep, 3, even, take) == 32 + 32 + 3 && take[0] == 32);
    struct sched_seq decodes[] = {{1, true, 0, 0}, {1, true, 0, 0}};
    CHECK(sched_plan(decodes, 2, (struct sched_budget){1, 16, 0, 0, 0, {{0, 0}}}, take) == 1);
}

/* More than a tile of them: each has its turn, and nobody two. */
void sched_decodes_in_turns(void)
{
    enum { N = 23, TILE = 16, STEPS = 2 * N };
    const struct sched_budget budget = {64, 16, TILE, 0, 0, {{0, 0}}};
    struct sched_seq seqs[N + 1];
    u32 take[N + 1], last[N] = {0}, served[N] = {0};
    for (u32 i = 0; i <= N; i++)
        seqs[i] = (struct sched_seq){1, true, 0, 0};
    for (u32 step = 1; step <= STEPS; step++) {
        CHECK(sched_plan(seqs, N, budget, take) == TILE);
        for (u32 i = 0; i < N; i++) {
            served[i] += take[i];
            seqs[i].turns += take[i];
            CHECK(take[i] || last[i] + 1 >= step);
            last[i] = take[i] ? step : last[i];
        }
    }
    for (u32 i = 0; i < N; i++)
        CHECK(served[i] >= STEPS * TILE / N && served[i] <= STEPS * TILE / N + 1);
    CHECK(sched_plan(seqs, TILE, budget, take) == TILE && take[TILE - 1] == 1);
    seqs[N] = (struct sched_seq){100, false, 0, 0}; /* with a prompt all are in it */
    CHECK(sched_plan(seqs, N + 1, budget, take) == 32 && take[N] == 9 && take[N - 1] == 1);
    CHECK(sched_plan(seqs, N, (struct sched_budget){64, 16, 0, 0, 0, {{0, 0}}}, take) == N);
}

/* More than a part of a tile: by such parts, as long as there are no more than that is good for. */
void sched_decodes_by_parts(void)
{
    enum { N = 13, TILE = 16, PART = 8, STEPS = N };
    const struct sched_budget budget = {64, 16, TILE, 0, 0, {{4, 5}, {PART, N}}};
    struct sched_seq seqs[TILE + 1];
    u32 take[TILE + 1], served[N] = {0};
    for (u32 i = 0; i <= TILE; i++)
        seqs[i] = (struct sched_seq){1, true, 0, 0};
    for (u32 n = 1; n <= TILE + 1; n++) {
        u32 want = n == 5 ? 4 : n > PART && n <= N ? +PART : MIN(n, (u32)TILE);
        CHECK(sched_plan(seqs, n, budget, take) == want);
    }
    for (u32 step = 0; step < STEPS; step++) {
        CHECK(sched_plan(seqs, N, budget, take) == PART);
        for (u32 i = 0; i < N; i++) {
            served[i] += take[i];
            seqs[i].turns += take[i];
        }
    }
    for (u32 i = 0; i < N; i++)
        CHECK(served[i] == STEPS * PART / N);
    seqs[N] = (struct sched_seq){100, false, 0, 0}; /* with a prompt all are in it */
    CHECK(sched_plan(seqs, N + 1, budget, take) > N && take[N - 1] == 1);
    const struct sched_budget small = {7, 16, TILE, 0, 0, {{PART, N}, {0, 0}}};
    CHECK(sched_plan(seqs, N, small, take) == 7);
}
