#include "ops/losses/error_loss.h"

#include "kernels/elementwise/pointwise.h"
#include "ops/dense.h"
#include "ops/refuse.h"
#include "ops/rows/reduce.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using kernels::Pointwise;

Tensor map(Pointwise op, std::initializer_list<Tensor> operands, double p) {
  const Tensor out = empty(operands.begin()->shape(), operands.begin()->dtype(), "losses");
  kernels::pointwise(op, operands, {p, 0}, out);
  return out;
}

Variable reduced(const Variable& losses, Reduction reduction) {
  return reduction == Reduction::none ? losses : reduction == Reduction::sum ? sum(losses) : mean(losses);
}

// Computes the loss f(x, y) of each element. The gradient of x is slope(x, y, dy). If y needs a gradient, the loss must be symmetric in x
// and y; the gradient of y is then slope(y, x, dy).
Variable loss(const char* op, Pointwise f, Pointwise slope, const Variable& in, const Variable& other, Reduction reduction, double p = 0) {
  if (!(in.shape() == other.shape()) || in.dtype() != other.dtype())
    refuse(op, "two tensors of the same shape and dtype", {in.value, other.value});
  const Variable x = dense(in), y = dense(other);
  const Tensor losses = map(f, {x.value, y.value}, p);
  Recorder r({x, y}, op);
  const auto kept_x = r.save(x), kept_y = r.save(y);
  return reduced(r.output(losses,
                          [=](Backward& b) {
                            if (b.needs(0)) b.pass(0, map(slope, {b.saved(kept_x), b.saved(kept_y), b.gradient()}, p));
                            if (b.needs(1)) b.pass(1, map(slope, {b.saved(kept_y), b.saved(kept_x), b.gradient()}, p));
                          }),
                 reduction);
}

}  // namespace

Variable mse_loss(const Variable& x, const Variable& y, Reduction reduction) {
  return loss("mse_loss", Pointwise::squared_error, Pointwise::squared_error_slope, x, y, reduction);
}

Variable l1_loss(const Variable& x, const Variable& y, Reduction reduction) {
  return loss("l1_loss", Pointwise::absolute_error, Pointwise::absolute_error_slope, x, y, reduction);
}

Variable huber_loss(const Variable& x, const Variable& y, double delta, Reduction reduction) {
  if (!(delta > 0)) refuse("huber_loss", "a delta above 0, not " + std::to_string(delta), {x.value, y.value});
  return loss("huber_loss", Pointwise::huber_error, Pointwise::huber_error_slope, x, y, reduction, delta);
}

Variable bce_with_logits_loss(const Variable& logits, const Tensor& target, Reduction reduction) {
  return loss("bce_with_logits_loss", Pointwise::logistic_error, Pointwise::logistic_error_slope, logits, target, reduction);
}

Variable kl_div(const Variable& x, const Tensor& target, bool log_target, Reduction reduction) {
  return log_target ? loss("kl_div", Pointwise::divergence_of_logs, Pointwise::divergence_of_logs_slope, x, target, reduction)
                    : loss("kl_div", Pointwise::divergence, Pointwise::divergence_slope, x, target, reduction);
}

}  // namespace spillway::ops
