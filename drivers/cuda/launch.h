/* Which kernels compute a step, by its tokens and the model's matrices, and their launches in
 * stream order.
 */
#ifndef ZIGCUDA_CUDA_LAUNCH_H
#define ZIGCUDA_CUDA_LAUNCH_H

#include "drivers/cuda/submit.h"

/* Once, when the kernels are there: what each of them can do of the model. */
void launch_open(struct steps *s);

enum launch_what {
    LAUNCH_STEP,   /* all of it */
    LAUNCH_LOGITS, /* but sampling: launch_sample follows */
    LAUNCH_HEAD,   /* more logits of a step whose layers are done, and their sampling */
};

/* card_step: the pass of the step's description, on the card. */
MUST enum err launch_step(struct steps *s, u64 card_step, const struct steps_entry *entry,
                          enum launch_what what, struct err_text *e);
MUST enum err launch_sample(struct steps *s, u64 card_step, struct err_text *e);

#endif
