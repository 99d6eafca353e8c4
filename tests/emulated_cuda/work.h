// Between the parts of the emulator.
#pragma once
#include <functional>
#include <string>

#include "cuda_runtime_api.h"
#include "times.h"

namespace emulated_cuda {

/// What was planted for this call, else success.
cudaError_t planted(const char* function);
/// Of the GPU, else of the thread's current one: makes its context if there is none yet. What ended it, if anything did: then whatever is
/// asked of it fails so, until the process ends.
cudaError_t open_context(int gpu);
cudaError_t open_context();
int current_gpu();
void end_context(int gpu, cudaError_t status);
/// Until all streams of the GPU have done what is queued now.
void wait_for_streams(int gpu);
/// Kept for cudaGetLastError().
cudaError_t said(cudaError_t status);
/// Dynamic shared memory that blocks of this kernel may have.
size_t dynamic_shared_bytes(const void* kernel);
/// Of a kernel that is launched.
void load(const void* kernel);
/// To the stream's queue; without a stream it is done at once. `what`: the name under which a failure can be planted.
cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work, Cost cost = {});
/// A line for the file SPILLWAY_EMULATED_LOG, if that is set.
void note(const std::string& line);

/// While one lives the GPUs' memory can be read and written, else by nobody: whoever does so from the CPU ends by SIGSEGV.
class Running {
 public:
  Running();
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

}  // namespace emulated_cuda
