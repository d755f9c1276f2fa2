/* What is counted and how it is shown to Prometheus (text format 0.0.4). Names begin with zigcuda_;
 * those that vLLM has too are written a second time under vLLM's name, so that its dashboards work.
 */
#ifndef ZIGCUDA_METRICS_H
#define ZIGCUDA_METRICS_H

#include "core/engine/engine.h"
#include "net/conn.h"

enum { METRICS_EDGES = 20, METRICS_ROUTES = 24, METRICS_STATUSES = 28 };

struct histogram {
    u64 buckets[METRICS_EDGES + 1]; /* the last: above all edges */
    u64 count;
    double sum;
};

struct metrics {
    u64 requests[METRICS_ROUTES][METRICS_STATUSES]; /* replies by route and status */
    u64 finished[FINISH_ERROR + 1];                 /* sequences by reason */
    u64 refused_busy;                               /* 429 */
    u64 cancelled_by_client;                        /* gone, or cancel message */
    u64 heartbeats;
    u64 conversations_lost;                                /* did not fit, or made room */
    struct histogram queue_s, first_s, inter_s, request_s; /* seconds */
    struct histogram step_s, host_s;                       /* seconds a step */
    struct histogram submit_s, write_s;                    /* fine: what the host adds */
    struct histogram batch_rows, batch_tokens;             /* of a step */
};

void metrics_add_s(struct histogram *h, double seconds);
void metrics_add_us(struct histogram *h, double seconds); /* with finer edges */
void metrics_add_n(struct histogram *h, u32 n);

/* A reply to the i-th route (METRICS_ROUTES - 1: none). */
void metrics_reply(struct metrics *m, u32 route, int status);

struct metrics_view {
    const struct metrics *m;
    struct engine_stats engine;
    const struct conn_counts *conns;    /* NULL: none */
    const struct device_report *device; /* NULL: it tells nothing */
    const char *model, *version, *fingerprint;
    double uptime_s, predicted_wait_s;
    u64 reply_blocks, reply_blocks_free, conversation_blocks, conversation_blocks_free;
    i64 certificate_ends_s; /* seconds since 1970; 0: no TLS */
    bool ready;
    const char *(*route)(u32 i); /* path of a route, for labels; NULL: unused */
};

/* The page into out[cap]; returns its bytes, 0 when it does not fit. */
size_t metrics_write(const struct metrics_view *v, char *out, size_t cap);

#endif
