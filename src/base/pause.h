// What a thread does between two looks at something that another thread is about to change.
#pragma once

namespace spillway {

/// Tells the processor that this is such a loop: it leaves more to the core's other thread and takes less power.
inline void pause_spinning() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace spillway
