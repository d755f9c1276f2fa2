/* Files embedded in the binary: the OpenAPI document, unpacked when it is first asked for, and the
 * status page. Of one thread. */
#ifndef ZIGCUDA_PAGES_H
#define ZIGCUDA_PAGES_H

#include "core/base/base.h"

struct str pages_openapi(void); /* net/openapi.json */
struct str pages_status(void);  /* net/status.html */

#endif
