// Copies data to and from the memory of a rank's device: micro-batches, the output of the last block, and data that is stored in other
// tiers. There is one implementation for a CPU and one for a GPU. One thread at a time calls fetch(), and one thread at a time calls
// evict().
#pragma once
#include <memory>

#include "parallel/device/lanes.h"
#include "parallel/state/model_state.h"
#include "tensor/batch.h"

namespace spillway::parallel {

class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;

  /// Copies micro-batches that the CPU has made into memory of the current stream, where the blocks read them. On a GPU this is a single
  /// copy on the stream's queue. Before the call, the copy of earlier micro-batches must be complete.
  virtual void take_in(std::vector<MicroBatch>& batches) const = 0;
  /// Returns a block's result in memory that the CPU can read. The result may have to be copied for that.
  virtual Tensor hand_out(Tensor made) const = 0;

  /// fetch() and evict() copy the tiles of a Fetch or an Evict. They return the microseconds of waiting for
  /// transfers.
  virtual double fetch(const Instruction& i, offload::Blob& from, std::span<std::byte> into) = 0;
  virtual double evict(const Instruction& i, std::span<const std::byte> from, offload::Blob& into) = 0;
};

std::unique_ptr<DeviceCopies> make_cpu_copies(ModelState& state);
/// Allocates the planned buffers from `host`. Copies to and from GPU memory are put on the queue of the instruction's lane (lanes.h).
std::unique_ptr<DeviceCopies> make_gpu_copies(const Plan& plan, ModelState& state, const Lanes& lanes, MemoryPool& host);

}  // namespace spillway::parallel
