// Computes the sums of a rank on its device: the sum of squares of each tile (16,384 elements) of a finished gradient, and the sum of the
// micro-batches' losses. The sums of a GPU are bitwise equal to those of a CPU. Called by one thread at a time.
#pragma once
#include <memory>

#include "device/memory_pool.h"
#include "parallel/blocks/block_runner.h"
#include "parallel/device/lanes.h"
#include "parallel/plan/plan.h"

namespace spillway::parallel {

/// The operand of a Reduce: tiles of a finished gradient, to which nothing is added any more.
struct FinishedGradient {
  std::byte* base = nullptr;
  std::byte* home = nullptr;   // memory to which the gradient is also copied, for storage; null: it is not copied
  DType resting = DType::f32;  // dtype in which the gradient waits for its update; if the plan rounds gradients, it is rounded in place
  std::span<double> square_sums;
};

class DeviceSums {
 public:
  virtual ~DeviceSums() = default;

  /// Sums squares on the current stream, whose queue is that of the instruction's lane (lanes.h). The
  /// sums are valid once loss_sum() and then take_square_sums() have been called.
  virtual void reduce(const Instruction& i, const FinishedGradient& gradient) = 0;
  virtual void take_square_sums() = 0;

  /// Returns where the last block writes the loss of this micro-batch, or null if the block's runner keeps the loss.
  virtual double* loss(u16 micro_batch) const = 0;
  /// Returns the sum of the losses of this rank's micro-batches, added in their order, or 0 if another rank holds the last block.
  /// Runs on the current stream. With a GPU, waits for the GPU and copies all its sums to the host in one copy.
  virtual double loss_sum(const BlockRunner& runner) = 0;
};

std::unique_ptr<DeviceSums> make_cpu_sums(const Plan& plan);
/// Makes the sums of a GPU. Their planned memory is allocated from the pools `device` and `host`.
std::unique_ptr<DeviceSums> make_gpu_sums(const Plan& plan, const Lanes& lanes, MemoryPool& device, MemoryPool& host);

}  // namespace spillway::parallel
