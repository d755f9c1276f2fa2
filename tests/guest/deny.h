/* What systemd's MemoryDenyWriteExecute does to a process, done to this one.
 */
#ifndef ZIGCUDA_TEST_DENY_H
#define ZIGCUDA_TEST_DENY_H

#include "core/base/base.h"

/* By a seccomp filter, as systemd installs it: no mapping that is writable and executable, no
 * mapping made executable later. Without way back. False where the system has no such filters (an
 * emulator) or they do not take hold. */
bool deny_by_filter(void);

/* By prctl(PR_SET_MDWE), which newer systemd prefers; since Linux 6.3. */
bool deny_by_prctl(void);

#endif
