// A matrix read as its transpose, out of a file that holds it row by row: bands of columns at a time, so that it is gone over a few times
// whatever its size. For readers and writers of formats whose linear layers lie the other way round.
#pragma once
#include <functional>
#include <span>

#include "base/types.h"

namespace spillway::data {

/// Elements [begin, begin + out.size()) of the matrix as it lies.
using MatrixValues = std::function<void(i64 begin, std::span<double> out)>;

/// Rows [begin, begin + count) of the transpose of a matrix of `rows` rows and `columns` columns, into `out` one after the other.
void read_transposed(i64 rows, i64 columns, const MatrixValues& values, i64 begin, i64 count, std::span<float> out);

/// How many rows of the transpose make a band of at most 16 MiB, one at least.
i64 transposed_band(i64 rows);

}  // namespace spillway::data
