// Makes and compares tensors in tests.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace spillway::test {

/// Returns the unit roundoff of a type, which is half of the distance from 1 to the next number.
inline double half_ulp(DType dtype) {
  if (dtype == DType::f16) return 0x1p-11;
  return dtype == DType::f64 ? 0x1p-53 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-24;
}

/// Returns the error of rounding a result of size x once to bf16 or f16 (whose denormals begin early), or 0 for other types.
inline double stored_error(DType dtype, double x) {
  return is_half(dtype) ? half_ulp(dtype) * std::abs(x) + (dtype == DType::f16 ? 0x1p-25 : 0) : 0;
}

inline double at(const Tensor& t, i64 i) {
  if (t.dtype() == DType::bf16) return widen(t.span<BFloat16>()[static_cast<size_t>(i)]);
  if (t.dtype() == DType::f16) return widen(t.span<Float16>()[static_cast<size_t>(i)]);
  return t.dtype() == DType::f64 ? t.span<double>()[static_cast<size_t>(i)] : t.span<float>()[static_cast<size_t>(i)];
}

/// Reads many elements of a tensor of f32, f64, bf16 or f16. It looks up the type once, while at() looks it up for each element.
class Elements {
 public:
  explicit Elements(const Tensor& t) : first_(t.raw()), dtype_(t.dtype()) {}
  /// Returns the element that lies `i` elements of memory behind the view's first one.
  double operator[](i64 i) const {
    if (dtype_ == DType::f32) return reinterpret_cast<const float*>(first_)[i];
    if (dtype_ == DType::f64) return reinterpret_cast<const double*>(first_)[i];
    if (dtype_ == DType::bf16) return widen(reinterpret_cast<const BFloat16*>(first_)[i]);
    return widen(reinterpret_cast<const Float16*>(first_)[i]);
  }

 private:
  const std::byte* first_;
  DType dtype_;
};

/// Returns a contiguous copy of `t` rounded to f32, f64, bf16 or f16. `t` must be contiguous.
inline Tensor as(DType dtype, const Tensor& t) {
  const Tensor to = empty(t.shape(), dtype);
  const Elements from(t);
  const auto fill = [&, n = t.elems()]<class T>(T* out, auto round) {
    for (i64 i = 0; i < n; ++i) out[i] = round(from[i]);
  };
  if (dtype == DType::f64) fill(to.data<double>(), [](double x) { return x; });
  if (dtype == DType::f32) fill(to.data<float>(), [](double x) { return static_cast<float>(x); });
  if (dtype == DType::bf16) fill(to.data<BFloat16>(), [](double x) { return narrow<BFloat16>(static_cast<float>(x)); });
  if (dtype == DType::f16) fill(to.data<Float16>(), [](double x) { return narrow<Float16>(static_cast<float>(x)); });
  return to;
}

/// Checks |got - want| <= absolute + relative |want| for each element of contiguous tensors. For f16 half of the smallest positive number
/// is allowed in addition.
inline void expect_near(const Tensor& got, const Tensor& want, double relative, double absolute, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.shape(), want.shape()) << what << ": " << to_string(got.shape()) << " for " << to_string(want.shape());
  if (got.dtype() == DType::f16) absolute += stored_error(DType::f16, 0);
  for (i64 i = 0; i < want.elems(); ++i) {
    ASSERT_NEAR(at(got, i), at(want, i), absolute + relative * std::abs(at(want, i))) << what << " at element " << i;
  }
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0);
}

/// Returns uniformly distributed numbers with mean 0 and standard deviation `std`, which depend only on `seed`.
inline Tensor random(const Shape& shape, DType dtype, u64 seed, double std = 1) {
  if (is_half(dtype)) return as(dtype, random(shape, DType::f32, seed, std));
  Tensor t = empty(shape, dtype);
  const auto n = static_cast<u64>(t.elems());
  double* wide = dtype == DType::f64 ? t.data<double>() : nullptr;
  float* narrow = dtype == DType::f32 ? t.data<float>() : nullptr;
  for (u64 i = 0; i < n; ++i) {
    u64 bits = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 31)) * 0x94d049bb133111ebu;
    bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9u;
    const double value = std * std::sqrt(12.0) * (static_cast<double>((bits ^ (bits >> 32)) >> 11) * 0x1p-53 - 0.5);
    wide ? wide[i] = value : narrow[i] = static_cast<float>(value);
  }
  return t;
}

inline Tensor ints(const std::vector<i32>& values, const Shape& shape) { return tensor_of<i32>(values, shape); }

/// Runs `work` with a current stream that has `threads` compute threads.
inline void with_threads(int threads, const std::function<void()>& work) {
  ThreadPool pool(threads);
  const Stream stream{Device::cpu(), &pool, Stream::current().memory};
  StreamScope scope(stream);
  work();
}

}  // namespace spillway::test
