#include "kernels/cuda/ptx.h"

struct text {
    char *p;
    size_t n, room;
};

static bool put(struct text *to, const char *p, size_t n)
{
    if (to->room - to->n < n)
        return false;
    memcpy(to->p + to->n, p, n);
    to->n += n;
    return true;
}

static bool put_number(struct text *to, u32 number)
{
    char digits[10];
    u32 n = sizeof digits;
    do
        digits[--n] = (char)('0' + number % 10);
    while (number /= 10);
    return put(to, digits + n, sizeof digits - n);
}

/* Are n letters behind a '%' those of a register? */
static bool is_kind(const char *p, size_t n, u32 *kind)
{
    static const char kinds[PTX_KINDS][3] = {"r", "rd", "rs", "f", "fd", "p"};
    for (*kind = 0; *kind < PTX_KINDS; ++*kind)
        if (strlen(kinds[*kind]) == n && memcmp(kinds[*kind], p, n) == 0)
            return true;
    return false;
}

/* Register number `behind` of its kind from the last one on, or a new one; it is the last one then.
 * 0: there is none. */
static u32 use(struct ptx_names *names, u32 kind, bool fresh, u32 behind)
{
    u16 *numbers = names->numbers[kind];
    u32 n = names->n[kind];
    if (fresh) {
        if (n == PTX_REGISTERS)
            return 0;
        names->n[kind] = n + 1;
        numbers[n] = (u16)(n + 1);
        return n + 1;
    }
    if (behind >= n)
        return 0;
    u16 number = numbers[n - 1 - behind];
    memmove(&numbers[n - 1 - behind], &numbers[n - behind], behind * sizeof *numbers);
    numbers[n - 1] = number;
    return number;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool ptx_write_out(struct ptx_names *work, const char *in, size_t n, char *out, size_t out_bytes)
{
    struct text to = {out, 0, out_bytes};
    memset(work->n, 0, sizeof work->n);
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;
        u32 kind, behind = 0;
        if (in[i] == '\f') {
            memset(work->n, 0, sizeof work->n);
            i++;
            continue;
        }
        while (in[i] == '%' && end < n && in[end] >= 'a' && in[end] <= 'z')
            end++;
        if (!put(&to, in + i, end - i))
            return false;
        const bool fresh = end < n && in[end] == '*', digits = end < n && is_digit(in[end]);
        const bool named = (fresh || digits) && is_kind(in + i + 1, end - i - 1, &kind);
        i = end;
        if (!named)
            continue;
        if (fresh)
            i++;
        for (; !fresh && i < n && is_digit(in[i]) && behind < PTX_REGISTERS; i++)
            behind = behind * 10 + (u32)(in[i] - '0');
        u32 number = use(work, kind, fresh, behind);
        if (!number || !put_number(&to, number))
            return false;
    }
    return to.n == out_bytes;
}
