#include "core/main/boot.h"

#include "core/base/box.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/main/gpu.h"
#include "core/model/head.h"
#include "drivers/cpu/cpu.h"
#include "drivers/cuda/cuda.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PROMPT_BYTES_A_TOKEN = 16, /* text of a prompt that can still fit the context */
    PROMPT_BYTES_MIN = 64 << 10,
    PROMPT_BYTES_MAX = 4 << 20,
    STEP_TOKENS = 512,
    SLOTS = 8, /* engine.slots, by default; and where a card has memory to spare: */
    LARGE_CARD_SLOTS = 32,
    LARGEST_CARD_SLOTS = 128,
    KV_SHARE = 4, /* a fitted KV cache takes at most one part in this of what the box has */
};

#define LARGE_CARD_BYTES (20 * GIB)
#define LARGEST_CARD_BYTES (64 * GIB)

const char *bytes_text(size_t bytes, char *out)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    u32 unit = 0;
    for (; v >= 1024 && unit < 4; unit++)
        v /= 1024;
    snprintf(out, 16, unit && v < 100 ? "%.1f %s" : "%.0f %s", v, units[unit]);
    return out;
}

enum err boot_begin(struct box *b, struct err_text *e)
{
    *b = (struct box){.clock = clock_system()};
    b->start_ns = clock_now_ns(&b->clock);
    log_phase("begin");
    TRY(arena_open(&b->boot, "boot", LIMIT_BOOT_ARENA_BYTES, false, e));
    TRY(arena_open(&b->scratch, "scratch", LIMIT_SCRATCH_ARENA_BYTES, false, e));
    options_default(&b->options);
    return ERR_OK;
}

/* Why a folder is not there, where that shows in its name; `cwd` is for the text. */
static const char *no_folder(const char *dir, char *cwd, size_t cap)
{
    char at[LIMIT_PATH_BYTES];
    if (dir[0] == '~' || dir[0] == '$')
        return "; ~ and $ mean nothing here: write the whole path";
    if (strstr(dir, " #") || strstr(dir, " ;"))
        return "; a comment has a line of its own";
    if (dir[0] == '/' || !getcwd(at, sizeof at))
        return "";
    snprintf(cwd, cap, "; looked for in %s", at);
    return cwd;
}

/* The first mistakes: a name at a hub, one of the files, and a folder of something else. */
static enum err check_folder(const char *dir, struct err_text *e)
{
    struct stat st;
    char path[LIMIT_PATH_BYTES], cwd[LIMIT_PATH_BYTES + 32];
    if (stat(dir, &st) != 0) {
        int error = errno;
        const char *why = error == ENOENT ? no_folder(dir, cwd, sizeof cwd) : "";
        errno = error;
        return err_set_errno(e, ERR_MODEL,
                             "no model folder %s (model.dir; nothing is downloaded%s)", dir, why);
    }
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_MODEL,
                       "%s is no folder: model.dir is one with config.json, model.safetensors and "
                       "tokenizer.json, as Hugging Face tools write it",
                       dir);
    TRY(file_path(path, dir, STR("config.json"), e));
    if (stat(path, &st) == 0 || errno != ENOENT)
        return ERR_OK;
    TRY(file_path(path, dir, STR("snapshots"), e));
    if (stat(path, &st) == 0)
        return err_set(e, ERR_MODEL,
                       "%s is a folder of Hugging Face's cache: the model lies deeper, in a folder "
                       "of %s (model.dir)",
                       dir, path);
    return err_set(e, ERR_MODEL,
                   "%s has no config.json: model.dir is a folder with config.json, "
                   "model.safetensors and tokenizer.json, as Hugging Face tools write it",
                   dir);
}

/* A model whose template is not supported continues plain text all the same. */
static enum err load_template(struct box *b, const char *dir, struct err_text *e)
{
    struct err_text *why = &b->template_error;
    enum err r = template_load(&b->boot, &b->scratch, dir, &b->template, why);
    if (r == ERR_OK)
        return ERR_OK;
    b->template = NULL;
    if (r != ERR_MODEL)
        return err_set(e, r, "%s", why->text);
    log_event(LOG_WARN, "no_chat", "why=\"%s\"", why->text);
    return ERR_OK;
}

static enum err open_model(struct box *b, struct err_text *e)
{
    log_configure((enum log_level)b->options.log_level, (enum log_format)b->options.log_format,
                  (u32)b->options.log_rate);
    const char *dir = b->options.model_dir;
    if (b->shape.name && b->options.from[OPTION_model_dir] == OPTION_FROM_FLAG)
        return err_set(e, ERR_USAGE, "--shape and --model name two models; give one of them");
    if (!b->shape.name && (b->shape.bits || b->shape.head_bits))
        return err_set(e, ERR_USAGE,
                       "--bits and --head-bits are of a --shape; a model has its own");
    if (b->shape.name)
        return model_shape(&b->boot, &b->scratch, b->shape.name, b->shape.bits ? b->shape.bits : 4,
                           b->shape.head_bits ? b->shape.head_bits : 16, !b->only_plan, &b->model,
                           e);
    if (!dir[0])
        return err_set(e, ERR_USAGE,
                       "no model: give --model DIR, or model.dir in the configuration file");
    TRY(check_folder(dir, e));
    TRY(model_open(&b->boot, &b->scratch, dir, &b->model, e));
    arena_reset(&b->scratch, 0);
    TRY(tokenizer_load(&b->boot, &b->scratch, dir, &b->tokenizer, e));
    arena_reset(&b->scratch, 0);
    if (tokenizer_pieces(b->tokenizer) > b->model->vocab)
        return err_set(e, ERR_MODEL,
                       "%s/tokenizer.json has token ids up to %u, but vocab_size in config.json is "
                       "%u",
                       dir, tokenizer_pieces(b->tokenizer) - 1, b->model->vocab);
    return load_template(b, dir, e);
}

/* model.head, on its way. */
struct making {
    struct head head;
    struct pool pool;
};

static void head_job(void *arg, u32 worker)
{
    const struct making *m = arg;
    const u32 all = m->head.to.n, from = (u32)((u64)all * worker / m->pool.n);
    head_rows(&m->head, from, (u32)((u64)all * (worker + 1) / m->pool.n) - from);
}

static enum err make_head(struct box *b, struct err_text *e)
{
    enum { THREADS = 8 }; /* more than the memory of most boxes keeps busy */
    const u32 threads = MIN(pool_cpus(NULL), (u32)THREADS);
    struct making m = {0};
    if (b->options.model_head == MODEL_HEAD_FILE)
        return ERR_OK;
    TRY(head_int8(&b->boot, b->model, b->only_plan, &m.head, e));
    if (m.head.to.n == 0)
        return ERR_OK;
    void *stacks = arena_alloc(&b->scratch, threads * POOL_STACK_BYTES, 4096);
    if (!stacks)
        return arena_full(&b->scratch, "the threads that make a head of 8 bits", e);
    TRY(pool_open(&m.pool, &(struct pool_options){.threads = threads}, stacks, e));
    pool_start(&m.pool, head_job, &m);
    while (!pool_done(&m.pool, -1))
        ;
    pool_close(&m.pool);
    arena_reset(&b->scratch, 0);
    return ERR_OK;
}

enum err boot_model(struct box *b, struct err_text *e)
{
    TRY(open_model(b, e));
    arena_reset(&b->scratch, 0);
    return make_head(b, e);
}

/* --- the plan ------------------------------------------------------------------------------ */

static enum err choose_kernels(struct box *b, struct err_text *e)
{
    const struct options *o = &b->options;
    u32 bits = o->cpu_activations == CPU_ACTIVATIONS_F32    ? 32
               : o->cpu_activations == CPU_ACTIVATIONS_INT8 ? 8
                                                            : 0;
    b->kernels = kernels_choose(o->cpu_kernels, bits);
    if (!b->kernels)
        return err_set(e, ERR_CONFIG,
                       "no kernel set '%s' with %s activations runs on this CPU (cpu.kernels, "
                       "cpu.activations; zigcuda info lists the sets)",
                       o->cpu_kernels,
                       bits == 32  ? "f32"
                       : bits == 8 ? "int8"
                                   : "any");
    return ERR_OK;
}

static enum dtype cpu_kv_type(const struct box *b)
{
    switch (b->options.engine_kv_type) {
    case ENGINE_KV_TYPE_F32:
        return DTYPE_F32;
    case ENGINE_KV_TYPE_F16:
        return DTYPE_F16;
    case ENGINE_KV_TYPE_INT8:
        return DTYPE_I8;
    case ENGINE_KV_TYPE_AUTO:
        break;
    }
    return b->model->embed.type == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16;
}

/* And as many KV pages as could be of use. */
static void set_slots(struct device_limits *limits, const struct options *o, u32 slots)
{
    size_t want = (size_t)slots * CEIL_DIV(limits->context, LIMIT_PAGE_TOKENS);
    limits->slots = slots;
    limits->samples = MIN(slots + (u32)o->engine_drafts, LIMIT_SLOTS);
    limits->pages = (u32)MIN(want, (size_t)UINT32_MAX - 1);
}

/* Slots, step tokens and context from the options. */
static enum err limits_of(const struct box *b, struct device_limits *limits, struct err_text *e)
{
    const struct options *o = &b->options;
    const struct model *m = b->model;
    if (o->model_context > m->context)
        return err_set(e, ERR_CONFIG, "model.context is %u; the model has %u positions",
                       (u32)o->model_context, m->context);
    limits->step_tokens = o->engine_step_tokens ? (u32)o->engine_step_tokens : STEP_TOKENS;
    limits->context = o->model_context ? (u32)o->model_context : m->context;
    limits->checkpoints =
        model_has_states(m) && o->engine_prefix_cache ? (u32)o->engine_checkpoints : 0;
    set_slots(limits, o, o->engine_slots ? (u32)o->engine_slots : SLOTS);
    if (limits->step_tokens <= limits->slots)
        return err_set(e, ERR_CONFIG,
                       "engine.step_tokens is %u; it must be more than engine.slots (%u), or "
                       "prompts would never be read beside a full batch",
                       limits->step_tokens, limits->slots);
    return ERR_OK;
}

/* At most one part in KV_SHARE of what the box can give, and half of what weights and states leave.
 */
static size_t fitted_kv(const struct box *b, const struct device_limits *limits)
{
    const size_t states = (limits->slots + limits->checkpoints) * model_state_bytes(b->model);
    size_t have = b->available_bytes, taken = b->model->file_bytes + b->model->made.n + states;
    if (taken >= have) /* the plan will say so */
        return have / KV_SHARE;
    return MIN(have / KV_SHARE, (have - taken) / 2);
}

static enum err open_cpu(struct box *b, struct device_limits *limits, struct err_text *e)
{
    const struct options *o = &b->options;
    char have[16];
    b->kv_type = cpu_kv_type(b);
    size_t page = cpu_kv_page_bytes(b->model, b->kv_type);
    size_t room = o->engine_kv ? o->engine_kv : fitted_kv(b, limits);
    TRY(choose_kernels(b, e));
    limits->pages = (u32)MIN(room / page, (size_t)limits->pages);
    if (limits->pages == 0 && !o->engine_kv)
        return err_set(e, ERR_MEMORY,
                       "this box can give %s, and a fitted KV cache takes at most one part in %d; "
                       "one page of %u tokens needs %zu bytes (engine.kv sets another size)",
                       bytes_text(b->available_bytes, have), KV_SHARE, LIMIT_PAGE_TOKENS, page);
    if (limits->pages == 0)
        return err_set(e, ERR_CONFIG, "engine.kv is %zu bytes; one KV page of %u tokens needs %zu",
                       room, LIMIT_PAGE_TOKENS, page);
    limits->context = MIN(limits->context, limits->pages * LIMIT_PAGE_TOKENS);
    limits->samples = MIN(limits->samples, limits->slots + CPU_GUESSES);
    limits->scores = o->engine_prompt_logprobs ? limits->step_tokens : 0;
    struct cpu_options cpu = {.set = b->kernels,
                              .threads = (u32)o->cpu_threads,
                              .pin = o->cpu_pin != CPU_PIN_OFF,
                              .pin_few = o->cpu_pin == CPU_PIN_ON,
                              .spin = b->spin,
                              .kv_type = b->kv_type};
    return cpu_open(&b->boot, b->model, limits, &cpu, &b->device, e);
}

/* Prompts are read fastest in long steps, but whoever comes meanwhile waits for the one in flight:
 * on Hopper, whose kernels of many tokens gain by it, as many tokens, 512 to 2048, as take about as
 * long as 2048 of 7e9 weights took on an H200 with its 132 multiprocessors, 0.09 s. (A step in
 * which somebody else answers has fewer anyhow, see prefill_beside.) */
static u32 cuda_step_tokens(const struct model *m, const struct cuda_info *info, u32 slots)
{
    double attention = 2.0 * (m->heads + m->kv_heads) * m->head_dim;
    const double mlp = (m->mlp_ungated ? 2.0 : 3.0) * m->intermediate;
    double weights = (double)m->layers_n * m->hidden * (attention + mlp);
    double tokens = info->major == 9 ? 2048 * (info->sms / 132.0) * (7e9 / weights) : 0;
    u32 n = tokens >= 2048 ? 2048 : tokens >= 1024 ? 1024 : STEP_TOKENS;
    /* A step is one launch. Where that has a time limit, for a display (2 s under Windows), steps
     * of half a second, by a quarter of the products that the tensor cores of small cards can do.
     */
    double a_second = 64e3 * info->sms * info->clock_khz;
    while (info->time_limit && n / 2 > MAX(slots, 64u) && n * weights > 0.5 * a_second)
        n /= 2;
    return n;
}

/* Who answers waits for a step of so many tokens, but for fewer of them: in all it waits less, as
 * they are read faster. On an H100 8B reads 512 in 18 ms, and 64 in 5. */
static u32 prefill_beside(const struct box *b)
{
    enum { ON_CPU = 64, SHARE = 4 };
    u32 step = b->device->limits.step_tokens;
    if (b->options.engine_prefill_beside)
        return (u32)b->options.engine_prefill_beside;
    return b->device->tile ? MAX(step / SHARE, MIN(step, (u32)ON_CPU)) : ON_CPU;
}

void boot_end_if_asked(void)
{
    sigset_t waiting;
    if (sigpending(&waiting) != 0 ||
        (!sigismember(&waiting, SIGINT) && !sigismember(&waiting, SIGTERM)))
        return;
    sigprocmask(SIG_UNBLOCK, &waiting, NULL);
    _exit(EXIT_INTERRUPTED); /* PID 1 */
}

/* Host memory that may be taken; 0: nobody knows. */
static size_t host_bytes(const struct box *b)
{
    const size_t have = b->available_bytes, max = b->options.memory_host_max;
    return have && max ? MIN(have, max) : MAX(have, max);
}

static enum err open_cuda(struct box *b, struct device_limits *limits, struct err_text *e)
{
    const struct options *o = &b->options;
    struct cuda_info info;
    u32 count;
    if (o->engine_kv_type == ENGINE_KV_TYPE_F32)
        return err_set(e, ERR_CONFIG,
                       "engine.kv_type is f32, which the CUDA backend has not: set it to auto, f16 "
                       "or int8, or device.kind to cpu");
    b->kv_type = o->engine_kv_type == ENGINE_KV_TYPE_INT8 ? DTYPE_I8 : DTYPE_F16;
    TRY(cuda_driver_load(&b->boot, o->cuda_library, e));
    if (!b->only_plan && !b->model->random)
        TRY(page_in_start(&b->page_in, &b->boot, b->model, b->available_bytes, e));
    TRY(gpu_find(o, o->cuda_wait, boot_end_if_asked, &b->boot, &b->clock, &info, &count, e));
    if (!o->engine_slots && !o->engine_step_tokens && !info.integrated &&
        info.memory_bytes >= LARGE_CARD_BYTES)
        set_slots(limits, o,
                  info.memory_bytes >= LARGEST_CARD_BYTES ? LARGEST_CARD_SLOTS : LARGE_CARD_SLOTS);
    if (!o->engine_step_tokens)
        limits->step_tokens = cuda_step_tokens(b->model, &info, limits->slots);
    limits->scores = o->engine_prompt_logprobs ? limits->step_tokens : 0;
    struct cuda_options cuda = {.info = &info,
                                .clock = b->clock,
                                .spin = o->server_wait == SERVER_WAIT_SPIN,
                                .step_ms = o->cuda_step_time,
                                .read_ahead = !page_in_covers(&b->page_in),
                                .share_percent = (u32)o->cuda_memory_share,
                                .kv_bytes = o->engine_kv,
                                .kv_int8 = b->kv_type == DTYPE_I8,
                                .own_on_card = o->cuda_layer_inputs == CUDA_LAYER_INPUTS_DEVICE,
                                .own_in_host = o->cuda_layer_inputs == CUDA_LAYER_INPUTS_HOST,
                                .host_bytes = host_bytes(b)};
    return cuda_open(&b->boot, b->model, limits, &cuda, &b->device, e);
}

static size_t work_bytes(const struct box *b)
{
    bool text = b->tokenizer || b->only_plan; /* a benchmark's prompts are ids */
    size_t tokenizing = text ? tokenizer_work_bytes(b->tokenizer, b->prompt_bytes) : 0;
    return tokenizing + 20 * b->prompt_bytes + 4 * (size_t)b->device->limits.context + MIB +
           b->work_extra_bytes;
}

/* Of the plan's host memory, what is taken before it is made. */
static size_t taken_bytes(const struct box *b)
{
    return (b->model->random ? b->model->file_bytes : 0) +
           (b->model->made.p ? b->model->made.n : 0);
}

static size_t plan_totals(const struct plan *p, u32 places)
{
    size_t total = 0;
    for (u32 i = 0; i < PLACE_COUNT; i++)
        total += places >> i & 1 ? plan_total(p, (enum place)i) : 0;
    return total;
}

/* What to lower: "KV cache 4.0 GiB (engine.kv), ...", the largest rows that an option changes. */
static const char *largest_rows(const struct plan *p, u32 places, char *out, size_t cap)
{
    bool told[COUNTOF(p->rows)] = {false};
    char size[16];
    out[0] = 0;
    for (u32 n = 0, used = 0; n < 4; n++) {
        const struct plan_row *most = NULL;
        for (u32 i = 0; i < p->n; i++) {
            const struct plan_row *row = &p->rows[i];
            bool may = row->bytes && row->option[0] && places >> row->place & 1 && !told[i];
            if (may && (!most || row->bytes > most->bytes))
                most = row;
        }
        if (!most || used >= cap)
            break;
        told[most - p->rows] = true;
        used += (u32)snprintf(out + used, cap - used, "%s%s %s (%s)", n ? ", " : "", most->what,
                              bytes_text(most->bytes, size), most->option);
    }
    return out;
}

enum err boot_check(const struct box *b, struct err_text *e)
{
    const u32 host = 1 << PLACE_HOST | 1 << PLACE_PINNED;
    const u32 all =
        host | (b->device->shares_host_memory ? 1u << PLACE_DEVICE : 0) | 1u << PLACE_FILE;
    const size_t max = b->options.memory_host_max;
    char need[16], have[16], rows[400];
    if (max && plan_totals(&b->plan, host) > max)
        return err_set(e, ERR_MEMORY,
                       "the plan needs %s of host memory; memory.host_max is %s. Raise it, or "
                       "lower what takes most: %s",
                       bytes_text(plan_totals(&b->plan, host), need), bytes_text(max, have),
                       largest_rows(&b->plan, host, rows, sizeof rows));
    if (b->available_bytes && plan_totals(&b->plan, all) > b->available_bytes)
        return err_set(e, ERR_MEMORY,
                       "the plan needs %s (weights included); this box can give %s. Take a smaller "
                       "model, or lower what takes most: %s",
                       bytes_text(plan_totals(&b->plan, all), need),
                       bytes_text(b->available_bytes, have),
                       largest_rows(&b->plan, all, rows, sizeof rows));
    return ERR_OK;
}

/* A context that was asked for fits the KV cache; another becomes what fits. Whoever asks for more
 * later is told what could raise it. */
static enum err check_context(const struct box *b, struct err_text *e)
{
    const struct options *o = &b->options;
    struct device_limits *l = &b->device->limits;
    char kv[16];
    if (o->model_context == 1)
        return err_set(e, ERR_CONFIG,
                       "model.context is 1 token; the shortest prompt and answer have 2");
    l->context_by = l->context == b->model->context ? "all that the model has"
                    : o->model_context              ? "model.context"
                                                    : "what fits the KV cache, engine.kv";
    if (l->context >= (u32)o->model_context)
        return ERR_OK;
    return err_set(e, ERR_MEMORY,
                   "model.context is %u tokens; the KV cache has room for %u (engine.kv = %s). "
                   "Raise engine.kv, or lower model.context",
                   (u32)o->model_context, l->context,
                   o->engine_kv ? bytes_text(o->engine_kv, kv) : "0, as much as the box can give");
}

/* A layer's state is of all tokens so far: what was guessed could not be taken back out of it. */
static void fit_options(struct box *b)
{
    if (!model_has_states(b->model) || !b->options.engine_drafts)
        return;
    log_event(LOG_INFO, "drafts",
              "off=\"engine.drafts\" why=\"a layer's state cannot take guesses back\"");
    b->options.engine_drafts = 0;
}

enum err boot_plan(struct box *b, struct err_text *e)
{
    const struct options *o = &b->options;
    log_phase("model");
    struct device_limits limits;
    char why[CUDA_TEXT];
    fit_options(b);
    b->available_bytes = box_available_bytes();
    if (b->available_bytes) /* or nobody knows */
        b->available_bytes += taken_bytes(b);
    TRY(limits_of(b, &limits, e));
    bool cuda = gpu_wanted(o, why);
    log_event(LOG_DEBUG, "device", "kind=%s why=\"%s\"", cuda ? "cuda" : "cpu", why);
    TRY(cuda ? open_cuda(b, &limits, e) : open_cpu(b, &limits, e));
    TRY(check_context(b, e));
    if (b->model->random)
        plan_add(&b->plan, PLACE_HOST, b->model->file_bytes, "random weights", "--shape",
                 "before packing");
    if (b->model->made.n)
        plan_add(&b->plan, PLACE_HOST, b->model->made.n, "head of 8 bits", "model.head",
                 "before packing");
    TRY(b->device->ops->plan(b->device, &b->plan, e));
    b->device_bytes = plan_total(&b->plan, PLACE_HOST) - taken_bytes(b);
    b->config =
        (struct engine_config){.queue = (u32)o->engine_queue,
                               .max_tokens = (u32)o->engine_max_tokens,
                               .prefill_beside = prefill_beside(b),
                               .prefix_cache = o->engine_prefix_cache,
                               .drafts = b->device->limits.samples - b->device->limits.slots,
                               .grammars = o->engine_grammars};
    engine_plan(b->device, &b->config, &b->plan);
    b->prompt_bytes =
        MIN(MAX((size_t)limits.context * PROMPT_BYTES_A_TOKEN, PROMPT_BYTES_MIN), PROMPT_BYTES_MAX);
    plan_add(&b->plan, PLACE_HOST, work_bytes(b) - b->work_extra_bytes, "request work",
             "model.context", "context of %u, prompts of %zu KiB", b->device->limits.context,
             b->prompt_bytes / KIB);
    if (b->work_extra_bytes)
        plan_add(&b->plan, PLACE_HOST, b->work_extra_bytes, "request work", b->work_extra_option,
                 "beside that");
    return ERR_OK;
}

void boot_print_plan(const struct box *b)
{
    static const char *const places[PLACE_COUNT] = {"host", "pinned", "device", "file"};
    char size[16], have[16];
    printf("%-7s %-18s %10s  %-40s %s\n", "place", "what", "size", "detail", "option");
    for (u32 i = 0; i < b->plan.n; i++) {
        const struct plan_row *row = &b->plan.rows[i];
        if (row->bytes == 0)
            continue;
        printf("%-7s %-18s %10s  %-40s %s\n", places[row->place], row->what,
               bytes_text(row->bytes, size), row->detail, row->option);
    }
    printf("%-7s %-18s %10s  read so far: names, tokenizer, template\n", "host", "boot arena",
           bytes_text(b->boot.used_bytes, size));
    for (u32 place = 0; place < PLACE_COUNT; place++) {
        size_t total = plan_total(&b->plan, (enum place)place);
        if (total)
            printf("%-7s %-18s %10s\n", places[place], "total", bytes_text(total, size));
    }
    printf("this box can give %s\n", bytes_text(b->available_bytes, have));
}

/* --- taking it
 * ------------------------------------------------------------------------------------ */

static void take_rest(void *rest, u32 worker)
{
    (void)worker;
    arena_populate(rest, NULL);
}

/* Where weights go to a GPU, a thread takes the pages behind the device's beside that: they are
 * tens of milliseconds of a start. Not before the driver has all its memory, which maps and pins
 * pages and would wait for it. */
static void begin_taking(struct box *b)
{
    struct err_text e;
    void *stack = arena_alloc(&b->boot, POOL_STACK_BYTES, 4096);
    if (stack && pool_open(&b->taking, &(struct pool_options){.threads = 1}, stack, &e) == ERR_OK)
        pool_start(&b->taking, take_rest, &b->rest);
}

/* Returns when all are taken, by whomever; nothing where there are none. */
static void end_taking(struct box *b)
{
    if (b->taking.n) {
        while (!pool_done(&b->taking, -1))
            ;
        pool_close(&b->taking);
    } else {
        arena_populate(&b->rest, boot_end_if_asked);
    }
}

static void show_progress(void *arg, size_t done, size_t total)
{
    struct box *b = arg;
    boot_end_if_asked();
    if (done == 0 && b->rest.cap_bytes && !b->taking.n)
        begin_taking(b);
    u64 ms = (clock_now_ns(&b->clock) - b->start_ns) / 1000000;
    if (ms < 500 || !isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\rloading %s: %3.0f %%%s", b->shape.name ? b->shape.name : b->model->name.p,
            100.0 * (double)done / (double)MAX(total, (size_t)1), done == total ? "\r\033[K" : "");
}

enum err boot_load(struct box *b, engine_on_event *on_event, void *arg, struct err_text *e)
{
    TRY(boot_check(b, e));
    size_t slack = 64 * (size_t)b->plan.n; /* alignment of each row */
    size_t bytes = plan_total(&b->plan, PLACE_HOST) - taken_bytes(b) + slack;
    TRY(arena_open(&b->host, "host", bytes, false, e));
    /* Among a GPU's will be pages that nobody may write, the ends of stacks. */
    const size_t all = b->as_needed ? 0 : bytes;
    const size_t first = b->kernels ? all : MIN(ROUND_UP(b->device_bytes, 64 * KIB), all);
    struct arena now = arena_over("host", b->host.base, first);
    b->rest = arena_over("host", b->host.base + first, all - first);
    arena_populate(&now, boot_end_if_asked);
    enum err r = b->device->ops->load(b->device, &b->host, show_progress, b, e);
    if (r == ERR_OK || b->taking.n)
        end_taking(b);
    TRY(r);
    page_in_stop(&b->page_in);
    TRY(engine_open(&b->host, b->device, b->tokenizer, &b->config, b->clock, on_event, arg,
                    &b->engine, e));
    bytes = work_bytes(b);
    void *work = arena_alloc(&b->host, bytes, 64);
    if (!work)
        return arena_full(&b->host, "request work", e);
    log_phase("engine");
    b->work = arena_over("request work", work, bytes);
    return ERR_OK;
}

void boot_seal(struct box *b)
{
    arena_close(&b->scratch);
    arena_seal(&b->boot);
    arena_seal(&b->host);
    memory_seal();
    log_event(LOG_DEBUG, "ready", "start_ms=%.1f host_bytes=%zu",
              (double)(clock_now_ns(&b->clock) - b->start_ns) / 1e6, b->host.cap_bytes);
}

enum err boot_too_long(const struct box *b, struct err_text *e)
{
    *e = (struct err_text){0}; /* the template's own words for it */
    return err_set(e, ERR_TOO_LONG,
                   "the prompt has more than %zu bytes, the limit of a context of %u tokens (%s)",
                   b->prompt_bytes, b->device->limits.context, b->device->limits.context_by);
}

enum err boot_encode(struct box *b, struct str text, u32 flags, u32 **ids, u32 *n,
                     struct err_text *e)
{
    u32 cap = (u32)text.n + 64;
    if (text.n > b->prompt_bytes)
        return boot_too_long(b, e);
    *ids = ARENA_NEW(&b->work, u32, cap);
    size_t bytes = tokenizer_work_bytes(b->tokenizer, text.n);
    void *work = arena_alloc(&b->work, bytes, 16);
    if (!*ids || !work)
        return arena_full(&b->work, "tokenizing", e);
    return tokenizer_encode(b->tokenizer, text, flags, work, bytes, *ids, cap, n, e);
}
