#include "device/index_fault_cuda.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>
#include <new>

#include "device/cuda_handle.h"

namespace spillway {
namespace {

// The notes are never destroyed, because a kernel may still be executing while the process ends.
struct Faults {
  std::mutex mutex;
  std::map<int, IndexFault*> of_gpu;
};
Faults& faults() {
  static auto* const all = new Faults();
  return *all;
}

}  // namespace

IndexFault* index_fault(int gpu) {
  const std::lock_guard lock(faults().mutex);
  IndexFault*& fault = faults().of_gpu[gpu];
  if (!fault) {
    void* at = nullptr;
    cuda_check(cudaHostAlloc(&at, sizeof(IndexFault), cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
    fault = new (at) IndexFault();
  }
  return fault;
}

void throw_index_fault(int gpu) {
  const std::lock_guard lock(faults().mutex);
  const auto found = faults().of_gpu.find(gpu);
  if (found == faults().of_gpu.end() || !found->second) return;
  const std::atomic_ref state(found->second->state);
  if (state.load() != IndexFault::kWritten) return;
  const IndexFault fault = *found->second;
  state.store(IndexFault::kNone);
  throw Error(ErrorCode::data,
              fmt::format("[{}] expected an index in [0, {}), got {} (a kernel of cuda:{} found it; the first wait after the "
                          "kernel reports it)",
                          fault.operation, fault.count, fault.index, gpu));
}

}  // namespace spillway
