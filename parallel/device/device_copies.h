// What comes to the memory of a rank's device and leaves it: a micro-batch, a block's last output, and what rests in other tiers. A CPU's
// and a GPU's. fetch() is called by one lane at a time, so is evict().
#pragma once
#include <memory>

#include "parallel/device/lanes.h"
#include "parallel/state/model_state.h"
#include "tensor/batch.h"

namespace spillway::parallel {

class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;

  /// What the CPU has made, to where blocks read it: into memory of the stream in force. On a GPU one copy, put on that stream's queue; the
  /// batches before have come.
  virtual void take_in(std::vector<MicroBatch>& batches) const = 0;
  /// What a block has made, to where the CPU reads it.
  virtual Tensor hand_out(Tensor made) const = 0;

  /// The tiles of a Fetch or an Evict of weights or gradients. Return the microseconds that they waited for transfers.
  virtual double fetch(const Instruction& i, offload::Blob& from, std::span<std::byte> into) = 0;
  virtual double evict(const Instruction& i, std::span<const std::byte> from, offload::Blob& into) = 0;
};

std::unique_ptr<DeviceCopies> make_cpu_copies(ModelState& state);
/// Takes from `host` what the plan says. What the GPU copies itself is put on the lane's queue.
std::unique_ptr<DeviceCopies> make_gpu_copies(const Plan& plan, ModelState& state, const Lanes& lanes, MemoryPool& host);

}  // namespace spillway::parallel
