// The formulas of adamw.h for one element, each operation rounded separately. The plain CPU loop and the GPU kernels
// compile this code (without contraction to fused multiply-add, with correctly rounded division and square root).
#pragma once
#include <cmath>

#include "optim/adamw_tile_paths.h"
#include "optim/bf16.h"

namespace spillway::optim {

template <class T>
struct Moved {
  T master, m, v;
};

template <class T>
constexpr Moved<T> moved(const Moved<T>& old, T gradient, const Scalars<T>& s) {
  const T g = gradient * s.gradient_scale;
  const T decayed = old.master * s.decay;
  const T m = old.m + (g - old.m) * s.one_minus_beta1;
  const T v = old.v * s.beta2 + s.one_minus_beta2 * (g * g);
  return {decayed - s.step_size * (m / (std::sqrt(v) / s.root_correction2 + s.eps)), m, v};
}

/// Rounds an fp32 master weight to the 16 bits stored in the weight column.
template <Weights W>
constexpr u16 rounded_weight(float master) {
  return W == Weights::fp32_master_of_f16 ? round_f16(master) : weight_of_master(master);
}

/// The random bits used to round the two moments of one element stochastically.
struct ElementNoise {
  u16 m, v;
};

/// Returns the Philox counter of an element. Elements e, e + 16, e + 32 and e + 48 of a row of 64 (e < 16) use the four random words that
/// Philox makes from one counter.
constexpr u64 noise_counter(u64 element) { return 16 * (element / 64) + element % 16; }
constexpr ElementNoise element_noise(u32 word) { return {static_cast<u16>(word), static_cast<u16>(word >> 16)}; }

}  // namespace spillway::optim
