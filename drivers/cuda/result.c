#include "drivers/cuda/result.h"

#include <stdarg.h>
#include <stdio.h>

static const struct row {
    u32 code;
    enum cuda_class class;
    const char *name, *text, *hint;
} rows[] = {
#define CUDA_RESULT(code, name, class, text, hint) \
    {code, CUDA_CLASS_##class, "CUDA_" #name, text, hint},
#include "drivers/cuda/result.def"
#undef CUDA_RESULT
};

static const struct {
    const char *name, *hint; /* the hint of rows that have none of their own */
} classes[CUDA_CLASS_COUNT] = {
    [CUDA_CLASS_OK] = {"ok", ""},
    [CUDA_CLASS_PENDING] = {"pending", ""},
    [CUDA_CLASS_WAIT] = {"wait", "Try again; cuda.wait says for how long the start does"},
    [CUDA_CLASS_SETUP] = {"setup", "See dmesg and nvidia-smi"},
    [CUDA_CLASS_MEMORY] = {"memory", "Lower engine.kv, engine.slots or model.context, or end "
                                     "other programs on the device"},
    [CUDA_CLASS_USE] = {"use", "This is a bug, unless the kernel is your own"},
    [CUDA_CLASS_IMAGE] = {"image", "Build the kernel for this device's compute capability, with a "
                                   "toolkit not newer than the driver (zigcuda info shows both)"},
    [CUDA_CLASS_LAUNCH] = {"launch", "Lower the block, its registers or its shared memory"},
    [CUDA_CLASS_STICKY] = {"sticky",
                           "The process has to be started again; see dmesg for Xid lines"},
    [CUDA_CLASS_UNSUPPORTED] = {"unsupported", "It needs another device or a newer driver"},
    [CUDA_CLASS_CAPTURE] = {"capture", "This is a bug"},
    [CUDA_CLASS_UNKNOWN] = {"unknown", "See dmesg and nvidia-smi"},
};

static const struct row *find(enum cuda_result r)
{
    static const struct row unknown = {999, CUDA_CLASS_UNKNOWN, "a code without a name here",
                                       "the driver failed with a code that this program does not "
                                       "know",
                                       ""};
    for (u32 i = 0; i < COUNTOF(rows); i++)
        if (rows[i].code == (u32)r)
            return &rows[i];
    return &unknown;
}

const char *cuda_result_name(enum cuda_result r)
{
    return find(r)->name;
}

const char *cuda_result_text(enum cuda_result r)
{
    return find(r)->text;
}

const char *cuda_result_hint(enum cuda_result r)
{
    const struct row *row = find(r);
    return row->hint[0] ? row->hint : classes[row->class].hint;
}

enum cuda_class cuda_result_class(enum cuda_result r)
{
    return find(r)->class;
}

const char *cuda_class_name(enum cuda_class c)
{
    ASSERT(c < CUDA_CLASS_COUNT);
    return classes[c].name;
}

enum err cuda_failed(enum cuda_result r, struct err_text *e, const char *what, ...)
{
    char tried[256];
    const char *hint = cuda_result_hint(r);
    ASSERT(r != CUDA_SUCCESS);
    va_list args;
    va_start(args, what);
    vsnprintf(tried, sizeof tried, what, args);
    va_end(args);
    return err_set(e, cuda_result_class(r) == CUDA_CLASS_MEMORY ? ERR_MEMORY : ERR_DEVICE,
                   "cannot %s: %s (%s, %u)%s%s", tried, cuda_result_text(r), cuda_result_name(r),
                   (u32)r, hint[0] ? ". " : "", hint);
}
