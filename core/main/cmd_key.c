#include "core/main/main.h"
#include "net/keys.h"

#include <stdio.h>
#include <sys/random.h>

static const char usage[] =
    "usage: zigcuda key new NAME\n\n"
    "Prints a fresh API key, once, on stdout, and the line for the file of keys (keys.file) on\n"
    "stderr. The file holds hashes only:\n\n"
    "  zigcuda key new alice 2>>/etc/zigcuda.keys\n";

int cmd_key(int argc, char **argv)
{
    u8 random[32];
    char key[KEY_TEXT_BYTES], hash[65], line[256];
    static struct keys keys;
    struct err_text e = {0};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return EXIT_OK;
    }
    if (argc != 3 || strcmp(argv[1], "new") != 0) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (getrandom(random, sizeof random, 0) != sizeof random) {
        fprintf(stderr, "zigcuda key: the kernel gives no random bytes\n");
        return EXIT_SYSTEM;
    }
    keys_make(random, key, hash);
    snprintf(line, sizeof line, "%s %s", hash, argv[2]);
    if (keys_parse(&keys, str_of(line), "NAME", &e) != ERR_OK) {
        fprintf(stderr, "zigcuda key: %s\n", e.text);
        return EXIT_USAGE;
    }
    printf("%s\n", key);
    fprintf(stderr, "%s\n", line);
    return EXIT_OK;
}
