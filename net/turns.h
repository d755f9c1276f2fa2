/* A conversation in the form that chat templates expect, made turn by turn out of other forms:
 * what an assistant says and the calls behind it are one message, the result of a call is one of
 * role "tool". The tree lies in `work` and points into what is handed in.
 */
#ifndef ZIGCUDA_TURNS_H
#define ZIGCUDA_TURNS_H

#include "core/base/json.h"
#include "net/refusal.h"

struct turns {
    struct arena *work;
    struct json_tree list; /* of messages */
    struct json_tree last; /* the newest message, while it is an assistant's: calls go to it */
    struct json_tree calls;
    struct str thought; /* before the next message of an assistant; p NULL: none */
    bool full;
};

struct turns turns_begin(struct arena *work);
void turns_say(struct turns *t, struct str role, struct str text);
/* What an assistant has thought before he says or calls what comes next. */
void turns_think(struct turns *t, struct str text);
void turns_call(struct turns *t, struct str id, struct str name, const struct json *arguments);
void turns_result(struct turns *t, struct str id, struct str text);
/* The texts of parts from `first` to before `end`, each an object with a string "text", joined by
 * newlines, behind `before`; false: the work memory is full. */
MUST bool turns_join(struct arena *work, struct str before, const struct json *first,
                     const struct json *end, struct str *out);
/* The messages; NULL: the work memory is full. */
const struct json *turns_end(struct turns *t);

#endif
