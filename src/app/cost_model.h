// What a step of a plan would cost on this node: each instruction's work from the node's measured rates, and the whole step by simulation
// of its Program. Rates come from Calibration; its efficiency for whole blocks is a stated constant. Values; thread-safe.
#pragma once
#include <string>

#include "app/calibration.h"
#include "parallel/plan.h"
#include "parallel/simulate.h"

namespace spillway::app {

struct Rates {
  double flops = 100e9;  // of a block's matrix products
  double memory_bytes_per_s = 20e9;
  double adam_s_per_element = 1.4e-9;
  double disk_read_bytes_per_s = 1.5e9, disk_write_bytes_per_s = 1e9;
};

/// Of one rank computing in `weight` type; the disk's are the slowest path's times their number.
Rates make_rates(const Calibration& calibration, DType weight, const std::vector<std::string>& paths);

/// Floating-point operations of a block's forward over `tokens` tokens: two a token and matrix element, embeddings looked up for free.
double forward_flops(const parallel::Layout& layout, const nn::Sequential& model, u16 block, double tokens);

/// What a step spends where, in seconds, and the step itself.
struct StepCost {
  double seconds = 0, compute_s = 0, disk_s = 0, optimizer_s = 0;
  /// "compute", "disk" or "optimizer": what the step could not be shorter than.
  std::string bound_by() const;
};

/// By simulating the head and the commit of the plan's Program.
StepCost predict(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);

/// Tokens a step must have so that moving a parameter's bytes hides behind computing on it: t_tier [s per parameter] * FLOP/s / 6.
double break_even_tokens(const parallel::Plan& plan, const Rates& rates);

}  // namespace spillway::app
