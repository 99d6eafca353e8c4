// One place that turns a run-time element type into a template argument.
#pragma once
#include <string>

#include "base/error.h"
#include "tensor/dtype.h"

namespace spillway::kernels {

/// f(float{}) or f(double{}); Error(bug) naming `op` for every other type.
template <class F>
void for_dtype(const char* op, DType dtype, F f) {
  if (dtype == DType::f32) return f(float{});
  if (dtype == DType::f64) return f(double{});
  throw Error(ErrorCode::bug, std::string("[") + op + "] expected f32 or f64, got " + std::string(to_string(dtype)));
}

}  // namespace spillway::kernels
