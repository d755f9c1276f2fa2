/* Who may come in now: bounds on what waits, predicted waiting time, and each key's share.
 *
 * The prediction is that of a queue before so many servers as there are slots, or as run while the
 * KV pages are too few for more: (waiting + 1) / servers times the mean service time, which is
 * measured on finished sequences (exponential mean, 1/8 a sequence). Before the first one has
 * finished nothing is predicted and nothing is refused for it; nor while nothing waits or runs: who
 * comes then is measured, and corrects a mean that would keep everybody out.
 */
#ifndef ZIGCUDA_ADMISSION_H
#define ZIGCUDA_ADMISSION_H

#include "config/limits.h"
#include "core/engine/engine.h"
#include "net/refusal.h"

struct key_share {
    u32 running;   /* requests in work */
    double tokens; /* of its bucket: one a request */
    u64 at_ns;     /* when the bucket was brought up to date; 0: never */
};

struct admission {
    u32 slots, queue;
    u64 queue_tokens; /* prompt tokens that may wait; 0: any */
    u32 key_requests; /* of one key at once; 0: any */
    u32 key_rate;     /* of one key a minute; 0: any */
    double service_s; /* mean time of a sequence in its slot; 0: not known */
    double first_s;   /* mean time from its slot to its first token */
    struct key_share keys[LIMIT_KEYS];
};

/* Seconds that a request would wait now, given what waits and runs in the engine. */
double admission_wait_s(const struct admission *a, const struct engine_stats *s);

/* The same as Retry-After says it. */
u32 admission_retry_s(const struct admission *a, const struct engine_stats *s);

/* A request of `choices` sequences with `tokens` prompt tokens in all and a deadline (0: none). */
MUST bool admission_enter(const struct admission *a, const struct engine_stats *s, u32 choices,
                          u64 tokens, u64 deadline_ms, struct refusal *f);

/* One request of a key (-1: no keys, always true). key_leave when it has ended. */
MUST bool admission_key_enter(struct admission *a, i32 key, u64 now_ns, struct refusal *f);
void admission_key_leave(struct admission *a, i32 key);

/* Measured: a sequence was in its slot for service_s, its first token came after first_s. */
void admission_measured(struct admission *a, double service_s, double first_s);

#endif
