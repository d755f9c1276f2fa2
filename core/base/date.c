#include "core/base/date.h"

#include <stdio.h>

static bool is_leap(i64 year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* After Howard Hinnant, "chrono-compatible low-level date algorithms": days are counted in eras of
 * 400 years that begin on 1 March, so that the leap day is the last of its year. */
struct date date_of(i64 seconds)
{
    i64 days = seconds / 86400, rest = seconds % 86400;
    if (rest < 0) {
        rest += 86400;
        days--;
    }
    i64 z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097;
    u32 of_era = (u32)(z - era * 146097);
    u32 year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    u32 of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    u32 month = (5 * of_year + 2) / 153; /* 0 = March */
    struct date d = {.year = year_of_era + era * 400 + (month >= 10),
                     .month = month < 10 ? month + 3 : month - 9,
                     .day = of_year - (153 * month + 2) / 5 + 1,
                     .hour = (u32)(rest / 3600),
                     .minute = (u32)(rest / 60 % 60),
                     .second = (u32)(rest % 60),
                     .weekday = (u32)(((days % 7) + 11) % 7)};
    d.yearday = month < 10 ? of_year + 59 + is_leap(d.year) : of_year - 306;
    return d;
}

static const char *const weekdays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

/* ISO 8601: week 1 is the one with the first Thursday. */
static i64 iso_year(const struct date *d, u32 *week)
{
    u32 weekday = (d->weekday + 6) % 7; /* 0 = Monday */
    i64 w = ((i64)d->yearday - weekday + 10) / 7;
    i64 year = d->year;
    if (w == 0) { /* the last week of the year before */
        year--;
        w = ((i64)d->yearday + 365 + is_leap(year) - weekday + 10) / 7;
    } else if (w == 53 && (i64)d->yearday - weekday + 3 >= 365 + is_leap(year)) {
        year++; /* its Thursday lies in the next year */
        w = 1;
    }
    *week = (u32)w;
    return year;
}

static u32 number(char *out, i64 v, u32 width, char pad, bool plain)
{
    int n = plain        ? snprintf(out, DATE_TEXT, "%lld", (long long)v)
            : pad == ' ' ? snprintf(out, DATE_TEXT, "%*lld", (int)width, (long long)v)
                         : snprintf(out, DATE_TEXT, "%0*lld", (int)width, (long long)v);
    return (u32)n;
}

static u32 word(char *out, const char *text, u32 n)
{
    n = MIN(n, (u32)strlen(text));
    memcpy(out, text, n);
    return n;
}

static u32 composite(const struct date *d, const char *format, char *out)
{
    u32 n = 0;
    for (; *format; format++)
        if (*format == '%')
            n += date_format(d, *++format, false, out + n);
        else
            out[n++] = *format;
    return n;
}

static i64 epoch(const struct date *d)
{
    i64 y = d->year - 1;
    i64 days = y * 365 + y / 4 - y / 100 + y / 400 + (i64)d->yearday - 719162;
    return days * 86400 + d->hour * 3600 + d->minute * 60 + d->second;
}

u32 date_format(const struct date *d, char conversion, bool plain, char *out)
{
    u32 week, hour12 = (d->hour + 11) % 12 + 1;
    i64 year = iso_year(d, &week);
    switch (conversion) {
    case 'a':
        return word(out, weekdays[d->weekday], 3);
    case 'A':
        return word(out, weekdays[d->weekday], 16);
    case 'b':
    case 'h':
        return word(out, months[d->month - 1], 3);
    case 'B':
        return word(out, months[d->month - 1], 16);
    case 'c':
        return composite(d, "%a %b %e %H:%M:%S %Y", out);
    case 'C':
        return number(out, d->year / 100, 2, '0', plain);
    case 'd':
        return number(out, d->day, 2, '0', plain);
    case 'D':
    case 'x':
        return composite(d, "%m/%d/%y", out);
    case 'e':
        return number(out, d->day, 2, ' ', plain);
    case 'F':
        return composite(d, "%Y-%m-%d", out);
    case 'f':
        return word(out, "000000", 6);
    case 'g':
        return number(out, year % 100, 2, '0', plain);
    case 'G':
        return number(out, year, 4, '0', plain);
    case 'H':
        return number(out, d->hour, 2, '0', plain);
    case 'I':
        return number(out, hour12, 2, '0', plain);
    case 'j':
        return number(out, d->yearday + 1, 3, '0', plain);
    case 'k':
        return number(out, d->hour, 2, ' ', plain);
    case 'l':
        return number(out, hour12, 2, ' ', plain);
    case 'm':
        return number(out, d->month, 2, '0', plain);
    case 'M':
        return number(out, d->minute, 2, '0', plain);
    case 'n':
        return word(out, "\n", 1);
    case 'p':
        return word(out, d->hour < 12 ? "AM" : "PM", 2);
    case 'P':
        return word(out, d->hour < 12 ? "am" : "pm", 2);
    case 'r':
        return composite(d, "%I:%M:%S %p", out);
    case 'R':
        return composite(d, "%H:%M", out);
    case 's':
        return number(out, epoch(d), 1, '0', plain);
    case 'S':
        return number(out, d->second, 2, '0', plain);
    case 't':
        return word(out, "\t", 1);
    case 'T':
    case 'X':
        return composite(d, "%H:%M:%S", out);
    case 'u':
        return number(out, d->weekday ? d->weekday : 7, 1, '0', plain);
    case 'U':
        return number(out, (d->yearday + 7 - d->weekday) / 7, 2, '0', plain);
    case 'V':
        return number(out, week, 2, '0', plain);
    case 'w':
        return number(out, d->weekday, 1, '0', plain);
    case 'W':
        return number(out, (d->yearday + 7 - (d->weekday + 6) % 7) / 7, 2, '0', plain);
    case 'y':
        return number(out, d->year % 100, 2, '0', plain);
    case 'Y':
        return number(out, d->year, 4, '0', plain);
    case '%':
        return word(out, "%", 1);
    default:
        return 0; /* z and Z too: there is no zone */
    }
}
