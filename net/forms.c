#include "net/fields.h"

#include <stdio.h>

/* The member of text.format: a schema stands in it as it is. */
static bool flat_format(struct reading *r, const struct json *v)
{
    static const char *const known[] = {"type", "name", "schema", "strict", "description", NULL};
    static const char *const plain[] = {"type", NULL};
    const char *at = r->p->format_field;
    const struct json *type = json_get(v, "type"), *schema = json_get(v, "schema");
    bool by_schema = field_is_str(type, "json_schema");
    if (!(r->kind & PARAMS_RESPONSES) && (!by_schema || !schema || schema->type == JSON_NULL))
        return refuse(r->f, 400, "unsupported_value", at,
                      "%s must be {\"type\": \"json_schema\", \"schema\": ...}", at);
    if (v->type != JSON_OBJECT || (by_schema && (!schema || schema->type == JSON_NULL)) ||
        !(by_schema || field_is_str(type, "json_object") || field_is_str(type, "text")))
        return refuse(r->f, 400, "unsupported_value", at,
                      "%s must be {\"type\": \"text\"}, {\"type\": \"json_object\"} or {\"type\": "
                      "\"json_schema\", \"name\", \"schema\"}",
                      at);
    r->p->json = !field_is_str(type, "text");
    r->p->schema = by_schema ? schema : NULL;
    return field_members(r, at, v, by_schema ? known : plain);
}

bool field_text(struct reading *r, const struct field *field, const struct json *v)
{
    static const char *const known[] = {"format", "verbosity", NULL};
    static const struct field verbosity = {.name = "text.verbosity"};
    const struct json *format = json_get(v, "format"), *words = json_get(v, "verbosity");
    if (v->type != JSON_OBJECT)
        return field_wrong_type(r, field->name, "an object", v);
    return field_members(r, field->name, v, known) &&
           (!words || field_is_empty(words) || field_verbosity(r, &verbosity, words)) &&
           (!format || format->type == JSON_NULL || flat_format(r, format));
}

bool field_output_config(struct reading *r, const struct field *field, const struct json *v)
{
    static const char *const known[] = {"effort", "format", NULL};
    const struct json *format = json_get(v, "format");
    return field_members(r, field->name, v, known) && field_reasoning_effort(r, field, v) &&
           (!format || format->type == JSON_NULL || flat_format(r, format));
}

bool field_format(struct reading *r, const struct field *field, const struct json *v)
{
    const struct json *type = json_get(v, "type"), *own = json_get(v, "json_schema");
    struct str name = type && type->type == JSON_STRING ? type->text : STR("");
    bool by_schema = str_is(name, "json_schema");
    if (by_schema && (!own || own->type != JSON_OBJECT || !json_get(own, "schema")))
        return refuse(r->f, 400, "invalid_value", "response_format.json_schema",
                      "response_format.json_schema must be {\"name\", \"schema\"}");
    for (const struct json *m = own ? own->child : NULL; m; m = m->next)
        if (!str_is(m->key, "name") && !str_is(m->key, "schema") && !str_is(m->key, "strict") &&
            !str_is(m->key, "description"))
            return refuse(r->f, 400, "unknown_parameter", "response_format.json_schema",
                          "response_format.json_schema has a member '%.*s', which is not known",
                          (int)MIN(m->key.n, (size_t)40), m->key.p);
    if (v->n != 1 + (u32)by_schema ||
        !(by_schema || str_is(name, "json_object") || str_is(name, "text")))
        return refuse(
            r->f, 400, "unsupported_value", field->name,
            "response_format must be {\"type\": \"text\"}, {\"type\": \"json_object\"} or "
            "{\"type\": \"json_schema\", \"json_schema\": {\"name\", \"schema\"}}");
    r->p->json = !str_is(name, "text");
    r->p->schema = by_schema ? json_get(own, "schema") : NULL;
    return true;
}

static bool bad_tool(struct reading *r, u32 i, const char *where, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "tools[%u]%s", i, where);
    return refuse(r->f, 400, "invalid_value", param, "%s %s", param, what);
}

/* What has no quote or backslash stands in calls as it is. */
static bool is_tool_name(const struct json *v)
{
    bool plain = v && v->type == JSON_STRING && v->text.n > 0 && v->text.n <= TOOL_NAME_BYTES;
    for (size_t i = 0; plain && i < v->text.n; i++)
        plain = (u8)v->text.p[i] > ' ' && v->text.p[i] != '"' && v->text.p[i] != '\\';
    return plain;
}

/* The members that count here; the template gets all there are. */
static bool check_tool(struct reading *r, u32 i, const struct json *tool)
{
    const struct json *type = json_get(tool, "type"), *f = json_get(tool, "function");
    const struct json *text = json_get(f, "description"), *schema = json_get(f, "parameters"),
                      *strict = json_get(f, "strict");
    if (!type || type->type != JSON_STRING || !str_is(type->text, "function"))
        return bad_tool(r, i, ".type", "must be \"function\"");
    if (!f || f->type != JSON_OBJECT)
        return bad_tool(r, i, ".function", "must be {\"name\", \"description\", \"parameters\"}");
    if (!is_tool_name(json_get(f, "name")))
        return bad_tool(r, i, ".function.name",
                        "must be a string of 1 to 64 bytes without blanks, quotes and backslashes");
    if (text && text->type != JSON_STRING && text->type != JSON_NULL)
        return bad_tool(r, i, ".function.description", "must be a string");
    if (schema && schema->type != JSON_OBJECT && schema->type != JSON_NULL)
        return bad_tool(r, i, ".function.parameters", "must be an object: a JSON Schema");
    r->p->strict = r->p->strict || (strict && strict->type == JSON_TRUE);
    return !strict || strict->type == JSON_NULL || strict->type == JSON_FALSE ||
           strict->type == JSON_TRUE || bad_tool(r, i, ".function.strict", "must be true or false");
}

bool field_tools(struct reading *r, const struct field *field, const struct json *v)
{
    u32 i = 0;
    if (v->type != JSON_ARRAY)
        return field_wrong_type(r, field->name, "a list", v);
    for (const struct json *tool = v->child; tool; tool = tool->next)
        if (!check_tool(r, i++, tool))
            return false;
    r->p->tools = v->n ? v : NULL;
    return true;
}

/* --- tools that are flat: brought into the form that chat has, as templates read it -------------
 */

static void append_copy(struct reading *r, struct json_tree *to, const char *key,
                        const struct json *v)
{
    if (!v || v->type == JSON_NULL)
        return;
    struct json *copy = json_make(r->work, v->type, v->text);
    if (copy)
        *copy = *v;
    json_append(to, str_of(key), copy);
}

static bool flat_tool(struct reading *r, u32 i, const struct json *tool, struct json_tree *list)
{
    bool response = r->kind & PARAMS_RESPONSES;
    const char *const known[] = {"type",        "name",
                                 "description", r->p->parameters_field,
                                 "strict",      response ? NULL : "cache_control",
                                 NULL};
    const struct json *text = json_get(tool, "description"), *strict = json_get(tool, "strict"),
                      *name = json_get(tool, "name"),
                      *schema = json_get(tool, r->p->parameters_field);
    char at[32];
    const struct json *type = json_get(tool, "type");
    if (response && !field_is_str(type, "function"))
        return bad_tool(r, i, ".type", "must be \"function\": no other tool is known here");
    if (!response && type && type->type != JSON_NULL && !field_is_str(type, "custom"))
        return bad_tool(r, i, ".type", "must be \"custom\": the tools are the client's here");
    if (!is_tool_name(name))
        return bad_tool(r, i, ".name",
                        "must be a string of 1 to 64 bytes without blanks, quotes and backslashes");
    if (text && text->type != JSON_STRING && text->type != JSON_NULL)
        return bad_tool(r, i, ".description", "must be a string");
    snprintf(at, sizeof at, ".%s", r->p->parameters_field);
    if (schema && schema->type != JSON_OBJECT && schema->type != JSON_NULL)
        return bad_tool(r, i, at, "must be an object: a JSON Schema");
    if (strict && strict->type > JSON_TRUE)
        return bad_tool(r, i, ".strict", "must be true or false");
    snprintf(at, sizeof at, "tools[%u]", i);
    if (!field_members(r, at, tool, known))
        return false;
    r->p->strict = r->p->strict || (strict && strict->type == JSON_TRUE);
    struct json_tree outer = json_grow(json_make(r->work, JSON_OBJECT, (struct str){0}));
    struct json_tree inner = json_grow(json_make(r->work, JSON_OBJECT, (struct str){0}));
    append_copy(r, &inner, "name", name);
    append_copy(r, &inner, "description", text);
    append_copy(r, &inner, "parameters", schema);
    append_copy(r, &inner, "strict", strict);
    json_append(&outer, STR("type"), json_make(r->work, JSON_STRING, STR("function")));
    json_append(&outer, STR("function"), inner.full ? NULL : inner.v);
    json_append(list, (struct str){0}, outer.full ? NULL : outer.v);
    return true;
}

bool field_flat_tools(struct reading *r, const struct field *field, const struct json *v)
{
    struct json_tree list = json_grow(json_make(r->work, JSON_ARRAY, (struct str){0}));
    u32 i = 0;
    if (v->type != JSON_ARRAY)
        return field_wrong_type(r, field->name, "a list", v);
    for (const struct json *tool = v->child; tool; tool = tool->next)
        if (!flat_tool(r, i++, tool, &list))
            return false;
    if (list.full)
        return field_no_room(r, field->name);
    r->p->tools = v->n ? list.v : NULL;
    return true;
}

/* --- which of them ---------------------------------------------------------------------------- */

/* The name in {"type": "function", "name": ...} of responses, {"type": "function", "function":
 * {"name": ...}} of chat; NULL in anything else. */
static const struct json *chosen(const struct reading *r, const struct json *v)
{
    const struct json *in = r->kind & PARAMS_RESPONSES ? v : json_get(v, "function"),
                      *name = json_get(in, "name");
    bool is = field_is_str(json_get(v, "type"), "function") && name && name->type == JSON_STRING;
    return is ? name : NULL;
}

/* {"type": "allowed_tools", "mode": ..., "tools": [...]}, of chat in a member of that name. */
static bool allowed(struct reading *r, const struct field *field, const struct json *v)
{
    const struct json *mode = json_get(v, "mode"), *tools = json_get(v, "tools");
    r->p->must_call = field_is_str(mode, "required");
    r->allowed = tools;
    return ((r->p->must_call || field_is_str(mode, "auto")) && tools && tools->type == JSON_ARRAY &&
            tools->n) ||
           refuse(r->f, 400, "invalid_value", field->name,
                  "allowed_tools of tool_choice must have a mode, \"auto\" or \"required\", and "
                  "tools, a list");
}

static bool is_in(const struct reading *r, const struct json *list, struct str name)
{
    for (const struct json *v = list->child; v; v = v->next)
        if (chosen(r, v) && str_eq(chosen(r, v)->text, name))
            return true;
    return false;
}

static bool is_tool(const struct params *p, struct str name)
{
    for (const struct json *v = p->tools ? p->tools->child : NULL; v; v = v->next)
        if (str_eq(json_get(json_get(v, "function"), "name")->text, name))
            return true;
    return false;
}

bool forms_allow(struct reading *r)
{
    struct json_tree list = json_grow(json_make(r->work, JSON_ARRAY, (struct str){0}));
    const u32 most = MAX(r->allowed->n, r->p->tools ? r->p->tools->n : 0);
    if (most > LIMIT_SCHEMA_VALUES) /* each is compared with each */
        return refuse(r->f, 400, "invalid_value", "tool_choice",
                      "allowed_tools chooses among at most %d tools (LIMIT_SCHEMA_VALUES), not %u: "
                      "send those alone that may be called",
                      LIMIT_SCHEMA_VALUES, most);
    for (const struct json *v = r->allowed->child; v; v = v->next) {
        const struct json *name = chosen(r, v);
        if (!name || !is_tool(r->p, name->text))
            return refuse(r->f, 400, "invalid_value", "tool_choice",
                          "tool_choice allows a function '%.*s', which is not in tools",
                          name ? (int)MIN(name->text.n, (size_t)64) : 0, name ? name->text.p : "");
    }
    for (const struct json *v = r->p->tools->child; v; v = v->next)
        if (is_in(r, r->allowed, json_get(json_get(v, "function"), "name")->text))
            append_copy(r, &list, "", v);
    if (list.full)
        return field_no_room(r, "tools");
    r->p->tools = list.v;
    return true;
}

bool field_tool_choice(struct reading *r, const struct field *field, const struct json *v)
{
    bool flat = r->kind & PARAMS_RESPONSES;
    const struct json *name = chosen(r, v);
    r->no_tools = field_is_str(v, "none");
    r->p->must_call = field_is_str(v, "required");
    if (r->no_tools || r->p->must_call || field_is_str(v, "auto"))
        return true;
    if (field_is_str(json_get(v, "type"), "allowed_tools"))
        return allowed(r, field, flat ? v : json_get(v, "allowed_tools"));
    if (!name)
        return refuse(r->f, 400, "unsupported_value", field->name,
                      "tool_choice must be \"auto\", \"none\", \"required\", {\"type\": "
                      "\"allowed_tools\", ...} or {\"type\": \"function\", %s}",
                      flat ? "\"name\": ..." : "\"function\": {\"name\": ...}");
    r->p->must_call = true;
    r->p->call = name->text;
    return true;
}

/* {"type": "auto"}, with "name" where that is "tool". */
bool field_tool_use(struct reading *r, const struct field *field, const struct json *v)
{
    static const char *const known[] = {"name", "type", "disable_parallel_tool_use", NULL};
    const struct json *type = json_get(v, "type"), *name = json_get(v, "name"),
                      *single = json_get(v, "disable_parallel_tool_use");
    bool named = field_is_str(type, "tool") && name && name->type == JSON_STRING;
    r->no_tools = field_is_str(type, "none");
    r->p->must_call = named || field_is_str(type, "any");
    if (!r->no_tools && !r->p->must_call && !field_is_str(type, "auto"))
        return refuse(r->f, 400, "unsupported_value", field->name,
                      "tool_choice must be {\"type\": \"auto\"}, \"any\", \"none\", or {\"type\": "
                      "\"tool\", \"name\": ...}");
    if (single && single->type > JSON_TRUE)
        return field_wrong_type(r, "tool_choice.disable_parallel_tool_use", "true or false",
                                single);
    r->p->one_call = single && single->type == JSON_TRUE;
    if (named)
        r->p->call = name->text;
    return field_members(r, field->name, v, named ? known : known + 1);
}

/* Of before there were tools. */
bool field_functions(struct reading *r, const struct field *field, const struct json *v)
{
    if ((v->type == JSON_ARRAY && v->n == 0) || (v->type == JSON_STRING && str_is(v->text, "none")))
        return true;
    return refuse(r->f, 400, "unsupported_value", field->name, "%s is not supported: use %s",
                  field->name, str_is(str_of(field->name), "functions") ? "tools" : "tool_choice");
}
