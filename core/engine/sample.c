#include "core/engine/sample.h"

#include <math.h>

void philox4x32(const u32 counter[4], const u32 key[2], u32 out[4])
{
    u32 c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    u32 k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        u64 a = (u64)0xd2511f53u * c0, b = (u64)0xcd9e8d57u * c2;
        c0 = (u32)(b >> 32) ^ c1 ^ k0;
        c1 = (u32)b;
        c2 = (u32)(a >> 32) ^ c3 ^ k1;
        c3 = (u32)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Standard Gumbel noise of (seed, position, id). u lies in (0, 1): 24 bits and a half, so that
 * both ends are open and the value is exact in f32 arithmetic everywhere. */
static const float noise_max = 17.4f; /* -ln(-ln(1 - 2^-25)) = 17.33 */

static float gumbel(u64 seed, u32 position, u32 id)
{
    u32 word[4];
    philox4x32((u32[]){position, id, 0, 0}, (u32[]){(u32)seed, (u32)(seed >> 32)}, word);
    double u = ((double)(word[0] >> 8) + 0.5) * 0x1p-24;
    return (float)-log(-log(u));
}

struct sampling sampling_neutral(void)
{
    return (struct sampling){.temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1};
}

void sample_count(struct sample_counts *counts, u32 token)
{
    if (counts->output[token] != UINT16_MAX)
        counts->output[token]++;
}

/* Lowest index of the largest value; blocks are skipped by their maximum, whose lanes do not wait
 * for each other. */
static u32 argmax(const float *z, u32 n)
{
    enum { LANES = 16, BLOCK = 256 };
    u32 best = 0;
    float top = -INFINITY;
    for (u32 from = 0; from < n; from += BLOCK) {
        u32 to = MIN(from + BLOCK, n), i = from;
        float lane[LANES], max = -INFINITY;
        for (u32 l = 0; l < LANES; l++)
            lane[l] = -INFINITY;
        for (; i + LANES <= to; i += LANES)
            for (u32 l = 0; l < LANES; l++)
                lane[l] = z[i + l] > lane[l] ? z[i + l] : lane[l];
        for (; i < to; i++)
            lane[0] = z[i] > lane[0] ? z[i] : lane[0];
        for (u32 l = 0; l < LANES; l++)
            max = MAX(max, lane[l]);
        if (!(max > top))
            continue;
        top = max;
        for (best = from; z[best] != top; best++)
            ;
    }
    return best;
}

/* --- logprobs ----------------------------------------------------------------------------- */

void sample_logprobs(const struct sampling *s, const float *logits, u32 vocab,
                     struct step_result *out)
{
    float max = logits[argmax(logits, vocab)];
    double sum = 0;
    for (u32 i = 0; i < vocab; i++)
        sum += expf(logits[i] - max);
    float norm = max + (float)log(sum);
    out->logprob = logits[out->token] - norm;
    u32 n = 0, want = MIN(s->top_logprobs, vocab);
    for (u32 i = 0; i < vocab && want; i++) { /* insertion into a short sorted list */
        float lp = logits[i] - norm;
        if (n == want && lp <= out->top[n - 1].logprob)
            continue;
        u32 at = n < want ? n++ : n - 1;
        for (; at > 0 && out->top[at - 1].logprob < lp; at--)
            out->top[at] = out->top[at - 1];
        out->top[at] = (struct top_logprob){i, lp};
    }
    out->n_top = n;
}

/* --- logits processors ----------------------------------------------------------------------- */

static bool processes(const struct sampling *s, u32 outputs)
{
    return s->n_bias || s->repetition_penalty != 1 || s->presence_penalty != 0 ||
           s->frequency_penalty != 0 || outputs < s->min_tokens;
}

static void process(const struct sampling *s, float *z, u32 vocab, u32 outputs,
                    const struct sample_counts *counts)
{
    if (outputs < s->min_tokens)
        for (u32 i = 0; i < s->n_stop; i++)
            if (s->stop[i] < vocab)
                z[s->stop[i]] = -INFINITY;
    for (u32 i = 0; i < s->n_bias; i++)
        if (s->bias_id[i] < vocab)
            z[s->bias_id[i]] += s->bias[i];
    float r = s->repetition_penalty;
    if (r == 1 && s->presence_penalty == 0 && s->frequency_penalty == 0)
        return;
    for (u32 i = 0; i < vocab; i++) {
        u32 n = counts->output[i];
        if (r != 1 && (n || counts->prompt[i]))
            z[i] = z[i] > 0 ? z[i] / r : z[i] * r;
        if (n)
            z[i] -= s->frequency_penalty * (float)n + s->presence_penalty;
    }
}

/* --- truncation --------------------------------------------------------------------------------
 * Candidates are index[0..n), in ascending id order until a heap reorders them. */

static bool before(const struct sample_scratch *x, u32 a, u32 b)
{
    return x->key[a] > x->key[b] || (x->key[a] == x->key[b] && a < b);
}

static void sift(const struct sample_scratch *x, u32 *heap, u32 n, u32 at)
{
    for (;;) {
        u32 child = 2 * at + 1, item = heap[at];
        if (child >= n)
            return;
        if (child + 1 < n && before(x, heap[child + 1], heap[child]))
            child++;
        if (!before(x, heap[child], item))
            return;
        heap[at] = heap[child];
        heap[child] = item;
        at = child;
    }
}

/* Keeps the fewest candidates, largest key first, whose mass reaches p; at least one. The kept
 * ones end up at the end of index: the heap shrinks from behind. Returns how many. */
static u32 keep_mass(struct sample_scratch *x, u32 n, double total, double p,
                     double (*mass)(const struct sample_scratch *, u32, const void *),
                     const void *arg)
{
    for (u32 i = n / 2; i-- > 0;)
        sift(x, x->index, n, i);
    double sum = 0;
    u32 kept = 0;
    while (kept < n && (kept == 0 || sum < p * total)) {
        u32 last = n - 1 - kept, top = x->index[0];
        sum += mass(x, top, arg);
        x->index[0] = x->index[last];
        x->index[last] = top;
        kept++;
        sift(x, x->index, last, 0);
    }
    memmove(x->index, x->index + (n - kept), kept * sizeof *x->index);
    return kept;
}

/* Value of the k-th largest of the candidates' z: selection in a bounded min-heap of k values
 * (k is small in practice; for k near the vocabulary this is an ordinary heap sort). */
static float kth_largest(struct sample_scratch *x, u32 n, u32 k)
{
    float *heap = x->key;
    u32 have = 0;
    for (u32 i = 0; i < n; i++) {
        float v = x->z[x->index[i]];
        u32 at;
        if (have < k) { /* sift up */
            for (at = have++; at > 0 && heap[(at - 1) / 2] > v; at = (at - 1) / 2)
                heap[at] = heap[(at - 1) / 2];
        } else if (v > heap[0]) { /* replace the least, sift down */
            for (at = 0; 2 * at + 1 < k;) {
                u32 child = 2 * at + 1;
                child += child + 1 < k && heap[child + 1] < heap[child];
                if (heap[child] >= v)
                    break;
                heap[at] = heap[child];
                at = child;
            }
        } else {
            continue;
        }
        heap[at] = v;
    }
    return heap[0];
}

static u32 keep_above(struct sample_scratch *x, u32 n, float threshold)
{
    u32 kept = 0;
    for (u32 i = 0; i < n; i++)
        if (x->z[x->index[i]] >= threshold)
            x->index[kept++] = x->index[i];
    return kept;
}

static double by_key(const struct sample_scratch *x, u32 id, const void *arg)
{
    (void)arg;
    return x->key[id];
}

static double by_logit(const struct sample_scratch *x, u32 id, const void *arg)
{
    return exp((double)x->z[id] - *(const double *)arg);
}

/* key = exp(z - max) of the candidates; returns their sum. */
static double weigh(struct sample_scratch *x, u32 n, float max)
{
    double total = 0;
    for (u32 i = 0; i < n; i++)
        total += x->key[x->index[i]] = expf(x->z[x->index[i]] - max);
    return total;
}

/* Drops the candidates lighter than `key`. Below (1 - p) * total / n they weigh less than 1 - p
 * together, so keep_mass is done before it would come to them; a little less than that leaves room
 * for rounding, and the heaviest one always. */
static u32 drop_tail(struct sample_scratch *x, u32 n, double key)
{
    u32 kept = 0;
    for (u32 i = 0; i < n; i++)
        if (x->key[x->index[i]] >= key)
            x->index[kept++] = x->index[i];
    return kept;
}

/* Locally typical sampling (Meister et al. 2022): candidates by |-ln p - H|, nearest first. */
static u32 keep_typical(struct sample_scratch *x, u32 n, float max, float mass)
{
    double total = weigh(x, n, max), entropy = 0, norm = (double)max + log(total);
    for (u32 i = 0; i < n; i++) {
        double lp = (double)x->z[x->index[i]] - norm;
        if (lp > -700)
            entropy -= exp(lp) * lp;
    }
    for (u32 i = 0; i < n; i++)
        x->key[x->index[i]] = -(float)fabs(-((double)x->z[x->index[i]] - norm) - entropy);
    return keep_mass(x, n, 1.0, mass, by_logit, &norm);
}

static u32 truncate_candidates(const struct sampling *s, struct sample_scratch *x, u32 vocab,
                               float max)
{
    u32 n = vocab;
    for (u32 i = 0; i < vocab; i++)
        x->index[i] = i;
    if (s->top_k && s->top_k < n)
        n = keep_above(x, n, kth_largest(x, n, s->top_k));
    if (s->typical_p < 1)
        n = keep_typical(x, n, max, s->typical_p);
    if (s->top_p < 1) {
        double total = weigh(x, n, max);
        n = drop_tail(x, n, 0.999999 * (1 - (double)s->top_p) * total / n);
        n = keep_mass(x, n, total, s->top_p, by_key, NULL);
    }
    if (s->min_p > 0) { /* relative to the best that is left: typical_p may have dropped the top */
        float best = -INFINITY;
        for (u32 i = 0; i < n; i++)
            best = MAX(best, x->z[x->index[i]]);
        n = keep_above(x, n, best + logf(s->min_p));
    }
    return n;
}

static u32 draw(const struct sampling *s, const struct sample_scratch *x, u32 n, u32 position)
{
    u32 best = x->index[0];
    float best_score = -INFINITY;
    for (u32 i = 0; i < n; i++) {
        u32 id = x->index[i];
        if (x->z[id] + noise_max < best_score) /* no noise can lift it */
            continue;
        float score = x->z[id] + gumbel(s->seed, position, id);
        if (score > best_score || (score == best_score && id < best)) {
            best_score = score;
            best = id;
        }
    }
    return best;
}

void sample_token(const struct sampling *s, const float *logits, u32 vocab, const u64 *mask,
                  u32 position, u32 outputs, const struct sample_counts *counts,
                  struct sample_scratch *x, struct step_result *out)
{
    const float *z = logits;
    if (mask || processes(s, outputs)) {
        memcpy(x->z, logits, vocab * sizeof *x->z);
        for (u32 i = 0; i < vocab && mask; i++)
            if (!(mask[i / 64] >> i % 64 & 1))
                x->z[i] = -INFINITY;
        process(s, x->z, vocab, outputs, counts);
        z = x->z;
    }
    u32 top = argmax(z, vocab);
    if (s->temperature < 1e-5f) {
        out->token = top;
    } else {
        float max = z[top] / s->temperature;
        for (u32 i = 0; i < vocab; i++)
            x->z[i] = z[i] / s->temperature;
        out->token = draw(s, x, truncate_candidates(s, x, vocab, max), position);
    }
    out->logprob = 0;
    out->n_top = 0;
    if (s->logprobs)
        sample_logprobs(s, logits, vocab, out);
}
