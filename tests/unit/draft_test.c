#include "core/engine/draft.h"
#include "tests/unit/unit.h"

enum { CONTEXT = 4096, LINES = 200, LINE = 10 };

/* Lines that all begin with the same tokens. The output has them once more, and now and then
 * another line: what follows such a beginning is guessed from the line that stands behind the
 * newest one, not from the newest that begins so. */
void draft_follows_where_it_was_right(void)
{
    struct draft d;
    static u32 tokens[CONTEXT], answer[CONTEXT];
    u32 n = 0, n_answer = 0, steps = 0;
    CHECK(draft_open(&d, &unit_arena, CONTEXT, NULL));
    for (u32 line = 0; line < LINES; line++)
        for (u32 i = 0; i < LINE; i++)
            tokens[n++] = i < 6 ? i : 100 + line * LINE + i;
    for (u32 line = 0; line < LINES; line++)
        for (u32 i = 0; i < LINE; i++)
            if (line % 20 != 19 || i != 7) /* left out */
                answer[n_answer++] = line % 20 == 9 && i == 8 ? 99 : tokens[line * LINE + i];
    draft_begin(&d, n, 0, CONTEXT);
    const u32 n_prompt = n;
    memcpy(tokens + n, answer, 4 * sizeof *answer);
    for (n += 4; n < n_prompt + n_answer; steps++) {
        u32 out[15], rest = n_prompt + n_answer - n, stayed = 0;
        u32 guessed = draft_find(&d, tokens, n, MIN((u32)COUNTOF(out), rest - 1), out);
        while (stayed < guessed && out[stayed] == answer[n - n_prompt + stayed])
            stayed++;
        if (guessed)
            draft_judge(&d, guessed, stayed);
        else
            draft_pass(&d);
        memcpy(tokens + n, answer + n - n_prompt, (stayed + 1) * sizeof *answer);
        n += stayed + 1;
    }
    CHECK(steps < n_answer / 6);
}
