// Defines pause_spinning(), a hint to the processor for busy-wait loops.
#pragma once

namespace spillway {

/// Tells the processor that the caller is in a loop that polls for a change made by another thread. The core then leaves more resources to
/// its other hardware thread and takes less power.
inline void pause_spinning() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace spillway
