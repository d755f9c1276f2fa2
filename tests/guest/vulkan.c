#include "tests/guest/vulkan.h"

#include <sys/stat.h>

/* The few declarations of Vulkan 1.0 that are needed, by its specification (registry.khronos.org):
 * every structure begins with its type number and a pointer to extensions. */
enum {
    APPLICATION_INFO = 0,
    INSTANCE_INFO = 1,
    QUEUE_INFO = 2,
    DEVICE_INFO = 3,
    SUBMIT_INFO = 4,
    MEMORY_INFO = 5,
    BUFFER_INFO = 12,
    POOL_INFO = 39,
    COMMANDS_INFO = 40,
    BEGIN_INFO = 42,
    MEMORY_BARRIER = 46,
};
enum { TRANSFER_STAGE = 0x1000, TRANSFER_WRITE = 0x1000, TRANSFER_READ = 0x800 };
enum { HOST_COHERENT = 2 | 4, USE_SOURCE = 1, USE_TARGET = 2 };

struct application_info {
    u64 type;
    const void *next;
    const char *name;
    u32 version;
    const char *engine;
    u32 engine_version, api;
};
struct instance_info {
    u64 type;
    const void *next;
    u64 flags;
    const struct application_info *application;
    u32 n_layers;
    const char *const *layers;
    u32 n_extensions;
    const char *const *extensions;
};
struct queue_info {
    u64 type;
    const void *next;
    u32 flags, family, n;
    const float *priorities;
};
struct device_info {
    u64 type;
    const void *next;
    u32 flags, n_queues;
    const struct queue_info *queues;
    u32 n_layers;
    const char *const *layers;
    u32 n_extensions;
    const char *const *extensions;
    const void *features;
};
struct buffer_info {
    u64 type;
    const void *next;
    u32 flags;
    u64 bytes;
    u32 usage, sharing, n_families;
    const u32 *families;
};
struct memory_info {
    u64 type;
    const void *next;
    u64 bytes;
    u32 kind;
};
struct pool_info {
    u64 type;
    const void *next;
    u32 flags, family;
};
struct commands_info {
    u64 type;
    const void *next;
    u64 pool;
    u32 level, n;
};
struct begin_info {
    u64 type;
    const void *next;
    u64 flags;
    const void *inheritance;
};
struct barrier {
    u64 type;
    const void *next;
    u32 from, to;
};
struct submit_info {
    u64 type;
    const void *next;
    u64 n_waits;
    const void *waits, *stages;
    u64 n_commands;
    void *const *commands;
    u64 n_signals;
    const void *signals;
};
struct requirements {
    u64 bytes, align;
    u32 kinds;
};
struct memory_kinds {
    u32 n;
    struct {
        u32 flags, heap;
    } kinds[32];
    u32 n_heaps;
    struct {
        u64 bytes, flags;
    } heaps[16];
};

static struct {
    int (*CreateInstance)(const struct instance_info *, const void *, void **);
    int (*EnumeratePhysicalDevices)(void *, u32 *, void **);
    void (*GetPhysicalDeviceProperties)(void *, void *);
    void (*GetPhysicalDeviceMemoryProperties)(void *, struct memory_kinds *);
    int (*CreateDevice)(void *, const struct device_info *, const void *, void **);
    void (*GetDeviceQueue)(void *, u32, u32, void **);
    int (*CreateBuffer)(void *, const struct buffer_info *, const void *, u64 *);
    void (*GetBufferMemoryRequirements)(void *, u64, struct requirements *);
    int (*AllocateMemory)(void *, const struct memory_info *, const void *, u64 *);
    int (*BindBufferMemory)(void *, u64, u64, u64);
    int (*MapMemory)(void *, u64, u64, u64, u32, void **);
    int (*CreateCommandPool)(void *, const struct pool_info *, const void *, u64 *);
    int (*AllocateCommandBuffers)(void *, const struct commands_info *, void **);
    int (*BeginCommandBuffer)(void *, const struct begin_info *);
    void (*CmdFillBuffer)(void *, u64, u64, u64, u32);
    void (*CmdCopyBuffer)(void *, u64, u64, u32, const u64 *);
    void (*CmdPipelineBarrier)(void *, u32, u32, u32, u32, const struct barrier *, u32,
                               const void *, u32, const void *);
    int (*EndCommandBuffer)(void *);
    int (*QueueSubmit)(void *, u32, const struct submit_info *, u64);
    int (*QueueWaitIdle)(void *);
    void (*DestroyDevice)(void *, const void *);
    void (*DestroyInstance)(void *, const void *);
} vk;

enum { BYTES = 1 << 20 };

struct work {
    void *instance, *physical, *device, *queue, *commands;
    u64 buffers[2], memories[2];
    u32 *bytes[2]; /* [BYTES / 4] */
};

#define STEP(name, ...)                                 \
    do {                                                \
        int result_ = GUEST_CALL(vk.name(__VA_ARGS__)); \
        if (result_ != 0)                               \
            return "vk" #name;                          \
    } while (0)
#define DO(name, ...) (void)GUEST_CALL((vk.name(__VA_ARGS__), 0))

static const char *resolve(void *lib)
{
#define RESOLVE(name)                                   \
    *(void **)&vk.name = guest_symbol(lib, "vk" #name); \
    if (!vk.name)                                       \
        return "symbol vk" #name;
    RESOLVE(CreateInstance)
    RESOLVE(EnumeratePhysicalDevices)
    RESOLVE(GetPhysicalDeviceProperties)
    RESOLVE(GetPhysicalDeviceMemoryProperties)
    RESOLVE(CreateDevice)
    RESOLVE(GetDeviceQueue)
    RESOLVE(CreateBuffer)
    RESOLVE(GetBufferMemoryRequirements)
    RESOLVE(AllocateMemory)
    RESOLVE(BindBufferMemory)
    RESOLVE(MapMemory)
    RESOLVE(CreateCommandPool)
    RESOLVE(AllocateCommandBuffers)
    RESOLVE(BeginCommandBuffer)
    RESOLVE(CmdFillBuffer)
    RESOLVE(CmdCopyBuffer)
    RESOLVE(CmdPipelineBarrier)
    RESOLVE(EndCommandBuffer)
    RESOLVE(QueueSubmit)
    RESOLVE(QueueWaitIdle)
    RESOLVE(DestroyDevice)
    RESOLVE(DestroyInstance)
    return NULL;
}

static const char *open_device(struct work *w, char name[256])
{
    struct application_info application = {APPLICATION_INFO, NULL, "zigcuda", 1, NULL, 0, 1u << 22};
    struct instance_info instance = {.type = INSTANCE_INFO, .application = &application};
    struct {
        u32 api, driver, vendor, device, kind;
        char name[256];
        u8 rest[4096]; /* limits */
    } properties;
    u32 n = 1;
    STEP(CreateInstance, &instance, NULL, &w->instance);
    int r = GUEST_CALL(vk.EnumeratePhysicalDevices(w->instance, &n, &w->physical));
    if ((r != 0 && r != 5) || n != 1) /* 5: there are more */
        return "vkEnumeratePhysicalDevices";
    DO(GetPhysicalDeviceProperties, w->physical, &properties);
    memcpy(name, properties.name, 256);
    float priority = 1;
    struct queue_info queue = {QUEUE_INFO, NULL, 0, 0, 1, &priority};
    struct device_info device = {.type = DEVICE_INFO, .n_queues = 1, .queues = &queue};
    STEP(CreateDevice, w->physical, &device, NULL, &w->device);
    DO(GetDeviceQueue, w->device, 0, 0, &w->queue);
    return NULL;
}

static const char *make_buffer(struct work *w, u32 i, u32 usage)
{
    struct buffer_info buffer = {.type = BUFFER_INFO, .bytes = BYTES, .usage = usage};
    struct requirements need;
    struct memory_kinds have;
    STEP(CreateBuffer, w->device, &buffer, NULL, &w->buffers[i]);
    DO(GetBufferMemoryRequirements, w->device, w->buffers[i], &need);
    DO(GetPhysicalDeviceMemoryProperties, w->physical, &have);
    u32 kind = 0;
    while (kind < have.n &&
           (!(need.kinds >> kind & 1) || (~have.kinds[kind].flags & HOST_COHERENT)))
        kind++;
    if (kind == have.n)
        return "memory that the host sees";
    struct memory_info memory = {MEMORY_INFO, NULL, need.bytes, kind};
    STEP(AllocateMemory, w->device, &memory, NULL, &w->memories[i]);
    STEP(BindBufferMemory, w->device, w->buffers[i], w->memories[i], 0);
    STEP(MapMemory, w->device, w->memories[i], 0, BYTES, 0, (void **)&w->bytes[i]);
    return NULL;
}

static const char *make_commands(struct work *w)
{
    struct pool_info pool = {.type = POOL_INFO, .flags = 2}; /* buffers can be recorded anew */
    struct commands_info commands = {.type = COMMANDS_INFO, .n = 1};
    STEP(CreateCommandPool, w->device, &pool, NULL, &commands.pool);
    STEP(AllocateCommandBuffers, w->device, &commands, &w->commands);
    return NULL;
}

static const char *fill_once(struct work *w, u32 value)
{
    struct begin_info begin = {.type = BEGIN_INFO};
    struct barrier barrier = {MEMORY_BARRIER, NULL, TRANSFER_WRITE, TRANSFER_READ};
    struct submit_info submit = {.type = SUBMIT_INFO, .n_commands = 1, .commands = &w->commands};
    const u64 region[3] = {0, 0, BYTES};
    STEP(BeginCommandBuffer, w->commands, &begin);
    DO(CmdFillBuffer, w->commands, w->buffers[0], 0, BYTES, value);
    DO(CmdPipelineBarrier, w->commands, TRANSFER_STAGE, TRANSFER_STAGE, 0, 1, &barrier, 0, NULL, 0,
       NULL);
    DO(CmdCopyBuffer, w->commands, w->buffers[0], w->buffers[1], 1, region);
    STEP(EndCommandBuffer, w->commands);
    STEP(QueueSubmit, w->queue, 1, &submit, 0);
    STEP(QueueWaitIdle, w->queue);
    for (u32 i = 0; i < BYTES / 4; i++)
        if (w->bytes[1][i] != value)
            return "the bytes of the copy";
    return NULL;
}

#define TRY_STEP(call)             \
    do {                           \
        const char *bad_ = (call); \
        if (bad_)                  \
            return bad_;           \
    } while (0)

const char *vulkan_fill(void *lib, u32 turns, char device[256], u32 *threads)
{
    struct work w = {0};
    TRY_STEP(resolve(lib));
    TRY_STEP(open_device(&w, device));
    TRY_STEP(make_buffer(&w, 0, USE_SOURCE | USE_TARGET));
    TRY_STEP(make_buffer(&w, 1, USE_TARGET));
    TRY_STEP(make_commands(&w));
    for (u32 i = 0; i < turns; i++)
        TRY_STEP(fill_once(&w, 0x5a17c0de * (i + 1)));
    struct stat tasks; /* a folder has a link for each folder in it */
    *threads = stat("/proc/self/task", &tasks) == 0 ? (u32)tasks.st_nlink - 2 : 0;
    DO(DestroyDevice, w.device, NULL);
    DO(DestroyInstance, w.instance, NULL);
    return NULL;
}
