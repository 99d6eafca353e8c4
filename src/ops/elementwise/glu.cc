#include "ops/elementwise/glu.h"

#include "kernels/elementwise/elementwise.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using kernels::Glu;

// Records forward(gate, up, y) and backward(gate, up, dy, dgate, dup).
template <class Forward, class Backwards>
Variable gated(const char* op, const Variable& first, const Variable& second, Forward forward, Backwards backward) {
  if (!(first.shape() == second.shape()) || first.dtype() != second.dtype())
    refuse(op, "a gate and an input of the same shape and dtype", {first.value, second.value});
  const Variable gate = dense(first), up = dense(second);
  const Tensor y = empty(gate.shape(), gate.dtype(), "gated linear unit");
  forward(gate.value, up.value, y);
  Recorder r({gate, up}, op);
  const auto kept_gate = r.save(gate), kept_up = r.save(up);
  return r.output(y, [=](Backward& b) {
    const Tensor dgate = b.target_if_needed(0), dup = b.target_if_needed(1);
    backward(b.saved(kept_gate), b.saved(kept_up), b.gradient(), dgate, dup);
  });
}

Variable glu(const char* op, Glu activation, const Variable& gate, const Variable& up) {
  return gated(
      op, gate, up, [=](const Tensor& g, const Tensor& u, const Tensor& y) { kernels::glu(activation, g, u, y); },
      [=](const Tensor& g, const Tensor& u, const Tensor& dy, const Tensor& dg, const Tensor& du) {
        kernels::glu_gradient(activation, g, u, dy, dg, du);
      });
}

}  // namespace

Variable swiglu(const Variable& gate, const Variable& up) { return glu("swiglu", Glu::silu, gate, up); }
Variable geglu(const Variable& gate, const Variable& up) { return glu("geglu", Glu::gelu_tanh, gate, up); }
Variable clamped_swiglu(const Variable& gate, const Variable& up, const kernels::GluClamp& clamp) {
  return gated(
      "clamped_swiglu", gate, up, [=](const Tensor& g, const Tensor& u, const Tensor& y) { kernels::clamped_glu(clamp, g, u, y); },
      [=](const Tensor& g, const Tensor& u, const Tensor& dy, const Tensor& dg, const Tensor& du) {
        kernels::clamped_glu_gradient(clamp, g, u, dy, dg, du);
      });
}

}  // namespace spillway::ops
