/* void guest_jump(void *stack, uintptr_t entry): leaves this stack as the kernel leaves exec.
 * void guest_return(void): from there, returns from guest_jump on the stack that it left.
 * Only what a callee has to keep is kept (System V ABI of x86-64; AAPCS64). Behind them, the bytes
 * of the helper program.
 */
    .text
    .globl guest_jump, guest_return
    .hidden guest_jump, guest_return
    .type guest_jump, %function
    .type guest_return, %function
#if defined(__x86_64__)
guest_jump:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, left_stack(%rip)
    mov %rdi, %rsp
    xor %ebp, %ebp
    xor %edx, %edx
    jmp *%rsi
guest_return:
    mov left_stack(%rip), %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret
#elif defined(__aarch64__)
guest_jump:
    stp x29, x30, [sp, #-160]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    adrp x3, left_stack
    str x2, [x3, #:lo12:left_stack]
    mov sp, x0
    mov x0, xzr
    mov x29, xzr
    mov x30, xzr
    br x1
guest_return:
    adrp x3, left_stack
    ldr x2, [x3, #:lo12:left_stack]
    mov sp, x2
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x29, x30, [sp], #160
    ret
#endif
    .size guest_return, . - guest_return

    .local left_stack
    .comm left_stack, 8, 8

    .section .rodata
    .globl guest_helper, guest_helper_end
    .hidden guest_helper, guest_helper_end
guest_helper:
    .incbin "drivers/guest/helper"
guest_helper_end:
    .section .note.GNU-stack, "", %progbits
