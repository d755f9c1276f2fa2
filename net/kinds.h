/* What the values of parameters may be, for calls in XML, which has no types: by the schemas of a
 * request's functions, whose tree is gone when its answer comes. Kept for each parameter that may
 * be text, as 8 bytes in the memory of replies. Any other value is what it looks like. Limits:
 * LIMIT_TOOL_TEXTS, LIMIT_TOOL_SCHEMAS.
 */
#ifndef ZIGCUDA_KINDS_H
#define ZIGCUDA_KINDS_H

#include "core/base/json.h"
#include "core/model/tool_call.h"
#include "net/refusal.h"
#include "net/store.h"

struct kinds { /* of a job */
    const struct store *store;
    struct chain list;
};

/* Of the functions in `tools`, as checked, into a list in the work arena, which is for kinds_keep;
 * false where they are too many. */
MUST bool kinds_read(struct arena *work, const struct json *tools, struct str *list,
                     struct refusal *f);
/* The blocks for it have to be free. */
void kinds_keep(struct kinds *k, struct store *store, struct str list);
struct tool_types kinds_types(const struct kinds *k);

#endif
