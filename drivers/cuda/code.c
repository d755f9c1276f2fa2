#include "drivers/cuda/code.h"

#include "drivers/cuda/driver.h"

static void unpack(void *arg, u32 worker)
{
    struct code *c = arg;
    (void)worker;
    c->image = gpu_code_unpack(c->chosen, c->room);
}

enum err code_open(struct code *c, const struct cuda_info *info, struct err_text *e)
{
    *c = (struct code){.info = info, .chosen = gpu_code_for(info->major, info->minor)};
    if (gpu_codes_n() == 0)
        return err_set(e, ERR_DEVICE,
                       "this build has no GPU kernels (it was configured without nvcc); set "
                       "device.kind to cpu, or build it with nvcc");
    if (!c->chosen)
        return err_set(e, ERR_DEVICE,
                       "%s is of compute capability %u.%u, for which this program has no GPU "
                       "kernels (README, GPUs, says for which it has); set device.kind to cpu",
                       info->name, info->major, info->minor);
    const size_t room = ROUND_UP(gpu_code_room(c->chosen), (size_t)4096);
    TRY(arena_open(&c->memory, "GPU code", room + POOL_STACK_BYTES, false, e));
    c->room = arena_alloc(&c->memory, room, 4096);
    void *stack = arena_alloc(&c->memory, POOL_STACK_BYTES, 4096);
    ASSERT(c->room && stack);
    TRY(pool_open(&c->pool, &(struct pool_options){.threads = 1}, stack, e));
    pool_start(&c->pool, unpack, c);
    return ERR_OK;
}

static void end_thread(struct code *c)
{
    if (!c->pool.n)
        return;
    while (!pool_done(&c->pool, -1))
        ;
    pool_close(&c->pool);
    c->pool.n = 0;
}

enum err code_load(struct code *c, struct cuda_module **out, struct err_text *e)
{
    end_thread(c);
    if (!c->image)
        return err_set(e, ERR_SYSTEM,
                       "the GPU kernels in this program's file are damaged; install it again");
    const u32 driver = cuda_driver_number();
    char text[GPU_CODE_TEXT];
    CUDA_TRY(cuda_module_load(out, c->image), e,
             "load the GPU kernels (%s) by a driver of CUDA %u.%u (README, GPUs, says which are "
             "new enough)",
             gpu_code_text(c->chosen, text), driver / 1000, driver % 1000 / 10);
    return ERR_OK;
}

void code_close(struct code *c)
{
    end_thread(c);
    if (c->memory.base)
        arena_close(&c->memory);
}
