#include "core/base/half.h"
#include "core/model/head.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <sys/mman.h>

enum { ROWS = 6, INPUTS = 192 }; /* groups of 64 */

static struct model model_of(const void *data, enum dtype type, u32 k)
{
    return (struct model){.quant = STR("bf16"),
                          .tied = true,
                          .head = {.name = "lm_head",
                                   .kind = WEIGHT_PLAIN,
                                   .n = ROWS,
                                   .k = k,
                                   .type = type,
                                   .data = data}};
}

/* Each value is within half a step, which is 1/254 of the largest of its group, but for what f16
 * cannot tell apart of a small scale. */
static bool near_enough(const struct head *h)
{
    const u32 group = h->to.group;
    for (u32 row = 0; row < ROWS; row++)
        for (u32 g = 0; g < h->to.groups; g++) {
            const float scale = half_from_f16(h->scales[row * h->to.groups + g]);
            double most = 0;
            for (u32 i = row * h->to.k + g * group, n = 0; n < group; n++, i++) {
                const double was = half_load(h->from.data, h->from.type, i);
                most = fmax(most, fabs(was));
                if (fabs(was - (double)scale * (h->values[i] - 128)) >
                    scale * 0.5005 + 127 * 0x1p-25)
                    return false;
            }
            if (fabs(scale - most / 127) > most / 127 * 0x1p-11 + 0x1p-25)
                return false;
        }
    return true;
}

void head_is_near_its_file(void)
{
    float *w = arena_alloc(&unit_arena, ROWS * INPUTS * sizeof *w, 4);
    u16 *bf16 = arena_alloc(&unit_arena, ROWS * INPUTS * 2, 2);
    u16 *f16 = arena_alloc(&unit_arena, ROWS * INPUTS * 2, 2);
    static const float sizes[ROWS] = {1, 3e-3f, 1e-6f, 0, 300, 6e4f};
    u32 seed = 1;
    for (u32 i = 0; i < ROWS * INPUTS; i++) {
        seed = seed * 1664525 + 1013904223;
        w[i] = ((float)(seed >> 8) * 0x1p-23f - 1) * sizes[i / INPUTS];
        bf16[i] = (u16)(half_to_bits(w[i]) >> 16);
        f16[i] = (u16)(seed >> 16 & 0xbfff); /* all of them below 2, subnormals too */
    }
    const struct {
        const void *data;
        enum dtype type;
    } files[] = {{w, DTYPE_F32}, {bf16, DTYPE_BF16}, {f16, DTYPE_F16}};
    for (u32 i = 0; i < COUNTOF(files); i++) {
        struct model m = model_of(files[i].data, files[i].type, INPUTS);
        struct head h;
        struct err_text e = {0};
        CHECK(head_int8(&unit_arena, &m, false, &h, &e) == ERR_OK && h.to.n == ROWS);
        head_rows(&h, 0, 2);
        head_rows(&h, 2, ROWS - 2);
        CHECK(near_enough(&h));
        CHECK(m.head.kind == WEIGHT_PACKED && m.head.bits == 8 && m.head.group == 64 && !m.tied);
        CHECK(m.made.n == weight_bytes(&m.head) && str_is(m.quant, "bf16, head int8"));
        munmap((void *)(uintptr_t)m.made.p, m.made.n);
    }
}

/* Whatever is no number in a file is none in what is made of it. */
void head_keeps_what_is_no_number(void)
{
    float *w = ARENA_NEW(&unit_arena, float, ROWS *INPUTS);
    struct model m = model_of(w, DTYPE_F32, INPUTS);
    struct head h;
    struct err_text e = {0};
    w[3] = INFINITY;
    w[INPUTS + 5] = NAN;
    w[2 * INPUTS] = -3e38f;
    CHECK(head_int8(&unit_arena, &m, false, &h, &e) == ERR_OK);
    head_rows(&h, 0, ROWS);
    CHECK(isinf(half_from_f16(h.scales[0])) && isnan(half_from_f16(h.scales[3])));
    CHECK(isinf(half_from_f16(h.scales[6])) && h.scales[9] == 0 && h.values[3 * INPUTS] == 128);
    munmap((void *)(uintptr_t)m.made.p, m.made.n);
}

void head_is_left_alone(void)
{
    u16 w[ROWS * 12] = {0};
    struct model m = model_of(w, DTYPE_BF16, 12);
    struct head h;
    struct err_text e = {0};
    CHECK(head_int8(&unit_arena, &m, false, &h, &e) == ERR_CONFIG);
    CHECK(strstr(e.text, "model.head") && strstr(e.text, "12"));
    m.headless = true;
    CHECK(head_int8(&unit_arena, &m, false, &h, &e) == ERR_OK && h.to.n == 0 && m.tied);
    m.headless = false;
    m.head.kind = WEIGHT_GPTQ;
    CHECK(head_int8(&unit_arena, &m, false, &h, &e) == ERR_OK && h.to.n == 0 && !m.made.n);
    m = model_of(w, DTYPE_BF16, 8);
    CHECK(head_int8(&unit_arena, &m, true, &h, &e) == ERR_OK && h.to.n == 0 && !m.made.p);
    CHECK(m.made.n == ROWS * (8 + 2) && m.head.kind == WEIGHT_PACKED);
}
