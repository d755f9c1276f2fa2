/* A conversation through the model's chat template to the text of a prompt, as transformers'
 * apply_chat_template does it: variables messages, tools and documents (none), the special tokens
 * by name, add_generation_prompt, and whatever else the caller has.
 */
#ifndef ZIGCUDA_CHAT_H
#define ZIGCUDA_CHAT_H

#include "core/model/template.h"
#include "core/model/tokenizer.h"

struct chat {
    const struct json *messages;  /* array of objects with role and content */
    const struct json *tools;     /* array, as they are given; or NULL */
    const struct json *variables; /* object of more variables, which win; or NULL */
    struct str effort;            /* the variable reasoning_effort; p NULL: not set */
    const char *thinking;         /* the one that says whether it thinks; NULL: not set */
    bool thinks;
    bool add_generation_prompt;
    bool continue_final; /* the text ends where the content of the last message ends */
    i64 now_s;           /* for strftime_now, see template_render */
};

/* Appends {"role": role, "content": content} to an array. */
void chat_message(struct json_tree *messages, struct arena *a, struct str role, struct str content);

/* The text in `work`, at most cap bytes (else ERR_TOO_LONG). Its variables and values are there
 * too. */
MUST enum err chat_render(const struct template *template, const struct tokenizer *t,
                          const struct chat *chat, struct arena *work, size_t cap, struct str *out,
                          struct err_text *e);

#endif
