#include "tests/unit/unit.h"

#include "core/main/restart.h"
#include "drivers/cuda/query.h"
#include "drivers/cuda/telemetry.h"
#include "drivers/cuda/timer.h"
#include "kernels/cuda/step.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void cuda_results_say_what_to_do(void)
{
    static const u32 codes[] = {
#define CUDA_RESULT(code, name, class, text, hint) code,
#include "drivers/cuda/result.def"
#undef CUDA_RESULT
    };
    for (u32 i = 1; i < COUNTOF(codes); i++) {
        enum cuda_result r = (enum cuda_result)codes[i];
        struct err_text e = {0};
        CHECK(codes[i] > codes[i - 1]);
        enum err code = cuda_failed(r, &e, "turn %s", "round");
        CHECK(code == (cuda_result_class(r) == CUDA_CLASS_MEMORY ? ERR_MEMORY : ERR_DEVICE));
        CHECK(strncmp(e.text, "cannot turn round: ", 19) == 0);
        CHECK(strstr(e.text, cuda_result_name(r)) && strstr(e.text, cuda_result_text(r)));
        CHECK(cuda_result_hint(r)[0] || cuda_result_class(r) == CUDA_CLASS_PENDING);
        CHECK(cuda_result_text(r)[strlen(cuda_result_text(r)) - 1] != '.');
    }
    CHECK(cuda_result_class((enum cuda_result)4242) == CUDA_CLASS_UNKNOWN);
    struct err_text e = {0};
    CHECK(cuda_failed((enum cuda_result)4242, &e, "try") == ERR_DEVICE && strstr(e.text, "4242"));
}

/* After these the driver refuses all further work: cuda.h says so of each. */
void cuda_sticky_results(void)
{
    static const u32 sticky[] = {700, 702, 709, 710, 714, 715, 716, 717,
                                 718, 719, 721, 214, 220, 226, 810, 911};
    static const u32 passing[] = {0, 1, 2, 100, 201, 209, 600, 701, 720, 801, 803, 900, 999};
    for (u32 i = 0; i < COUNTOF(sticky); i++)
        CHECK(cuda_result_sticky((enum cuda_result)sticky[i]));
    for (u32 i = 0; i < COUNTOF(passing); i++)
        CHECK(!cuda_result_sticky((enum cuda_result)passing[i]));
    for (u32 c = 0; c < CUDA_CLASS_COUNT; c++)
        CHECK(cuda_class_name((enum cuda_class)c));
}

static bool chooses(const char *text, const struct cuda_info *info)
{
    struct cuda_choice choice;
    struct err_text e = {0};
    return cuda_choice_parse(text, &choice, &e) == ERR_OK && cuda_choice_fits(&choice, info);
}

void cuda_device_choices(void)
{
    struct cuda_info info = {.index = 3};
    snprintf(info.uuid, sizeof info.uuid, "GPU-8f6d6e1a-0123-4567-89ab-cdef01234567");
    snprintf(info.pci, sizeof info.pci, "0000:C1:00.0");
    static const char *const good[] = {"3",
                                       "GPU-8f6d6e1a-0123-4567-89ab-cdef01234567",
                                       "GPU-8f6d",
                                       "GPU-8F6D6E1A-01",
                                       "c1:00.0",
                                       "C1:00",
                                       "0000:c1:00.0",
                                       "00000000:C1:00.0"};
    static const char *const other[] = {"0",       "30",      "GPU-8f6e", "MIG-8f6d",
                                        "c2:00.0", "c1:01.0", "c1:00.1",  "0001:c1:00.0"};
    static const char *const wrong[] = {"",
                                        "-1",
                                        "3 ",
                                        "first",
                                        "GPU-",
                                        "GPU-xy",
                                        "GPU-8f6d6e1a1",
                                        "GPU-8f6d6e1a-0123-4567-89ab-cdef012345678",
                                        "c1",
                                        "c1:",
                                        "c1:00.",
                                        "c1:00.8",
                                        "c1:00.0.0",
                                        "c1:0:0:0",
                                        "100:00.0",
                                        "c1:20.0",
                                        "0x1:00.0",
                                        "100000000:c1:00.0",
                                        "99999",
                                        ":1"};
    for (u32 i = 0; i < COUNTOF(good); i++)
        CHECK(chooses(good[i], &info));
    for (u32 i = 0; i < COUNTOF(other); i++)
        CHECK(!chooses(other[i], &info));
    memcpy(info.uuid, "MIG", 3);
    CHECK(chooses("MIG-8f6d6e1a", &info) && !chooses("GPU-8f6d6e1a", &info));
    for (u32 i = 0; i < COUNTOF(wrong); i++) {
        struct cuda_choice choice;
        struct err_text e = {0};
        CHECK(cuda_choice_parse(wrong[i], &choice, &e) == ERR_CONFIG);
        CHECK(strstr(e.text, "cuda.device"));
    }
}

/* What a user without rights sees of the node; root is let in everywhere. */
static bool denied_to_others(const char *root)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct cuda_box box;
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(2);
        cuda_box_look(root, &box);
        _exit(!(box.node && box.denied && strcmp(box.what, "/dev/nvidiactl") == 0));
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

void cuda_boxes(void)
{
    char root[] = P_tmpdir "/unit-cuda-XXXXXX"; /* others may look in there */
    struct cuda_box box;
    CHECK(mkdtemp(root));
    cuda_box_look(root, &box);
    CHECK(!cuda_box_has_gpu(&box) && box.what[0] == 0);

    /* An audio function of NVIDIA's and somebody else's display are no GPU. */
    CHECK(unit_put(root, "/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n"));
    CHECK(unit_put(root, "/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n"));
    CHECK(unit_put(root, "/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n"));
    CHECK(unit_put(root, "/sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n"));
    cuda_box_look(root, &box);
    CHECK(!cuda_box_has_gpu(&box));

    CHECK(unit_put(root, "/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"));
    CHECK(unit_put(root, "/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"));
    cuda_box_look(root, &box);
    CHECK(box.pci && !box.node && strcmp(box.what, "PCI device 0000:01:00.0") == 0);

    unit_drop(root, "/sys/bus/pci/devices/0000:01:00.0/vendor");
    CHECK(unit_put(root, "/dev/dxg", "")); /* perhaps of another maker's GPU */
    cuda_box_look(root, &box);
    CHECK(!cuda_box_has_gpu(&box));
    CHECK(unit_put(root, "/usr/lib/wsl/lib/libcuda.so.1", ""));
    cuda_box_look(root, &box);
    CHECK(box.node && !box.denied && strcmp(box.what, "/dev/dxg") == 0);
    unit_drop(root, "/dev/dxg");
    unit_drop(root, "/usr/lib/wsl/lib/libcuda.so.1");

    CHECK(unit_put(root, "/dev/nvidiactl", ""));
    cuda_box_look(root, &box);
    CHECK(box.node && !box.denied && strcmp(box.what, "/dev/nvidiactl") == 0);

    char node[64];
    snprintf(node, sizeof node, "%s/dev/nvidiactl", root);
    CHECK(chmod(node, 0) == 0 && chmod(root, 0755) == 0 && denied_to_others(root));

    static const char *const all[] = {"/sys/bus/pci/devices/0000:01:00.1/vendor",
                                      "/sys/bus/pci/devices/0000:01:00.1/class",
                                      "/sys/bus/pci/devices/0000:00:02.0/vendor",
                                      "/sys/bus/pci/devices/0000:00:02.0/class",
                                      "/sys/bus/pci/devices/0000:01:00.0/class",
                                      "/dev/nvidiactl",
                                      "/sys/module/nvidia/version"};
    for (u32 i = 0; i < COUNTOF(all); i++)
        unit_drop(root, all[i]);
    CHECK(access(root, F_OK) != 0);
}

void cuda_timers(void)
{
    struct cuda_timer t = {.bytes = 3000000000};
    static const double ms[] = {2, 1, 3};
    CHECK(cuda_timer_mean_ms(&t) == 0 && cuda_timer_gb_s(&t, 0) == 0);
    for (u32 i = 0; i < COUNTOF(ms); i++)
        cuda_timer_add(&t, ms[i]);
    CHECK(t.n == 3 && t.min_ms == 1 && t.max_ms == 3 && cuda_timer_mean_ms(&t) == 2);
    CHECK(cuda_timer_gb_s(&t, t.min_ms) == 3000);
}

void cuda_throttle_words(void)
{
    char text[64], small[8];
    cuda_throttle_text(0, text, sizeof text);
    CHECK(strcmp(text, "none") == 0);
    cuda_throttle_text(0x4 | 0x40, text, sizeof text);
    CHECK(strcmp(text, "power cap, heat") == 0);
    cuda_throttle_text(~(u64)0, small, sizeof small);
    CHECK(strlen(small) == sizeof small - 1);
}

/* What a block of the card has, less what stands behind it. */
static u32 decode_rings(u32 tokens, u32 inputs, u32 head_dim, u32 shared_kib)
{
    return decode_ring_bytes(tokens, inputs, step_least_bytes(head_dim),
                             (shared_kib << 10) - STEP_SHARED_BYTES);
}

void cuda_decode_fits(void)
{
    static const u32 cards[] = {64, 99, 163, 227}, heads[] = {64, 96, 128, 256};
    for (u32 c = 0; c < COUNTOF(cards); c++)
        for (u32 h = 0; h < COUNTOF(heads); h++)
            for (u32 inputs = 1024; inputs <= 32768; inputs += 1024)
                for (u32 tokens = 1; tokens <= FEW_TOKENS + 1; tokens++) {
                    u32 ring = decode_rings(tokens, inputs, heads[h], cards[c]);
                    u32 taken = GPU_WARPS * ring + tokens * FEW_ROW_BYTES(inputs);
                    CHECK(!ring || taken + DECODE_WORK_BYTES + STEP_SHARED_BYTES <= cards[c] << 10);
                    CHECK(!ring || (tokens <= FEW_TOKENS && ring % 128 == 0));
                }
    CHECK(decode_rings(1, 14336, 128, 227) == FEW_RING_BYTES);
    CHECK(decode_rings(1, 14336, 128, 163) == FEW_RING_BYTES / 2);
    CHECK(decode_rings(1, 14336, 128, 99) == FEW_RING_BYTES / 4); /* attention uses the rings' */
    CHECK(decode_rings(1, 14336, 128, 64) == 0);
    for (u32 h = 0; h < COUNTOF(heads); h++) /* `step` computes on all cards */
        CHECK(step_least_bytes(heads[h]) + STEP_SHARED_BYTES <= cards[0] << 10);
}

/* As on a kernel before 5.11; without effect under an emulator. */
static bool deny_close_range(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {COUNTOF(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool closes_on_exec(int fd)
{
    return fcntl(fd, F_GETFD) == FD_CLOEXEC;
}

static bool all_are_marked(bool old_kernel)
{
    enum { N = 600 }; /* of /proc/self/fd, more than one call lists */
    int fds[N];
    if (old_kernel)
        (void)deny_close_range();
    for (u32 i = 0; i < N; i++)
        if ((fds[i] = dup(STDERR_FILENO)) < 0 || closes_on_exec(fds[i]))
            return false;
    restart_close_all();
    for (u32 i = 0; i < N; i++)
        if (!closes_on_exec(fds[i]))
            return false;
    return !closes_on_exec(STDERR_FILENO);
}

void restart_closes_what_is_open(void)
{
    for (u32 old_kernel = 0; old_kernel < 2; old_kernel++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            _exit(!all_are_marked(old_kernel));
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    }
}
