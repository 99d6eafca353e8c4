// Functions that the parts of the emulator offer each other.
#pragma once
#include <functional>
#include <string>

#include "cuda_runtime_api.h"
#include "times.h"

namespace emulated_cuda {

/// Returns the error that was planted for this call, or success.
cudaError_t planted(const char* function);
/// Opens the context of the GPU, or of the thread's current GPU, unless it is open. Returns the error that ended the context, if there was
/// one; then every call to that GPU fails until the process ends.
cudaError_t open_context(int gpu);
cudaError_t open_context();
int current_gpu();
void end_context(int gpu, cudaError_t status);
/// Waits until all streams of the GPU have completed what is queued now.
void wait_for_streams(int gpu);
/// Stores the status for cudaGetLastError() and returns it.
cudaError_t said(cudaError_t status);
/// Returns how much dynamic shared memory blocks of this kernel may have.
size_t dynamic_shared_bytes(const void* kernel);
/// Loads a kernel that is launched.
void load(const void* kernel);
/// Puts work on the stream's queue; without a stream it is done at once. `what`: the name under which a failure can be planted.
cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work, Cost cost = {});
/// Appends a line to the file SPILLWAY_EMULATED_LOG, if that is set.
void note(const std::string& line);

/// While an object of this class lives, GPU memory can be read and written. Otherwise nobody may access it: an access by the CPU ends in
/// SIGSEGV.
class Running {
 public:
  Running();
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

}  // namespace emulated_cuda
