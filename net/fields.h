/* How the fields of a request are read, one function a kind of field: inside of net/params (the
 * table and what no single field shows), net/fields (plain values and lists), net/forms (what an
 * answer has to be: formats, tools, choices of tools), net/input and net/blocks (conversations that
 * are given in another form than chat's). Nobody else includes this, but net/converse, which has a
 * look at messages before that. A reader refuses with the field's name.
 */
#ifndef ZIGCUDA_NET_FIELDS_H
#define ZIGCUDA_NET_FIELDS_H

#include "net/params.h"

/* One reading: where it goes, and what it may look at. */
struct reading {
    struct params *p;
    const struct model *m;
    struct arena *work;
    struct refusal *f;
    u32 kind;
    bool no_tools;              /* tool_choice */
    const struct json *allowed; /* of it, or NULL: all tools */
    const struct json *input;   /* of a response or in blocks, read when all fields are known */
    const struct json *earlier; /* items that come before it, or NULL */
    struct str instructions;    /* come before all of them; p NULL: not given */
};

struct field {
    const char *name;
    u32 kinds; /* the same name can stand for another field of another kind */
    bool (*read)(struct reading *r, const struct field *field, const struct json *v);
    size_t at; /* of a plain field in struct params */
    double min, max;
};

bool field_wrong_type(struct reading *r, const char *name, const char *wanted,
                      const struct json *v); /* always false */
/* True when it asks for nothing: null, false, and what is empty. */
bool field_is_empty(const struct json *v);
/* Refuses `name`.KEY for the first member of `v` that asks for something and is not in `known`,
 * which ends with NULL. */
bool field_members(struct reading *r, const char *name, const struct json *v,
                   const char *const *known);
/* A string, or a list of texts: *out, `before` in front of it. `at` is its place, for refusals. */
bool field_text_of(struct reading *r, const char *at, struct str before, const struct json *v,
                   struct str *out);
bool field_no_room(struct reading *r, const char *name);   /* always false */
bool field_is_str(const struct json *v, const char *text); /* v may be NULL */

#define READER(name) \
    bool field_##name(struct reading *r, const struct field *field, const struct json *v)

READER(float);    /* in [min, max] */
READER(positive); /* in (0, max] */
READER(u32);
READER(u64);
READER(i32);
READER(bool);
READER(str);
READER(tree);
READER(ignored);
READER(unsupported);
READER(max_tokens);
READER(seed);
READER(top_k);
READER(stop);
READER(stop_ids);
READER(bias);
READER(logprobs);
READER(stream_options);
READER(modalities);
READER(prediction);
READER(store);
READER(messages);
READER(variables);
READER(generation_prompt);
READER(add_special);
READER(suffix);
READER(encoding);
READER(extra_body);
READER(format);
READER(tools);
READER(tool_choice);
READER(unless); /* true or false, and the opposite is meant */
READER(functions);
READER(flat_tools);
READER(input);
READER(instructions);
READER(include);
READER(text);
READER(reasoning);
READER(reasoning_effort);
READER(reasoning_format);
READER(metadata);
READER(truncation);
READER(verbosity);
READER(stop_sequences);
READER(blocks);
READER(system);
READER(user_id);
READER(tool_use);
READER(thinking);
READER(output_config);
READER(cache_control);
READER(stateful); /* what asks for something kept from another request */

#undef READER

/* Behind all fields: leaves of the tools those that are `allowed`; the model hears of no others. */
MUST bool forms_allow(struct reading *r);
/* Behind all fields: conversations in another form than chat's, as messages; those of blocks. */
MUST bool input_read(struct reading *r);
MUST bool blocks_read(struct reading *r);

#endif
