#include "ops/linear.h"

#include "base/error.h"
#include "kernels/matmul/matmul.h"
#include "kernels/reduce.h"
#include "ops/rows.h"
#include "ops/workspace.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out) {
  kernels::matmul(a, b, bias, out, workspace(kernels::matmul_workspace_bytes(out.size(0), out.size(1), a.size(1), a.dtype(), out.dtype())));
}

Tensor flipped_if(bool flip, const Tensor& x) { return flip ? x.transpose(0, 1) : x; }

void check_linear(const Variable& x, const Variable& w, const Variable& bias, i64 inputs, i64 outputs) {
  const bool fits = x.shape().rank() >= 1 && x.shape()[-1] == inputs && x.dtype() == w.dtype();
  const bool bias_fits = !bias.value.defined() || (bias.shape() == Shape{outputs} && bias.dtype() == x.dtype());
  if (fits && bias_fits && x.value.elems() > 0) return;
  throw Error(ErrorCode::bug, "[linear] expected x[..., " + std::to_string(inputs) + "] and bias[" + std::to_string(outputs) + "], got x " +
                                  to_string(x.shape()) + (bias.value.defined() ? " and bias " + to_string(bias.shape()) : ""));
}

}  // namespace

Variable linear(const Variable& x, const Variable& w, const Variable& bias, WeightLayout layout) {
  require(w.shape().rank() == 2, "[linear] expected a weight of rank 2");
  const bool in_out = layout == WeightLayout::in_out;
  const i64 inputs = w.shape()[in_out ? 0 : 1], outputs = w.shape()[in_out ? 1 : 0];
  check_linear(x, w, bias, inputs, outputs);
  Shape shape = x.shape();
  shape.set(-1, outputs);
  const Tensor y = empty(shape, x.dtype(), "linear");
  multiply(as_rows(x.value), flipped_if(!in_out, w.value), bias.value, as_rows(y));
  Recorder r({x, w, bias});
  const SavedTensor kept_x = w.needs_gradient() ? r.save(x) : SavedTensor(), kept_w = x.needs_gradient() ? r.save(w) : SavedTensor();
  return r.output(y, [=](Backward& b) {
    const Tensor dy = as_rows(b.gradient());
    if (b.needs(0)) multiply(dy, flipped_if(in_out, b.saved(kept_w)), {}, as_rows(b.target(0)));
    if (b.needs(1)) {
      const Tensor rows = as_rows(b.saved(kept_x));
      in_out ? multiply(rows.transpose(0, 1), dy, {}, b.target(1)) : multiply(dy.transpose(0, 1), rows, {}, b.target(1));
    }
    if (b.needs(2)) kernels::sum_axis(dy, 1, dy.size(0), dy.size(1), 1, b.target(2));
  });
}

Tensor logits(const Tensor& x, const Tensor& w) {
  check_linear(x, w, {}, w.size(1), w.size(0));
  Shape shape = x.shape();
  shape.set(-1, w.size(0));
  const Tensor y = empty(shape, wide_dtype(x.dtype()), "logits");
  multiply(as_rows(x), w.transpose(0, 1), {}, as_rows(y));
  return y;
}

namespace {

// Matrix i of a batch seen as [P, M, N].
Tensor matrix(const Tensor& batch, i64 i) {
  const Shape extents{batch.size(1), batch.size(2)};
  return batch.slice(0, i, i + 1).reshape(extents);
}

Tensor as_batch(const Tensor& x) { return x.reshape({x.elems() / (x.size(-1) * x.size(-2)), x.size(-2), x.size(-1)}); }

// out[p] = a[p] b[p], the operands transposed if asked for.
void multiply_each(const Tensor& a, bool flip_a, const Tensor& b, bool flip_b, const Tensor& out) {
  const Tensor left = as_batch(a), right = as_batch(b), result = as_batch(out);
  for (i64 i = 0; i < result.size(0); ++i)
    multiply(flipped_if(flip_a, matrix(left, i)), flipped_if(flip_b, matrix(right, i)), {}, matrix(result, i));
}

Shape matmul_shape(const Shape& a, const Shape& b) {
  bool fits = a.rank() >= 2 && b.rank() >= 2 && a[-1] == b[-2] && (b.rank() == 2 || b.rank() == a.rank());
  for (int i = 0; fits && b.rank() > 2 && i < a.rank() - 2; ++i) fits = a[i] == b[i];
  if (!fits || a.elems() == 0) {
    throw Error(ErrorCode::bug, "[matmul] expected a[..., M, K] and b[..., K, N] with equal batch extents, or b[K, N]; got " +
                                    to_string(a) + " and " + to_string(b));
  }
  Shape out = a;
  out.set(-1, b[-1]);
  return out;
}

}  // namespace

Variable matmul(const Variable& a, const Variable& b) {
  if (b.shape().rank() == 2 && a.shape().rank() >= 2 && a.shape()[-1] == b.shape()[0]) return linear(a, b, {}, WeightLayout::in_out);
  require(a.dtype() == b.dtype(), "[matmul] expected two inputs of one dtype");
  const Tensor out = empty(matmul_shape(a.shape(), b.shape()), a.dtype(), "matmul");
  multiply_each(a.value, false, b.value, false, out);
  Recorder r({a, b});
  const SavedTensor kept_a = b.needs_gradient() ? r.save(a) : SavedTensor(), kept_b = a.needs_gradient() ? r.save(b) : SavedTensor();
  return r.output(out, [=](Backward& step) {
    if (step.needs(0)) multiply_each(step.gradient(), false, step.saved(kept_b), true, step.target(0));
    if (step.needs(1)) multiply_each(step.saved(kept_a), true, step.gradient(), false, step.target(1));
  });
}

}  // namespace spillway::ops
