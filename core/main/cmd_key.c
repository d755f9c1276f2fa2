#include "core/main/main.h"
#include "net/keys.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

static const char usage[] =
    "usage: zigcuda key new NAME\n\n"
    "Prints a fresh API key, once, on stdout, and the line for the file of keys (keys.file) on\n"
    "stderr. The file holds hashes only:\n\n"
    "  zigcuda key new alice 2>>/etc/zigcuda.keys\n";

/* stderr may be the file of keys: what is no key is a comment there, and goes to the terminal of
 * whoever typed it instead, if stdout is one. */
static void say(const struct err_text *e)
{
    bool seen = isatty(STDERR_FILENO) || !isatty(STDOUT_FILENO);
    fprintf(seen ? stderr : stdout, "# zigcuda key: %s\n", e->text);
}

static enum err make(const char *name, struct err_text *e)
{
    u8 random[32];
    char key[KEY_TEXT_BYTES], hash[65];
    if (name[0] == '-' || !keys_is_name(str_of(name)))
        return err_set(e, ERR_USAGE,
                       "'%s' cannot be a key's name: that has 1 to %u letters, digits or any of "
                       "- _ . @, no - at its start",
                       name, LIMIT_KEY_NAME_BYTES);
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_set(e, ERR_SYSTEM, "the kernel gives no random bytes");
    keys_make(random, key, hash);
    if (printf("%s\n", key) < 0 || fflush(stdout) != 0) /* nobody has it, so it is not to count */
        return err_set_errno(e, ERR_SYSTEM, "cannot write the key to stdout");
    if (fprintf(stderr, "%s %s\n", hash, name) < 0)
        return ERR_SYSTEM;
    return ERR_OK;
}

int cmd_key(int argc, char **argv)
{
    struct err_text e = {0};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return EXIT_OK;
        }
    enum err r = argc == 3 && strcmp(argv[1], "new") == 0
                     ? make(argv[2], &e)
                     : err_set(&e, ERR_USAGE, "it is: zigcuda key new NAME (--help tells more)");
    if (e.code != ERR_OK)
        say(&e);
    return err_exit_class(r);
}
