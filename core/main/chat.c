#include "core/main/chat.h"

static void message(struct json_out *o, const char *role, struct str content)
{
    json_open(o, '{');
    json_key(o, "role");
    json_put_str(o, str_of(role));
    json_key(o, "content");
    json_put_str(o, content);
    json_close(o, '}');
}

/* A special token by name; one the model has not stays undefined, as in transformers. */
static void special(struct json_out *o, const char *name, struct str token)
{
    if (token.n == 0)
        return;
    json_key(o, name);
    json_put_str(o, token);
}

static void variables(struct json_out *o, const struct tokenizer *t, struct str system,
                      struct str user)
{
    json_open(o, '{');
    json_key(o, "messages");
    json_open(o, '[');
    if (system.n)
        message(o, "system", system);
    message(o, "user", user);
    json_close(o, ']');
    json_key(o, "tools");
    json_put_null(o);
    json_key(o, "documents");
    json_put_null(o);
    json_key(o, "add_generation_prompt");
    json_put_bool(o, true);
    special(o, "bos_token", tokenizer_bos(t));
    special(o, "eos_token", tokenizer_eos(t));
    special(o, "unk_token", tokenizer_unk(t));
    special(o, "pad_token", tokenizer_pad(t));
    json_close(o, '}');
}

enum err chat_prompt(struct box *b, struct str system, struct str user, u32 *ids, u32 cap, u32 *n,
                     struct err_text *e)
{
    /* Escaping makes a byte six at the most (\u001f). */
    size_t text_cap = 6 * (system.n + user.n) + 4096;
    if (system.n + user.n > b->prompt_bytes)
        return err_set(e, ERR_LIMIT,
                       "the messages have %zu bytes; the limit is %zu (model.context)",
                       system.n + user.n, b->prompt_bytes);
    struct json_out o = json_out_over(arena_alloc(&b->work, text_cap, 1), text_cap);
    if (!o.p)
        return arena_full(&b->work, "messages", e);
    variables(&o, b->tokenizer, system, user);
    ASSERT(!o.full);
    const struct json *vars;
    TRY(json_parse(&b->work, (struct str){o.p, o.n}, "messages", ERR_REQUEST, &vars, e));
    size_t cap_bytes = b->prompt_bytes + 4096, bytes;
    char *text = arena_alloc(&b->work, cap_bytes, 1);
    if (!text)
        return arena_full(&b->work, "rendered prompt", e);
    TRY(template_render(b->template, vars, b->clock.wall_s(b->clock.arg), &b->work, text, cap_bytes,
                        &bytes, e));
    return boot_encode(b, (struct str){text, bytes}, 0, ids, cap, n, e);
}
