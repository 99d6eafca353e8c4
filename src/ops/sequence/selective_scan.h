// The state-space recurrence of Mamba 2 (Dao and Gu, arXiv:2405.21060), which kernels/sequence/selective_scan.h describes. Forward saves
// its inputs alone; backward computes the states again. Legend: B = batch size, T = positions, H = heads, P = elements of a head, G =
// groups, N = elements of a state per element of a head.
#pragma once
#include <limits>

#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

struct SelectiveScanOptions {
  i64 groups = 1, state = 0;                                                     // G and N
  double smallest_dt = 0, largest_dt = std::numeric_limits<double>::infinity();  // the limits to which dt is clamped
  // The int32 position of each element within its document, for rows that hold several documents; the state is zero before each document.
  // Undefined if each row is one document.
  Tensor positions_BT;
  // The states before the first and after the last position, [B, H, N, P] in wide_dtype, for generation without a tape. The first one is
  // zero if it is undefined. The last one is written if it is defined; it may be the first one.
  Tensor first_state_BHNP, last_state_BHNP;
};

/// Returns y[B, T, H * P] of the convolved inputs xbc[B, T, H * P + 2 * G * N], in which x, b and c lie side by side, the raw time steps
/// dt[B, T, H] and the parameters a_log, dt_bias and d [H], all of one dtype. Backward writes one gradient tensor for x, b and c.
Variable selective_scan(const Variable& xbc, const Variable& dt_BTH, const Variable& a_log_H, const Variable& dt_bias_H,
                        const Variable& d_H, const SelectiveScanOptions& options);

}  // namespace spillway::ops
