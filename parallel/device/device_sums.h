// What a rank's device adds up: the squares of finished gradients, tile by tile, and the losses of micro-batches. A CPU's and a GPU's, the
// same bits. Calls are of one lane at a time.
#pragma once
#include <memory>

#include "device/memory_pool.h"
#include "parallel/blocks/block_runner.h"
#include "parallel/device/lanes.h"
#include "parallel/plan/plan.h"

namespace spillway::parallel {

/// What a Reduce is given: tiles of a gradient that nothing is added to any more.
struct FinishedGradient {
  std::byte* base = nullptr;
  std::byte* home = nullptr;   // where it goes on the way; null: it stays
  DType resting = DType::f32;  // what it rests as: rounded where it lies, if the plan rounds
  std::span<double> square_sums;
};

class DeviceSums {
 public:
  virtual ~DeviceSums() = default;

  /// On the stream in force, whose queue is that of the instruction's lane. The sums are there after the next loss_sum() and then
  /// take_square_sums().
  virtual void reduce(const Instruction& i, const FinishedGradient& gradient) = 0;
  virtual void take_square_sums() = 0;

  /// Where the last block puts the loss of a micro-batch; null: it keeps it.
  virtual double* loss(u16 micro_batch) const = 0;
  /// Of this rank's micro-batches, in their order; 0 where the last block is another rank's. On the stream in force, which a GPU has gone
  /// through on return: all its sums come to the host at once.
  virtual double loss_sum(const BlockRunner& runner) = 0;
};

std::unique_ptr<DeviceSums> make_cpu_sums(const Plan& plan);
/// Takes from `device` and `host` what the plan says.
std::unique_ptr<DeviceSums> make_gpu_sums(const Plan& plan, const Lanes& lanes, MemoryPool& device, MemoryPool& host);

}  // namespace spillway::parallel
