/* The command line: one function a command, each in its cmd_*.c. argv[0] is the command's name
 * and argv[-1] the program's; the result is the exit code (enum in core/base/err.h).
 */
#ifndef ZIGCUDA_MAIN_H
#define ZIGCUDA_MAIN_H

#include "core/base/err.h"

int cmd_bench(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_kernel(int argc, char **argv);
int cmd_key(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_version(int argc, char **argv);

/* The end of a command: the error, if there is one, behind all that stands on stdout, which may be
 * the same file; and the exit code. */
int main_end(const char *command, enum err r, const struct err_text *e);

#endif
