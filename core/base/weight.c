#include "core/base/weight.h"

size_t dtype_bytes(enum dtype type)
{
    switch (type) {
    case DTYPE_I64:
        return 8;
    case DTYPE_F32:
    case DTYPE_I32:
        return 4;
    case DTYPE_F16:
    case DTYPE_BF16:
        return 2;
    default:
        return 1;
    }
}

size_t weight_data_bytes(const struct weight *w)
{
    size_t bits = w->kind == WEIGHT_PLAIN ? 8 * dtype_bytes(w->type) : w->bits;
    return (size_t)w->n * w->k * bits / 8;
}

size_t weight_span_bytes(const struct weight *w)
{
    size_t bytes = weight_data_bytes(w);
    return w->kind == WEIGHT_MXFP4 ? bytes * w->row_step - bytes / w->n * (w->row_step - 1) : bytes;
}

size_t weight_bytes(const struct weight *w)
{
    size_t groups = w->kind == WEIGHT_PLAIN ? 0 : (size_t)w->n * w->groups;
    return weight_data_bytes(w) + groups * dtype_bytes(w->scale_type) +
           (w->zeros ? groups * w->bits / 8 : 0);
}
