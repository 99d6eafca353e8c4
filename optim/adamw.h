// AdamW (Loshchilov and Hutter, 2019) as PyTorch computes it, on spans of any length. The operations have one fixed
// order and each is rounded separately (no fused multiply-add; square root and division correctly rounded), so the
// scalar, AVX2 and AVX-512 paths agree bit for bit:
//   g = gradient * gradient_scale          (always multiplied, even by 1)
//   w = w * decay                          decay = 1 - lr * weight_decay
//   m = m + (g - m) * (1 - beta1)
//   v = v * beta2 + (1 - beta2) * (g * g)
//   w = w - step_size * (m / (sqrt(v) / root_correction2 + eps))
// Every scalar is computed once on the host in fp64 and rounded once (make_adamw_scalars). Thread-safe: pure functions.
#pragma once
#include <span>

#include "base/types.h"
#include "optim/isa.h"
#include "optim/rule.h"

namespace spillway::optim {

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

/// Computes the scalars of one step. `t` counts the applied updates, from 1. `weight_decay` belongs to the parameter that is updated (0 for
/// one-dimensional parameters). `gradient_scale` is clip factor / loss scale, computed in fp64.
template <class T>
Scalars<T> make_adamw_scalars(const AdamWSettings& settings, double learning_rate, double weight_decay, i64 t, double gradient_scale);

/// Updates weight, m and v in place. All spans have one length, any alignment and any values (denormals are kept).
/// Throws Error(bug) on spans of different lengths, and Error(usage) on an instruction set that this CPU lacks.
template <class T>
void adamw_update(std::span<T> weight, std::span<T> m, std::span<T> v, std::span<const T> gradient, const Scalars<T>& s,
                  Isa isa = Isa::best);

}  // namespace spillway::optim
