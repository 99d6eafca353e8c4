#include "ops/glu.h"

#include "base/error.h"
#include "kernels/elementwise.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using kernels::Glu;

Variable glu(Glu activation, const Variable& gate, const Variable& up) {
  require(gate.shape() == up.shape() && gate.dtype() == up.dtype(), "[glu] expected gate and up of one shape and dtype");
  const Tensor y = empty(gate.shape(), gate.dtype(), "gated linear unit");
  kernels::glu(activation, gate.value, up.value, y);
  Recorder r({gate, up});
  const auto kept_gate = r.save(gate), kept_up = r.save(up);
  return r.output(y, [=](Backward& b) {
    const Tensor dgate = b.needs(0) ? b.target(0) : Tensor(), dup = b.needs(1) ? b.target(1) : Tensor();
    kernels::glu_gradient(activation, b.saved(kept_gate), b.saved(kept_up), b.gradient(), dgate, dup);
  });
}

}  // namespace

Variable swiglu(const Variable& gate, const Variable& up) { return glu(Glu::silu, gate, up); }
Variable geglu(const Variable& gate, const Variable& up) { return glu(Glu::gelu_tanh, gate, up); }

}  // namespace spillway::ops
