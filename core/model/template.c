#include "core/model/template.h"

#include "config/limits.h"
#include "core/base/file.h"
#include "core/model/template_eval.h"
#include "core/model/template_filter.h"

#include <stdio.h>

enum err template_compile(struct arena *keep, struct str source, const char *name,
                          struct template **out, struct err_text *e)
{
    struct str own = arena_str(keep, str_of(name));
    if (!own.p)
        return arena_full(keep, name, e);
    TRY(parse_template(keep, source, own.p, out, e));
    (*out)->calls = tool_format_of(source);
    (*out)->thoughts = thought_format_of(source);
    return ERR_OK;
}

/* The text under `wanted` of the list [{name, template}], or NULL. */
static const struct json *named(const struct json *list, const char *wanted)
{
    for (const struct json *m = list->child; m; m = m->next) {
        const struct json *name = json_get(m, "name");
        if (name && name->type == JSON_STRING && str_is(name->text, wanted))
            return json_get(m, "template");
    }
    return NULL;
}

static enum err compile_json(struct arena *keep, const struct json *t, const char *name,
                             struct template **out, struct err_text *e)
{
    if (t->type != JSON_STRING)
        return err_set(e, ERR_MODEL, "%s is %s; a string or a list of {name, template} is wanted",
                       name, json_type_name(t));
    return template_compile(keep, t->text, name, out, e);
}

enum err template_load(struct arena *keep, struct arena *scratch, const char *dir,
                       struct template **out, struct err_text *e)
{
    char path[LIMIT_PATH_BYTES];
    struct str text;
    *out = NULL;
    TRY(file_path(path, dir, STR("chat_template.jinja"), e));
    if (file_exists(path)) {
        TRY(file_read(scratch, path, LIMIT_TEMPLATE_BYTES, ERR_MODEL, &text, e));
        return template_compile(keep, text, path, out, e);
    }
    TRY(file_path(path, dir, STR("tokenizer_config.json"), e));
    if (!file_exists(path))
        return ERR_OK;
    const struct json *config, *t;
    TRY(file_read(scratch, path, LIMIT_CONFIG_FILE_BYTES, ERR_MODEL, &text, e));
    TRY(json_parse(scratch, text, path, ERR_MODEL, &config, e));
    t = json_get(config, "chat_template");
    if (!t || t->type == JSON_NULL)
        return ERR_OK;
    char name[LIMIT_PATH_BYTES + 32];
    snprintf(name, sizeof name, "%s: chat_template", path);
    if (t->type != JSON_ARRAY)
        return compile_json(keep, t, name, out, e);
    const struct json *fallback = named(t, "default"), *with_tools = named(t, "tool_use");
    if (!fallback)
        return err_set(e, ERR_MODEL, "%s is a list without an entry named \"default\"", name);
    TRY(compile_json(keep, fallback, name, out, e));
    struct template *tools;
    if (with_tools) {
        TRY(compile_json(keep, with_tools, name, &tools, e));
        (*out)->for_tools = tools;
    }
    return ERR_OK;
}

bool template_reads(const struct template *t, const char *name)
{
    u32 id = 0;
    while (id < t->name_count && !str_is(t->names[id], name))
        id++;
    bool reads = id < t->name_count;
    for (const struct mention *m = t->frame->mentions; m; m = m->next)
        reads &= m->id != id || !m->set_first;
    return reads && (!t->for_tools || template_reads(t->for_tools, name));
}

const char *template_switch(const struct template *t)
{
    static const char *const names[] = {"enable_thinking", "thinking"};
    for (u32 i = 0; i < COUNTOF(names); i++)
        if (template_reads(t, names[i]))
            return names[i];
    return NULL;
}

/* Variables by name: the request's, then the functions of the environment. */
static void fill_globals(struct rt *r, const struct json *vars)
{
    const struct template *t = r->t;
    r->globals = rt_alloc(r, t->name_count, sizeof *r->globals);
    for (u32 i = 0; i < t->name_count && !r->failed; i++) {
        const struct func *f = global_find(t->names[i]);
        bool none = str_is(t->names[i], "tools") || str_is(t->names[i], "documents");
        r->globals[i] = none ? val_none() : (struct val){0};
        if (f)
            r->globals[i] = (struct val){.type = V_FUNC, .func = f};
    }
    for (const struct json *m = vars->child; m && !r->failed; m = m->next)
        for (u32 i = 0; i < t->name_count; i++)
            if (str_eq(t->names[i], m->key)) {
                r->globals[i] = val_json(r, m);
                break;
            }
}

const struct tool_format *template_calls(const struct template *t)
{
    return t->for_tools ? t->for_tools->calls : t->calls;
}

bool template_leaves_calls(const struct template *t)
{
    static const char member[] = "tool_calls";
    struct str source = (t->for_tools ? t->for_tools : t)->source;
    const struct tool_format *f = template_calls(t);
    return f && tool_format_is_python(f) && !memmem(source.p, source.n, member, sizeof member - 1);
}

const struct thought_format *template_thoughts(const struct template *t)
{
    return t->thoughts;
}

enum err template_render(const struct template *t, const struct json *vars, i64 now_s,
                         struct arena *work, char *out, size_t cap, size_t *n, struct err_text *e)
{
    ASSERT(vars->type == JSON_OBJECT);
    const struct json *tools = json_get(vars, "tools");
    if (t->for_tools && tools && tools->type != JSON_NULL)
        t = t->for_tools;
    size_t at = work->used_bytes;
    at += (size_t)(-(uintptr_t)(work->base + at) & 15);
    size_t room = at < work->cap_bytes ? work->cap_bytes - at : 0;
    room = MIN(room, LIMIT_TEMPLATE_WORK_BYTES) & ~(size_t)15;
    struct rt r = {.t = t,
                   .lo = (char *)work->base + at,
                   .hi = (char *)work->base + at + room,
                   .out = {.p = out, .cap = cap},
                   .now_s = now_s,
                   .e = e};
    /* Used from both ends and not zeroed: an arena_alloc there must know that it is dirty. */
    work->peak_bytes = MAX(work->peak_bytes, at + room);
    fill_globals(&r, vars);
    if (!r.failed)
        eval_template(&r);
    *n = r.failed ? 0 : r.out.n;
    return r.failed ? e->code : ERR_OK;
}
