#include "ops/elementwise/elementwise.h"

#include "kernels/accumulate.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/pointwise.h"
#include "ops/dense.h"
#include "ops/stretch.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;
using kernels::Pointwise;
using kernels::Unary;

// Calls `write` with memory of type `dtype` for the gradient of input i. If the gradient is of a wider type (that of a bf16 or f16
// parameter), `write` gets a temporary tensor, which is widened afterwards.
template <class Write>
void give_written(Backward& b, int i, DType dtype, const Write& write) {
  const Tensor to = b.target(i);
  if (to.dtype() == dtype) return write(to);
  const Tensor narrow = empty(to.shape(), dtype, "gradient");
  write(narrow);
  kernels::copy(narrow, to);
}

// Computes `left op right`, of the output's shape, as the gradient of input `i`. If the input, of shape `shape`, was broadcast, the
// gradient is summed to that shape.
void give(Backward& b, int i, const Shape& shape, Pointwise op, const Tensor& left, const Tensor& right) {
  if (shape == b.gradient().shape())
    return give_written(b, i, left.dtype(), [&](const Tensor& to) { kernels::pointwise(op, {left, right}, {}, to); });
  const Tensor whole = empty(b.gradient().shape(), b.gradient().dtype(), "gradient");
  kernels::pointwise(op, {left, right}, {}, whole);
  b.pass(i, sum_to(whole, shape));
}

Tensor combine(const char* name, Pointwise op, const Variable& a, const Variable& b) {
  const Tensor out = empty(stretched_shape(name, {a.value, b.value}), a.dtype(), "elementwise result");
  kernels::pointwise(op, {a.value, b.value}, {}, out);
  return out;
}

Variable apply(Unary op, const Variable& in, const char* name = __builtin_FUNCTION()) {
  const Variable x = dense(in);
  const Tensor y = empty(x.shape(), x.dtype(), "activation");
  kernels::unary(op, x.value, y);
  Recorder r({x}, name);
  const SavedTensor kept = r.save(kernels::gradient_wants_output(op) ? Variable(y) : x);
  return r.output(y, [=](Backward& b) {
    const Tensor dy = b.gradient();
    give_written(b, 0, dy.dtype(), [&](const Tensor& to) { kernels::unary_gradient(op, b.saved(kept), dy, to); });
  });
}

}  // namespace

Variable add(const Variable& left, const Variable& right) {
  const Variable x = dense(left), y = dense(right);
  const Tensor out = combine("add", Pointwise::add, x, y);
  Recorder r({x, y});
  return r.output(out, [first = x.shape(), second = y.shape()](Backward& b) {
    if (b.needs(0)) b.pass(0, sum_to(b.gradient(), first));
    if (b.needs(1)) b.pass(1, sum_to(b.gradient(), second));
  });
}

Variable sub(const Variable& left, const Variable& right) {
  const Variable x = dense(left), y = dense(right);
  const Tensor out = combine("sub", Pointwise::sub, x, y);
  Recorder r({x, y});
  return r.output(out, [first = x.shape(), second = y.shape()](Backward& b) {
    if (b.needs(0)) b.pass(0, sum_to(b.gradient(), first));
    if (!b.needs(1)) return;
    const Tensor sum = sum_to(b.gradient(), second);
    give_written(b, 1, sum.dtype(), [&](const Tensor& to) { kernels::scale(sum, -1, to); });
  });
}

Variable mul(const Variable& left, const Variable& right) {
  const Variable x = dense(left), y = dense(right);
  const Tensor out = combine("mul", Pointwise::mul, x, y);
  Recorder r({x, y});
  const SavedTensor kept_x = y.needs_gradient() ? r.save(x) : SavedTensor(), kept_y = x.needs_gradient() ? r.save(y) : SavedTensor();
  return r.output(out, [=, first = x.shape(), second = y.shape()](Backward& b) {
    if (b.needs(0)) give(b, 0, first, Pointwise::mul, b.gradient(), b.saved(kept_y));
    if (b.needs(1)) give(b, 1, second, Pointwise::mul, b.gradient(), b.saved(kept_x));
  });
}

Variable div(const Variable& left, const Variable& right) {
  const Variable x = dense(left), y = dense(right);
  const Tensor out = combine("div", Pointwise::div, x, y);
  Recorder r({x, y});
  const SavedTensor kept_y = r.save(y), kept_out = y.needs_gradient() ? r.save(out) : SavedTensor();
  return r.output(out, [=, first = x.shape(), second = y.shape()](Backward& b) {
    if (b.needs(0)) give(b, 0, first, Pointwise::div, b.gradient(), b.saved(kept_y));
    if (!b.needs(1)) return;
    // The gradient of y uses d(x/y)/dy = -(x/y)/y.
    const Tensor product = empty(b.gradient().shape(), b.gradient().dtype(), "gradient");
    kernels::pointwise(Pointwise::mul, {b.gradient(), b.saved(kept_out)}, {}, product);
    kernels::scale(product, -1, product);
    give(b, 1, second, Pointwise::div, product, b.saved(kept_y));
  });
}

Variable scale(const Variable& in, double factor) {
  const Variable x = dense(in);
  const Tensor y = empty(x.shape(), x.dtype(), "scaled");
  kernels::scale(x.value, factor, y);
  Recorder r({x});
  return r.output(y, [=](Backward& b) {
    give_written(b, 0, b.gradient().dtype(), [&](const Tensor& to) { kernels::scale(b.gradient(), factor, to); });
  });
}

Variable widened(const Variable& in) {
  if (in.dtype() == wide_dtype(in.dtype())) return in;
  const Variable x = dense(in);
  const Tensor y = empty(x.shape(), wide_dtype(x.dtype()), "widened");
  kernels::copy(x.value, y);
  Recorder r({x});
  return r.output(y, [=, dtype = x.dtype()](Backward& b) {
    give_written(b, 0, dtype, [&](const Tensor& to) { kernels::rounded_copy(b.gradient(), to); });
  });
}

Variable exp(const Variable& x) { return apply(Unary::exp, x); }
Variable log(const Variable& x) { return apply(Unary::log, x); }
Variable sqrt(const Variable& x) { return apply(Unary::sqrt, x); }
Variable rsqrt(const Variable& x) { return apply(Unary::rsqrt, x); }
Variable tanh(const Variable& x) { return apply(Unary::tanh, x); }
Variable sigmoid(const Variable& x) { return apply(Unary::sigmoid, x); }
Variable relu(const Variable& x) { return apply(Unary::relu, x); }
Variable relu_squared(const Variable& x) { return apply(Unary::relu_squared, x); }
Variable silu(const Variable& x) { return apply(Unary::silu, x); }
Variable gelu_tanh(const Variable& x) { return apply(Unary::gelu_tanh, x); }
Variable gelu_erf(const Variable& x) { return apply(Unary::gelu_erf, x); }

}  // namespace spillway::ops
