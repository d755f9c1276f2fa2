#include "drivers/cuda/cuda.h"

#include "core/base/log.h"
#include "drivers/cuda/code.h"
#include "drivers/cuda/matrix.h"
#include "drivers/cuda/submit.h"
#include "drivers/cuda/telemetry.h"
#include "drivers/cuda/upload.h"

#include <stdio.h>

enum {
    INTEGRATED_CHUNK_BYTES = 512 << 20,
    PACK_BLOCKS_AN_SM = 8,
    READ_BLOCKS_AN_SM = 8,
};

struct cuda_device {
    struct device device; /* first */
    struct cuda_info info;
    struct list list;
    struct vram vram;
    struct steps steps;
    struct profile *profile; /* NULL: never asked for */
    struct cuda_stream *stream;
    struct steps_kernel step, decode, delta, prefill_experts, one, group, mid[MID_KERNELS],
        rows[MID_KERNELS], prefill[MATRIX_HALF + 1];
    struct cuda_function *pack, *read_all;
    bool read_ahead;
    char kernels[24];
    struct cuda_nvml_device *nvml;   /* NULL: not asked for yet, or there is none */
    struct cuda_telemetry telemetry; /* as of then; all NAN without nvml */
    u64 telemetry_ns;                /* 0: never asked */
};

static struct cuda_device *cuda_of(struct device *d)
{
    return (struct cuda_device *)(void *)d;
}

/* --- open ---------------------------------------------------------------------------------- */

static enum err find_kernel(struct cuda_module *module, const char *name,
                            struct cuda_function **out, struct err_text *e)
{
    CUDA_TRY(cuda_module_function(out, module, name), e, "find the GPU kernel %s", name);
    return ERR_OK;
}

/* A kernel whose blocks meet each other, so all of them have to run at once: as many as fit the
 * multiprocessors with so much shared memory. */
static enum err find_step(const struct cuda_device *c, struct cuda_module *module, const char *name,
                          u32 threads, u32 bytes, struct steps_kernel *out, struct err_text *e)
{
    int resident;
    bytes -= bytes % 128;
    TRY(find_kernel(module, name, &out->function, e));
    CUDA_TRY(cuda_function_set(out->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               (int)bytes),
             e, "give the kernel %s %u bytes of shared memory", name, bytes);
    CUDA_TRY(cuda_occupancy(&resident, out->function, (int)threads, bytes), e,
             "ask how many blocks run at once");
    if (resident < 1)
        return err_set(e, ERR_DEVICE,
                       "the kernel %s with %u bytes of shared memory does not fit a "
                       "multiprocessor of %s",
                       name, bytes, c->info.name);
    out->blocks = c->info.sms * (u32)resident;
    out->threads = threads;
    out->launch_bytes = bytes;
    return ERR_OK;
}

/* Where the module has it; else it stays as it is. kv_int8: its form for pages of bytes. */
static enum err find_if_there(struct cuda_device *c, struct cuda_module *module, const char *name,
                              bool kv_int8, u32 threads, u32 bytes, struct steps_kernel *out,
                              struct err_text *e)
{
    struct cuda_function *own;
    char full[32];
    snprintf(full, sizeof full, "%s%s", name, kv_int8 ? "_kv8" : "");
    if (cuda_module_function(&own, module, full) != CUDA_SUCCESS)
        return ERR_OK;
    return find_step(c, module, full, threads, bytes, out, e);
}

/* mid_kernel() i, and its form for rows of several tokens. all: bytes of shared memory. */
static enum err find_mid(struct cuda_device *c, struct cuda_module *module, const char *name,
                         bool kv_int8, u32 all, u32 i, struct err_text *e)
{
    char rows[32];
    snprintf(rows, sizeof rows, "%s_rows", name);
    TRY(find_if_there(c, module, name, kv_int8, PREFILL_THREADS, all, &c->mid[i], e));
    return all < ROWS_SHARED_BYTES
               ? ERR_OK
               : find_if_there(c, module, rows, kv_int8, PREFILL_THREADS, all, &c->rows[i], e);
}

/* Hopper's. all: bytes of shared memory; fp4: experts are of that. */
static enum err find_faster(struct cuda_device *c, struct cuda_module *module, u32 all,
                            bool experts, bool fp4, bool kv_int8, struct err_text *e)
{
    static const char *const prefill[] = {"prefill_int4", "prefill_int8", "prefill_half"};
    static const char *const mid[MID_KERNELS] = MID_NAMES;
    const u32 n = PREFILL_THREADS;
    for (u32 i = 0; i <= MATRIX_HALF && all >= PREFILL_SHARED_BYTES; i++)
        TRY(find_if_there(c, module, prefill[i], false, n, all, &c->prefill[i], e));
    if (experts && all >= EXPERTS_BROAD_BYTES)
        TRY(find_if_there(c, module, fp4 ? "prefill_experts_fp4" : "prefill_experts", false, n, all,
                          &c->prefill_experts, e));
    if (all >= GROUP_SHARED_BYTES)
        TRY(find_if_there(c, module, "prefill_attention", false, n, all, &c->group, e));
    for (u32 i = 0; i < MID_KERNELS && all >= MID_SHARED_BYTES; i++)
        TRY(find_mid(c, module, mid[i], kv_int8 && i <= MID_64, all, i, e));
    if (all >= ONE_SHARED_BYTES)
        TRY(find_if_there(c, module, experts ? "one_experts" : "one_token", kv_int8, n, all,
                          &c->one, e)); /* there is no one_experts_kv8 */
    c->one.rings_bytes = ONE_RINGS_BYTES + (experts ? (u32)ONE_ROUTES_BYTES : 0);
    return ERR_OK;
}

static enum err find_kernels(struct cuda_device *c, struct cuda_module *module,
                             const struct model *model, bool kv_int8, struct err_text *e)
{
    if (!c->info.cooperative)
        return err_set(e, ERR_DEVICE, "%s has no cooperative launches, which a step needs",
                       c->info.name);
    u32 all = c->info.shared_optin_bytes / 128 * 128;
    u32 least = step_least_bytes(model->head_dim) + STEP_SHARED_BYTES;
    if (least > all)
        return err_set(e, ERR_DEVICE,
                       "heads of %u dimensions need %u bytes of shared memory a block; %s has %u",
                       model->head_dim, least, c->info.name, all);
    if (model->experts &&
        model->hidden * sizeof(float) + EXPERTS_ROUTE_BYTES + STEP_SHARED_BYTES > all)
        return err_set(e, ERR_DEVICE,
                       "experts of hidden_size %u need more than the %u bytes of shared memory a "
                       "block that %s has",
                       model->hidden, all, c->info.name);
    TRY(find_step(c, module, "step", GPU_THREADS, all, &c->step, e));
    TRY(find_if_there(c, module, "decode", kv_int8, GPU_THREADS, all, &c->decode,
                      e)); /* not in PTX (GPU_LATER) */
    if (list_has_delta(model))
        TRY(find_step(c, module, "delta", GPU_THREADS, DELTA_SHARED_BYTES + STEP_SHARED_BYTES,
                      &c->delta, e));
    TRY(find_faster(c, module, all, model->experts > 0, matrix_has_fp4(model), kv_int8, e));
    TRY(find_kernel(module, "pack", &c->pack, e));
    TRY(find_kernel(module, "read_all", &c->read_all, e));
    snprintf(c->kernels, sizeof c->kernels, "cuda-sm%u%u", c->info.major, c->info.minor);
    return ERR_OK;
}
/* Where MPS gives this process a part of the GPU, that is known once it has a context. */
static enum err ask_sms(struct cuda_info *info, struct err_text *e)
{
    int sms = 0;
    CUDA_TRY(cuda_device_attribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, info->device), e,
             "ask GPU %u for its multiprocessors", info->index);
    info->sms = MIN(info->sms, (u32)MAX(sms, 1));
    return ERR_OK;
}

static void measure(struct cuda_device *c)
{
    size_t chunk = c->vram.chunk_bytes;
    c->vram = (struct vram){.chunk_bytes = chunk};
    list_build(&c->list, &c->vram);
}

/* Of the box's memory, what has to stay for the rest of this program: up to 400 MiB where prompts
 * are long. */
static size_t rest_bytes(size_t have)
{
    return MIN(448 * MIB, have / 3);
}

/* Of `have`, what may be taken. It may be the box's memory, of which the KV cache takes what is
 * left. */
static size_t may_take(const struct cuda_device *c, const struct cuda_options *o, size_t have)
{
    const size_t share = have / 100 * o->share_percent;
    return c->info.integrated && !o->kv_bytes ? MIN(share, have - rest_bytes(have)) : share;
}

/* What the card's memory is needed for. */
struct need {
    size_t rest, least; /* beside KV pages; the fewest of these, or what is uploaded there first */
    size_t room;        /* what is left for them */
};

static struct need need_of(struct cuda_device *c, size_t may)
{
    struct list *l = &c->list;
    l->staging_bytes = upload_staging_bytes(l->model, l->own.in_host);
    l->limits.pages = 0;
    measure(c);
    struct need n = {.rest = vram_bytes(&c->vram) - l->bytes[LIST_KV]};
    n.least = MAX(list_kv_page_bytes(l), l->staging_bytes);
    n.room = may > n.rest ? may - n.rest : 0;
    return n;
}

/* Is the table of per-layer inputs better off in host memory? `asked`: bytes of KV pages. */
static bool move_own(const struct cuda_device *c, const struct cuda_options *o,
                     const struct need *n, size_t asked)
{
    const struct list *l = &c->list;
    const size_t page = list_kv_page_bytes(l);
    const size_t context = page * CEIL_DIV(l->limits.context, (u32)LIMIT_PAGE_TOKENS);
    if (!l->own.bytes || l->own.in_host || o->own_on_card || c->info.integrated ||
        n->room >= MAX(asked ? asked : context, n->least))
        return false;
    return n->room < MAX(asked, n->least) || !o->host_bytes ||
           l->own.bytes <= o->host_bytes - rest_bytes(o->host_bytes);
}

/* What else could be done about a card whose memory is too small. */
static const char *or_move_own(const struct cuda_device *c)
{
    const struct list *l = &c->list;
    return l->own.bytes && !l->own.in_host && !c->info.integrated
               ? ", or let cuda.layer_inputs be auto or host"
               : "";
}

/* How many KV pages: as many as are of use and fit. */
static enum err fit(struct cuda_device *c, const struct cuda_options *o, struct err_text *e)
{
    struct device_limits *limits = &c->list.limits;
    size_t page = list_kv_page_bytes(&c->list), have, want = limits->pages;
    TRY(cuda_memory_now(&c->info, &have, e));
    const size_t may = may_take(c, o, have), asked = MIN(o->kv_bytes, want * page);
    struct need need = need_of(c, may);
    if (move_own(c, o, &need, asked)) {
        c->list.own.in_host = true;
        need = need_of(c, may);
    }
    const size_t rest = need.rest, least = need.least, room = need.room;
    if (room < asked && room >= least)
        return err_set(e, ERR_MEMORY,
                       "engine.kv asks for %zu MiB; beside the weights and buffers of %zu MiB the "
                       "GPU has room for %zu MiB, as of its free %zu MiB %u %% may be taken "
                       "(cuda.memory_share). Lower engine.kv%s",
                       asked / MIB + 1, rest / MIB, room / MIB, have / MIB, o->share_percent,
                       or_move_own(c));
    if (room < least)
        return err_set(e, ERR_MEMORY,
                       "the weights and buffers need %zu MiB of the GPU's memory and the KV cache "
                       "at least %zu MiB; of its free %zu MiB %u %% may be taken "
                       "(cuda.memory_share). Lower engine.step_tokens or engine.slots, or take a "
                       "smaller model%s",
                       rest / MIB, least / MIB + 1, have / MIB, o->share_percent, or_move_own(c));
    limits->pages = (u32)MIN((o->kv_bytes ? o->kv_bytes : room) / page, want);
    if (limits->pages == 0)
        return err_set(e, ERR_CONFIG, "engine.kv is %zu bytes; one KV page of %u tokens needs %zu",
                       o->kv_bytes, LIMIT_PAGE_TOKENS, page);
    limits->context = MIN(limits->context, limits->pages * LIMIT_PAGE_TOKENS);
    measure(c);
    return ERR_OK;
}

/* The context, and in it this program's kernels. */
static enum err open_card(struct cuda_device *c, struct code *code, const struct model *model,
                          const struct cuda_options *o, struct err_text *e)
{
    struct cuda_module *module;
    TRY(code_open(code, &c->info, e));
    TRY(cuda_context_open(&c->info, o->spin, e));
    TRY(ask_sms(&c->info, e));
    log_phase("context");
    CUDA_TRY(cuda_stream_open(&c->stream, CU_STREAM_NON_BLOCKING), e, "make a stream");
    TRY(code_load(code, &module, e));
    return find_kernels(c, module, model, o->kv_int8, e);
}

static const struct device_ops cuda_ops;

/* Where the table of per-layer inputs is to lie, as far as that is said. */
static enum err ask_own(struct cuda_device *c, const struct cuda_options *o, struct err_text *e)
{
    struct list *l = &c->list;
    if (!l->model->own.n)
        return ERR_OK;
    if (o->own_in_host && c->info.integrated)
        return err_set(e, ERR_CONFIG,
                       "cuda.layer_inputs is host, but %s has no memory of its own: all lies in "
                       "the box's, and once. Set it to auto",
                       c->info.name);
    l->own = (struct list_table){.in_host = o->own_in_host,
                                 .bytes = matrix_packed_bytes(&l->model->own.embed)};
    return ERR_OK;
}

/* Attention to a long prompt is shared out by 128 rows of queries, of one KV head each: those of
 * fewer tokens than these do not fill the card. */
static u32 deep_tokens(const struct model *m, const struct cuda_info *info)
{
    u32 n = info->sms * 128 / m->heads;
    return MAX(n / MID_TOKENS * MID_TOKENS, (u32)MID_TOKENS);
}

/* `mid_..` has kernels for 32 and for 64 tokens: a step of a few more takes as long as one of twice
 * as many. Up to where turns are sooner there was measured on an H200 (hidden sizes 2048 and 4096):
 * what is not products takes as long with any number of tokens, and is more of a small model. */
static void set_parts(const struct model *m, struct sched_part part[SCHED_PARTS])
{
    part[0] = (struct sched_part){32, 42};
    part[1] = (struct sched_part){64, m->hidden > 2048 ? 100 : 80};
}

enum err cuda_open(struct arena *keep, const struct model *model, struct device_limits *limits,
                   const struct cuda_options *o, struct device **out, struct err_text *e)
{
    ASSERT(limits->slots <= LIMIT_SLOTS && limits->step_tokens <= LIMIT_STEP_TOKENS);
    TRY(matrix_takes(model, e));
    struct cuda_device *c = ARENA_NEW(keep, struct cuda_device, 1);
    if (!c)
        return arena_full(keep, "the CUDA backend", e);
    c->info = *o->info;
    c->telemetry = cuda_telemetry_none();
    c->read_ahead = o->read_ahead;
    log_phase("driver_init");
    struct code code;
    enum err r = open_card(c, &code, model, o, e);
    code_close(&code);
    TRY(r);
    log_phase("kernels");
    c->vram.chunk_bytes = c->info.integrated ? INTEGRATED_CHUNK_BYTES : SIZE_MAX;
    c->list = (struct list){.model = model,
                            .limits = *limits,
                            .blocks = MAX(c->step.blocks, c->decode.blocks),
                            .steps = STEPS_DEPTH,
                            .awaits = c->one.function || c->mid[0].function,
                            .shared_bytes = c->step.launch_bytes - STEP_SHARED_BYTES,
                            .kv_int8 = o->kv_int8};
    TRY(ask_own(c, o, e));
    TRY(list_open(&c->list, keep, e));
    c->list.step_bytes = description_bytes(&c->list);
    TRY(fit(c, o, e));
    if (c->list.own.in_host)
        log_event(LOG_INFO, "layer_inputs", "in=\"pinned host memory\" bytes=%zu why=\"%s\"",
                  c->list.own.bytes,
                  o->own_in_host ? "cuda.layer_inputs"
                                 : "on the GPU it leaves too little to the KV cache");
    *limits = c->list.limits;
    c->steps = (struct steps){.list = &c->list,
                              .stream = c->stream,
                              .step = c->step,
                              .decode = c->decode,
                              .delta = c->delta,
                              .prefill_experts = c->prefill_experts,
                              .spin = o->spin,
                              .limit_ms = o->step_ms,
                              .clock = o->clock};
    memcpy(c->steps.prefill, c->prefill, sizeof c->prefill);
    c->steps.one = c->one;
    c->steps.group = c->group;
    memcpy(c->steps.mid, c->mid, sizeof c->mid);
    memcpy(c->steps.rows, c->rows, sizeof c->rows);
    c->device = (struct device){.ops = &cuda_ops,
                                .model = model,
                                .limits = *limits,
                                .depth = STEPS_DEPTH,
                                .tile = MID_TOKENS,
                                .deep = deep_tokens(model, &c->info),
                                .kv_page_bytes = list_kv_page_bytes(&c->list),
                                .kernels = c->kernels,
                                .shares_host_memory = c->info.integrated};
    if (c->mid[0].function && !model->experts)
        set_parts(model, c->device.part);
    *out = &c->device;
    return ERR_OK;
}

/* --- device_ops ---------------------------------------------------------------------------- */

static enum err cuda_plan(struct device *d, struct plan *p, struct err_text *e)
{
    const struct list *l = &cuda_of(d)->list;
    (void)e;
    plan_add(p, PLACE_HOST, steps_host_bytes(l), "GPU steps", "engine.slots", "results, slots");
    plan_add(p, PLACE_HOST, upload_host_bytes(), "upload threads", "", "until ready");
    plan_add(p, PLACE_PINNED, steps_pinned_bytes(l), "GPU steps", "engine.slots",
             "%u in flight, page tables, results", STEPS_DEPTH);
    plan_add(p, PLACE_PINNED, upload_pinned_bytes(), "upload buffers", "", "given back when ready");
    plan_add(p, PLACE_DEVICE, l->bytes[LIST_WEIGHTS] - (l->own.in_host ? 0 : l->own.bytes),
             "packed weights", "", "%u matrices", l->n_weights - (l->own.bytes ? 1 : 0));
    if (l->own.bytes)
        plan_add(p, l->own.in_host ? PLACE_PINNED : PLACE_DEVICE, l->own.bytes, "per-layer inputs",
                 cuda_of(d)->info.integrated ? "" : "cuda.layer_inputs", "%s",
                 l->own.in_host ? "a row a token comes over the bus" : "a row a token is read");
    plan_add(p, PLACE_DEVICE, l->bytes[LIST_OPS], "operations, tables", "", "%u operations a step",
             l->step.last);
    plan_add(p, PLACE_DEVICE, l->bytes[LIST_ACTIVATIONS], "activations", "engine.step_tokens",
             "steps of %u tokens", d->limits.step_tokens);
    plan_add(p, PLACE_DEVICE, l->bytes[LIST_SAMPLING], "logits and sampling", "engine.slots",
             "%u slots, %u samples, %u rows of logits", d->limits.slots, d->limits.samples,
             l->head_rows);
    if (l->bytes[LIST_STATES])
        plan_add(p, PLACE_DEVICE, l->bytes[LIST_STATES], "layers' states", "engine.slots",
                 "%u slots, %u checkpoints, f32", d->limits.slots, d->limits.checkpoints);
    plan_add(p, PLACE_DEVICE, l->bytes[LIST_KV], "KV cache", "engine.kv",
             "%u pages of %u tokens, %s", d->limits.pages, LIMIT_PAGE_TOKENS,
             l->kv_int8 ? "int8" : "f16");
    return ERR_OK;
}

/* The table of per-layer inputs, where that lies in host memory. */
static enum err take_own(struct list_table *t, struct err_text *e)
{
    void *p;
    if (!t->in_host)
        return ERR_OK;
    CUDA_TRY(cuda_pinned_take(&p, t->bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
             e, "take %zu MiB of pinned host memory for the per-layer inputs (cuda.layer_inputs)",
             t->bytes / MIB);
    t->host = p;
    CUDA_TRY(cuda_pinned_device(&t->card, p, 0), e, "map pinned memory");
    return ERR_OK;
}

static enum err cuda_load(struct device *d, struct arena *host,
                          void (*progress)(void *arg, size_t done, size_t total), void *arg,
                          struct err_text *e)
{
    struct cuda_device *c = cuda_of(d);
    struct upload u = {.list = &c->list,
                       .stream = c->stream,
                       .pack = c->pack,
                       .pack_blocks = c->info.sms * PACK_BLOCKS_AN_SM,
                       .integrated = c->info.integrated,
                       .read_ahead = c->read_ahead,
                       .progress = progress,
                       .arg = arg};
    log_phase("plan");
    TRY(vram_take(&c->vram, e));
    log_phase("device_memory");
    TRY(take_own(&c->list.own, e));
    list_build(&c->list, &c->vram);
    TRY(steps_open(&c->steps, host, e));
    enum err r = upload_open(&u, host, e);
    log_phase("pinned_memory");
    if (r == ERR_OK)
        r = upload_run(&u, e);
    log_phase("upload");
    upload_close(&u);
    return r;
}

static void cuda_slot_begin(struct device *d, u32 slot, const u32 *prompt, u32 n, u32 checkpoint)
{
    ASSERT(slot < d->limits.slots && checkpoint <= d->limits.checkpoints);
    steps_slot_begin(&cuda_of(d)->steps, slot, prompt, n, checkpoint);
}

static enum err cuda_submit(struct device *d, const struct step *s, struct err_text *e)
{
    device_check_step(d, s);
    enum err r = steps_submit(&cuda_of(d)->steps, s, e);
    d->look_ns = steps_look_ns(&cuda_of(d)->steps);
    return r;
}

static enum err cuda_masks(struct device *d, struct err_text *e)
{
    return steps_masks(&cuda_of(d)->steps, e);
}

static int cuda_poll(struct device *d, bool wait, const struct step_result **out, u32 *n,
                     enum err *err, struct err_text *e)
{
    int r = steps_poll(&cuda_of(d)->steps, wait, out, n, err, e);
    d->look_ns = steps_look_ns(&cuda_of(d)->steps);
    return r;
}

static int cuda_fd(struct device *d)
{
    const struct steps *s = &cuda_of(d)->steps;
    return s->spin ? -1 : s->event;
}

static void cuda_describe(struct device *d, char *out, size_t cap)
{
    const struct cuda_info *g = &cuda_of(d)->info;
    snprintf(out, cap, "CUDA: %s, kernels for sm_%u%u, f16 activations and KV, %u multiprocessors",
             g->name, g->major, g->minor, g->sms);
}

/* Best of three; 0 when the card refuses. */
static double cuda_read_bandwidth(struct device *d)
{
    struct cuda_device *c = cuda_of(d);
    struct err_text e = {0};
    struct cuda_timer t;
    struct gpu_read read = {.data = (const u8 *)(uintptr_t)c->list.packed,
                            .bytes = c->list.packed_bytes / 16 * 16,
                            .sink = c->list.state.last};
    if (cuda_timer_open(&t, read.bytes, &e) != ERR_OK)
        return 0;
    for (u32 i = 0; i < 3; i++)
        if (cuda_timer_begin(&t, c->stream, &e) != ERR_OK ||
            cuda_launch(c->read_all, c->info.sms * READ_BLOCKS_AN_SM, 1, 1, GPU_THREADS, 1, 1, 0,
                        c->stream, (void *[]){&read}, NULL) != CUDA_SUCCESS ||
            cuda_timer_end(&t, c->stream, &e) != ERR_OK || cuda_timer_read(&t, &e) != ERR_OK)
            break;
    cuda_timer_close(&t);
    return t.n == 3 ? cuda_timer_gb_s(&t, t.min_ms) * 1e9 : 0;
}

/* NVML's values, at most a second old. The library and its first answers take 25 ms on an H200
 * (init 7-10, the device's handle 7, the values 6), which is why the server asks once while it
 * boots. After that the driver answers from memory that it keeps up to date by itself: all values
 * together took 85-105 us, 4 s after the last time as well as at once, and beside running kernels
 * as on an idle card. So the one thread of the server may ask: who scrapes every second costs it
 * 1/10,000 of its time, less than the page itself, and a step in flight hides it. A lost card is
 * not asked. */
static void look_at_card(struct cuda_device *c)
{
    enum { OLD_NS = 1000000000 };
    struct err_text e = {0};
    u64 now = clock_now_ns(&c->steps.clock);
    if (c->steps.failed.code != ERR_OK || (c->telemetry_ns && now - c->telemetry_ns < OLD_NS))
        return;
    if (!c->telemetry_ns && cuda_telemetry_open(NULL, c->info.uuid, &c->nvml, &e) != ERR_OK) {
        log_event(LOG_INFO, "no_telemetry", "why=\"%s\"", e.text);
        c->nvml = NULL;
    }
    c->telemetry_ns = now;
    if (c->nvml)
        cuda_telemetry_read(c->nvml, &c->telemetry);
}

static u64 step_bytes(const struct list *l)
{
    u64 bytes = 0;
    for (u32 i = l->decode.first; i < l->decode.last; i++)
        bytes += matrix_op_bytes(&l->ops[i]);
    return bytes;
}

static void cuda_report(struct device *d, struct device_report *out)
{
    struct cuda_device *c = cuda_of(d);
    const struct steps_times *s = &c->steps.times;
    const struct cuda_telemetry *t = &c->telemetry;
    look_at_card(c);
    *out = (struct device_report){.steps = s->n,
                                  .steps_s = (double)s->sum_ns / 1e9,
                                  .step_min_s = (double)s->min_ns / 1e9,
                                  .step_max_s = (double)s->max_ns / 1e9,
                                  .step_last_s = (double)s->last_ns / 1e9,
                                  .step_bytes = step_bytes(&c->list),
                                  .power_w = t->power_w,
                                  .temperature_c = t->temperature_c,
                                  .sm_hz = t->sm_mhz * 1e6,
                                  .memory_hz = t->memory_mhz * 1e6,
                                  .memory_bytes = t->memory_bytes,
                                  .memory_used_bytes = t->memory_used_bytes,
                                  .throttle = t->throttle_told ? cuda_throttle_names : NULL,
                                  .throttled = cuda_throttle_set(t->throttle)};
}

static void cuda_close(struct device *d)
{
    struct cuda_device *c = cuda_of(d);
    if (c->steps.failed.code != ERR_OK)
        return; /* a lost card answers no more, and the process ends */
    if (c->profile)
        profile_close(c->profile);
    steps_close(&c->steps);
    vram_close(&c->vram);
    if (c->list.own.host)
        (void)!cuda_pinned_free(c->list.own.host);
    (void)!cuda_stream_close(c->stream);
    cuda_context_close(&c->info);
}

enum err cuda_profile(struct device *d, struct arena *keep, bool on, struct profile **out,
                      struct err_text *e)
{
    struct cuda_device *c = cuda_of(d);
    ASSERT(c->steps.submitted == c->steps.finished);
    if (!c->profile)
        TRY(profile_open(keep, &c->list, &c->profile, e));
    profile_clear(c->profile);
    c->steps.profile = on ? c->profile : NULL;
    c->device.depth = on ? 1 : STEPS_DEPTH; /* its events serve one step */
    *out = c->profile;
    return ERR_OK;
}

static const struct device_ops cuda_ops = {
    .name = "cuda",
    .plan = cuda_plan,
    .load = cuda_load,
    .slot_begin = cuda_slot_begin,
    .submit = cuda_submit,
    .masks = cuda_masks,
    .poll = cuda_poll,
    .fd = cuda_fd,
    .describe = cuda_describe,
    .read_bandwidth = cuda_read_bandwidth,
    .report = cuda_report,
    .close = cuda_close,
};
