/* The filters over lists and other iterables: join, map, select, sort and so on. Those that are
 * generators in jinja2 are generators here: they run when they are read, and only once.
 */
#ifndef ZIGCUDA_TEMPLATE_LISTS_H
#define ZIGCUDA_TEMPLATE_LISTS_H

#include "core/model/template_value.h"

const struct func *list_filter_find(struct str name); /* NULL: none of these */

#endif
