/* How many tokens come of one step by guesses (core/engine/draft.h), for texts that are known: what
 * an answer is to be stands for what a model would sample.
 *
 * usage: drafts MOST [alone] < samples   MOST: engine.drafts; alone: no answer recalls those before
 *
 * A sample, of native u32: tokens of the prompt, of the answer and of the prediction, then these
 * tokens. Printed: samples, tokens of answers but the first (it comes of the prompt), steps for
 * them, guessed tokens, right ones, and how many steps had 0, 1, ... MOST guesses.
 */
#include "core/engine/draft.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_CAP = 255, ROOM = 1 << 20 };

static u32 tokens[ROOM], answer[ROOM];
static u64 samples, said, steps, guessed, right, with[MOST_CAP + 1];

static void follow(struct draft *d, u32 n_prompt, u32 n_answer, u32 most)
{
    u32 out[MOST_CAP];
    tokens[n_prompt] = answer[0];
    for (u32 at = 1; at < n_answer; steps++) {
        u32 n = n_prompt + at, stayed = 0;
        u32 count = draft_find(d, tokens, n, MIN(most, n_answer - at - 1), out);
        while (stayed < count && out[stayed] == answer[at + stayed])
            stayed++;
        if (count)
            draft_judge(d, count, stayed);
        else
            draft_pass(d);
        memcpy(tokens + n, answer + at, (stayed + 1) * sizeof *answer);
        at += stayed + 1;
        said += stayed + 1;
        guessed += count;
        right += stayed;
        with[count]++;
    }
}

int main(int argc, char **argv)
{
    static u32 places[1 << 16]; /* as for long contexts */
    static u32 answers[RECALL_TOKENS], places_there[RECALL_TOKENS];
    struct recall recall = {answers, places_there, 0};
    struct draft d = {.places = places, .bits = 16, .recall = argc == 2 ? &recall : NULL};
    u32 head[3], most = argc > 1 ? (u32)strtoul(argv[1], NULL, 10) : MOST_CAP + 1;
    if (most > MOST_CAP) {
        fprintf(stderr, "usage: drafts MOST [alone] < samples; MOST is at most %u\n",
                (u32)MOST_CAP);
        return 2;
    }
    for (; fread(head, sizeof *head, 3, stdin) == 3; samples++) {
        u32 end = head[0] + head[1] + head[2] + DRAFT_GRAM;
        if (end > ROOM || fread(tokens, sizeof *tokens, head[0], stdin) != head[0] ||
            fread(answer, sizeof *answer, head[1], stdin) != head[1] ||
            fread(tokens + end - head[2], sizeof *tokens, head[2], stdin) != head[2]) {
            fprintf(stderr, "sample %llu is cut or too long\n", (unsigned long long)samples);
            return 1;
        }
        draft_begin(&d, head[0], head[2], end);
        follow(&d, head[0], head[1], most);
        memcpy(tokens + head[0], answer, head[1] * sizeof *answer);
        u32 before = MIN(head[0], RECALL_GRAM - 1u);
        recall_add(&recall, tokens + head[0] - before, before + head[1]);
    }
    printf("%llu %llu %llu %llu %llu", (unsigned long long)samples, (unsigned long long)said,
           (unsigned long long)steps, (unsigned long long)guessed, (unsigned long long)right);
    for (u32 i = 0; i <= most; i++)
        printf(" %llu", (unsigned long long)with[i]);
    puts("");
    return 0;
}
