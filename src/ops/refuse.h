// Makes the error messages of ops that reject their inputs: they name the op, what it expected, and the dtypes and shapes that it got.
#pragma once
#include <initializer_list>
#include <string>

#include "base/error.h"
#include "tensor/tensor.h"

namespace spillway::ops {

[[noreturn]] inline void refuse(const char* op, const std::string& expected, std::initializer_list<Tensor> got) {
  std::string text = std::string("[") + op + "] expected " + expected + ", got ";
  const char* between = "";
  for (const Tensor& t : got) {
    text += between + (t.defined() ? std::string(to_string(t.dtype())) + " " + to_string(t.shape()) : std::string("none"));
    between = " and ";
  }
  throw Error(ErrorCode::bug, text);
}

/// Returns `axis` counted from the front; a negative axis counts from the end. Throws Error(bug) if x has no such axis.
inline int axis_from_front(const char* op, const Tensor& x, int axis) {
  if (-x.rank() <= axis && axis < x.rank()) return axis < 0 ? axis + x.rank() : axis;
  refuse(op, "an axis of the tensor, not " + std::to_string(axis), {x});
}

}  // namespace spillway::ops
