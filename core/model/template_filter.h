/* The filters and tests of jinja2 that chat templates use, and the global functions of the
 * environment transformers sets up. Tables of struct func; an unknown name is a boot error.
 */
#ifndef ZIGCUDA_TEMPLATE_FILTER_H
#define ZIGCUDA_TEMPLATE_FILTER_H

#include "core/model/template_value.h"

const struct func *filter_find(struct str name); /* NULL: unknown */
const struct func *test_find(struct str name);
const struct func *global_find(struct str name);

#endif
