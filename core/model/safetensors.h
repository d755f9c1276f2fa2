/* Weight files: safetensors headers, read and checked against everything the format promises.
 *
 * Layout: u64 little-endian n; n bytes of JSON; data to the end of the file. Rules, in the order of
 * the reference reader (the safetensors project): header fits in the file and in
 * LIMIT_SAFETENSORS_HEADER_BYTES; UTF-8; JSON without duplicate names; each tensor has a known
 * dtype, a shape and two offsets; sorted by offset the spans cover the data without hole, overlap
 * or rest; product(shape) * width equals the span, in checked arithmetic. Beyond the format: at
 * most LIMIT_TENSORS tensors in all files together, at most TENSOR_RANK_MAX dimensions.
 *
 * A header is hostile input; the data is never looked at here. The span of the file must outlive
 * the tensors, which point into it. Names and tensors live in the arena handed in.
 */
#ifndef ZIGCUDA_SAFETENSORS_H
#define ZIGCUDA_SAFETENSORS_H

#include "core/base/arena.h"
#include "core/base/weight.h"

/* All tensors of a model, by name. `used` is the reader's mark (see tensors_take). */
struct tensors {
    struct tensor **v; /* [n] */
    bool *used;        /* [n] */
    u32 n;
    u32 *table; /* [slots] by names' hashes: index into v, plus 1; once tensors_index was called */
    size_t slots;
    struct arena *keep, *scratch;
};

/* An empty set: the index comes from `scratch`, tensors and names from `keep`. */
MUST enum err tensors_init(struct tensors *t, struct arena *keep, struct arena *scratch,
                           struct err_text *e);

/* Parses the header of one file that lies in memory and adds its tensors. `path` names it in
 * messages and must live as long as the tensors. `scratch` is as before when this returns. */
MUST enum err safetensors_parse(struct tensors *t, struct arena *scratch, struct str file,
                                const char *path, struct err_text *e);

/* Makes the names known, and refuses one that stands in two files. Again when they changed. */
MUST enum err tensors_index(struct tensors *t, struct err_text *e);

/* The tensor of that name, marked as used, or NULL. */
const struct tensor *tensors_take(struct tensors *t, const char *name);

/* The same without the mark. */
const struct tensor *tensors_find(const struct tensors *t, const char *name);

const char *dtype_name(enum dtype type); /* "f16" */

#endif
