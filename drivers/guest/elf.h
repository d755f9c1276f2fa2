/* ELF programs of this CPU, read and mapped as the kernel does it at exec: code stays a private
 * mapping of its file, so that no page is ever writable and executable. Headers come from files of
 * the box and are not trusted: they are checked whole before a byte of them is used. Nothing is
 * owned but the mappings, which live as long as the process.
 * Format: System V gABI, "Object Files" and "Program Loading". Limits: LIMIT_ELF_*.
 */
#ifndef ZIGCUDA_ELF_H
#define ZIGCUDA_ELF_H

#include "config/limits.h"
#include "core/base/base.h"
#include "core/base/err.h"

#include <elf.h>

struct elf {
    u64 entry; /* all addresses are relative to where the file is mapped */
    u64 headers;
    u64 low, high; /* of all segments, whole pages */
    u32 n_headers, n_loads;
    Elf64_Phdr loads[LIMIT_ELF_HEADERS];
    char interpreter[LIMIT_PATH_BYTES]; /* PT_INTERP, or "" */
};

/* Headers of a position-independent ELF file of this CPU. `name` is for messages. */
MUST enum err elf_read(int fd, const char *name, struct elf *out, struct err_text *e);

/* Maps the segments of a file that elf_read has checked; *base is added to its addresses. */
MUST enum err elf_map(int fd, const char *name, const struct elf *f, uintptr_t *base,
                      struct err_text *e);

#endif
