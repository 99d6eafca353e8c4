// Declares functions that the source files of the emulated GPU share.
#pragma once
#include <functional>
#include <string>

#include <cuda_runtime_api.h>
#include "faults.h"
#include "times.h"

namespace emulated_cuda {

/// Returns the error that a test planted for this call of `function`, or success.
cudaError_t planted(const char* function);
/// Opens the context of the GPU, or of the thread's current GPU, unless it is open. Returns the error that ended
/// the context, if there was one. After such an error every call to that GPU fails until the process ends.
cudaError_t open_context(int gpu);
cudaError_t open_context();
int current_gpu();
void end_context(int gpu, cudaError_t status);
/// Waits until all streams of the GPU have completed all work queued before the call.
void wait_for_streams(int gpu);
/// Stores `status` as the thread's last error, for cudaGetLastError(), and returns it.
cudaError_t said(cudaError_t status);
/// Returns how much dynamic shared memory blocks of this kernel may have, in bytes.
size_t dynamic_shared_bytes(const void* kernel);
/// Loads a kernel that is launched (see loading.cc for when that may wait).
void load(const void* kernel);
/// Puts work on the stream's queue, or does it at once if there is no stream. A test can plant a failure under the name `what`.
cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work, Cost cost = {});
/// Appends a line to the file that SPILLWAY_EMULATED_LOG names, if that variable is set.
void note(const std::string& line);

// kept_bytes() returns the bytes of released pieces that a GPU's memory pools keep. keep() gives the pool from which `memory` was taken
// what it released (memory_pools.cc).
size_t kept_bytes(int gpu);
void keep(void* memory, size_t bytes);

// The functions below tell the part that executes kernels (block.cc for kernels that g++ compiled, tests/ptx for those of nvcc)
// about memory. It is told of all memory that kernels may use: memory of a GPU, memory of the host that is registered, and writes by copies
// and libraries.
void memory_taken(const void* memory, size_t bytes, bool is_of_host);
void memory_given_back(const void* memory);
void memory_written(const void* memory, size_t bytes);

/// Makes GPU memory readable and writable while an object of this class lives.
/// At other times nobody may access it: an access by the CPU ends in SIGSEGV.
class Running {
 public:
  Running();
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

}  // namespace emulated_cuda
