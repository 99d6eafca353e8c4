// The shapes of Adafactor's factors. Adafactor treats a parameter as matrices and keeps the means of
// the squared gradients over their rows and over their columns (rules/adafactor.h). Pure functions.
#pragma once
#include "base/types.h"
#include "tensor/shape.h"

namespace spillway::optim {

/// A parameter seen as `count` matrices of rows x columns that lie one after the other; a one-dimensional parameter has count 0 and rows
/// 0.
struct Matrices {
  i64 count = 0, rows = 0, columns = 0;
  i64 row_factors() const { return count * rows; }
  i64 column_factors() const { return count * columns; }
  i64 factors() const { return row_factors() + column_factors(); }
};

/// Returns the matrices of a parameter with this shape; its last two dimensions are rows and columns.
Matrices matrices_of(const Shape& shape);
/// row_factors_shape() and column_factors_shape() return the shape of Adafactor's means as PyTorch keeps them. The row means have a 1 in
/// place of the parameter's last dimension, the column means a 1 in place of the last but one.
Shape row_factors_shape(const Shape& shape);
Shape column_factors_shape(const Shape& shape);
/// Returns how many factors each tile (16,384 elements) of the parameter holds. Factors are the means over rows and columns; those of the
/// rows come first.
i64 factors_a_tile(const Matrices& m, i64 elems);

}  // namespace spillway::optim
