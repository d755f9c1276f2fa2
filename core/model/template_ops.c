/* Arithmetic of template expressions as Python computes it (declared in template_eval.h): floor
 * division and modulo follow the divisor's sign, / is always a float, + joins strings and lists.
 * Integers are 64 bits; what would not fit is an error, never a wrong number. */
#include "core/model/template_eval.h"

#include "core/model/template_lex.h"
#include "core/model/template_text.h"

#include <math.h>

static struct val overflow(struct rt *r)
{
    rt_fail(r, "integers beyond 64 bits are not supported");
    return val_nothing();
}

static struct val by_zero(struct rt *r)
{
    rt_fail(r, "division by zero");
    return val_nothing();
}

static struct val mismatch(struct rt *r, u8 op, struct val a, struct val b)
{
    const char *sign = op == OP_POW ? "**" : op == OP_FLOORDIV ? "//" : (char[]){(char)op, 0};
    if (a.type == V_UNDEF || b.type == V_UNDEF)
        eval_undefined(r, a.type == V_UNDEF ? a : b);
    else
        rt_fail(r, "%s cannot be used between '%s' and '%s'", sign, val_type_name(a),
                val_type_name(b));
    return val_nothing();
}

static struct val int_power(struct rt *r, i64 base, i64 n)
{
    i64 v = 1;
    for (; n > 0; n >>= 1) {
        if ((n & 1) && __builtin_mul_overflow(v, base, &v))
            return overflow(r);
        if (n > 1 && __builtin_mul_overflow(base, base, &base))
            return overflow(r);
    }
    return val_int(v);
}

static struct val float_power(struct rt *r, double a, double b)
{
    if (a == 0 && b < 0)
        return by_zero(r);
    double v = pow(a, b);
    if ((isnan(v) && !isnan(a) && !isnan(b)) || (isinf(v) && isfinite(a) && isfinite(b))) {
        rt_fail(r, "the result of ** is no finite real number");
        return val_nothing();
    }
    return val_float(v);
}

static struct val int_op(struct rt *r, u8 op, i64 a, i64 b)
{
    i64 v;
    switch (op) {
    case '+':
        return __builtin_add_overflow(a, b, &v) ? overflow(r) : val_int(v);
    case '-':
        return __builtin_sub_overflow(a, b, &v) ? overflow(r) : val_int(v);
    case '*':
        return __builtin_mul_overflow(a, b, &v) ? overflow(r) : val_int(v);
    case '/':
        return b == 0 ? by_zero(r) : val_float((double)a / (double)b);
    case OP_POW:
        return b < 0 ? float_power(r, (double)a, (double)b) : int_power(r, a, b);
    default:
        break;
    }
    if (b == 0)
        return by_zero(r);
    if (b == -1) /* INT64_MIN / -1 traps */
        return op == '%' ? val_int(0) : int_op(r, '-', 0, a);
    i64 rem = a % b;
    bool fix = rem != 0 && (rem < 0) != (b < 0);
    return val_int(op == '%' ? rem + (fix ? b : 0) : a / b - fix);
}

/* Floor division and modulo of floats after CPython's float_divmod. */
static struct val float_divmod(struct rt *r, u8 op, double a, double b)
{
    if (b == 0)
        return by_zero(r);
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) {
        mod += b;
        div -= 1;
    } else if (mod == 0) {
        mod = copysign(0, b);
    }
    if (op == '%')
        return val_float(mod);
    if (div == 0)
        return val_float(copysign(0, a / b));
    double whole = floor(div);
    return val_float(div - whole > 0.5 ? whole + 1 : whole);
}

static struct val float_op(struct rt *r, u8 op, double a, double b)
{
    switch (op) {
    case '+':
        return val_float(a + b);
    case '-':
        return val_float(a - b);
    case '*':
        return val_float(a * b);
    case '/':
        return b == 0 ? by_zero(r) : val_float(a / b);
    case OP_POW:
        return float_power(r, a, b);
    default:
        return float_divmod(r, op, a, b);
    }
}

static struct val escaped(struct rt *r, struct val v)
{
    struct sink s = sink_open(r);
    sink_put_escaped(r, &s, val_text(v));
    return sink_close(r, &s);
}

static struct val join_strings(struct rt *r, struct val a, struct val b)
{
    bool markup = a.markup || b.markup;
    if (markup && !a.markup)
        a = escaped(r, a);
    if (markup && !b.markup)
        b = escaped(r, b);
    struct val v = text_concat(r, a, b);
    v.markup = markup;
    return v;
}

static struct val join_lists(struct rt *r, struct val a, struct val b)
{
    size_t n = (size_t)a.n + b.n;
    struct val *items = rt_alloc(r, n, sizeof *items), v = a;
    if (!items || n > UINT32_MAX)
        return val_nothing();
    if (a.n)
        memcpy(items, a.items, a.n * sizeof *items);
    if (b.n)
        memcpy(items + a.n, b.items, b.n * sizeof *items);
    v.n = (u32)n;
    v.items = items;
    return v;
}

static struct val repeat(struct rt *r, struct val a, i64 times)
{
    size_t n;
    times = MAX(times, 0);
    if (a.n == 0 || times == 0) {
        a.n = 0;
        return a;
    }
    if (!size_mul(a.n, (size_t)times, &n) || n > UINT32_MAX) {
        rt_limit(r, "a repeated string or list is too long");
        return val_nothing();
    }
    if (a.type == V_STR) {
        struct sink s = sink_open(r);
        for (i64 i = 0; i < times && !r->failed; i++)
            sink_put_str(r, &s, val_text(a));
        struct val v = sink_close(r, &s);
        v.markup = a.markup;
        return v;
    }
    struct val *items = rt_alloc(r, n, sizeof *items);
    for (size_t i = 0; items && i < n; i++)
        items[i] = a.items[i % a.n];
    a.items = items;
    a.n = items ? (u32)n : 0;
    return a;
}

static bool is_int(struct val v)
{
    return v.type == V_INT || v.type == V_BOOL;
}

struct val op_binary(struct rt *r, u8 op, struct val a, struct val b)
{
    if (is_int(a) && is_int(b))
        return int_op(r, op, a.i, b.i);
    if (val_is_num(a) && val_is_num(b))
        return float_op(r, op, val_num(a), val_num(b));
    if (op == '+' && a.type == V_STR && b.type == V_STR)
        return join_strings(r, a, b);
    if (op == '+' && val_is_seq(a) && a.type == b.type)
        return join_lists(r, a, b);
    if (op == '*' && is_int(b) && (a.type == V_STR || val_is_seq(a)))
        return repeat(r, a, b.i);
    if (op == '*' && is_int(a) && (b.type == V_STR || val_is_seq(b)))
        return repeat(r, b, a.i);
    if (op == '%' && a.type == V_STR)
        return text_percent(r, val_text(a), b);
    return mismatch(r, op, a, b);
}

struct val op_negate(struct rt *r, struct val a, bool minus)
{
    if (a.type == V_FLOAT)
        return val_float(minus ? -a.f : a.f);
    if (is_int(a))
        return minus ? int_op(r, '-', 0, a.i) : val_int(a.i);
    return mismatch(r, minus ? '-' : '+', a, val_int(0));
}
