#include "tests/guest/deny.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
enum { ARCH = AUDIT_ARCH_X86_64 };
#elif defined(__aarch64__)
enum { ARCH = AUDIT_ARCH_AARCH64 };
#endif

/* Both ways to writable code are closed and honest mappings are not. */
static bool takes_hold(void)
{
    enum { N = 4096 };
    void *both =
        mmap(NULL, N, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *data = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return both == MAP_FAILED && data != MAP_FAILED && mprotect(data, N, PROT_READ) == 0 &&
           mprotect(data, N, PROT_READ | PROT_EXEC) != 0;
}

bool deny_by_filter(void)
{
    enum { PROT = offsetof(struct seccomp_data, args) + 16 }; /* low half of the third argument */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, 9),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pkey_mprotect, 3, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, PROT),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_WRITE | PROT_EXEC),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_WRITE | PROT_EXEC, 3, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, PROT),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {COUNTOF(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 && takes_hold();
}

bool deny_by_prctl(void)
{
    enum { SET_MDWE = 65, REFUSE_EXEC_GAIN = 1 };
    return prctl(SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) == 0 && takes_hold();
}
