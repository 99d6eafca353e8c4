#include "ops/stretch.h"

#include <algorithm>

#include "kernels/elementwise/pointwise.h"
#include "kernels/rows/reduce.h"
#include "ops/refuse.h"

namespace spillway::ops {

Shape stretched_shape(const char* op, std::initializer_list<Tensor> inputs) {
  Shape shape = inputs.begin()->shape();
  for (const Tensor& x : inputs) {
    bool fits = x.dtype() == inputs.begin()->dtype();
    for (int i = 1; i <= std::min(shape.rank(), x.rank()); ++i)
      fits = fits && (shape[-i] == x.size(-i) || shape[-i] == 1 || x.size(-i) == 1);
    if (!fits) refuse(op, "inputs of the same dtype whose shapes broadcast", inputs);
    shape = kernels::broadcast_shape(shape, x.shape());
  }
  return shape;
}

Tensor sum_to(Tensor gradient, const Shape& wanted) {
  const int extra = gradient.rank() - wanted.rank();
  for (int axis = 0; axis < gradient.rank(); ++axis) {
    const i64 n = gradient.size(axis);
    if (n == 1 || (axis >= extra && wanted[axis - extra] == n)) continue;
    i64 outer = 1, inner = 1;
    for (int i = 0; i < axis; ++i) outer *= gradient.size(i);
    for (int i = axis + 1; i < gradient.rank(); ++i) inner *= gradient.size(i);
    Shape shape = gradient.shape();
    shape.set(axis, 1);
    Tensor sum = empty(shape, gradient.dtype(), "gradient sum");
    kernels::sum_axis(gradient, outer, n, inner, 1, sum);
    gradient = sum;
  }
  return gradient.reshape(wanted);
}

}  // namespace spillway::ops
