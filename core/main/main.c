#include "core/main/main.h"

#include "core/base/start.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"serve", cmd_serve, "answer the OpenAI API over HTTP, TLS, Unix sockets and WebSocket"},
    {"run", cmd_run, "answer one prompt, streaming to the terminal"},
    {"info", cmd_info, "print CPU, GPUs, kernel sets, and what a model folder holds"},
    {"plan", cmd_plan, "print the memory that a model would take, without loading it"},
    {"bench", cmd_bench, "measure prefill and decode beside the read bandwidth"},
    {"kernel", cmd_kernel, "launch and time a CUDA kernel of your own"},
    {"key", cmd_key, "make an API key and the line for the file of keys"},
    {"config", cmd_config, "print every option, its value and where that comes from"},
    {"version", cmd_version, "print version and commit"},
};

static int usage(FILE *to, int code)
{
    fprintf(to, "usage: zigcuda COMMAND [flags]     (zigcuda COMMAND --help lists its flags)\n\n");
    for (size_t i = 0; i < COUNTOF(commands); i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(to, "\nFirst steps: zigcuda run --model DIR \"What is the moon?\"\n");
    return code;
}

/* The numbers of standard files that are closed would go to sockets and the like, which then got
 * what is written to stdout and stderr. This takes them without being there to read or write. */
static void hold_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/", O_PATH | O_DIRECTORY); /* gets the lowest number: fd */
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < COUNTOF(commands); i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

static int no_command(const char *name)
{
    const char *near = NULL;
    u32 least = 3;
    if (name[0] == '-') {
        fprintf(stderr,
                "zigcuda: a command comes before the flags, as in zigcuda serve --model DIR; "
                "zigcuda --help lists them\n");
        return EXIT_USAGE;
    }
    for (size_t i = 0; i < COUNTOF(commands); i++) {
        u32 d = str_distance(str_of(name), str_of(commands[i].name));
        if (d < least && 2 * (size_t)d <= strlen(name)) {
            least = d;
            near = commands[i].name;
        }
    }
    fprintf(stderr, "zigcuda: there is no command '%s'%s%s%s; zigcuda --help lists them\n", name,
            near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    return EXIT_USAGE;
}

static int command(int argc, char **argv)
{
    const struct command *asked = find(argv[1]);
    if (asked)
        return asked->run(argc - 1, argv + 1);
    if (strcmp(argv[1], "help") == 0 && argc == 3 && find(argv[2]))
        return find(argv[2])->run(2, (char *[]){argv[2], (char[]){"--help"}, NULL});
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return usage(stdout, EXIT_OK);
    if (strcmp(argv[1], "--version") == 0)
        return cmd_version(argc - 1, argv + 1);
    return no_command(argv[1]);
}

int main_end(const char *command, enum err r, const struct err_text *e)
{
    fflush(stdout);
    if (e->code != ERR_OK)
        fprintf(stderr, "zigcuda %s: %s\n", command, e->text);
    return err_exit_class(r);
}

int main(int argc, char **argv)
{
    start_protect();
    hold_standard_files();
    if (argc < 2)
        return usage(stderr, EXIT_USAGE);
    int code = command(argc, argv);
    if (code != EXIT_OK || (fflush(stdout) == 0 && !ferror(stdout)))
        return code;
    fprintf(stderr, "zigcuda %s: cannot write the output: %s\n", argv[1], strerror(errno));
    return EXIT_SYSTEM;
}
