/* The end of a process whose weights lie in files that cannot be read any more. They are computed
 * with where they are mapped (drivers/cpu), so that a file that is cut short, or a disk that fails,
 * is a SIGBUS in the midst of a step: there is no answer to go on with, but a line that says why.
 */
#ifndef ZIGCUDA_FAULT_H
#define ZIGCUDA_FAULT_H

#include "core/model/model.h"

/* From now on a SIGBUS in a file of the model names it on stderr, and then ends the process as it
 * always does. Not in a process with a guest, where signals have no handler (drivers/guest). */
void fault_watch(const struct model *m);

#endif
