// From one stack to another, within a thread. swapcontext does it too, but asks the kernel for the signal mask at each switch, and
// AddressSanitizer's version of it clears the shadow of the whole stack: three quarters of the time of every emulated kernel.
#pragma once
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated_cuda {

#if defined(__x86_64__)
/// Of what does not run now: its stack's top, where the registers lie that a function leaves as they were (System V ABI, 3.2.1).
struct Context {
  void* top = nullptr;
};

extern "C" void emulated_cuda_switch(void** from, void* to);

/// The stack's first switch calls `entry`, which never returns.
inline void begin_at(Context& context, std::byte* stack, size_t bytes, void (*entry)()) {
  // Six registers and the address to go to; then one that nobody returns to, so that `entry` begins as a called function does: with the
  // stack 8 bytes below a multiple of 16.
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
