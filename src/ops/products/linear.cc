#include "ops/products/linear.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/products/fp8.h"
#include "kernels/products/matmul.h"
#include "kernels/rows/reduce.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

Tensor workspace_of(const Tensor& a, const Tensor& out) {
  return workspace(kernels::matmul_workspace_bytes(out.size(0), out.size(1), a.size(1), a.dtype(), out.dtype()));
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out) {
  kernels::matmul(a, b, bias, out, workspace_of(a, out));
}

// Computes out = a b (+ bias). If `others` is defined, it is added to the result.
void multiply_onto(const Tensor& others, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out) {
  if (!others.defined()) return multiply(a, b, bias, out);
  kernels::matmul_onto(as_rows(others), a, b, bias, out, workspace_of(a, out));
}

using kernels::Fp8;

// Computes out = (others +) a b (+ bias), with a and b rounded to the given formats if `fp8`.
void multiply_as(bool fp8, Fp8 of_a, Fp8 of_b, const Tensor& others, const Tensor& a, const Tensor& b, const Tensor& bias,
                 const Tensor& out) {
  if (!fp8) return multiply_onto(others, a, b, bias, out);
  const Tensor rows = others.defined() ? as_rows(others) : Tensor();
  kernels::fp8_matmul(rows, {a, of_a}, {b, of_b}, bias, out,
                      workspace(kernels::fp8_matmul_workspace_bytes(out.size(0), out.size(1), a.size(1), out.dtype())));
}

Tensor flipped_if(bool flip, const Tensor& x) { return flip ? x.transpose(0, 1) : x; }

void check_linear(const Variable& x, DType weights, const Variable& bias, i64 inputs, i64 outputs) {
  const bool fits = x.shape().rank() >= 1 && x.shape()[-1] == inputs && x.dtype() == weights;
  const bool bias_fits = !bias.value.defined() || (bias.shape() == Shape{outputs} && bias.dtype() == x.dtype());
  if (fits && bias_fits && x.value.elems() > 0) return;
  refuse("linear",
         "x[..., " + std::to_string(inputs) + "] and bias[" + std::to_string(outputs) + "] (or none) of " + std::string(to_string(weights)),
         {x.value, bias.value});
}

Tensor empty_product(const Variable& x, const LinearWeights& weights) {
  const Shape& w = weights.w.shape;
  if (w.rank() != 2) refuse("linear", "a weight with 2 axes", {weights.w.stored.value});
  const bool in_out = weights.layout == WeightLayout::in_out;
  const i64 inputs = w[in_out ? 0 : 1], outputs = w[in_out ? 1 : 0];
  check_linear(x, weights.w.stored.dtype(), weights.bias, inputs, outputs);
  Shape shape = x.shape();
  shape.set(-1, outputs);
  return empty(shape, x.dtype(), "linear");
}

// How a layer multiplies by its weight.
struct Way {
  bool in_out, fp8;
};
Way way_of(const LinearWeights& weights) { return {weights.layout == WeightLayout::in_out, weights.fp8}; }

// Computes the gradients of the weight and the bias of a product from the gradient dy of its result. `kept_rows` are the saved rows that
// were multiplied by the weight.
void weight_gradients(Backward& b, SavedTensor kept_rows, const Way& way, int weight, int bias) {
  const Tensor dy = as_rows(b.gradient());
  if (b.needs(weight)) {
    const Tensor rows = as_rows(b.saved(kept_rows));
    const Tensor dw = b.target(weight);
    way.in_out ? multiply_as(way.fp8, Fp8::e4m3, Fp8::e5m2, {}, rows.transpose(0, 1), dy, {}, dw)
               : multiply_as(way.fp8, Fp8::e5m2, Fp8::e4m3, {}, dy.transpose(0, 1), rows, {}, dw);
  }
  if (b.needs(bias)) kernels::sum_axis(dy, 1, dy.size(0), dy.size(1), 1, b.target(bias));
}

void check_residual(const Variable& residual, const Tensor& y) {
  if (residual.value.defined() && (!(residual.shape() == y.shape()) || residual.dtype() != y.dtype()))
    refuse("linear", "a residual of the shape and type of the result", {residual.value, y});
}

// Records on the tape that y = (residual +) x w (+ bias), which has already been computed.
Variable record_linear(const Variable& x, const LinearWeights& weights, const Variable& residual, const Tensor& y) {
  const Variable& w = weights.w.stored;
  Recorder r({x, w, weights.bias, residual}, "linear");
  const SavedTensor kept_x = w.needs_gradient() ? r.save(x) : SavedTensor(), kept_w = x.needs_gradient() ? r.save(w) : SavedTensor();
  return r.output(y, [=, way = way_of(weights), format = weights.w.format, shape = weights.w.shape](Backward& b) {
    if (b.needs(3)) b.pass(3, b.gradient());
    if (b.needs(0)) {
      const Tensor others = b.take_others(0), values = values_of(b.saved(kept_w), format, shape);
      multiply_as(way.fp8, Fp8::e5m2, Fp8::e4m3, others, as_rows(b.gradient()), flipped_if(way.in_out, values), {}, as_rows(b.target(0)));
    }
    weight_gradients(b, kept_x, way, 1, 2);
  });
}

}  // namespace

Variable linear(const Variable& in, const LinearWeights& stored, const Variable& others) {
  const Variable x = dense(in), residual = dense(others);
  const LinearWeights weights{dense(stored.w), dense(stored.bias), stored.layout, stored.fp8};
  const Tensor y = empty_product(x, weights);
  check_residual(residual, y);
  {
    const Tensor w = values_of(weights.w.stored.value, weights.w.format, weights.w.shape);
    multiply_as(weights.fp8, Fp8::e4m3, Fp8::e4m3, residual.value, as_rows(x.value), flipped_if(weights.layout == WeightLayout::out_in, w),
                weights.bias.value, as_rows(y));
  }
  return record_linear(x, weights, residual, y);
}

Variable linear(const Variable& x, const Variable& w, const Variable& bias, WeightLayout layout, const Variable& residual) {
  return linear(x, LinearWeights{w, bias, layout}, residual);
}

namespace {

// Computes linear(gelu_tanh(x)) (+ residual), given `gelu` = gelu_tanh(x).
Variable linear_of_gelu(const Variable& x, const Tensor& gelu, const LinearWeights& down, const Variable& residual) {
  const Tensor y = empty_product(gelu, down);
  check_residual(residual, y);
  const Variable& w = down.w.stored;
  multiply_onto(residual.value, as_rows(gelu), flipped_if(down.layout == WeightLayout::out_in, w.value), down.bias.value, as_rows(y));
  Recorder r({x, w, down.bias, residual}, "linear");
  const SavedTensor kept_gelu = w.needs_gradient() ? r.save(gelu) : SavedTensor();
  const SavedTensor kept_x = x.needs_gradient() ? r.save(x) : SavedTensor(), kept_w = x.needs_gradient() ? r.save(w) : SavedTensor();
  return r.output(y, [=, way = way_of(down)](Backward& b) {
    if (b.needs(3)) b.pass(3, b.gradient());
    if (b.needs(0)) {
      const Tensor dy = as_rows(b.gradient()), dx = as_rows(b.target(0));
      kernels::matmul_gelu_gradient(dy, flipped_if(way.in_out, b.saved(kept_w)), as_rows(b.saved(kept_x)), dx, workspace_of(dy, dx));
    }
    weight_gradients(b, kept_gelu, way, 1, 2);
  });
}

}  // namespace

Variable gelu_mlp(const Variable& in, const LinearWeights& first, const LinearWeights& second, const Variable& others) {
  const Variable x = dense(in), residual = dense(others);
  const LinearWeights up{dense(first.w), dense(first.bias), first.layout, first.fp8},
      down{dense(second.w), dense(second.bias), second.layout, second.fp8};
  require(up.w.format == kernels::WeightFormat::plain && down.w.format == up.w.format && !up.fp8 && !down.fp8,
          "[gelu_mlp] expected unquantized weights, and products without fp8");
  const Tensor before = empty_product(x, up), gelu = empty(before.shape(), before.dtype(), "gelu");
  const Tensor rows = as_rows(x.value);
  kernels::matmul_gelu(rows, flipped_if(up.layout == WeightLayout::out_in, up.w.stored.value), up.bias.value, as_rows(before),
                       as_rows(gelu), workspace_of(rows, as_rows(gelu)));
  return linear_of_gelu(record_linear(x, up, {}, before), gelu, down, residual);
}

Tensor logits(const Tensor& in, const Tensor& w, double softcap) {
  const Tensor x = dense(in);
  if (w.rank() != 2) refuse("logits", "x[..., C] and w[V, C]", {x, w});
  check_linear(x, w.dtype(), {}, w.size(1), w.size(0));
  Shape shape = x.shape();
  shape.set(-1, w.size(0));
  const Tensor y = empty(shape, wide_dtype(x.dtype()), "logits");
  multiply(as_rows(x), w.transpose(0, 1), {}, as_rows(y));
  if (softcap > 0) kernels::softcap(y, softcap, y);
  return y;
}

}  // namespace spillway::ops
