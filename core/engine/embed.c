#include "core/engine/embed.h"

#include "core/base/half.h"

#include <math.h>

static double squares(const float *v, u32 n)
{
    double sum = 0;
    for (u32 i = 0; i < n; i++)
        sum += (double)v[i] * v[i];
    return sum;
}

float *embed_norm(const struct model *m, float *v)
{
    const struct tensor *w = m->norm_final;
    float scale = (float)(1 / sqrt(squares(v, m->hidden) / m->hidden + m->norm_eps));
    for (u32 i = 0; i < m->hidden; i++)
        v[i] = v[i] * scale * (half_load(w->data, w->type, i) + (m->norm_plus_one ? 1 : 0));
    return v;
}

bool embed_finish(float *v, u32 n, bool raw)
{
    double length = sqrt(squares(v, n));
    for (u32 i = 0; i < n && length > 0 && !raw; i++)
        v[i] = (float)(v[i] / length);
    return isfinite(length);
}
