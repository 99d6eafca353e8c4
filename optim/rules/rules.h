// The element-wise update rules of PyTorch and Lion, on spans of any length. As in adamw.h each operation is rounded by itself in one fixed
// order (no fused multiply-add; square root and division correctly rounded), so the scalar, AVX2 and AVX-512 paths agree to the bit. The
// formulas are those of rules_inl.h, one text for all paths; w is the weight, g the gradient * gradient_scale (always multiplied):
//   sgd       g = g + weight_decay * w;  w = w - step_size * g
//             momentum: b = b * momentum + one_minus_dampening * g, w moves by b in place of g; nesterov: by g + momentum * b
//   adam      g = g + weight_decay * w;  m = m + (g - m) * (1 - beta1);  v = v * beta2 + (1 - beta2) * (g * g)
//             w = w - step_size * (m / (sqrt(v) / root_correction2 + eps)); amsgrad: of the running maximum of v in place of v
//   adamw     w = w * decay in place of g's first line; the bits of adamw_update
//   adagrad   g = g + weight_decay * w;  s = s + g * g;  w = w - step_size * (g / (sqrt(s) + eps))
//   rmsprop   g = g + weight_decay * w;  s = s * alpha + (1 - alpha) * (g * g);  u = g / (sqrt(s) + eps);  w = w - step_size * u
//             centered: a = a + (g - a) * (1 - alpha), and s - a * a under the root; momentum: b = b * momentum + u, w moves by b
//   lion      u = sign(m * beta1 + (1 - beta1) * g), zero and NaN as they are;  w = w * decay - step_size * u
//             m = m * beta2 + (1 - beta2) * g                                          (Chen et al., 2023)
// A weight_decay of 0 is multiplied too: an infinite weight makes its gradient NaN. As in PyTorch, rounding can take s - a * a below zero,
// where gradients hardly change: NaN. Thread-safe: pure functions.
#pragma once
#include <span>

#include "base/types.h"
#include "optim/isa.h"
#include "optim/rule.h"

namespace spillway::optim {

/// Updates the weight and its states in place; all spans of one length, any alignment, any values (denormals kept). T = float or double, to
/// which the scalars are rounded once. Throws Error(bug) on another number of states or spans of different lengths, Error(usage) on a
/// path this CPU lacks.
template <class T>
void update(Rule rule, std::span<T> weight, std::span<const std::span<T>> states, std::span<const T> gradient,
            const Scalars<double>& scalars, Isa isa = Isa::best);

}  // namespace spillway::optim
