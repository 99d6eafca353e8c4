#include "ops/losses/row_loss.h"

#include "kernels/elementwise/pointwise.h"
#include "kernels/losses/cross_entropy.h"
#include "ops/dense.h"
#include "ops/elementwise/pointwise.h"
#include "ops/refuse.h"
#include "tensor/create.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;

// Returns the losses with zeros in the rows whose mask is 0.
Variable counted(const Variable& losses, const Tensor& mask_B) {
  if (!mask_B.defined()) return losses;
  const Shape& shape = losses.shape();
  if (shape.rank() == 0 || shape[0] != mask_B.size(0)) refuse("sum_of_rows", "losses[B, ...] for mask[B]", {losses.value, mask_B});
  Shape rows = shape;
  for (int i = 1; i < rows.rank(); ++i) rows.set(i, 1);
  return where(mask_B.reshape(rows), losses, Variable(zeros({}, losses.dtype(), "no loss")));
}

}  // namespace

Variable sum_of_rows(const Variable& losses, const Tensor& mask_B, double gradient_factor) {
  const Variable x = dense(counted(losses, mask_B));
  const Tensor total = empty({}, DType::f64, "loss");
  kernels::sum_in_order(x.value, 1, total);
  Recorder r({x});
  return r.output(total, [=, dtype = x.dtype()](Backward& b) {
    kernels::pointwise(kernels::Pointwise::same, {full({}, gradient_factor * b.gradient().item(), dtype)}, {}, b.target(0));
  });
}

}  // namespace spillway::ops
