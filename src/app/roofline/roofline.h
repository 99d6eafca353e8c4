// The roofline estimate of a training step: the time of its kernels, one after the other, on a GPU that reaches its ceilings (kernel.h),
// and where this time goes. It is computed by arithmetic alone, without a GPU. Pure functions.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "app/roofline/step_kernels.h"

namespace spillway::app {

/// The resource that limits a kernel.
enum class Bound : u8 { compute, memory, link };
std::string_view to_string(Bound bound);

struct Timed {
  Kernel kernel;
  Bound bound = Bound::compute;
  double seconds = 0;  // sum over all its runs in a step
};

struct Roofline {
  Ceilings ceilings;
  std::vector<Timed> kernels;
  std::array<double, kWorks> work_s{};
  double gpu_s = 0;                     // seconds of all kernels; copies over PCIe run at the same time
  double to_gpu_s = 0, from_gpu_s = 0;  // seconds of the copies in each direction
  double between_ranks_bytes = 0;
  double flops = 0, model_flops = 0;  // FLOPs of a step: those computed, and those that the model asks for
  /// Returns the share of the tensor cores' peak that `of_flops` FLOPs a step are, if the GPU never waits.
  double share_of_peak(double of_flops) const { return of_flops / (gpu_s * ceilings.tensor_flops); }
};

Roofline make_roofline(const parallel::Plan& plan, const models::ModelConfig& model, const Ceilings& ceilings = {});

/// Prints the ceilings, one line for each kernel, grouped by kind of work, and the sums. The time in each line follows from the numbers in
/// it and the ceilings.
std::string to_text(const Roofline& roofline);

}  // namespace spillway::app
