// Lets a kernel report an index outside its range. The next wait for the GPU throws Error(data) with the operation's name
// (device/index_fault_cuda.h). Only *_cuda.cu files include this header.
#pragma once
#include "device/index_fault_cuda.h"
#include "device/launch_cuda.h"

namespace spillway::kernels {

/// Is made where a kernel is launched, and passed to it. `operation` must live as long as the process.
class IndexReport {
 public:
  explicit IndexReport(const char* operation) : fault_(index_fault(Stream::current().device.index)), operation_(operation) {}

  /// Reports `index`, which is not in [0, count). Only the first report is kept.
  __device__ void operator()(i64 index, i64 count) const {
    if (atomicCAS(&fault_->state, IndexFault::kNone, IndexFault::kClaimed) != IndexFault::kNone) return;
    fault_->index = index, fault_->count = count, fault_->operation = operation_;
    __threadfence_system();  // the host sees the rest before it sees kWritten
    atomicExch(&fault_->state, IndexFault::kWritten);
  }

 private:
  IndexFault* fault_;
  const char* operation_;
};

}  // namespace spillway::kernels
