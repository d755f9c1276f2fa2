#include "core/engine/format.h"

#define DAY "(0[1-9]|1\\d|2[0-8])"
#define DATE                                                                                     \
    "([1-9]\\d{3}-((0[13578]|1[02])-(" DAY "|29|3[01])|(0[469]|11)-(" DAY "|29|30)|02-" DAY ")|" \
    "([1-9]\\d(0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)-02-29)"
#define HOUR "([01]\\d|2[0-3]):[0-5]\\d"
#define TIME HOUR ":[0-5]\\d(\\.\\d{1,6})?(Z|[+-]" HOUR ")"
#define HEX "[0-9A-Fa-f]"
#define BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
#define LOCAL "[A-Za-z0-9_+-]+"

struct str format_pattern(struct str name)
{
    static const struct {
        char name[16];
        const char *pattern;
    } formats[] = {{"date", "^" DATE "$"},
                   {"time", "^" TIME "$"},
                   {"date-time", "^" DATE "T" TIME "$"},
                   {"uuid", "^" HEX "{8}(-" HEX "{4}){3}-" HEX "{12}$"},
                   {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
                   {"email", "^" LOCAL "(\\." LOCAL ")*@(" LABEL "\\.)+[A-Za-z]{2,24}$"}};
    for (u32 i = 0; i < COUNTOF(formats); i++)
        if (str_is(name, formats[i].name))
            return str_of(formats[i].pattern);
    return (struct str){0};
}
