#include "core/main/args.h"
#include "core/main/boot.h"
#include "core/main/gpu.h"
#include "core/main/main.h"

#include "core/base/box.h"
#include "drivers/cpu/pool.h"

#include <stdio.h>

static void print_kernels(const struct box *b)
{
    const struct kernel_set *chosen = b->kernels;
    char cpu[512];
    kernels_describe_cpu(cpu, sizeof cpu);
    printf("cpu      %s\n", cpu);
    for (u32 i = 0; kernel_sets[i]; i++) {
        const struct kernel_set *s = kernel_sets[i];
        const char *why = s == chosen      ? "chosen: first of this list that runs here and fits "
                                             "cpu.kernels and cpu.activations"
                          : s->supported() ? "runs here"
                                           : "this CPU lacks what it needs";
        printf("%-8s %-14s %2u-bit activations, needs %s: %s\n", i == 0 ? "kernels" : "", s->name,
               s->linear->activation_bits, s->needs, why);
    }
}

/* In what layers differ. */
static void print_layers(const struct model *m)
{
    const struct layer *window = NULL;
    u32 windows = 0, share = 0, others = m->layers_n - model_attention_layers(m);
    for (u32 i = 0; i < m->layers_n; i++) {
        const struct layer *l = &m->layers[i];
        window = l->window ? l : window;
        windows += l->window != 0;
        share += l->kv_layer != i;
    }
    if (m->delta.value_heads)
        printf("         of the layers %u are %s: %u heads of %u by %u, %u of keys\n", others,
               m->delta.mamba ? "Mamba 2" : "gated delta nets", m->delta.value_heads,
               m->delta.key_dim, m->delta.value_dim, m->delta.key_heads);
    if (m->conv_taps)
        printf("         of the layers %u are short convolutions of %u tokens\n", others,
               m->conv_taps);
    if (window)
        printf("         of the layers %u see %u tokens, with heads of %u, %u KV heads\n", windows,
               window->window, window->head_dim, window->kv_heads);
    if (share)
        printf("         of the layers %u see keys and values of others\n", share);
    if (m->own.n)
        printf("         inputs of %u features for each layer\n", m->own.n);
}

static void print_model(const struct box *b)
{
    const struct model *m = b->model;
    char size[16];
    printf("model    %.*s: %.*s, %.*s, %s in %u file%s\n", STR_ARG(m->name), STR_ARG(m->model_type),
           STR_ARG(m->quant), bytes_text(m->file_bytes, size), m->files_n,
           m->files_n == 1 ? "" : "s");
    printf("         %u layers, hidden %u, intermediate %u, %u heads of %u, %u KV heads\n",
           m->layers_n, m->hidden, m->intermediate, m->heads, m->head_dim, m->kv_heads);
    if (m->experts)
        printf("         %u experts a layer, %u of them a token, intermediate %u\n", m->experts,
               m->experts_used, m->expert_intermediate);
    print_layers(m);
    printf("         vocabulary %u, context %u, %s head, %s chat template\n", m->vocab, m->context,
           m->tied ? "tied" : "own", b->template ? "with a" : "no");
}

static enum err go(int argc, char **argv, struct err_text *e)
{
    static struct box b;
    bool helped;
    u32 words;
    char size[16], what[256];
    TRY(boot_begin(&b, e));
    TRY(args_parse(&b, argc, argv, NULL, 0, NULL, 0, &words, "zigcuda info [--model DIR]", &helped,
                   e));
    if (helped)
        return ERR_OK;
    if (b.options.model_dir[0]) {
        b.only_plan = true;
        TRY(boot_model(&b, e));
        TRY(boot_plan(&b, e));
    } else {
        b.kernels = kernels_choose("auto", 0);
    }
    print_kernels(&b);
    gpu_print(&b.options, &b.boot, &b.clock);
    bool own;
    u32 cpus = pool_cpus(&own);
    printf("threads  %u%s\n", cpus, own ? "" : ", by the CPU quota of a cgroup");
    printf("memory   %s available\n", bytes_text(box_available_bytes(), size));
    if (!b.model)
        return ERR_OK;
    print_model(&b);
    b.device->ops->describe(b.device, what, sizeof what);
    printf("device   %s\n", what);
    return ERR_OK;
}

int cmd_info(int argc, char **argv)
{
    struct err_text e = {0};
    return main_end("info", go(argc, argv, &e), &e);
}
