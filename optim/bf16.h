// Conversions to and from bfloat16 by integer operations on the fp32 bits, with equal results on every machine (never by
// hardware conversion). The bf16 weight is its fp32 master rounded to nearest, ties away from zero: bits + 0x8000, upper
// half. The remainder is the lower half of the unchanged fp32 bits. Weight and remainder together determine the master: the
// map from master to (weight, remainder) is a bijection on all 2^32 bit patterns. A finite master beyond the largest bf16
// has an infinite weight, as in any rounding to nearest, and is restored as the finite value. The bijection would give some
// NaN patterns the weight -0 or infinity, so masters are kept canonical: there is one NaN pattern, and its weight is NaN.
// The f16 weight is its fp32 master rounded in the usual way (tensor/dtype.h): a master of 65520 or more has an infinite
// weight. No step continues with such a weight, since the gradient norm is then not finite and the step is skipped.
#pragma once
#include <bit>

#include "base/types.h"

namespace spillway::optim {

constexpr u32 kNanBits = 0x7fc00000;

constexpr float widen_bf16(u16 bits) { return std::bit_cast<float>(u32{bits} << 16); }

constexpr float canonical(float x) { return x == x ? x : std::bit_cast<float>(kNanBits); }

constexpr u16 weight_of_master(float master) { return static_cast<u16>((std::bit_cast<u32>(master) + 0x8000) >> 16); }
constexpr u16 remainder_of_master(float master) { return static_cast<u16>(std::bit_cast<u32>(master)); }
constexpr float join_master(u16 weight, u16 remainder) {
  return std::bit_cast<float>((u32{weight} << 16 | remainder) - ((u32{remainder} & 0x8000) << 1));
}

/// Rounds x to the nearest bf16, ties to even; NaN becomes the canonical NaN.
constexpr u16 round_bf16_to_even(float x) {
  const u32 bits = std::bit_cast<u32>(x);
  return static_cast<u16>((x == x ? bits + 0x7fff + (bits >> 16 & 1) : kNanBits) >> 16);
}

/// Rounds x to bf16 stochastically: up in magnitude with probability (lower half of the bits) / 2^16 if `noise` is
/// uniform; a noise of 0x8000 rounds to nearest, ties away from zero. Infinity stays, NaN becomes the canonical NaN.
constexpr u16 round_moment_bf16(float x, u16 noise) {
  return static_cast<u16>(x == x ? (std::bit_cast<u32>(x) + noise) >> 16 : kNanBits >> 16);
}

}  // namespace spillway::optim
