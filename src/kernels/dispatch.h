// Turns a dtype that is known only at run time into a template argument, and a tensor into a pointer to its elements.
#pragma once
#include <string>

#include "base/error.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

/// Calls f with a value of the dtype's C++ type: f(float{}), f(double{}), f(BFloat16{})
/// or f(Float16{}). For other dtypes throws an Error(bug) that names `op`.
template <class F>
void for_dtype(const char* op, DType dtype, F f) {
  if (dtype == DType::f32) return f(float{});
  if (dtype == DType::f64) return f(double{});
  if (dtype == DType::bf16) return f(BFloat16{});
  if (dtype == DType::f16) return f(Float16{});
  throw Error(ErrorCode::bug, std::string("[") + op + "] expected f32, f64, bf16 or f16, got " + std::string(to_string(dtype)));
}

/// Calls f(From{}, To{}) with the C++ types of `from` and `to`, for a kernel whose result
/// may be wider than its input. `to` must be `from`, or f32 if `from` is bf16 or f16.
template <class F>
void for_dtypes(const char* op, DType from, DType to, F f) {
  if (from == DType::bf16 && to == DType::f32) return f(BFloat16{}, float{});
  if (from == DType::f16 && to == DType::f32) return f(Float16{}, float{});
  if (from != to) {
    throw Error(ErrorCode::bug, std::string("[") + op +
                                    "] expected a result of the type of the input, or f32 if the input is bf16 or f16; got " +
                                    std::string(to_string(to)) + " of " + std::string(to_string(from)));
  }
  for_dtype(op, from, [&]<class T>(T) { f(T{}, T{}); });
}

/// Calls f(u8{}), f(u16{}), f(u32{}) or f(u64{}), whichever is as wide as
/// the dtype. Used by code that moves elements without interpreting them.
template <class F>
void for_width(DType dtype, F f) {
  if (size_of(dtype) == 1) return f(u8{});
  if (size_of(dtype) == 2) return f(u16{});
  if (size_of(dtype) == 4) return f(u32{});
  f(u64{});
}

/// Returns a pointer to the first element, or null for an undefined tensor.
template <class T>
T* data_or_null(const Tensor& t) {
  return t.defined() ? t.data<T>() : nullptr;
}

}  // namespace spillway::kernels
