// The element-wise update rules of PyTorch, and Lion, on spans of any length. As in adamw.h, each operation is rounded separately in one
// fixed order (no fused multiply-add; square root and division correctly rounded), so the scalar, AVX2 and AVX-512 paths agree bit for
// bit. rules_inl.h implements the formulas once for all paths; w is the weight, g the gradient * gradient_scale (the multiplication is
// made even by 1):
//   sgd       g = g + weight_decay * w;  w = w - step_size * g
//             momentum: b = b * momentum + one_minus_dampening * g, w moves by b instead of g; nesterov: by g + momentum * b
//   adam      g = g + weight_decay * w;  m = m + (g - m) * (1 - beta1);  v = v * beta2 + (1 - beta2) * (g * g)
//             w = w - step_size * (m / (sqrt(v) / root_correction2 + eps)); amsgrad: the running maximum of v instead of v
//   adamw     as adam, but with w = w * decay in place of the formula for g; bitwise the result of adamw_update
//   adagrad   g = g + weight_decay * w;  s = s + g * g;  w = w - step_size * (g / (sqrt(s) + eps))
//   rmsprop   g = g + weight_decay * w;  s = s * alpha + (1 - alpha) * (g * g);  u = g / (sqrt(s) + eps);  w = w - step_size * u
//             centered: a = a + (g - a) * (1 - alpha), and s - a * a under the root; momentum: b = b * momentum + u, w moves by b
//   lion      u = sign(m * beta1 + (1 - beta1) * g), zero and NaN unchanged;  w = w * decay - step_size * u
//             m = m * beta2 + (1 - beta2) * g                                          (Chen et al., 2023) The product weight_decay * w
//             is computed even if weight_decay is 0, so an infinite weight makes its gradient NaN. As in PyTorch, rounding can make s - a
//             * a negative if gradients hardly change; the result is then NaN. Thread-safe: pure functions.
#pragma once
#include <span>

#include "base/types.h"
#include "optim/isa.h"
#include "optim/rule.h"

namespace spillway::optim {

/// Updates the weight and its states in place. All spans have one length, any alignment and any values
/// (denormals are kept). T is float or double; the scalars are rounded to it once. Throws Error(bug) on a wrong
/// number of states or spans of different lengths, and Error(usage) on an instruction set that this CPU lacks.
template <class T>
void update(Rule rule, std::span<T> weight, std::span<const std::span<T>> states, std::span<const T> gradient,
            const Scalars<double>& scalars, Isa isa = Isa::best);

}  // namespace spillway::optim
