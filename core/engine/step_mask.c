/* Which tokens may come of a step's rows whose sequences have a grammar. */
#include "core/engine/seq.h"

void seq_read(const struct engine *g, const struct seq *s, struct grammar_state *at, u32 token)
{
    char bytes[LIMIT_TOKEN_BYTES];
    u32 n = tokenizer_bytes(g->tokenizer, token, bytes);
    bool fits = grammar_read(s->grammar, at, (struct str){bytes, n});
    ASSERT(fits);
}

/* Behind the newest token and behind each guess. What is sampled where nothing fits is not looked
 * at; neither is what comes of a sequence that has ended meanwhile. Returns how many have tokens.
 */
static u32 mask_row(struct engine *g, const struct seq *s, const struct flight *f,
                    const struct step_row *row)
{
    const size_t words = MASK_WORDS(g->device->model->vocab);
    const u32 *guesses = f->tokens + row->first + row->n - row->samples + 1;
    u64 *masks = g->masks + (row->masks - g->masks);
    struct grammar_state at;
    u32 n = 0;
    bool open = s->state == SEQ_RUNNING;
    grammar_copy(&at, &s->grammar_state);
    for (; open && n < row->samples; n++) {
        if (n > 0)
            seq_read(g, s, &at, guesses[n - 1]);
        if (!mask_put(&g->masker, s->grammar, &at, &s->sampling, masks + n * words))
            break;
    }
    memset(masks + n * words, 0xff, (row->samples - n) * words * sizeof *masks);
    return open ? n : row->samples;
}

void step_mask(struct engine *g, struct flight *f)
{
    for (u32 i = 0; i < f->step.n_rows; i++) {
        const struct step_row *row = &f->rows[i];
        f->fitting[i] = row->masks ? mask_row(g, f->seqs[i], f, row) : row->samples;
    }
    f->late = false;
}
