// What a step's kernels would take on a GPU that reaches its ceilings, one after the other, and where the time goes. An estimate from
// arithmetic alone. Pure functions.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "app/roofline/step_kernels.h"

namespace spillway::app {

/// What holds a kernel up.
enum class Bound : u8 { compute, memory, link };
std::string_view to_string(Bound bound);

struct Timed {
  Kernel kernel;
  Bound bound = Bound::compute;
  double seconds = 0;  // of all its runs in a step
};

struct Roofline {
  Ceilings ceilings;
  std::vector<Timed> kernels;
  std::array<double, kWorks> work_s{};
  double gpu_s = 0;  // of all kernels of the GPU; the link is at work beside them
  double to_gpu_s = 0, from_gpu_s = 0;
  double between_ranks_bytes = 0;
  double flops = 0, model_flops = 0;  // of a step: multiplied, and asked for by the model
  /// Of the tensor cores' peak, were the GPU never to wait.
  double share_of_peak(double of_flops) const { return of_flops / (gpu_s * ceilings.tensor_flops); }
};

Roofline make_roofline(const parallel::Plan& plan, const models::ModelConfig& model, const Ceilings& ceilings = {});

/// A line a kernel, by kind of work; then the sums. Each line's time can be had from its numbers and the ceilings, which are said first.
std::string to_text(const Roofline& roofline);

}  // namespace spillway::app
