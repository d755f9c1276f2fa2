/* Files embedded in the binary as they lie in net/: the OpenAPI document and the status page. */
#ifndef ZIGCUDA_PAGES_H
#define ZIGCUDA_PAGES_H

#include "core/base/base.h"

struct str pages_openapi(void); /* net/openapi.json */
struct str pages_status(void);  /* net/status.html */

#endif
