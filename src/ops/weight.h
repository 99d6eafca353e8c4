// A weight as products take it: its values, or units that are made into values for each product and forgotten (kernels/quantized). Values.
#pragma once
#include <concepts>

#include "autograd/tape.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantized/quantized.h"
#include "ops/dense.h"

namespace spillway::ops {

using autograd::Variable;

struct Weight {
  /// A plain one.
  template <std::convertible_to<Variable> V>
  Weight(V&& w) : stored(std::forward<V>(w)), shape(stored.shape()) {}
  Weight(Variable w, kernels::WeightFormat f, const Shape& s) : stored(std::move(w)), format(f), shape(s) {}

  Variable stored;
  kernels::WeightFormat format = kernels::WeightFormat::plain;  // else `stored` is not differentiable
  Shape shape;                                                  // of the values
};

inline Weight dense(Weight w) {
  w.stored = dense(std::move(w.stored));
  return w;
}

/// The values, of the type of `stored`'s words: itself if plain, else made now. But those of bf16 are as they are for products in f32 on a
/// CPU, which widen as they read.
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
