/* From options to a running engine, the same way for every command: read the model folder, plan all
 * memory, take it once, load the device, seal. Each step can be the last one (`plan` stops before
 * anything is taken).
 */
#ifndef ZIGCUDA_BOOT_H
#define ZIGCUDA_BOOT_H

#include "config/options.h"
#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/model/template.h"
#include "core/model/tokenizer.h"
#include "drivers/cuda/pagein.h"
#include "kernels/kernels.h"

struct shape {        /* for benchmarks: random weights instead of a folder */
    const char *name; /* NULL: a folder */
    u32 bits, head_bits;
};

struct box {
    struct options options;
    struct shape shape;
    struct clock clock;
    u64 start_ns;
    struct arena boot, scratch, host;
    struct arena work;       /* for one request's rendering and tokenizing; reset after each */
    size_t work_extra_bytes; /* a command's own share of it, and what changes that */
    const char *work_extra_option;
    bool spin;           /* CPU workers never sleep; the command says so before boot_plan */
    size_t prompt_bytes; /* longest text of one request */
    struct model *model;
    struct tokenizer *tokenizer;      /* NULL for a shape */
    struct template *template;        /* NULL: none, or one that uses what is not supported: */
    struct err_text template_error;   /* then this says what */
    const struct kernel_set *kernels; /* NULL: it computes on a GPU */
    struct device *device;
    enum dtype kv_type; /* numbers in its KV cache */
    struct engine_config config;
    struct engine *engine;
    struct plan plan;
    bool only_plan; /* nothing will be loaded */
    bool as_needed; /* host memory is planned, but its pages are taken when first touched */
    struct page_in page_in;
    size_t device_bytes;    /* of host memory, what the device takes first */
    struct arena rest;      /* behind that, what is taken beside the upload; may be empty */
    struct pool taking;     /* one thread that takes its pages; n = 0: none */
    size_t available_bytes; /* what the box could give when asked */
};

/* Options are the defaults; the configuration file and flags come later (args_parse). */
MUST enum err boot_begin(struct box *b, struct err_text *e);

/* Opens and checks the model; nothing is loaded. */
MUST enum err boot_model(struct box *b, struct err_text *e);

/* Chooses the device, fits the KV cache and fills the plan. */
MUST enum err boot_plan(struct box *b, struct err_text *e);

/* Holds the whole plan against what the box and memory.host_max give. */
MUST enum err boot_check(const struct box *b, struct err_text *e);

/* boot_check; takes the memory, loads the weights and opens the engine. Progress goes to stderr
 * when that is a terminal and it takes long. What else was planned is taken from b->host now. */
MUST enum err boot_load(struct box *b, engine_on_event *on_event, void *arg, struct err_text *e);

/* Whoever reads SIGINT and SIGTERM once all is loaded has blocked them before, and to wait for a
 * GPU or to load can take minutes: one that is pending does now what it always does (to PID 1 that
 * is nothing). */
void boot_end_if_asked(void);

/* From here on no memory is taken. */
void boot_seal(struct box *b);

/* The error of a text longer than b->prompt_bytes; it takes the place of one in e. */
enum err boot_too_long(const struct box *b, struct err_text *e);

/* tokenizer_encode with ids and work memory from b->work; there may be more than the context. */
MUST enum err boot_encode(struct box *b, struct str text, u32 flags, u32 **ids, u32 *n,
                          struct err_text *e);

void boot_print_plan(const struct box *b);

/* "1.5 GiB" into out[16]. */
const char *bytes_text(size_t bytes, char *out);

#endif
