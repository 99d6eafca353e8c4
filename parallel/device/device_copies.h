// Copies data to and from the memory of a rank's device: micro-batches, the last block's output, and data that is stored in other tiers.
// There is one implementation for a CPU and one for a GPU. fetch() is called by one lane at a time, and so is evict().
#pragma once
#include <memory>

#include "parallel/device/lanes.h"
#include "parallel/state/model_state.h"
#include "tensor/batch.h"

namespace spillway::parallel {

class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;

  /// Copies micro-batches that the CPU has made into memory of the current stream, where blocks read them. On a GPU this is a single copy,
  /// put on that stream's queue; the copy of earlier batches must be complete.
  virtual void take_in(std::vector<MicroBatch>& batches) const = 0;
  /// Returns a block's result in memory that the CPU can read.
  virtual Tensor hand_out(Tensor made) const = 0;

  /// Copy the tiles of a Fetch or an Evict of weights or gradients. Both return the microseconds that they waited for transfers.
  virtual double fetch(const Instruction& i, offload::Blob& from, std::span<std::byte> into) = 0;
  virtual double evict(const Instruction& i, std::span<const std::byte> from, offload::Blob& into) = 0;
};

std::unique_ptr<DeviceCopies> make_cpu_copies(ModelState& state);
/// Allocates the planned buffers from `host`. Copies that the GPU makes itself are put on the lane's queue.
std::unique_ptr<DeviceCopies> make_gpu_copies(const Plan& plan, ModelState& state, const Lanes& lanes, MemoryPool& host);

}  // namespace spillway::parallel
