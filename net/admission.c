#include "net/admission.h"

enum { RETRY_MAX_S = 600 };

double admission_wait_s(const struct admission *a, const struct engine_stats *s)
{
    u32 servers = s->blocked ? MAX(s->running, 1u) : a->slots;
    if (s->waiting + s->running < servers)
        return 0;
    return (s->waiting + 1) * a->service_s / servers;
}

static u32 retry_s(double wait_s)
{
    return wait_s < 1 ? 1 : wait_s > RETRY_MAX_S ? RETRY_MAX_S : (u32)wait_s + 1;
}

u32 admission_retry_s(const struct admission *a, const struct engine_stats *s)
{
    return retry_s(admission_wait_s(a, s));
}

static bool busy(struct refusal *f, const char *code, double wait_s)
{
    f->retry_s = retry_s(wait_s);
    f->code = code;
    return false;
}

bool admission_enter(const struct admission *a, const struct engine_stats *s, u32 choices,
                     u64 tokens, u64 deadline_ms, struct refusal *f)
{
    double wait_s = admission_wait_s(a, s);
    double need_s = wait_s + a->first_s;
    if (s->waiting + s->running + choices > a->slots + a->queue) {
        refuse(f, 429, NULL, NULL,
               "%u sequences wait already for %u slots; %u may (engine.queue, engine.slots)",
               s->waiting, a->slots, a->queue);
        return busy(f, "queue_full", wait_s);
    }
    if (a->queue_tokens && s->waiting_tokens && s->waiting_tokens + tokens > a->queue_tokens) {
        refuse(f, 429, NULL, NULL,
               "%llu prompt tokens wait already and this request has %llu; %llu may wait "
               "(server.queue_tokens)",
               (unsigned long long)s->waiting_tokens, (unsigned long long)tokens,
               (unsigned long long)a->queue_tokens);
        return busy(f, "queue_full", wait_s);
    }
    if (deadline_ms && s->waiting + s->running && need_s * 1e3 > (double)deadline_ms) {
        refuse(f, 429, NULL, "deadline_ms",
               "the first token is expected in %.0f ms, after the deadline of %llu ms",
               need_s * 1e3, (unsigned long long)deadline_ms);
        return busy(f, "deadline_unreachable", wait_s);
    }
    return true;
}

bool admission_key_enter(struct admission *a, i32 key, u64 now_ns, struct refusal *f)
{
    if (key < 0)
        return true;
    struct key_share *k = &a->keys[key];
    if (a->key_requests && k->running >= a->key_requests) {
        refuse(f, 429, NULL, NULL,
               "this key has %u requests in work; the limit is %u (keys.requests)", k->running,
               a->key_requests);
        return busy(f, "key_concurrency", a->service_s);
    }
    if (a->key_rate) {
        double a_second = a->key_rate / 60.0;
        k->tokens = k->at_ns ? k->tokens + a_second * (double)(now_ns - k->at_ns) / 1e9
                             : (double)a->key_rate;
        k->tokens = MIN(k->tokens, (double)a->key_rate);
        k->at_ns = now_ns;
        if (k->tokens < 1) {
            refuse(f, 429, NULL, NULL,
                   "this key has had its %u requests a minute (keys.rate); the next may come soon",
                   a->key_rate);
            return busy(f, "key_rate", (1 - k->tokens) / a_second);
        }
        k->tokens -= 1;
    }
    k->running++;
    return true;
}

void admission_key_leave(struct admission *a, i32 key)
{
    if (key < 0)
        return;
    ASSERT(a->keys[key].running > 0);
    a->keys[key].running--;
}

void admission_measured(struct admission *a, double service_s, double first_s)
{
    double weight = a->service_s > 0 ? 0.125 : 1;
    a->service_s += weight * (service_s - a->service_s);
    a->first_s += weight * (first_s - a->first_s);
}
