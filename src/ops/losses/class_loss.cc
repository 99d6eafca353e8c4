#include "ops/losses/class_loss.h"

#include "kernels/losses/class_loss.h"
#include "kernels/losses/cross_entropy.h"
#include "kernels/rows/softmax.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;
using kernels::ClassLoss;

void check(const char* op, const Tensor& x, const Tensor& targets, const ClassLossOptions& options) {
  bool fits = x.rank() >= 1 && x.elems() > 0 && targets.rank() == x.rank() - 1 && targets.dtype() == DType::int32;
  for (int i = 0; fits && i < targets.rank(); ++i) fits = targets.size(i) == x.size(i);
  if (!fits) refuse(op, "classes along the last axis and int32 targets with the shape of the other axes", {x, targets});
  const Tensor& weights = options.weights_V;
  if (weights.defined() && (weights.rank() != 1 || weights.size(0) != x.size(-1) || weights.dtype() != wide_dtype(x.dtype())))
    refuse(op, "a weight for each class in " + std::string(to_string(wide_dtype(x.dtype()))), {x, weights});
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    refuse(op, "a label smoothing in [0, 1], not " + std::to_string(options.label_smoothing), {x});
}

// Returns 1 divided by the sum of the weights of the targets that are not ignored.
double one_over(const char* op, const Tensor& counted) {
  const Tensor total = empty({}, DType::f64, "counted weights");
  kernels::sum_in_order(counted, 1, total);
  if (total.device().is_meta()) return 1;
  const double sum = total.item();
  if (sum == 0)
    throw Error(ErrorCode::data,
                std::string("[") + op + "] expected at least one target that counts, got none: the mean of zero losses is undefined");
  return 1 / sum;
}

// Computes a classification loss. `in` holds logits if `logits` is set, otherwise log-probabilities.
Variable of_classes(const char* op, bool logits, const Variable& in, const Tensor& classes, const ClassLossOptions& options) {
  check(op, in.value, classes, options);
  const Variable x = dense(in);
  const Tensor targets = dense(classes), weights = dense(options.weights_V), rows = as_rows(x.value);
  const DType wide = wide_dtype(x.dtype());
  const ClassLoss form{options.ignored, options.label_smoothing};
  const Tensor statistics = logits ? empty({rows.size(0), 2}, wide, "loss statistics") : Tensor();
  if (logits) kernels::softmax_statistics(rows, {rows.size(0), rows.size(1), 1}, statistics);
  const Tensor losses = empty(targets.shape(), wide, "losses"), counted = empty(targets.shape(), wide, "counted weights");
  kernels::class_loss(rows, targets, weights, form, statistics, losses, counted);
  const bool each = options.reduction == Reduction::none;
  const double factor = options.reduction == Reduction::mean ? one_over(op, counted) : 1;
  const Tensor result = each ? losses : empty({}, DType::f64, "loss");
  if (!each) kernels::sum_in_order(losses, factor, result);
  Recorder r({x}, op);
  const auto save = [&](const Tensor& t) { return t.defined() ? r.save(t) : SavedTensor(); };
  const SavedTensor kept_x = r.save(x), kept_targets = save(targets), kept_weights = save(weights), kept = save(statistics);
  return r.output(result, [=](Backward& b) {
    const auto saved = [&](SavedTensor ticket) { return ticket.ticket < 0 ? Tensor() : b.saved(ticket); };
    const Tensor input = b.saved(kept_x), dx = empty(input.shape(), input.dtype(), "gradient");
    kernels::class_loss_gradient(as_rows(input), b.saved(kept_targets), saved(kept_weights), form, saved(kept),
                                 each ? b.gradient() : Tensor(), each ? 1 : factor * b.gradient().item(), as_rows(dx));
    b.pass(0, dx);
  });
}

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& targets, const ClassLossOptions& options) {
  return of_classes("cross_entropy", true, logits, targets, options);
}

Variable nll_loss(const Variable& log_probabilities, const Tensor& targets, const ClassLossOptions& options) {
  if (options.label_smoothing != 0) refuse("nll_loss", "no label smoothing (only cross_entropy supports it)", {log_probabilities.value});
  return of_classes("nll_loss", false, log_probabilities, targets, options);
}

}  // namespace spillway::ops
