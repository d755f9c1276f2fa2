/* libFuzzer: chat templates, which come with a model and run on the box. Any text compiles and
 * renders, or is refused with a message, within the ceilings on time and memory.
 */
#include "core/model/template.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static const char vars_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
    "\"content\": \"h\\u00e9 <b>\\n\"}, {\"role\": \"assistant\", \"content\": null, "
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.5, \"y\": [1, "
    "2]}}}]}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}], "
    "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    enum { CAP = 1 << 16 };
    static struct arena keep, work;
    static char out[CAP];
    const struct json *vars;
    struct template *t;
    struct err_text e = {0};
    size_t bytes;
    if (!keep.base && (arena_open(&keep, "keep", (size_t)256 << 20, false, &e) != ERR_OK ||
                       arena_open(&work, "work", (size_t)8 << 20, false, &e) != ERR_OK))
        abort();
    char *text = malloc(n + 1);
    memcpy(text, data, n);
    ASSERT(json_parse(&keep, (struct str){vars_text, sizeof vars_text - 1}, "vars", ERR_REQUEST,
                      &vars, &e) == ERR_OK);
    enum err code = template_compile(&keep, (struct str){text, n}, "fuzz", &t, &e);
    ASSERT(code == ERR_OK || e.text[0]);
    if (code == ERR_OK) {
        code = template_render(t, vars, 1700000000, &work, out, CAP, &bytes, &e);
        ASSERT(code == ERR_OK ? bytes <= CAP : e.text[0] != 0);
    }
    arena_reset(&keep, 0);
    arena_reset(&work, 0);
    free(text);
    return 0;
}
