// Launches kernels on the queue of the current stream. Only *_cuda.* files include this header.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>

#include "device/cuda_handle.h"
#include "device/stream.h"

namespace spillway {

/// Launches `kernel`; error messages contain `name`. Launch errors are Error(io). Errors that occur while the kernel runs are reported to
/// whoever waits for the queue.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks, config.blockDim = threads, config.stream = Stream::current().queue;
  cuda_check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
}

/// Returns the number of thread blocks for a kernel that loops over [0, n) with a stride of the whole grid. A thread block has 256 threads,
/// each of which handles `each` elements at a time. There are no more thread blocks than fill a large GPU several times over.
inline dim3 blocks_for(i64 n, i64 each = 1) {
  constexpr i64 kThreads = 256, kMostBlocks = 8192;
  return dim3(static_cast<unsigned>(std::clamp<i64>(ceil_div(n, kThreads * each), 1, kMostBlocks)));
}
constexpr unsigned kBlockThreads = 256;

}  // namespace spillway
