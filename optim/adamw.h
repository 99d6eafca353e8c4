// AdamW (Loshchilov and Hutter, 2019) as PyTorch computes it, on spans of one tile or more. One fixed order of operations, each rounded by
// itself (no fused multiply-add; square root and division correctly rounded), so the scalar, AVX2 and AVX-512 paths agree to the bit:
//   g = gradient * gradient_scale          (always multiplied, even by 1)
//   w = w * decay                          decay = 1 - lr * weight_decay
//   m = m + (g - m) * (1 - beta1)
//   v = v * beta2 + (1 - beta2) * (g * g)
//   w = w - step_size * (m / (sqrt(v) / root_correction2 + eps))
// Every scalar is made once on the host in fp64 and rounded once (make_adamw_scalars). Thread-safe: pure functions.
#pragma once
#include <span>

#include "base/types.h"
#include "optim/isa.h"
#include "optim/rule.h"

namespace spillway::optim {

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

/// `t`: the number of this applied update, from 1. `weight_decay` of the segment (0 for one-dimensional parameters). `gradient_scale`:
/// clip factor / loss scale, computed in fp64.
template <class T>
Scalars<T> make_adamw_scalars(const AdamWSettings& settings, double learning_rate, double weight_decay, i64 t, double gradient_scale);

/// Updates weight, m and v in place; all spans of one length, any alignment, any values (denormals kept). Throws Error(bug) on
/// spans of different lengths, Error(usage) on a path this CPU lacks.
template <class T>
void adamw_update(std::span<T> weight, std::span<T> m, std::span<T> v, std::span<const T> gradient, const Scalars<T>& s,
                  Isa isa = Isa::best);

}  // namespace spillway::optim
