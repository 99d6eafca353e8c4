// Computes the roofline estimate of a training step: how long its kernels take, one after the other, on a GPU that reaches its ceilings
// (kernel.h), and how this time divides among the kinds of work. The estimate is arithmetic and needs no GPU. All functions are pure.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "app/roofline/step_kernels.h"

namespace spillway::app {

/// Bound is the resource that limits a kernel.
enum class Bound : u8 { compute, memory, link };
std::string_view to_string(Bound bound);

struct Timed {
  Kernel kernel;
  Bound bound = Bound::compute;
  double seconds = 0;  // seconds of all runs of the kernel in a step
};

struct Roofline {
  Ceilings ceilings;
  std::vector<Timed> kernels;
  std::array<double, kWorks> work_s{};
  double gpu_s = 0;                     // seconds of all kernels in a step; copies over PCIe run at the same time and do not count
  double to_gpu_s = 0, from_gpu_s = 0;  // seconds of the copies in each direction
  double between_ranks_bytes = 0;
  double flops = 0, model_flops = 0;  // FLOPs of a step: all that are computed, and those that the model itself needs
  /// Returns the share of the tensor cores' peak that the GPU reaches if it computes `of_flops` FLOPs in a step and never waits.
  double share_of_peak(double of_flops) const { return of_flops / (gpu_s * ceilings.tensor_flops); }
};

Roofline make_roofline(const parallel::Plan& plan, const models::ModelConfig& model, const Ceilings& ceilings = {});

/// Returns the ceilings, one line for each kernel, grouped by kind of work, and the sums, as text. The time in each line can be computed
/// from the other numbers in the line and the ceilings.
std::string to_text(const Roofline& roofline);

}  // namespace spillway::app
