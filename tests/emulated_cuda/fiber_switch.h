// Switches between stacks within a thread. swapcontext can do this too, but it makes a system call for the signal mask at each switch.
// AddressSanitizer's version of it clears the shadow of the whole stack, which took three quarters of the time of every emulated kernel.
#pragma once
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated_cuda {

#if defined(__x86_64__)
/// Stores a context that is not running: the top of its stack, where the callee-saved registers are saved (System V ABI, 3.2.1).
struct Context {
  void* top = nullptr;
};

extern "C" void emulated_cuda_switch(void** from, void* to);

/// Prepares a stack so that the first switch to it calls `entry`, which must never return.
inline void begin_at(Context& context, std::byte* stack, size_t bytes, void (*entry)()) {
  // The stack holds six registers and the address of `entry`, then a return address that is never used.
  // `entry` thus begins like a called function: with the stack pointer 8 bytes below a multiple of 16.
  auto* end = reinterpret_cast<std::uintptr_t*>((reinterpret_cast<std::uintptr_t>(stack) + bytes) / 16 * 16);
  *--end = 0;
  *--end = reinterpret_cast<std::uintptr_t>(entry);
  for (int i = 0; i < 6; ++i) *--end = 0;
  context.top = end;
}

inline void switch_to(Context& from, Context& to) { emulated_cuda_switch(&from.top, to.top); }
#else
using Context = ucontext_t;

inline void begin_at(Context& context, std::byte* stack, size_t bytes, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}

inline void switch_to(Context& from, Context& to) { swapcontext(&from, &to); }
#endif

}  // namespace emulated_cuda
