/* Steps on their way to the card and back. What the host decides about a step (rows, tokens, pages)
 * is written into pinned memory and fetched by the card in one copy; then one launch of the kernel
 * `step` computes everything, puts the sampled tokens into pinned memory and last the step's serial
 * into *done, where the host sees it. A slot's page table, sampling parameters and counts are sent
 * only when they changed. So a decode step costs the host three driver calls (a copy, the step, its
 * sampling), one more where its tokens have masks, and three more where the caller sleeps: the
 * driver then writes to an eventfd. It does so from a stream of its own, as in the steps' stream
 * the next step would wait for it (an H200: 0.2 ms a step).
 *
 * Up to STEPS_DEPTH steps are in flight, in stream order; each owns an entry of the ring until it
 * is polled. An error of the card sticks: every later call tells it again. A step that takes longer
 * than limit_ms is such an error.
 */
#ifndef ZIGCUDA_CUDA_SUBMIT_H
#define ZIGCUDA_CUDA_SUBMIT_H

#include "core/base/clock.h"
#include "drivers/cuda/driver.h"
#include "drivers/cuda/describe.h"
#include "drivers/cuda/list.h"

enum { STEPS_DEPTH = 2 };

/* What the card has of a slot. */
struct steps_slot {
    bool fresh;        /* nothing yet of the sequence that begins */
    const u32 *prompt; /* of that, until then */
    u32 n_prompt;
    u32 version; /* of its page table */
    u32 sent;    /* serial of the step before which its pinned copies were last fetched */
};

struct steps_entry {
    u8 *host;                   /* pinned */
    struct gpu_result *results; /* pinned */
    u64 results_card;
    u64 *stamps; /* pinned */
    u64 stamps_card;
    float *hidden; /* pinned: [slots][hidden], by the row of the step */
    u64 *masks;    /* pinned: one behind the other, as they are sent */
    const struct step *step;
    struct description description;
    bool embeds;  /* some row wants its hidden state, */
    bool fetches; /* or logits */
    u64 submitted_ns;
};

/* How long steps took, by the card's own clock: from the first operation to their results. */
struct steps_times {
    u64 n, sum_ns, min_ns, max_ns, last_ns;
};

struct steps_kernel {
    struct cuda_function *function;
    u32 blocks, threads, launch_bytes; /* of a launch; of a block; its shared memory, */
    u32 rings_bytes;                   /* of which so many are `one_token`'s rings */
    bool many_apart;                   /* see struct gpu_run */
};

/* How a step of few tokens goes by `mid_..`. */
enum mid_way {
    MID_NONE,
    MID_LINEARS, /* what is between attention and attention, and `step` the rest */
    MID_LAYERS,  /* all layers: rows are short, heads not large */
};

struct steps {
    /* set by the caller */
    const struct list *list;
    struct cuda_stream *stream;
    struct steps_kernel step, decode;             /* decode: for steps of few tokens */
    struct steps_kernel delta;                    /* what none of the others does (list_has_delta)
                                                   */
    struct steps_kernel prefill_experts;          /* experts of many tokens; as prefill */
    struct steps_kernel one;                      /* for those of one; as prefill */
    struct steps_kernel group;                    /* attention of long rows; as prefill */
    struct steps_kernel mid[MID_KERNELS];         /* for more, up to MID_TOKENS; as prefill */
    struct steps_kernel rows[MID_KERNELS];        /* where a row has more than one; as prefill */
    struct steps_kernel prefill[MATRIX_HALF + 1]; /* of matrices of each kind: for steps of many
                                                     tokens; function NULL: there is none */
    bool spin;    /* nobody sleeps on the event: it is not written */
    u64 limit_ms; /* longest time of a step */
    struct clock clock;
    struct profile *profile; /* NULL, or where each operation is timed alone */

    enum mid_way mid_does;   /* at most, */
    u32 mid_kind;            /* MID_LAYERS: of all matrices */
    bool one_does, one_head; /* `one_token` or `one_experts`: all layers, and the head */
    bool broad_experts;      /* `prefill_experts` does all */
    bool few_experts;        /* `decode` does those of FEW_TOKENS tokens */
    bool few_delta;          /* it does what `delta` does of more, too */
    struct steps_entry entries[STEPS_DEPTH];
    struct steps_slot *slots;
    struct gpu_sampling *sampling; /* [slots], pinned, as the three below */
    u32 *tables;                   /* [slots][pages_stride] */
    u8 *seen;                      /* [slots][vocab] */
    u32 *done; /* serial of the newest finished step; done[1]: nobody reads it */
    u64 done_card;
    struct step_result *results; /* [samples + scores] of the step polled last */
    void *pinned;
    struct steps_times times;
    u32 submitted, finished;   /* serials */
    bool late_masks;           /* the newest step waits for steps_masks */
    int event;                 /* eventfd: written when a step has finished */
    struct cuda_stream *calls; /* in which the driver writes to it; NULL when spinning */
    struct cuda_event *over;   /* the end of the newest step */
    u64 asked_ns;              /* when the stream was last asked for errors */
    struct err_text failed;
};

/* Bytes of all pinned memory. */
size_t steps_pinned_bytes(const struct list *l);

/* Takes pinned memory, and from `host` what the host alone uses. */
size_t steps_host_bytes(const struct list *l);
MUST enum err steps_open(struct steps *s, struct arena *host, struct err_text *e);
void steps_close(struct steps *s);

/* As in struct device_ops. Logits that a row wants are copied before steps_submit returns. */
void steps_slot_begin(struct steps *s, u32 slot, const u32 *prompt, u32 n, u32 checkpoint);
MUST enum err steps_submit(struct steps *s, const struct step *step, struct err_text *e);
MUST enum err steps_masks(struct steps *s, struct err_text *e);
/* When steps_poll wants to look whether the oldest step in flight has failed or hangs. */
u64 steps_look_ns(const struct steps *s);

int steps_poll(struct steps *s, bool wait, const struct step_result **out, u32 *n, enum err *err,
               struct err_text *e);

#endif
