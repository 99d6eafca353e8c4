#include "ops/elementwise/pointwise.h"

#include <cmath>

#include "kernels/elementwise/pointwise.h"
#include "ops/dense.h"
#include "ops/elementwise/elementwise.h"
#include "ops/refuse.h"
#include "ops/stretch.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using kernels::Compare;
using kernels::Numbers;
using kernels::Pointwise;

Tensor map(Pointwise op, std::initializer_list<Tensor> operands, const Shape& shape, Numbers numbers = {}) {
  const Tensor out = empty(shape, operands.begin()->dtype(), "elementwise result");
  kernels::pointwise(op, operands, numbers, out);
  return out;
}

// Computes f(x). The gradient of x is slope(x, dy).
Variable one(Pointwise f, Pointwise slope, const Variable& x, Numbers numbers = {}, const char* op = __builtin_FUNCTION()) {
  const Tensor y = map(f, {x.value}, x.shape(), numbers);
  Recorder r({x}, op);
  const auto kept = r.save(dense(x));
  return r.output(y, [=](Backward& b) { b.pass(0, map(slope, {b.saved(kept), b.gradient()}, b.gradient().shape(), numbers)); });
}

// Computes f(x, y). The gradient of x is of_first(x, y, dy), or of_first(y, x, dy) if `turn_first` is set. The gradient of y is
// of_second(x, y, dy), or of_second(y, x, dy) if `turn_second` is set.
Variable two(const char* op, Pointwise f, Pointwise of_first, Pointwise of_second, bool turn_first, bool turn_second, const Variable& x,
             const Variable& y) {
  const Tensor out = map(f, {x.value, y.value}, stretched_shape(op, {x.value, y.value}));
  Recorder r({x, y}, op);
  const auto kept_x = r.save(dense(x)), kept_y = r.save(dense(y));
  return r.output(out, [=, first = x.shape(), second = y.shape()](Backward& b) {
    const auto give = [&](int i, Pointwise slope, bool turn, const Shape& shape) {
      if (!b.needs(i)) return;
      const Tensor left = b.saved(turn ? kept_y : kept_x), right = b.saved(turn ? kept_x : kept_y);
      b.pass(i, sum_to(map(slope, {left, right, b.gradient()}, b.gradient().shape()), shape));
    };
    give(0, of_first, turn_first, first);
    give(1, of_second, turn_second, second);
  });
}

Tensor mask_of(const char* name, Compare op, const Variable& a, const Variable& b) {
  const Tensor mask = empty(stretched_shape(name, {a.value, b.value}), DType::uint8, "mask");
  kernels::compare(op, a.value, b.value, 0, mask);
  return mask;
}

Tensor mask_of(Compare op, const Variable& a, double b) {
  const Tensor mask = empty(a.shape(), DType::uint8, "mask");
  kernels::compare(op, a.value, {}, b, mask);
  return mask;
}

// Returns the shape to which a mask and the two tensors it chooses from are broadcast.
Shape masked_shape(const char* op, const Tensor& mask, const Tensor& a, const Tensor& b) {
  const Shape chosen = stretched_shape(op, {a, b});
  bool fits = size_of(mask.dtype()) == 1;
  for (int i = 1; i <= std::min(mask.rank(), chosen.rank()); ++i)
    fits = fits && (mask.size(-i) == chosen[-i] || mask.size(-i) == 1 || chosen[-i] == 1);
  if (!fits) refuse(op, "a mask of uint8 or bool that broadcasts with the tensors", {mask, a, b});
  return kernels::broadcast_shape(mask.shape(), chosen);
}

}  // namespace

Variable abs(const Variable& x) { return one(Pointwise::absolute, Pointwise::absolute_slope, x); }
Variable neg(const Variable& x) { return scale(dense(x), -1); }
Variable pow(const Variable& x, double exponent) { return one(Pointwise::power, Pointwise::power_slope, x, {exponent, 0}); }
Variable pow(const Variable& base, const Variable& exponent) {
  return two("pow", Pointwise::pow, Pointwise::pow_base_slope, Pointwise::pow_exponent_slope, false, false, base, exponent);
}

Variable leaky_relu(const Variable& x, double negative_slope) {
  return one(Pointwise::leaky_relu, Pointwise::leaky_relu_slope, x, {negative_slope, 0});
}
Variable elu(const Variable& x, double alpha) { return one(Pointwise::elu, Pointwise::elu_slope, x, {alpha, 0}); }
Variable softplus(const Variable& x, double beta, double threshold) {
  if (!(beta > 0)) refuse("softplus", "a beta above 0, not " + std::to_string(beta), {x.value});
  return one(Pointwise::softplus, Pointwise::softplus_slope, x, {beta, threshold});
}
Variable hardswish(const Variable& x) { return one(Pointwise::hardswish, Pointwise::hardswish_slope, x); }
Variable mish(const Variable& x) { return one(Pointwise::mish, Pointwise::mish_slope, x); }

Variable clamp(const Variable& x, double lowest, double highest) {
  if (!(lowest <= highest)) {
    refuse("clamp", "bounds in ascending order, not " + std::to_string(lowest) + " and " + std::to_string(highest), {x.value});
  }
  return one(Pointwise::clamp, Pointwise::clamp_slope, x, {lowest, highest});
}

Variable maximum(const Variable& a, const Variable& b) {
  return two("maximum", Pointwise::maximum, Pointwise::larger_slope, Pointwise::larger_slope, false, true, a, b);
}
Variable minimum(const Variable& a, const Variable& b) {
  return two("minimum", Pointwise::minimum, Pointwise::larger_slope, Pointwise::larger_slope, true, false, a, b);
}

Tensor eq(const Variable& a, const Variable& b) { return mask_of("eq", Compare::eq, a, b); }
Tensor ne(const Variable& a, const Variable& b) { return mask_of("ne", Compare::ne, a, b); }
Tensor lt(const Variable& a, const Variable& b) { return mask_of("lt", Compare::lt, a, b); }
Tensor le(const Variable& a, const Variable& b) { return mask_of("le", Compare::le, a, b); }
Tensor gt(const Variable& a, const Variable& b) { return mask_of("gt", Compare::gt, a, b); }
Tensor ge(const Variable& a, const Variable& b) { return mask_of("ge", Compare::ge, a, b); }
Tensor eq(const Variable& a, double b) { return mask_of(Compare::eq, a, b); }
Tensor ne(const Variable& a, double b) { return mask_of(Compare::ne, a, b); }
Tensor lt(const Variable& a, double b) { return mask_of(Compare::lt, a, b); }
Tensor le(const Variable& a, double b) { return mask_of(Compare::le, a, b); }
Tensor gt(const Variable& a, double b) { return mask_of(Compare::gt, a, b); }
Tensor ge(const Variable& a, double b) { return mask_of(Compare::ge, a, b); }

Variable where(const Tensor& mask, const Variable& x, const Variable& y) {
  const Tensor out = empty(masked_shape("where", mask, x.value, y.value), x.dtype(), "where");
  kernels::where(mask, x.value, y.value, out);
  Recorder r({x, y});
  const auto kept = r.save(dense(mask));
  return r.output(out, [=, first = x.shape(), second = y.shape()](Backward& b) {
    const auto give = [&](int i, bool zero_where_set, const Shape& shape) {
      if (!b.needs(i)) return;
      const Tensor whole = empty(b.gradient().shape(), b.gradient().dtype(), "gradient");
      kernels::fill_where(b.saved(kept), zero_where_set, 0, b.gradient(), whole);
      b.pass(i, sum_to(whole, shape));
    };
    give(0, false, first);
    give(1, true, second);
  });
}

Variable masked_fill(const Variable& x, const Tensor& mask, double value) {
  if (!(masked_shape("masked_fill", mask, x.value, x.value) == x.shape())) {
    refuse("masked_fill", "a mask that broadcasts to the shape of the tensor", {mask, x.value});
  }
  const Tensor y = empty(x.shape(), x.dtype(), "masked");
  kernels::fill_where(mask, true, value, x.value, y);
  Recorder r({x});
  if (!std::isfinite(value)) r.expect_infinities();
  const auto kept = r.save(dense(mask));
  return r.output(y, [=](Backward& b) {
    const Tensor dx = empty(b.gradient().shape(), b.gradient().dtype(), "gradient");
    kernels::fill_where(b.saved(kept), true, 0, b.gradient(), dx);
    b.pass(0, dx);
  });
}

}  // namespace spillway::ops
