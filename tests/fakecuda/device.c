/* The fake driver's devices and their primary contexts. */
#include "tests/fakecuda/fake.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEVICES_MAX = 16 };

struct cuda_context {
    int device;
    u32 users;
};
static struct cuda_context contexts[DEVICES_MAX];

enum cuda_result fake_init(u32 flags)
{
    if (flags)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "cuInit: flags %u", flags);
    if (fake.late) {
        fake.late--;
        return CUDA_ERROR_NO_DEVICE;
    }
    if (fake.devices == 0)
        return CUDA_ERROR_NO_DEVICE;
    fake_started = true;
    return CUDA_SUCCESS;
}

enum cuda_result fake_driver_version(int *version)
{
    *version = (int)fake.version;
    return CUDA_SUCCESS;
}

enum cuda_result fake_device_count(int *n)
{
    *n = (int)MIN(fake.devices, (u64)DEVICES_MAX);
    return CUDA_SUCCESS;
}

static bool is_device(int device)
{
    return device >= 0 && (u64)device < fake.devices && device < DEVICES_MAX;
}

enum cuda_result fake_device_get(int *device, int index)
{
    *device = index;
    return is_device(index) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

enum cuda_result fake_device_name(char *out, int cap, int device)
{
    if (!is_device(device) || cap <= 0)
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(out, (size_t)cap, "%s", fake.name);
    return CUDA_SUCCESS;
}

enum cuda_result fake_device_uuid(struct cuda_uuid *out, int device)
{
    static const char digits[] = "0123456789abcdef";
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    for (u32 i = 0; i < sizeof out->bytes; i++) {
        const char *high = strchr(digits, fake.uuid[2 * i]);
        const char *low = strchr(digits, fake.uuid[2 * i + 1]);
        out->bytes[i] = (u8)((high - digits) * 16 + (low - digits));
    }
    out->bytes[15] = (u8)(out->bytes[15] + device);
    return CUDA_SUCCESS;
}

enum cuda_result fake_device_pci(char *out, int cap, int device)
{
    unsigned long bus = strtoul(fake.pci + 5, NULL, 16) + (unsigned long)device;
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (cap < 13)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "cuDeviceGetPCIBusId: room for %d", cap);
    snprintf(out, (size_t)cap, "%.4s:%02lX%s", fake.pci, bus, fake.pci + 7);
    return CUDA_SUCCESS;
}

enum cuda_result fake_device_memory(size_t *bytes, int device)
{
    *bytes = fake.memory_bytes;
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

enum cuda_result fake_device_attribute(int *value, enum cuda_device_attribute attribute, int device)
{
    const struct {
        enum cuda_device_attribute attribute;
        u64 value;
    } known[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, fake.clock},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, fake.multiprocessors},
        {CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, fake.timeout},
        {CU_DEVICE_ATTRIBUTE_INTEGRATED, fake.integrated},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
        {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, fake.ecc},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2000000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 128},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, fake.threads},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, fake.sm / 10},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, fake.sm % 10},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
         fake.shared_bytes + fake.reserved_bytes},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, fake.shared_bytes},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 16},
    };
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    for (u32 i = 0; i < COUNTOF(known); i++)
        if (known[i].attribute == attribute) {
            *value = (int)known[i].value;
            return CUDA_SUCCESS;
        }
    return fake_misuse(CUDA_ERROR_INVALID_VALUE, "the fake does not know attribute %u", attribute);
}

/* --- contexts -------------------------------------------------------------------------------- */

enum cuda_result fake_primary_set_flags(int device, u32 flags)
{
    if (flags & ~(u32)0xf)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "context flags %#x", flags);
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

enum cuda_result fake_primary_retain(struct cuda_context **out, int device)
{
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    contexts[device].device = device;
    contexts[device].users++;
    *out = &contexts[device];
    return fake_sticky;
}

enum cuda_result fake_primary_release(int device)
{
    if (!is_device(device) || !contexts[device].users)
        return fake_misuse(CUDA_ERROR_INVALID_CONTEXT, "device %d has no context to release",
                           device);
    contexts[device].users--;
    return CUDA_SUCCESS;
}

enum cuda_result fake_context_set(struct cuda_context *context)
{
    if (context && (context < contexts || context >= contexts + DEVICES_MAX || !context->users))
        return fake_misuse(CUDA_ERROR_INVALID_CONTEXT, "%p is no context", (void *)context);
    fake_context = context;
    return CUDA_SUCCESS;
}

enum cuda_result fake_context_wait(void)
{
    fake_wait_all();
    return fake_sticky;
}
