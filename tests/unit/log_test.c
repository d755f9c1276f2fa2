#include "core/base/json.h"
#include "core/base/log.h"
#include "tests/unit/unit.h"

static const u64 moment_ns = 1709210096789000000u; /* 2024-02-29T12:34:56.789Z */

static bool line_is(enum log_format format, const char *pairs, const char *want)
{
    char out[512];
    size_t n = log_line(out, sizeof out, format, LOG_WARN, moment_ns, "tick", str_of(pairs));
    if (str_is((struct str){out, n}, want))
        return true;
    printf("    %.*s\n", (int)n, out);
    return false;
}

void log_forms(void)
{
    CHECK(line_is(LOG_LOGFMT, "a=1 why=\"say \"hi\" there\" b=x",
                  "time=2024-02-29T12:34:56.789Z level=warn event=tick a=1 "
                  "why=\"say \\\"hi\\\" there\" b=x"));
    CHECK(line_is(LOG_LOGFMT, "", "time=2024-02-29T12:34:56.789Z level=warn event=tick"));
    CHECK(line_is(LOG_LOGFMT, "a=\"\" b=\"x\ny\"",
                  "time=2024-02-29T12:34:56.789Z level=warn event=tick a=\"\" b=\"x?y\""));
    CHECK(line_is(LOG_JSON, "a=1 ms=0.5 why=\"say \"hi\"\" id=007 v=1.2.3",
                  "{\"time\":\"2024-02-29T12:34:56.789Z\",\"level\":\"warn\",\"event\":\"tick\","
                  "\"a\":1,\"ms\":0.5,\"why\":\"say \\\"hi\\\"\",\"id\":\"007\",\"v\":\"1.2.3\"}"));
    CHECK(line_is(LOG_TEXT, "a=1\n", "zigcuda: tick a=1?"));
}

/* Whatever the room, a JSON line is JSON and nothing is written past the end. */
void log_json_when_cut(void)
{
    char pairs[300], out[200];
    memset(pairs, '"', sizeof pairs);
    memcpy(pairs, "a=\"", 3);
    for (size_t cap = 100; cap < sizeof out; cap++) {
        const struct json *v;
        struct err_text e = {0};
        memset(out, '~', sizeof out);
        size_t n =
            log_line(out, cap, LOG_JSON, LOG_INFO, moment_ns, "tick", (struct str){pairs, cap});
        CHECK(n <= cap && (cap == sizeof out || out[cap] == '~'));
        CHECK(json_parse(&unit_arena, (struct str){out, n}, "log", ERR_MODEL, &v, &e) == ERR_OK);
    }
}
