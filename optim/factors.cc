#include "optim/factors.h"

#include "optim/norm.h"

namespace spillway::optim {
namespace {

Shape with_one(Shape shape, int axis) {
  shape.set(axis, 1);
  return shape;
}

}  // namespace

Matrices matrices_of(const Shape& shape) {
  if (shape.rank() < 2 || shape.elems() == 0) return {};
  const i64 rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1];
  return {shape.elems() / (rows * columns), rows, columns};
}

Shape row_factors_shape(const Shape& shape) { return with_one(shape, shape.rank() - 1); }
Shape column_factors_shape(const Shape& shape) { return with_one(shape, shape.rank() - 2); }

i64 factors_a_tile(const Matrices& m, i64 elems) { return ceil_div(m.factors(), ceil_div(elems, kTileElems)); }

}  // namespace spillway::optim
