#include "tests/fakecuda/fake.h"

#include <stdio.h>
#include <stdlib.h>

struct fake_settings fake = {
    .version = 13000,
    .devices = 1,
    .multiprocessors = 3,
    .memory_bytes = (u64)2 << 30,
    .clock = 1500000,
    .name = "Fake GPU",
    .uuid = "7a6967637564612066616b6520677000",
    .pci = "0000:01:00.0",
};

static const struct setting {
    const char *key;
    u64 *number; /* with a unit K, M or G, or none */
    const char **text;
} settings[] = {
    {"version", &fake.version, NULL}, /* of CUDA: 12080 */
    {"devices", &fake.devices, NULL},
    {"sm", &fake.sm, NULL}, /* compute capability: 87; without it the best of the kernels' */
    {"multiprocessors", &fake.multiprocessors, NULL},
    {"memory", &fake.memory_bytes, NULL},
    {"taken", &fake.taken_bytes, NULL},
    {"largest", &fake.largest_bytes, NULL},
    {"shared", &fake.shared_bytes, NULL},
    {"integrated", &fake.integrated, NULL},
    {"ecc", &fake.ecc, NULL},
    {"timeout", &fake.timeout, NULL},
    {"clock", &fake.clock, NULL},
    {"late", &fake.late, NULL},
    {"delay_us", &fake.delay_us, NULL},
    {"name", NULL, &fake.name},
    {"uuid", NULL, &fake.uuid}, /* 32 hexadecimal digits; of device i the last two count on */
    {"pci", NULL, &fake.pci},   /* 0000:01:00.0; of device i the bus counts on */
};

static void refuse(const char *what)
{
    fprintf(stderr, "fakecuda: ZIGCUDA_FAKE: '%s' is no setting\n", what);
    _Exit(1);
}

static bool set(const struct setting *s, const char *value)
{
    char *end;
    if (s->text) {
        *s->text = value;
        return true;
    }
    *s->number = strtoull(value, &end, 10);
    const char *unit = strchr("KMG", *end);
    if (*end && unit) {
        *s->number <<= 10 * (unit - "KMG" + 1);
        end++;
    }
    return end != value && !*end;
}

/* Dynamic shared memory of a block after opting in (CUDA C++ Programming Guide, table of compute
 * capabilities). */
static u64 shared_of(u64 sm)
{
    switch (sm) {
    case 75:
        return 64 << 10;
    case 80:
    case 87:
        return 163 << 10;
    case 86:
    case 89:
    case 120:
    case 121:
        return 99 << 10;
    default:
        return 227 << 10;
    }
}

bool fake_is_hopper(void)
{
    return fake.sm / 10 == 9;
}

/* Turing's kernels are in a library of their own, without others. Limits: of the same table. */
static void set_card(void)
{
    const bool turing = fake.sm == 75;
    if (turing != (emulate_capability == 750)) {
        fprintf(stderr, "fakecuda: ZIGCUDA_FAKE: this library has no kernels for sm=%llu\n",
                (unsigned long long)fake.sm);
        _Exit(1);
    }
    if (!fake.shared_bytes)
        fake.shared_bytes = shared_of(fake.sm);
    fake.threads = turing ? 1024 : 1536;
    fake.reserved_bytes = turing ? 0 : 1024;
    emulate_groups = fake_is_hopper();
}

void fake_read_settings(void)
{
    const char *from = getenv("ZIGCUDA_FAKE");
    fake.sm = emulate_capability / 10;
    char *text = strdup(from ? from : ""), *rest = text; /* kept: values point into it */
    for (char *item; (item = strsep(&rest, ","));) {
        char *value = strchr(item, '=');
        if (!*item)
            continue;
        if (!value)
            refuse(item);
        *value++ = 0;
        u32 i = 0;
        while (i < COUNTOF(settings) && strcmp(settings[i].key, item) != 0)
            i++;
        if (i == COUNTOF(settings) || !set(&settings[i], value))
            refuse(item);
    }
    if (strlen(fake.uuid) != 32 || strspn(fake.uuid, "0123456789abcdef") != 32)
        refuse(fake.uuid);
    if (strlen(fake.pci) != strlen("0000:01:00.0"))
        refuse(fake.pci);
    set_card();
}
