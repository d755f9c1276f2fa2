/* libFuzzer: what the API reads beside HTTP: bodies of completion requests, of which the first byte
 * chooses the kind, and behind a `k` the file of API keys. Each is read, with every number within
 * its limits, or refused with a message.
 */
#include "net/keys.h"
#include "net/params.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static void check(const struct params *p)
{
    const struct sampling *s = &p->sampling;
    ASSERT(p->n_stop <= LIMIT_STOP_STRINGS && s->n_stop <= LIMIT_STOP_IDS);
    ASSERT(s->n_bias <= LIMIT_LOGIT_BIAS && s->top_logprobs <= LIMIT_LOGPROBS);
    ASSERT(p->n <= LIMIT_CHOICES && p->best_of <= LIMIT_CHOICES);
    ASSERT(s->temperature >= 0 && s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
    ASSERT(p->dimensions <= LIMIT_HIDDEN);
    for (u32 i = 0; i < p->n_stop; i++)
        ASSERT(p->stop[i].n > 0 && p->stop[i].n <= LIMIT_STOP_STRING_BYTES);
}

static void keys(struct str text)
{
    static struct keys k;
    struct err_text e = {0};
    enum err code = keys_parse(&k, text, "keys", &e);
    ASSERT(code == ERR_OK ? k.n <= LIMIT_KEYS : e.text[0] != 0);
    ASSERT(keys_find(&k, (struct str){"zc-", 3}) == -1);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    static const u32 kinds[] = {PARAMS_CHAT,       PARAMS_COMPLETION, PARAMS_TOKENIZE,
                                PARAMS_DETOKENIZE, PARAMS_RESPONSE,   PARAMS_MESSAGE,
                                PARAMS_COUNT,      PARAMS_EMBEDDING,  PARAMS_TURN};
    static struct arena tree, work;
    static struct model m;
    static struct params p;
    const struct json *body;
    struct err_text e = {0};
    struct refusal f = {0};
    if (!tree.base && (arena_open(&tree, "tree", (size_t)64 << 20, false, &e) != ERR_OK ||
                       arena_open(&work, "work", (size_t)64 << 20, false, &e) != ERR_OK))
        abort();
    if (n == 0)
        return 0;
    m.vocab = 1000;
    char *copy = malloc(n);
    struct str text = {memcpy(copy, data + 1, n - 1), n - 1};
    if (data[0] == 'k') {
        keys(text);
    } else if (json_parse(&tree, text, "body", ERR_REQUEST, &body, &e) == ERR_OK &&
               body->type == JSON_OBJECT) {
        memset(&p, 0, sizeof p);
        u32 kind = kinds[(u8)(data[0] - '0') % COUNTOF(kinds)];
        const struct json *input = json_get(body, "input");
        if (kind == PARAMS_TURN && input && input->type != JSON_ARRAY)
            input = NULL; /* else it comes twice */
        if (kind == PARAMS_TURN ? params_read_turn(&p, body, input, &m, &work, &f)
                                : params_read(&p, kind, body, &m, &work, &f))
            check(&p);
        else
            ASSERT(f.status >= 400 && f.text[0]);
    }
    arena_reset(&tree, 0);
    arena_reset(&work, 0);
    free(copy);
    return 0;
}
