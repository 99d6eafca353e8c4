#include "ops/products/matmul.h"

#include <algorithm>
#include <vector>

#include "kernels/elementwise/pointwise.h"
#include "kernels/products/matmul.h"
#include "ops/dense.h"
#include "ops/refuse.h"
#include "ops/stretch.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

// Returns the extents of all axes but the last two.
Shape batch_of(const Shape& shape) { return Shape(shape.extents().first(static_cast<size_t>(shape.rank() - 2))); }

Shape with_matrix(const Shape& batch, i64 rows, i64 columns) {
  std::vector<i64> extents(batch.extents().begin(), batch.extents().end());
  extents.insert(extents.end(), {rows, columns});
  return Shape(std::span<const i64>(extents));
}

// A contiguous operand [..., R, C] whose batch of matrices is broadcast to the batch of the product.
struct Matrices {
  Tensor all;
  // batch: the batch extents of the product; step: for each of these axes, the distance between neighbours, counted in matrices
  Shape batch, step;
  bool flipped;  // whether each matrix is used transposed

  Matrices(const Tensor& x, bool flip, const Shape& stretched)
      : all(x.reshape({x.elems() / (x.size(-2) * x.size(-1)), x.size(-2), x.size(-1)})),
        batch(stretched),
        step(kernels::broadcast_strides(batch_of(x.shape()), stretched)),
        flipped(flip) {}

  Tensor matrix(i64 at) const {
    i64 place = 0;
    for (int i = batch.rank(); i-- > 0; at /= batch[i]) place += at % batch[i] * step[i];
    const Tensor one = all.slice(0, place, place + 1).reshape({all.size(1), all.size(2)});
    return flipped ? one.transpose(0, 1) : one;
  }
};

// Computes the product of a matrix of `a` and a matrix of `b` for each position of the batch. flip_a and flip_b transpose the matrices of
// an operand.
void multiply_each(const Tensor& a, bool flip_a, const Tensor& b, bool flip_b, const Tensor& out) {
  const Shape batch = batch_of(out.shape());
  const Matrices left(a, flip_a, batch), right(b, flip_b, batch), results(out, false, batch);
  for (i64 i = 0; i < batch.elems(); ++i) {
    const Tensor x = left.matrix(i), y = right.matrix(i), z = results.matrix(i);
    const i64 bytes = kernels::matmul_workspace_bytes(z.size(0), z.size(1), x.size(1), x.dtype(), z.dtype());
    kernels::matmul(x, y, {}, z, workspace(bytes));
  }
}

// Describes the operands as batches of matrices. A vector becomes a matrix of one row or one column. If b is a single matrix, all rows of a
// form one matrix.
struct Product {
  Shape a, b, whole;  // the shapes of both operands and of the result, each of rank 2 or more
  Shape result;       // the result's shape without the axes of vectors

  Product(const Shape& left, const Shape& right) {
    const bool row = left.rank() == 1, column = right.rank() == 1, one_matrix = right.rank() <= 2;
    const i64 inner = left[-1];
    a = one_matrix ? Shape{left.elems() / inner, inner} : row ? Shape{1, inner} : left;
    b = column ? Shape{inner, 1} : right;
    whole = with_matrix(kernels::broadcast_shape(batch_of(a), batch_of(b)), a[-2], b[-1]);
    const Shape& rows = one_matrix ? left : whole;
    std::vector<i64> extents(rows.extents().begin(), rows.extents().end() - 1);
    if (row && !one_matrix) extents.pop_back();
    if (!column) extents.push_back(b[-1]);
    result = Shape(std::span<const i64>(extents));
  }
};

// Computes the gradient of the input with index `input` as the batched product of a and b. `shape` is the input's own shape. `wanted` is
// the shape of the matrices that the product reads (a vector is a matrix there), before their batch axes are broadcast.
void give(Backward& step, int input, const Shape& shape, const Shape& wanted, const Shape& batch, const Tensor& a, bool flip_a,
          const Tensor& b, bool flip_b) {
  const Shape whole = with_matrix(batch, wanted[-2], wanted[-1]);
  if (whole == wanted) return multiply_each(a, flip_a, b, flip_b, step.target(input).reshape(wanted));
  const Tensor each = empty(whole, step.gradient().dtype(), "gradient");
  multiply_each(a, flip_a, b, flip_b, each);
  step.pass(input, sum_to(each, wanted).reshape(shape));
}

bool go_together(const Shape& a, const Shape& b) {
  for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i) {
    if (a[-i] != b[-i] && a[-i] != 1 && b[-i] != 1) return false;
  }
  return true;
}

void check(const Tensor& a, const Tensor& b) {
  bool fits = a.rank() >= 1 && b.rank() >= 1 && a.dtype() == b.dtype() && a.elems() > 0 && b.elems() > 0;
  fits = fits && a.size(-1) == b.size(b.rank() == 1 ? -1 : -2);
  if (fits && a.rank() > 2 && b.rank() > 2) fits = go_together(batch_of(a.shape()), batch_of(b.shape()));
  if (!fits)
    refuse("matmul", "a[..., M, K] and b[..., K, N] of the same dtype, with at least one element and with batch axes that broadcast",
           {a, b});
}

}  // namespace

Variable matmul(const Variable& left, const Variable& right) {
  check(left.value, right.value);
  const Variable a = dense(left), b = dense(right);
  const Product p(a.shape(), b.shape());
  const Tensor out = empty(p.result, a.dtype(), "matmul");
  multiply_each(a.value.reshape(p.a), false, b.value.reshape(p.b), false, out.reshape(p.whole));
  Recorder r({a, b});
  const SavedTensor kept_a = b.needs_gradient() ? r.save(a) : SavedTensor(), kept_b = a.needs_gradient() ? r.save(b) : SavedTensor();
  return r.output(out, [=, first = a.shape(), second = b.shape(), batch = batch_of(p.whole)](Backward& step) {
    const Tensor dy = step.gradient().reshape(p.whole);
    if (step.needs(0)) give(step, 0, first, p.a, batch, dy, false, step.saved(kept_b).reshape(p.b), true);
    if (step.needs(1)) give(step, 1, second, p.b, batch, step.saved(kept_a).reshape(p.a), true, dy, false);
  });
}

}  // namespace spillway::ops
