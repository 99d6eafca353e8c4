#include "ops/elementwise/glu.h"

#include "kernels/elementwise/elementwise.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using kernels::Glu;

Variable glu(const char* op, Glu activation, const Variable& first, const Variable& second) {
  if (!(first.shape() == second.shape()) || first.dtype() != second.dtype())
    refuse(op, "a gate and an input of the same shape and dtype", {first.value, second.value});
  const Variable gate = dense(first), up = dense(second);
  const Tensor y = empty(gate.shape(), gate.dtype(), "gated linear unit");
  kernels::glu(activation, gate.value, up.value, y);
  Recorder r({gate, up}, op);
  const auto kept_gate = r.save(gate), kept_up = r.save(up);
  return r.output(y, [=](Backward& b) {
    const Tensor dgate = b.target_if_needed(0), dup = b.target_if_needed(1);
    kernels::glu_gradient(activation, b.saved(kept_gate), b.saved(kept_up), b.gradient(), dgate, dup);
  });
}

}  // namespace

Variable swiglu(const Variable& gate, const Variable& up) { return glu("swiglu", Glu::silu, gate, up); }
Variable geglu(const Variable& gate, const Variable& up) { return glu("geglu", Glu::gelu_tanh, gate, up); }

}  // namespace spillway::ops
