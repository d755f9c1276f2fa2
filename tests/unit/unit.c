#include "tests/unit/unit.h"

#include "core/engine/grammar.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
#define TEST(name) {#name, name},
#include "tests/unit/tests.def"
#undef TEST
};

struct arena unit_arena;
static bool failed;

void unit_failed(const char *file, int line, const char *what)
{
    printf("    %s:%d: %s\n", file, line, what);
    failed = true;
}

bool unit_has_failed(void)
{
    return failed;
}

struct str unit_guarded(struct str s)
{
    enum { BYTES = 16 << 20, GUARD = 64 << 10 };
    static char *end;
    if (!end) {
        char *p = mmap(NULL, BYTES + GUARD, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        ASSERT(p != MAP_FAILED && mprotect(p + BYTES, GUARD, PROT_NONE) == 0);
        end = p + BYTES;
    }
    ASSERT(s.n <= BYTES);
    memmove(end - s.n, s.p, s.n);
    return (struct str){end - s.n, s.n};
}

bool unit_put(const char *root, const char *path, const char *text)
{
    char full[512];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; n > 0 && (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0755);
        *p = '/';
    }
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    return fd >= 0 && close(fd) == 0 && good;
}

void unit_drop(const char *root, const char *path)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    unlink(full);
    for (char *p; (p = strrchr(full, '/')) && p >= full + strlen(P_tmpdir "/");) {
        *p = 0;
        rmdir(full);
    }
}

int unit_reads(const struct grammar *g, const char *text)
{
    struct grammar_state s;
    grammar_begin(g, &s);
    for (; *text; text++)
        if (!grammar_step(g, &s, (u8)*text))
            return -1;
    return grammar_complete(g, &s);
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(name, argv[i], strlen(argv[i])) == 0)
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* a crash keeps the lines before it */
    u32 passed = 0, bad = 0;
    struct err_text e = {0};
    if (arena_open(&unit_arena, "unit", 256 * MIB, false, &e) != ERR_OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    for (size_t i = 0; i < COUNTOF(tests); i++) {
        if (!wanted(tests[i].name, argc, argv))
            continue;
        failed = false;
        arena_reset(&unit_arena, 0);
        tests[i].run();
        printf("%s %s\n", failed ? "FAIL" : "ok  ", tests[i].name);
        passed += !failed;
        bad += failed;
    }
    printf("%u passed, %u failed\n", passed, bad);
    return bad != 0;
}
