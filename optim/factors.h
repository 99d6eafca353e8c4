// A parameter as matrices, of whose squares Adafactor keeps means over rows and over columns, its factors (rules/adafactor.h). Pure
// functions.
#pragma once
#include "base/types.h"
#include "tensor/shape.h"

namespace spillway::optim {

/// `count` matrices of rows x columns one after the other; a vector has count 0 and rows 0.
struct Matrices {
  i64 count = 0, rows = 0, columns = 0;
  i64 row_factors() const { return count * rows; }
  i64 column_factors() const { return count * columns; }
  i64 factors() const { return row_factors() + column_factors(); }
};

/// Of a parameter: its last two dimensions.
Matrices matrices_of(const Shape& shape);
/// Of the means of its rows and of its columns, as PyTorch keeps them: 1 in place of the last dimension, of the last but one.
Shape row_factors_shape(const Shape& shape);
Shape column_factors_shape(const Shape& shape);
/// Of its factors, first those of rows then those of columns, so many lie in each of its tiles.
i64 factors_a_tile(const Matrices& m, i64 elems);

}  // namespace spillway::optim
