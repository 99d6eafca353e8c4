#include "fiber_switch.h"

#if defined(__x86_64__)
asm(R"(
  .text
  .globl emulated_cuda_switch
  .type emulated_cuda_switch, @function
emulated_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size emulated_cuda_switch, . - emulated_cuda_switch
)");
#endif
