// An exponential moving average of the weights, beside the optimizer's state: a += (1 - decay) * (w - a), of the master w after a step.
// The subtraction, the product and the sum are rounded each by itself, in f32 (f64 of f64 weights), so CPU and GPU agree to the bit. It
// begins as the weights. As torch.optim.swa_utils.get_ema_avg_fn has it.
#pragma once
#include "optim/state_format.h"

namespace spillway::optim {

/// One tile each, sizes by the format, which has an average.
struct AverageOperands {
  const std::byte *weight, *state;  // after the step; of the state the master is read
  const std::byte* old_state;       // before it: of it the average is read
  std::byte* new_state;             // `state`: the average is written
};

/// Pure function, thread-safe. Error(bug) where the format has no average.
void average_tile(const StateFormat& format, const AverageOperands& tile, double decay);

/// The same of `tiles` tiles, those of each operand one after the other in a GPU's memory, put on the queue of the stream in force. A
/// build without CUDA throws Error(bug).
void average_tiles_on_gpu(const StateFormat& format, const AverageOperands& first, i64 tiles, double decay);

}  // namespace spillway::optim
