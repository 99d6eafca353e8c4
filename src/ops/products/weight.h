// A weight as matrix products take it: plain values, or quantized units (kernels/products/quantized.h). Quantized units are dequantized for
// each product, and the dequantized values are freed after it. A value type.
#pragma once
#include <concepts>

#include "autograd/tape.h"
#include "kernels/products/matmul.h"
#include "kernels/products/quantized.h"
#include "ops/dense.h"

namespace spillway::ops {

using autograd::Variable;

struct Weight {
  /// Wraps a plain weight, whose values are stored as they are.
  template <std::convertible_to<Variable> V>
  Weight(V&& w) : stored(std::forward<V>(w)), shape(stored.shape()) {}
  Weight(Variable w, kernels::WeightFormat f, const Shape& s) : stored(std::move(w)), format(f), shape(s) {}

  Variable stored;
  kernels::WeightFormat format = kernels::WeightFormat::plain;  // unless it is plain, `stored` is not differentiable
  Shape shape;                                                  // the shape of the values, which may differ from that of `stored`
};

inline Weight dense(Weight w) {
  w.stored = dense(std::move(w.stored));
  return w;
}

/// Returns the weight's values in the dtype of `stored`. A plain weight's values are `stored` itself; quantized units are dequantized by
/// this call. One exception: bf16 values for f32 products on a CPU are returned as bf16, because those products widen them while they read.
inline Tensor values_of(const Tensor& stored, kernels::WeightFormat format, const Shape& shape) {
  if (format == kernels::WeightFormat::plain) return stored;
  constexpr DType kNarrow = DType::bf16;
  if (format == kernels::WeightFormat::bf16 && kernels::widens(stored.dtype(), kNarrow)) {
    return stored.reinterpret(Shape{stored.bytes() / size_of(kNarrow)}, kNarrow).slice(0, 0, shape.elems()).reshape(shape);
  }
  const Tensor values = empty(shape, stored.dtype(), "dequantized weight");
  kernels::dequantize(format, stored, values);
  return values;
}

}  // namespace spillway::ops
