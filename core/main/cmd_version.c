#include "core/main/main.h"

#include "version.h"

#include <stdio.h>

#if defined(__x86_64__)
#define ARCH "x86_64"
#elif defined(__aarch64__)
#define ARCH "aarch64"
#endif

int cmd_version(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("usage: zigcuda version\n");
        return EXIT_OK;
    }
    if (argc > 1) {
        fprintf(stderr, "zigcuda version: takes no arguments\n");
        return EXIT_USAGE;
    }
    printf("zigcuda %s (commit %s, %s)\n", ZIGCUDA_VERSION, ZIGCUDA_COMMIT, ARCH);
    return EXIT_OK;
}
