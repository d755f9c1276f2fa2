#include "core/engine/device.h"

void device_check_step(const struct device *d, const struct step *s)
{
    u32 tokens = 0, samples = 0, scores = 0;
    ASSERT(s->n_tokens <= d->limits.step_tokens);
    for (u32 i = 0; i < s->n_rows; i++) {
        const struct step_row *row = &s->rows[i];
        ASSERT(row->first == tokens && row->n > 0 && row->n <= s->n_tokens - tokens);
        ASSERT(row->slot < d->limits.slots && row->pos + row->n <= d->limits.context);
        ASSERT(row->n_pages * LIMIT_PAGE_TOKENS >= row->pos + row->n);
        ASSERT(row->n_pages <= CEIL_DIV(d->limits.context, (u32)LIMIT_PAGE_TOKENS));
        ASSERT(!row->follows || (row->n == 1 && d->depth > 1));
        for (u32 p = row->pos / LIMIT_PAGE_TOKENS; p <= (row->pos + row->n - 1) / LIMIT_PAGE_TOKENS;
             p++)
            ASSERT(row->pages[p] < d->limits.pages);
        for (u32 t = row->first; t < row->first + row->n && !row->follows; t++)
            ASSERT(s->tokens[t] < d->model->vocab);
        tokens += row->n;
        ASSERT(row->samples <= row->n && (row->samples <= 1 || !sampling_counts(row->sampling)));
        ASSERT(!row->scores || !row->follows);
        ASSERT(row->keep <= d->limits.checkpoints);
        ASSERT(row->samples <= 1 || !model_has_states(d->model)); /* no guess is taken back */
        samples += row->samples;
        scores += step_row_scores(row);
    }
    ASSERT(tokens == s->n_tokens && samples <= d->limits.samples && scores <= d->limits.scores);
}
