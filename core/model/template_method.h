/* The methods of Python's str, dict, list and tuple that chat templates call. The mutating ones
 * are hidden, as the immutable sandbox hides them; those we lack are boot errors.
 */
#ifndef ZIGCUDA_TEMPLATE_METHOD_H
#define ZIGCUDA_TEMPLATE_METHOD_H

#include "core/model/template_value.h"

const struct func *method_find(struct val self, struct str name); /* NULL: no such attribute */
bool method_hidden(struct val self, struct str name);             /* list.append and the like */
bool method_unsupported(struct str name); /* Python has it on one of these types, we do not */

#endif
