/* The messages of a chat request, checked and brought into the form chat templates expect: contents
 * are strings (text parts joined by a newline, as vLLM does), "developer" is "system", and the
 * arguments of earlier tool calls are objects instead of JSON in a string.
 */
#ifndef ZIGCUDA_MESSAGES_H
#define ZIGCUDA_MESSAGES_H

#include "core/base/json.h"
#include "net/refusal.h"

/* `v` is the value of the field "messages"; the new tree lies in `work` and points into the old. */
MUST bool messages_read(const struct json *v, struct arena *work, const struct json **out,
                        struct refusal *f);

/* The arguments of an earlier call as a tree of its own, from their text; of none {}. What is no
 * JSON, as of a call that was cut off, is {"INVALID_JSON": "..."}, as it is in answers of blocks.
 * NULL: `work` is full. */
struct json *messages_arguments(struct arena *work, struct str text);

#endif
