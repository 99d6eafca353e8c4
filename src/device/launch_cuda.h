// Kernels onto the queue of the stream in force. Included by *_cuda.cu alone.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>

#include "device/cuda_handle.h"
#include "device/stream.h"

namespace spillway {

/// `name` is the kernel's in messages. Errors of the launch are Error(io); those of its running surface at whoever waits for the queue.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks, config.blockDim = threads, config.stream = Stream::current().queue;
  cuda_check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
}

/// For kernels that go over [0, n) with a stride of the whole grid: blocks of 256 threads, `each` elements a thread at a time, and not more
/// blocks than fill a large GPU several times over.
inline dim3 blocks_for(i64 n, i64 each = 1) {
  constexpr i64 kThreads = 256, kMostBlocks = 8192;
  return dim3(static_cast<unsigned>(std::clamp<i64>(ceil_div(n, kThreads * each), 1, kMostBlocks)));
}
constexpr unsigned kBlockThreads = 256;

}  // namespace spillway
