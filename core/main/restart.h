/* Starting the process again in its place: the same program, arguments and pid, for when the
 * compute device is lost, which no process recovers from in any other way. All descriptors close
 * but those that were marked to stay.
 */
#ifndef ZIGCUDA_RESTART_H
#define ZIGCUDA_RESTART_H

#include "core/base/err.h"

/* Before anything changes what a new process would inherit: remembers the cores of this thread. */
void restart_begin(void);

/* Marks all descriptors from 3 on to close; afterwards some may be marked to stay. */
void restart_close_all(void);

/* Does it; argv as main got it, and `variable=value` in the environment, in place of one that is
 * there. Returns only when the kernel refuses. */
enum err restart_exec(char **argv, const char *variable, const char *value, struct err_text *e);

#endif
