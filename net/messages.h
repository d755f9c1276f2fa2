/* The messages of a chat request, checked and brought into the form chat templates expect: contents
 * are strings (text parts joined by a newline, as vLLM does), "developer" is "system", and the
 * arguments of earlier tool calls are objects instead of JSON in a string.
 */
#ifndef ZIGCUDA_MESSAGES_H
#define ZIGCUDA_MESSAGES_H

#include "net/refusal.h"

/* `v` is the value of the field "messages"; the new tree lies in `work` and points into the old. */
MUST bool messages_read(const struct json *v, struct arena *work, const struct json **out,
                        struct refusal *f);

#endif
