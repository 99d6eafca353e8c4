#include "ops/loss.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cross_entropy.h"
#include "kernels/matmul/matmul.h"
#include "ops/rows.h"
#include "ops/workspace.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

Tensor as_row(const Tensor& x) { return x.reshape({x.elems()}); }

void check(const char* op, const Variable& x, const Tensor& targets) {
  if (x.shape().rank() >= 2 && x.value.elems() == targets.elems() * x.shape()[-1] && x.value.elems() > 0) return;
  throw Error(ErrorCode::bug, std::string("[") + op + "] expected one target a row, got rows " + to_string(x.shape()) + " and targets " +
                                  to_string(targets.shape()));
}

// The summed losses times value_factor; the gradient is gradient_factor times that of the sum.
Variable sum_of_losses(const Variable& logits, const Tensor& targets, double value_factor, double gradient_factor) {
  check("cross_entropy", logits, targets);
  const Tensor rows = as_rows(logits.value), statistics = empty({rows.size(0), 2}, wide_dtype(rows.dtype()), "loss statistics"),
               total = empty({}, DType::f64, "loss");
  {
    const Tensor losses = empty({rows.size(0)}, statistics.dtype(), "token losses");
    kernels::cross_entropy(rows, targets, statistics, losses);
    kernels::sum_in_order(losses, value_factor, total);
  }
  Recorder r({logits});
  const auto kept_logits = r.save(logits), kept_targets = r.save(targets), kept_statistics = r.save(statistics);
  return r.output(total, [=](Backward& b) {
    kernels::cross_entropy_gradient(as_rows(b.saved(kept_logits)), b.saved(kept_targets), b.saved(kept_statistics),
                                    gradient_factor * b.gradient().item(), as_rows(b.target(0)));
  });
}

}  // namespace

Variable cross_entropy_sum(const Variable& logits, const Tensor& targets, double gradient_factor) {
  return sum_of_losses(logits, targets, 1, gradient_factor);
}

Variable cross_entropy_mean(const Variable& logits, const Tensor& targets) {
  const double mean = 1.0 / static_cast<double>(kernels::counted_targets(targets));
  return sum_of_losses(logits, targets, mean, mean);
}

namespace {

// The fused head. Rows are cut into chunks of `chunk` rows; a chunk's logits live in `logits`, in wide_dtype of x.
struct Head {
  Tensor x, w, targets;
  i64 rows, chunk;

  Head(const Tensor& hidden, const Tensor& weight, const Tensor& wanted, i64 chunk_bytes)
      : x(as_rows(hidden)), w(weight), targets(as_row(wanted)), rows(x.size(0)) {
    chunk = std::clamp<i64>(chunk_bytes / (w.size(0) * size_of(wide_dtype(w.dtype()))), 1, rows);
  }
  bool whole() const { return chunk == rows; }
  Tensor logits_buffer() const { return empty({chunk, w.size(0)}, wide_dtype(x.dtype()), "logits"); }
  // Where the gradient of a chunk's logits goes: in their place, each narrow row at the start of its wide row.
  Tensor gradients_in(const Tensor& logits) const {
    if (logits.dtype() == x.dtype()) return logits;
    const i64 per_element = size_of(logits.dtype()) / size_of(x.dtype());
    return logits.reinterpret({logits.size(0), per_element * logits.size(1)}, x.dtype()).slice(1, 0, logits.size(1));
  }

  void logits(i64 begin, i64 end, const Tensor& out) const {
    const i64 bytes = kernels::matmul_workspace_bytes(end - begin, w.size(0), w.size(1), x.dtype(), out.dtype());
    kernels::matmul(x.slice(0, begin, end), w.transpose(0, 1), {}, out, workspace(bytes));
  }
  // From a chunk's dlogits; undefined gradients are not wanted. dw is stored by the first chunk and added to by the others.
  void gradients(i64 begin, i64 end, const Tensor& dlogits, const Tensor& dx, const Tensor& dw) const {
    const i64 n = end - begin;
    if (dx.defined()) {
      const i64 bytes = kernels::matmul_workspace_bytes(n, w.size(1), w.size(0), x.dtype());
      kernels::matmul(dlogits, w, {}, dx.slice(0, begin, end), workspace(bytes));
    }
    if (dw.defined()) {
      const i64 bytes = kernels::matmul_workspace_bytes(w.size(0), w.size(1), n, x.dtype(), dw.dtype());
      kernels::matmul(dlogits.transpose(0, 1), x.slice(0, begin, end), {}, dw, workspace(bytes),
                      begin == 0 ? kernels::Store::replace : kernels::Store::add);
    }
  }
};

// Writes statistics and adds up the losses; leaves the last chunk's logits in `logits`.
void head_losses(const Head& head, const Tensor& logits, const Tensor& statistics, const Tensor& total) {
  const Tensor losses = empty({head.rows}, statistics.dtype(), "token losses");
  for (i64 begin = 0; begin < head.rows; begin += head.chunk) {
    const i64 end = std::min(head.rows, begin + head.chunk);
    const Tensor some = logits.slice(0, 0, end - begin);
    head.logits(begin, end, some);
    kernels::cross_entropy(some, head.targets.slice(0, begin, end), statistics.slice(0, begin, end), losses.slice(0, begin, end));
  }
  kernels::sum_in_order(losses, 1, total);
}

// `converted`: the whole logits in `logits` are their gradient already.
void head_gradients(const Head& head, const Tensor& logits, const Tensor& statistics, double factor, bool converted, const Tensor& dx,
                    const Tensor& dw) {
  for (i64 begin = 0; begin < head.rows; begin += head.chunk) {
    const i64 end = std::min(head.rows, begin + head.chunk);
    const Tensor some = logits.slice(0, 0, end - begin);
    if (!head.whole()) head.logits(begin, end, some);
    const Tensor dlogits = head.gradients_in(some);
    if (!converted)
      kernels::cross_entropy_gradient(some, head.targets.slice(0, begin, end), statistics.slice(0, begin, end), factor, dlogits);
    head.gradients(begin, end, dlogits, dx, dw);
  }
}

}  // namespace

Variable linear_cross_entropy(const Variable& x, const Variable& w, const Tensor& targets, double gradient_factor, i64 chunk_bytes) {
  check("linear_cross_entropy", x, targets);
  require(w.shape().rank() == 2 && w.shape()[1] == x.shape()[-1] && w.dtype() == x.dtype(),
          "[linear_cross_entropy] expected x[..., C] and w[V, C] of one dtype");
  const Head head(x.value, w.value, targets, chunk_bytes);
  const Tensor total = empty({}, DType::f64, "loss"), statistics = empty({head.rows, 2}, wide_dtype(x.dtype()), "loss statistics");
  Tensor logits = head.logits_buffer();
  head_losses(head, logits, statistics, total);
  Recorder r({x, w});
  const auto kept_x = r.save(x), kept_w = r.save(w), kept_targets = r.save(targets), kept_statistics = r.save(statistics);
  // Only this op ever sees the whole logits, so backward may turn them into their gradient in place, where a later part finds it. Logits
  // that were cut are computed again by each part.
  const SavedTensor kept_logits = head.whole() ? r.save(logits) : SavedTensor();
  return r.output(total, [=](Backward& b) {
    const Head again(b.saved(kept_x), b.saved(kept_w), b.saved(kept_targets), chunk_bytes);
    const Tensor dx = b.needs(0) ? as_rows(b.target(0)) : Tensor(), dw = b.needs(1) ? b.target(1) : Tensor();
    const Tensor buffer = again.whole() ? b.saved(kept_logits) : again.logits_buffer();
    const bool converted = again.whole() && b.again();
    head_gradients(again, buffer, b.saved(kept_statistics), gradient_factor * b.gradient().item(), converted, dx, dw);
  });
}

}  // namespace spillway::ops
