#include "ops/rows/gated_norm.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/rows/norm.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;

// Views rows[R, C] as its groups: [G, R, C / G].
Tensor by_group(const Tensor& x, i64 groups) {
  const i64 width = x.size(-1) / groups;
  return x.reshape({x.elems() / x.size(-1), groups, width}).transpose(0, 1);
}
// Returns the rows of the groups side by side in memory, so that each group is a contiguous matrix.
Tensor apart(const Tensor& x, i64 groups) {
  return groups == 1 ? as_rows(x).reshape({1, x.elems() / x.size(-1), x.size(-1)}) : dense(by_group(x, groups));
}
// Returns memory for results of the groups, and copies them to where they belong.
Tensor apart_for(const Tensor& x, i64 groups) {
  return groups == 1 ? apart(x, 1) : empty(by_group(x, groups).shape(), x.dtype(), "norm of groups");
}
void together(const Tensor& from, const Tensor& x, i64 groups) {
  if (groups > 1) kernels::copy_view(from, by_group(x, groups));
}
// Returns the part of one group, without the first axis.
Tensor group_of(const Tensor& x, i64 g) {
  const Tensor one = x.slice(0, g, g + 1);
  return x.rank() == 3 ? one.reshape({x.size(1), x.size(2)}) : one.reshape({x.size(1)});
}
Tensor groups_of(const Tensor& parameter, i64 groups) { return parameter.reshape({groups, parameter.elems() / groups}); }

Tensor gated(const Tensor& x, const Tensor& gate) {
  const Tensor y = empty(x.shape(), x.dtype(), "gated input");
  kernels::glu(kernels::Glu::silu, gate, x, y);
  return y;
}

}  // namespace

Variable gated_rms_norm(const Variable& in, const Variable& gating, const Variable& gain, double eps, i64 groups) {
  const Variable x = dense(in), gate = dense(gating), gamma = dense(gain);
  if (x.shape().rank() < 1 || !(x.shape() == gate.shape()) || gate.dtype() != x.dtype() || gamma.shape() != Shape{x.shape()[-1]} ||
      gamma.dtype() != x.dtype() || x.value.elems() == 0 || groups < 1 || x.shape()[-1] % groups != 0) {
    refuse("gated_rms_norm", "x and a gate [..., C] and gamma[C] of the same dtype, where " + std::to_string(groups) + " groups divide C",
           {x.value, gate.value, gamma.value});
  }
  const Tensor y = empty(x.shape(), x.dtype(), "gated norm");
  const i64 rows = x.value.elems() / x.shape()[-1];
  const Tensor statistics = empty({groups, rows, 2}, wide_dtype(x.dtype()), "norm statistics");
  const Tensor from = apart(gated(x.value, gate.value), groups), to = apart_for(y, groups);
  for (i64 g = 0; g < groups; ++g)
    kernels::norm(group_of(from, g), group_of(groups_of(gamma.value, groups), g), {}, eps, group_of(to, g), group_of(statistics, g));
  together(to, y, groups);
  Recorder r({x, gate, gamma});
  const auto kept_x = r.save(x), kept_gate = r.save(gate), kept_gamma = r.save(gamma), kept_statistics = r.save(statistics);
  return r.output(y, [=](Backward& b) {
    const Tensor values = b.saved(kept_x), gates = b.saved(kept_gate), gammas = groups_of(b.saved(kept_gamma), groups);
    const bool inputs = b.needs(0) || b.needs(1);
    const Tensor again = apart(gated(values, gates), groups), dy = apart(b.gradient(), groups);
    const Tensor dgated = inputs ? empty(values.shape(), values.dtype(), "gradient of the gated input") : Tensor();
    const Tensor dagain = inputs ? apart_for(dgated, groups) : Tensor();
    const Tensor dgamma = b.needs(2) ? groups_of(b.target(2), groups) : Tensor();
    for (i64 g = 0; g < groups; ++g) {
      const i64 bytes = kernels::norm_gradient_workspace_bytes(rows, values.size(-1) / groups, values.dtype());
      kernels::norm_gradient(group_of(again, g), group_of(gammas, g), group_of(b.saved(kept_statistics), g), group_of(dy, g), false, {},
                             inputs ? group_of(dagain, g) : Tensor(), b.needs(2) ? group_of(dgamma, g) : Tensor(), {}, workspace(bytes));
    }
    if (!inputs) return;
    together(dagain, dgated, groups);
    kernels::glu_gradient(kernels::Glu::silu, gates, values, dgated, b.target_if_needed(1), b.target_if_needed(0));
  });
}

}  // namespace spillway::ops
