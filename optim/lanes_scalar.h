// Vector operations of width one, the reference that lanes_avx2.h and lanes_avx512.h must reproduce bit for
// bit; lanes_avx512.h explains the names. The operations are constexpr, so that GPU kernels may call them
// (compiled without contraction to fused multiply-add, with correctly rounded division and square root).
#pragma once
#include <cmath>

#include "base/types.h"

#define SPILLWAY_ISA scalar
#define SPILLWAY_TARGET
#define SPILLWAY_LANE static constexpr

namespace spillway::optim::scalar {

template <class T>
struct Lane {
  using V = T;
  using Element = T;
  static constexpr i64 kWidth = 1;
  SPILLWAY_LANE V load(const T* at) { return *at; }
  template <bool kStream>
  SPILLWAY_LANE void store(T* at, V x) {
    *at = x;
  }
  SPILLWAY_LANE V splat(T x) { return x; }
  SPILLWAY_LANE V add(V a, V b) { return a + b; }
  SPILLWAY_LANE V sub(V a, V b) { return a - b; }
  SPILLWAY_LANE V mul(V a, V b) { return a * b; }
  SPILLWAY_LANE V div(V a, V b) { return a / b; }
  SPILLWAY_LANE V max(V a, V b) { return a > b ? a : b; }
  SPILLWAY_LANE V sqrt(V x) { return std::sqrt(x); }
  SPILLWAY_LANE V sign(V x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }
};
using F32 = Lane<float>;
using F64 = Lane<double>;

}  // namespace spillway::optim::scalar
