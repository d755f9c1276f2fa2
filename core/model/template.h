/* Chat templates: the subset of Jinja2 that Hugging Face chat templates use, evaluated exactly as
 * transformers sets jinja2 up (immutable sandbox, trim_blocks, lstrip_blocks, loop controls).
 *
 * Compiling happens at boot into the `keep` arena; an unsupported construct (a tag, filter, test,
 * method or global we lack, recursive loops, call blocks, * and ** in calls) is a boot error with
 * line and column. Rendering allocates nothing: it works in the free part of an arena handed in,
 * also a sealed one. Integers have 64 bits; arithmetic beyond them is an error, larger integers of
 * the request are only passed through. Limits: LIMIT_TEMPLATE_* in config/limits.h.
 *
 * Inside: template_lex (text to tokens), template_expr and template_parse (tokens to a tree),
 * template_eval, template_ops (the tree to text), template_value (Python's values),
 * template_text (Python's strings), template_filter, template_lists, template_method,
 * template_globals (what templates call).
 */
#ifndef ZIGCUDA_TEMPLATE_H
#define ZIGCUDA_TEMPLATE_H

#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/model/answer.h"

struct template;

/* Compiles `source`; `name` is the file for messages. */
MUST enum err template_compile(struct arena *keep, struct str source, const char *name,
                               struct template **out, struct err_text *e);

/* The template of a model folder: chat_template.jinja, else chat_template of tokenizer_config.json,
 * a string or a list of {name, template}: then "default" is taken, and "tool_use" for requests
 * with tools. *out is NULL when the folder has none. */
MUST enum err template_load(struct arena *keep, struct arena *scratch, const char *dir,
                            struct template **out, struct err_text *e);

/* How a model that was taught by it calls tools; NULL: in no way that is known. */
const struct tool_format *template_calls(const struct template *t);

/* It leaves out the calls of earlier answers, as LFM 2's does: they have to stand in their text, as
 * tool_literal_write has them. */
bool template_leaves_calls(const struct template *t);

/* The marks between which it knows thoughts; NULL: it knows of none. */
const struct thought_format *template_thoughts(const struct template *t);

/* The variable by which a request says whether the model is to think; NULL: it has none. */
const char *template_switch(const struct template *t);

/* Can the variable `name` of a request change what is rendered? True as well where the template
 * reads it in a branch only. */
bool template_reads(const struct template *t, const char *name);

/* Renders with the members of the object `vars` as variables (messages, tools, documents,
 * add_generation_prompt, bos_token, eos_token, ... keyword arguments; tools and documents are none
 * when absent). now_s: seconds since the epoch; strftime_now is in UTC, as a box may have no time
 * zone files and a request gives the same bytes wherever it is computed. out[cap] gets
 * *n bytes; a longer text is ERR_TOO_LONG. raise_exception() and every evaluation error is
 * ERR_REQUEST, a ceiling ERR_LIMIT, both with file, line and column. The free part of `work` (at
 * most LIMIT_TEMPLATE_WORK_BYTES of it) is overwritten and free again afterwards: 4 MiB and the
 * size of the prompt three times over is plenty, unless a template builds long strings piece by
 * piece. */
MUST enum err template_render(const struct template *t, const struct json *vars, i64 now_s,
                              struct arena *work, char *out, size_t cap, size_t *n,
                              struct err_text *e);

#endif
