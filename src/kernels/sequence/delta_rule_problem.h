// Holds what the CPU and the GPU share of delta_rule.h: the extents of a delta rule, and its chunks, which are those of a selective scan.
#pragma once
#include "kernels/sequence/delta_rule.h"
#include "kernels/sequence/selective_scan_problem.h"

namespace spillway::kernels {

/// Returns the extents of a delta rule. Throws Error(bug) if the tensors of `in` do not fit each other and the options.
DeltaShape delta_shape(const DeltaTensors& in, const DeltaOptions& options);

/// Returns the operations of the products of a delta rule and of its gradient, without taking documents into account.
inline double delta_rule_flops(const DeltaShape& s) {
  const i64 chunk = std::min(s.T, kScanChunk);
  return 2.0 * static_cast<double>(s.B * s.T) * static_cast<double>(s.H * s.V * (3 * s.K + 2 * chunk) + 2 * s.J * s.K * chunk);
}
inline double delta_rule_gradient_flops(const DeltaShape& s) {
  const i64 chunk = std::min(s.T, kScanChunk);
  return 2.0 * static_cast<double>(s.B * s.T) * static_cast<double>(s.H * s.V * (8 * s.K + 5 * chunk) + 5 * s.J * s.K * chunk);
}

}  // namespace spillway::kernels
