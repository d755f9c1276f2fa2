/* libFuzzer: the small files that people and tools write. The first byte says which: c config.json,
 * g generation_config.json, t tokenizer_config.json, q quantize_config.json, i zigcuda.ini.
 * Each is taken, with every number within its limits, or refused with a message.
 */
#include "config/options.h"
#include "core/model/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static struct arena keep, scratch;

static enum err config(struct str text, struct err_text *e)
{
    static struct model m;
    struct config c = {0};
    memset(&m, 0, sizeof m);
    enum err code = config_parse(&keep, &scratch, text, "config.json", &m, &c, e);
    if (code != ERR_OK)
        return code;
    ASSERT(m.layers_n > 0 && m.layers_n <= LIMIT_LAYERS && m.head_dim > 0);
    ASSERT(m.kv_heads > 0 && m.heads % m.kv_heads == 0 && m.hidden > 0 && m.vocab > 0);
    const struct delta_shape *d = &m.delta;
    ASSERT(model_attention_layers(&m) > 0);
    ASSERT(!d->value_heads || (d->key_heads && d->value_heads % d->key_heads == 0));
    ASSERT(d->key_dim <= LIMIT_DELTA_DIM && d->value_dim <= LIMIT_DELTA_DIM);
    ASSERT(d->taps <= LIMIT_DELTA_TAPS && m.conv_taps <= LIMIT_DELTA_TAPS);
    return ERR_OK;
}

/* What is added to a model that config_parse has filled; here one of zeros. */
static enum err beside(u8 which, struct str text, struct err_text *e)
{
    static struct model m;
    struct quant q = {0};
    memset(&m, 0, sizeof m);
    m.vocab = 1000;
    if (which == 'g')
        return config_generation_parse(&scratch, text, "generation_config.json", &m, e);
    if (which == 't')
        return config_tokenizer_parse(&scratch, text, "tokenizer_config.json", &m, e);
    return config_quant_parse(&scratch, text, "quantize_config.json", &q, e);
}

static enum err ini(struct str text, struct err_text *e)
{
    static struct options o;
    options_default(&o);
    return options_text(&o, text, "zigcuda.ini", e);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    struct err_text e = {0};
    if (!keep.base && (arena_open(&keep, "keep", (size_t)256 << 20, false, &e) != ERR_OK ||
                       arena_open(&scratch, "scratch", (size_t)256 << 20, false, &e) != ERR_OK))
        abort();
    if (n == 0)
        return 0;
    char *copy = malloc(n);
    struct str text = {memcpy(copy, data + 1, n - 1), n - 1};
    enum err code = data[0] == 'c'   ? config(text, &e)
                    : data[0] == 'i' ? ini(text, &e)
                                     : beside(data[0], text, &e);
    ASSERT(code == ERR_OK || e.text[0]);
    arena_reset(&keep, 0);
    arena_reset(&scratch, 0);
    free(copy);
    return 0;
}
