// The gated delta rule (Yang, Kautz and Hatamizadeh, arXiv:2412.06464), which kernels/sequence/delta_rule.h describes. Forward saves its
// inputs alone; backward computes the states again. Legend: B = batch size, T = positions, J = key heads, H = value heads, K = elements of
// a key, V = elements of a value.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

struct DeltaRuleOptions {
  i64 key_heads = 1, key_elems = 0;  // J and K
  bool normalize = true;             // each head's q and k are multiplied by 1 / sqrt(sum of squares + 1e-6)
  // The int32 position of each element within its document, for rows that hold several documents; the state is zero before each document.
  // Undefined if each row is one document.
  Tensor positions_BT;
  // The states before the first and after the last position, [B, H, K, V] in wide_dtype, for generation without a tape. The first one is
  // zero if it is undefined. The last one is written if it is defined; it may be the first one.
  Tensor first_state_BHKV, last_state_BHKV;
};

/// Returns o[B, T, H * V] of the convolved inputs qkv[B, T, 2 * J * K + H * V], in which q, k and v lie side by side, the inputs a and
/// b[B, T, H] of the decays exp(-exp(a_log) softplus(a + dt_bias)) and of the rates sigmoid(b), and the parameters a_log and dt_bias [H],
/// all of one dtype. Backward writes one gradient tensor for q, k and v.
Variable delta_rule(const Variable& qkv, const Variable& a_BTH, const Variable& b_BTH, const Variable& a_log_H, const Variable& dt_bias_H,
                    const DeltaRuleOptions& options);

}  // namespace spillway::ops
