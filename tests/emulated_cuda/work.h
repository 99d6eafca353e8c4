// Between the parts of the emulator.
#pragma once
#include <functional>

#include "cuda_runtime_api.h"

namespace emulated_cuda {

/// What was planted for this call, else success.
cudaError_t planted(const char* function);
/// Kept for cudaGetLastError().
cudaError_t said(cudaError_t status);
/// Dynamic shared memory that blocks of this kernel may have.
size_t dynamic_shared_bytes(const void* kernel);
/// To the stream's queue; without a stream it is done at once. `what`: the name under which a failure can be planted.
cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work);

/// While one lives the GPUs' memory can be read and written, else by nobody: whoever does so from the CPU ends by SIGSEGV.
class Running {
 public:
  Running();
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

}  // namespace emulated_cuda
