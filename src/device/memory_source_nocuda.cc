#include "base/error.h"
#include "device/memory_source.h"

namespace spillway {

std::unique_ptr<MemorySource> pinned_memory(Pinning) { return system_memory(); }

std::unique_ptr<MemorySource> gpu_memory(int, i64) {
  throw Error(ErrorCode::usage, "[device memory] expected a build with CUDA, got one without: configure and build again with nvcc on PATH");
}

void trim_gpu_memory(int) {}
std::unique_ptr<MemorySource> pooled_gpu_memory(int gpu) { return gpu_memory(gpu, 0); }

}  // namespace spillway
