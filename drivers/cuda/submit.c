#include "drivers/cuda/submit.h"

#include "drivers/cuda/launch.h"
#include "drivers/cuda/profile.h"

#include <sys/eventfd.h>
#include <unistd.h>

/* Serials wrap: every process passes there soon after its start, so that it is no rare event. */
static const u32 first_serial = UINT32_MAX - 99;
_Static_assert((STEPS_DEPTH & (STEPS_DEPTH - 1)) == 0, "entries go on in turn where serials wrap");

enum {
    TICK_MS = 20,      /* how often a running step is asked about errors */
    SPINS_A_LOOK = 256 /* at *done, between two looks at the clock */
};

/* --- memory -------------------------------------------------------------------------------- */

struct pinned {
    u8 *base;
    size_t bytes;
};

static void *piece(struct pinned *p, size_t bytes)
{
    void *at = p->base ? p->base + p->bytes : NULL;
    p->bytes += ROUND_UP(bytes, (size_t)256);
    return at;
}

static size_t results_max(const struct list *l)
{
    return (size_t)l->limits.samples + l->limits.scores;
}

static size_t mask_bytes(const struct list *l)
{
    return MASK_WORDS(l->model->vocab) * sizeof(u64);
}

static void lay_out(struct steps *s, const struct list *l, struct pinned *p)
{
    size_t slots = l->limits.slots;
    s->done = piece(p, 2 * sizeof *s->done);
    for (u32 i = 0; i < STEPS_DEPTH; i++) {
        s->entries[i].host = piece(p, description_bytes(l));
        s->entries[i].results = piece(p, results_max(l) * sizeof *s->entries[i].results);
        s->entries[i].stamps = piece(p, 2 * sizeof *s->entries[i].stamps);
        s->entries[i].hidden = piece(p, slots * l->model->hidden * sizeof(float));
        s->entries[i].masks = piece(p, l->limits.samples * mask_bytes(l));
    }
    s->sampling = piece(p, slots * sizeof *s->sampling);
    s->tables = piece(p, slots * l->state.pages_stride * sizeof *s->tables);
    s->seen = piece(p, slots * l->model->vocab);
}

size_t steps_pinned_bytes(const struct list *l)
{
    struct steps s;
    struct pinned p = {0};
    lay_out(&s, l, &p);
    return p.bytes;
}

size_t steps_host_bytes(const struct list *l)
{
    return l->limits.slots * sizeof(struct steps_slot) +
           results_max(l) * sizeof(struct step_result) + 128;
}

static enum err open_wake(struct steps *s, struct err_text *e)
{
    s->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->event < 0)
        return err_set_errno(e, ERR_SYSTEM, "no eventfd for the CUDA backend");
    if (s->spin)
        return ERR_OK;
    CUDA_TRY(cuda_stream_open(&s->calls, CU_STREAM_NON_BLOCKING), e, "make a stream");
    CUDA_TRY(cuda_event_open(&s->over, CU_EVENT_DISABLE_TIMING), e, "make an event");
    return ERR_OK;
}

enum err steps_open(struct steps *s, struct arena *host, struct err_text *e)
{
    const struct list *l = s->list;
    size_t bytes = steps_pinned_bytes(l);
    s->event = -1;
    launch_open(s);
    s->slots = ARENA_NEW(host, struct steps_slot, l->limits.slots);
    s->results = ARENA_NEW(host, struct step_result, results_max(l));
    if (!s->slots || !s->results)
        return arena_full(host, "steps of the CUDA backend", e);
    CUDA_TRY(
        cuda_pinned_take(&s->pinned, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        e, "take %zu KiB of pinned memory", bytes / KIB);
    memset(s->pinned, 0, bytes);
    lay_out(s, l, &(struct pinned){.base = s->pinned});
    s->submitted = s->finished = *s->done = first_serial;
    CUDA_TRY(cuda_pinned_device(&s->done_card, s->done, 0), e, "map pinned memory");
    for (u32 i = 0; i < STEPS_DEPTH; i++) {
        struct steps_entry *entry = &s->entries[i];
        CUDA_TRY(cuda_pinned_device(&entry->results_card, entry->results, 0), e,
                 "map pinned memory");
        CUDA_TRY(cuda_pinned_device(&entry->stamps_card, entry->stamps, 0), e, "map pinned memory");
    }
    return open_wake(s, e);
}

void steps_close(struct steps *s)
{
    if (!s->pinned)
        return;
    (void)!cuda_pinned_free(s->pinned);
    s->pinned = NULL;
    if (s->over)
        (void)!cuda_event_close(s->over);
    if (s->calls)
        (void)!cuda_stream_close(s->calls);
    if (s->event >= 0)
        close(s->event);
}

/* --- errors and completion ----------------------------------------------------------------- */

/* Has the card finished it? A step that is in flight, or was not long ago. */
static bool is_done(const struct steps *s, u32 serial)
{
    return (i32)(__atomic_load_n(s->done, __ATOMIC_ACQUIRE) - serial) >= 0;
}

/* Keeps the first error, wakes whoever sleeps on the event, and tells it. */
static enum err fail(struct steps *s, enum err code, const struct err_text *why, struct err_text *e)
{
    static const u64 one = 1;
    if (s->failed.code == ERR_OK) {
        s->failed = *why;
        s->failed.code = code;
        (void)!write(s->event, &one, sizeof one);
    }
    return err_set(e, s->failed.code, "%s", s->failed.text);
}

/* Asks the stream for an error, and the clock whether the step takes too long. */
static enum err look(struct steps *s, struct err_text *e)
{
    u64 now = clock_now_ns(&s->clock);
    u64 began = s->entries[(s->finished + 1) % STEPS_DEPTH].submitted_ns;
    struct err_text why = {0};
    if (now - s->asked_ns < TICK_MS * 1000000ull)
        return ERR_OK;
    s->asked_ns = now;
    enum cuda_result r = cuda_stream_query(s->stream);
    if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY)
        return fail(s, cuda_failed(r, &why, "compute a step"), &why, e);
    if (now - began < s->limit_ms * 1000000)
        return ERR_OK;
    err_set(&why, ERR_DEVICE,
            "the GPU has not finished a step in %llu ms (cuda.step_time); it hangs, or another "
            "process keeps it busy",
            (unsigned long long)s->limit_ms);
    return fail(s, ERR_DEVICE, &why, e);
}

/* Until the card has finished the step, or an error. */
static enum err wait_for(struct steps *s, u32 serial, struct err_text *e)
{
    while (!is_done(s, serial)) {
        for (u32 i = 0; i < SPINS_A_LOOK && !is_done(s, serial); i++)
#ifdef __x86_64__
            __builtin_ia32_pause();
#else
            __asm__ volatile("yield");
#endif
        TRY(look(s, e));
    }
    return ERR_OK;
}

/* Runs on a thread of the driver: nothing of musl here, not even errno. */
static void wake(void *arg)
{
    static const u64 one = 1;
    const struct steps *s = arg;
#ifdef __x86_64__
    long r = 1; /* write */
    __asm__ volatile("syscall"
                     : "+a"(r)
                     : "D"((long)s->event), "S"(&one), "d"(sizeof one)
                     : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = 64; /* write */
    register long fd __asm__("x0") = s->event;
    register const u64 *p __asm__("x1") = &one;
    register size_t n __asm__("x2") = sizeof one;
    __asm__ volatile("svc 0" : "+r"(fd) : "r"(number), "r"(p), "r"(n) : "memory");
#endif
}

/* Has the driver call wake once the step is over that was submitted last. */
static enum err ask_for_wake(struct steps *s, struct err_text *e)
{
    CUDA_TRY(cuda_event_record(s->over, s->stream), e, "mark the end of a step");
    CUDA_TRY(cuda_stream_wait_event(s->calls, s->over, 0), e, "wait for the end of a step");
    CUDA_TRY(cuda_call_host(s->calls, wake, s), e, "ask to be woken");
    return ERR_OK;
}

u64 steps_look_ns(const struct steps *s)
{
    u64 began = s->entries[(s->finished + 1) % STEPS_DEPTH].submitted_ns;
    return MAX(began, s->asked_ns) + TICK_MS * 1000000ull;
}

/* --- slots --------------------------------------------------------------------------------- */

/* States [0, slots) are the slots', those behind them the checkpoints'. */
static enum err copy_state(struct steps *s, u32 to, u32 from, struct err_text *e)
{
    const struct list *l = s->list;
    const size_t bytes = l->state_floats * sizeof(float);
    CUDA_TRY(cuda_copy(l->states + to * bytes, l->states + from * bytes, bytes, s->stream), e,
             "copy a layer's state");
    return ERR_OK;
}

static enum err keep_states(struct steps *s, const struct step *step, struct err_text *e)
{
    for (u32 r = 0; r < step->n_rows; r++) {
        const struct step_row *row = &step->rows[r];
        if (row->keep)
            TRY(copy_state(s, s->list->limits.slots + row->keep - 1, row->slot, e));
    }
    return ERR_OK;
}

/* A state is taken at once, as a later step may keep another one in its place; should that fail,
 * the next step does. */
void steps_slot_begin(struct steps *s, u32 slot, const u32 *prompt, u32 n, u32 checkpoint)
{
    struct err_text why = {0}, e;
    struct steps_slot *mine = &s->slots[slot];
    if (checkpoint && s->failed.code == ERR_OK &&
        copy_state(s, slot, s->list->limits.slots + checkpoint - 1, &why) != ERR_OK)
        fail(s, why.code, &why, &e);
    mine->fresh = true;
    mine->prompt = prompt;
    mine->n_prompt = n;
}

static enum err send_seen(struct steps *s, u32 slot, struct err_text *e)
{
    const struct steps_slot *mine = &s->slots[slot];
    size_t vocab = s->list->model->vocab, at = slot * vocab;
    memset(s->seen + at, 0, vocab);
    for (u32 i = 0; i < mine->n_prompt; i++)
        s->seen[at + mine->prompt[i]] = 1;
    CUDA_TRY(
        cuda_copy_in((uintptr_t)(s->list->state.prompt_seen + at), s->seen + at, vocab, s->stream),
        e, "send the tokens of a prompt");
    return ERR_OK;
}

static void put_sampling(struct gpu_sampling *to, const struct sampling *from)
{
    to->temperature = from->temperature;
    to->top_p = from->top_p;
    to->min_p = from->min_p;
    to->typical_p = from->typical_p;
    to->repetition_penalty = from->repetition_penalty;
    to->presence_penalty = from->presence_penalty;
    to->frequency_penalty = from->frequency_penalty;
    to->top_k = from->top_k;
    to->min_tokens = from->min_tokens;
    to->n_stop = from->n_stop;
    to->n_bias = from->n_bias;
    to->logprobs = from->logprobs;
    to->top_logprobs = from->top_logprobs;
    to->seed[0] = (u32)from->seed;
    to->seed[1] = (u32)(from->seed >> 32);
    memcpy(to->stop, from->stop, from->n_stop * sizeof *to->stop);
    memcpy(to->bias_id, from->bias_id, from->n_bias * sizeof *to->bias_id);
    memcpy(to->bias, from->bias, from->n_bias * sizeof *to->bias);
}

static enum err send_table(struct steps *s, const struct step_row *row, struct err_text *e)
{
    const struct gpu_state *state = &s->list->state;
    size_t at = (size_t)row->slot * state->pages_stride, bytes = row->n_pages * sizeof(u32);
    memcpy(s->tables + at, row->pages, bytes);
    s->slots[row->slot].version = row->pages_version;
    CUDA_TRY(cuda_copy_in((uintptr_t)(state->pages + at), s->tables + at, bytes, s->stream), e,
             "send a page table");
    return ERR_OK;
}

/* What a sequence begins with. Counts are read only by penalties, so only these have them cleared
 * and the prompt's tokens sent. */
static enum err send_start(struct steps *s, const struct step_row *row, struct err_text *e)
{
    const struct gpu_state *state = &s->list->state;
    const struct sampling *p = row->sampling;
    size_t vocab = s->list->model->vocab, at = row->slot * vocab;
    put_sampling(&s->sampling[row->slot], p);
    CUDA_TRY(cuda_copy_in((uintptr_t)(state->sampling + row->slot), &s->sampling[row->slot],
                          sizeof *s->sampling, s->stream),
             e, "send sampling parameters");
    if (p->repetition_penalty != 1)
        TRY(send_seen(s, row->slot, e));
    if (sampling_counts(p))
        CUDA_TRY(cuda_fill_u8((uintptr_t)(state->output_counts + at), 0,
                              vocab * sizeof *state->output_counts, s->stream),
                 e, "clear token counts");
    return ERR_OK;
}

static enum err send_slot(struct steps *s, const struct step_row *row, u32 serial,
                          struct err_text *e)
{
    struct steps_slot *mine = &s->slots[row->slot];
    if (!mine->fresh && mine->version == row->pages_version)
        return ERR_OK;
    if (serial - mine->sent - 1 < STEPS_DEPTH - 1) /* in flight: its pinned copies may be read */
        TRY(wait_for(s, mine->sent, e));
    mine->sent = serial;
    if (mine->fresh)
        TRY(send_start(s, row, e));
    mine->fresh = false;
    return send_table(s, row, e);
}

/* Logits of the wants [from, from + n), which lie in the rows 0.. of the buffer, to their rows. */
static enum err fetch_logits(struct steps *s, const struct step *step, const struct gpu_want *wants,
                             u32 n, struct err_text *e)
{
    size_t vocab = s->list->model->vocab;
    for (u32 i = 0; i < n; i++) {
        const struct step_row *row = &step->rows[wants[i].row];
        const float *from = s->list->logits + (size_t)i * s->list->logits_stride;
        if (row->logits)
            CUDA_TRY(cuda_copy_out(row->logits + (wants[i].token - row->first) * vocab,
                                   (uintptr_t)from, vocab * sizeof *from, s->stream),
                     e, "fetch logits");
    }
    return ERR_OK;
}

static enum err send_masks(struct steps *s, const struct steps_entry *entry, struct err_text *e)
{
    size_t a_mask = mask_bytes(s->list), bytes = 0;
    for (u32 r = 0; r < entry->step->n_rows; r++) {
        const struct step_row *row = &entry->step->rows[r];
        if (!row->masks)
            continue;
        memcpy((u8 *)entry->masks + bytes, row->masks, row->samples * a_mask);
        bytes += row->samples * a_mask;
    }
    ASSERT(bytes == entry->description.n_masks * a_mask);
    CUDA_TRY(cuda_copy_in((uintptr_t)s->list->masks, entry->masks, bytes, s->stream), e,
             "send masks");
    return ERR_OK;
}

/* What is left of a step once its masks are there. */
static enum err finish(struct steps *s, struct steps_entry *entry, struct err_text *e)
{
    const struct list *l = s->list;
    const struct description *d = &entry->description;
    if (d->n_masks) {
        TRY(send_masks(s, entry, e));
        TRY(launch_sample(s, d->passes_card, e));
    }
    for (u32 i = 0; i < d->passes; i++) {
        u32 first = i * l->head_rows, n = MIN(d->n_wants - first, l->head_rows);
        if (i > 0)
            TRY(launch_step(s, d->passes_card + i * sizeof(struct gpu_step), entry, LAUNCH_HEAD,
                            e));
        if (entry->fetches)
            TRY(fetch_logits(s, entry->step, d->wants + first, n, e));
    }
    if (entry->fetches)
        CUDA_TRY(cuda_stream_wait(s->stream), e, "compute a step");
    return s->spin ? ERR_OK : ask_for_wake(s, e);
}

static enum err start(struct steps *s, struct steps_entry *entry, u32 serial, struct err_text *e)
{
    const struct list *l = s->list;
    const struct step *step = entry->step;
    const u64 card = l->card_steps[serial % STEPS_DEPTH];
    entry->embeds = entry->fetches = false;
    for (u32 r = 0; r < step->n_rows; r++) {
        TRY(send_slot(s, &step->rows[r], serial, e));
        entry->fetches |= step->rows[r].logits != NULL;
        entry->embeds |= step->rows[r].hidden != NULL;
    }
    if (s->profile)
        profile_step(s->profile, step);
    const struct description_places places = {
        entry->host, entry->results, card, entry->results_card, entry->stamps_card, s->done_card};
    const struct description *d = &entry->description;
    entry->description = describe(l, step, serial, &places);
    CUDA_TRY(cuda_copy_in(card, entry->host, d->bytes, s->stream), e, "send a step");
    TRY(launch_step(s, d->passes_card, entry, d->n_masks ? LAUNCH_LOGITS : LAUNCH_STEP, e));
    TRY(keep_states(s, step, e));
    return step->late_masks ? ERR_OK : finish(s, entry, e);
}

enum err steps_submit(struct steps *s, const struct step *step, struct err_text *e)
{
    struct err_text why = {0};
    u32 serial = s->submitted + 1;
    struct steps_entry *entry = &s->entries[serial % STEPS_DEPTH];
    ASSERT(serial - s->finished <= STEPS_DEPTH && !s->late_masks);
    s->submitted = serial;
    s->late_masks = step->late_masks;
    entry->step = step;
    if (s->failed.code != ERR_OK)
        return fail(s, s->failed.code, &s->failed, e);
    entry->submitted_ns = clock_now_ns(&s->clock);
    enum err code = start(s, entry, serial, &why);
    return code == ERR_OK ? ERR_OK : fail(s, code, &why, e);
}

enum err steps_masks(struct steps *s, struct err_text *e)
{
    struct err_text why = {0};
    ASSERT(s->late_masks);
    s->late_masks = false;
    if (s->failed.code != ERR_OK)
        return fail(s, s->failed.code, &s->failed, e);
    enum err code = finish(s, &s->entries[s->submitted % STEPS_DEPTH], &why);
    return code == ERR_OK ? ERR_OK : fail(s, code, &why, e);
}

static void put_result(struct step_result *to, const struct gpu_result *from)
{
    to->slot = from->slot;
    to->token = from->token;
    to->logprob = from->logprob;
    to->n_top = MIN(from->n_top, (u32)LIMIT_LOGPROBS);
    for (u32 i = 0; i < to->n_top; i++)
        to->top[i] = (struct top_logprob){from->top_id[i], from->top[i]};
}

static void put_hidden(const struct steps_entry *entry, u32 hidden)
{
    for (u32 r = 0; r < entry->step->n_rows; r++)
        if (entry->step->rows[r].hidden)
            memcpy(entry->step->rows[r].hidden, entry->hidden + (size_t)r * hidden,
                   hidden * sizeof *entry->hidden);
}

static void add_time(struct steps_times *t, const u64 stamps[2])
{
    t->last_ns = stamps[1] - stamps[0];
    t->min_ns = t->n ? MIN(t->min_ns, t->last_ns) : t->last_ns;
    t->max_ns = MAX(t->max_ns, t->last_ns);
    t->sum_ns += t->last_ns;
    t->n++;
}

int steps_poll(struct steps *s, bool wait, const struct step_result **out, u32 *n, enum err *err,
               struct err_text *e)
{
    u32 serial = s->finished + 1;
    struct steps_entry *entry = &s->entries[serial % STEPS_DEPTH];
    ASSERT(s->submitted != s->finished);
    *n = 0;
    *out = s->results;
    *err = s->failed.code;
    if (*err != ERR_OK) {
        fail(s, *err, &s->failed, e);
    } else if (wait) {
        *err = wait_for(s, serial, e);
    } else if (!is_done(s, serial)) {
        *err = look(s, e);
        if (*err == ERR_OK)
            return 0;
    }
    s->finished = serial;
    if (*err != ERR_OK)
        return 1;
    add_time(&s->times, entry->stamps);
    *n = entry->description.n_results;
    for (u32 i = 0; i < *n; i++)
        put_result(&s->results[i], &entry->results[i]);
    if (entry->embeds)
        put_hidden(entry, s->list->model->hidden);
    if (s->profile)
        *err = profile_read(s->profile, e);
    return 1;
}
