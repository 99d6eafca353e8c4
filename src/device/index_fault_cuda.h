// A note of an index outside its range that a kernel found. A kernel cannot throw, so it leaves the note in host memory
// (kernels/index_report_cuda.h), and the next wait for the GPU throws. Only *_cuda.* files include this header.
#pragma once
#include "base/types.h"

namespace spillway {

/// The first index outside its range that kernels of a GPU found since the last note was thrown. It lies in page-locked host memory, to
/// which kernels write.
struct IndexFault {
  static constexpr unsigned kNone = 0, kClaimed = 1, kWritten = 2;
  unsigned state = kNone;  // the thread that changes kNone to kClaimed writes the rest, and then kWritten
  i64 index = 0, count = 0;
  const char* operation = nullptr;  // a string of the host
};

/// Returns the note of a GPU, which must be the calling thread's current one. Throws Error(io) if there is no page-locked memory for it.
IndexFault* index_fault(int gpu);
/// Throws Error(data) if a kernel of the GPU left a note, and clears the note. The caller has waited for the kernel. Other kernels of the
/// GPU may be executing.
void throw_index_fault(int gpu);

}  // namespace spillway
