// Computes an exponential moving average of the weights, stored with the optimizer's state: a += (1 - decay) * (w - a), where w is the
// master weight after a step. The subtraction, the product and the sum are each rounded separately, in f32 (in f64 for f64 weights), so
// CPU and GPU agree bit for bit. The average starts equal to the weights. The formula is that of torch.optim.swa_utils.get_ema_avg_fn.
#pragma once
#include "optim/state_format.h"

namespace spillway::optim {

/// Pointers to one tile (16,384 elements) of each operand. The state format,
/// which must have an average, determines the sizes of the tiles in bytes.
struct AverageOperands {
  const std::byte *weight, *state;  // weight and state after the step, from which the master is read
  const std::byte* old_state;       // the state before the step, from which the average is read
  std::byte* new_state;             // the same memory as `state`, to which the average is written
};

/// Updates the average of one tile (16,384 elements). Pure function, thread-safe. Throws Error(bug) if the format has no average.
void average_tile(const StateFormat& format, const AverageOperands& tile, double decay);

/// Updates the average of `tiles` tiles in a GPU's memory, where the tiles of each operand lie one after the other. The work is queued on
/// the current stream. A build without CUDA throws Error(bug).
void average_tiles_on_gpu(const StateFormat& format, const AverageOperands& first, i64 tiles, double decay);

}  // namespace spillway::optim
