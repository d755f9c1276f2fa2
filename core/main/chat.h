/* One user message (and perhaps a system message) through the model's chat template to token ids.
 */
#ifndef ZIGCUDA_CHAT_H
#define ZIGCUDA_CHAT_H

#include "core/main/boot.h"

/* Renders and tokenizes in b->work. system.n == 0: no system message. */
MUST enum err chat_prompt(struct box *b, struct str system, struct str user, u32 *ids, u32 cap,
                          u32 *n, struct err_text *e);

#endif
