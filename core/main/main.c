#include "core/base/err.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("zigcuda\n");
    return EXIT_OK;
}
