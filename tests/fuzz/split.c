/* libFuzzer: a split pattern, a 0 byte, and the text that it cuts. What is compiled gives matches
 * in order and within the text, or says which limit ended the search.
 */
#include "core/base/utf8.h"
#include "core/model/split.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static void cut(const struct split *p, struct str text)
{
    struct split_budget budget = {.steps = 1 << 20};
    struct split_scan scan = {.budget = &budget};
    size_t start, end = 0, before = 0;
    for (; split_next(p, text, end, &scan, &start, &end); before = end)
        ASSERT(before <= start && start <= end && end <= text.n && before < end);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    static struct arena keep;
    struct err_text e = {0};
    struct split *p;
    if (!keep.base && arena_open(&keep, "keep", (size_t)64 << 20, false, &e) != ERR_OK) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    const u8 *zero = memchr(data, 0, n);
    size_t head = zero ? (size_t)(zero - data) : n, rest = zero ? n - head - 1 : 0;
    char *pattern = malloc(head + 1), *text = malloc(rest + 1); /* each with its own end */
    memcpy(pattern, data, head);
    memcpy(text, data + n - rest, rest);
    struct str regex = {pattern, head}, s = {text, rest};
    if (utf8_valid(regex) && utf8_valid(s)) {
        enum err code = split_compile(&keep, regex, "fuzz", &p, &e);
        ASSERT(code == ERR_OK || e.text[0]);
        if (code == ERR_OK)
            cut(p, s);
    }
    arena_reset(&keep, 0);
    free(pattern);
    free(text);
    return 0;
}
