/* Chat templates: the subset of Jinja2 that Hugging Face chat templates use, evaluated exactly as
 * transformers sets jinja2 up (immutable sandbox, trim_blocks, lstrip_blocks, loop controls).
 *
 * Compiling happens at boot into the `keep` arena; an unsupported construct is a boot error with
 * line and column. Rendering works in a scratch arena (or any arena not sealed away from it: the
 * engine hands in one over planned memory), under ceilings on steps, depth and output.
 */
#ifndef ZIGCUDA_TEMPLATE_H
#define ZIGCUDA_TEMPLATE_H

#include "core/base/arena.h"
#include "core/base/json.h"

struct template;

/* Compiles `source`; `name` is the file for messages. */
MUST enum err template_compile(struct arena *keep, struct str source, const char *name,
                               struct template **out, struct err_text *e);

/* The template of a model folder: chat_template.jinja, else tokenizer_config.json chat_template
 * (a string, or a list of {name, template}: "default", and "tool_use" via template_for_tools).
 * *out is NULL when the folder has none. */
MUST enum err template_load(struct arena *keep, struct arena *scratch, const char *dir,
                            struct template **out, struct err_text *e);

/* Renders with the members of the object `vars` as variables (messages, tools, documents,
 * add_generation_prompt, bos_token, eos_token, ... keyword arguments). now_s: seconds since the
 * epoch in local time for strftime_now. out[cap] gets *n bytes. raise_exception() and every
 * evaluation error is ERR_REQUEST with line and column. `work` must have room (8 MiB is plenty for
 * a 1 MiB prompt); what was allocated there is forgotten by the caller. */
MUST enum err template_render(const struct template *t, const struct json *vars, i64 now_s,
                              struct arena *work, char *out, size_t cap, size_t *n,
                              struct err_text *e);

#endif
