// Reads the transpose of a matrix that a file stores row by row. A range of the stored matrix's columns is read at a time, so the file is
// scanned only a few times, whatever its size. Readers and writers of formats that store linear layers transposed use these functions.
#pragma once
#include <functional>
#include <span>

#include "base/types.h"

namespace spillway::data {

/// A function that reads elements [begin, begin + out.size()) of the matrix, in the order in which the file stores them.
using MatrixValues = std::function<void(i64 begin, std::span<double> out)>;

/// Writes rows [begin, begin + count) of the transpose into `out`, one after the other. The stored matrix has `rows` rows and `columns`
/// columns.
void read_transposed(i64 rows, i64 columns, const MatrixValues& values, i64 begin, i64 count, std::span<float> out);

/// Returns how many rows of the transpose take at most 16 MiB, but at least 1. `rows` is the number of rows of the stored matrix, that is,
/// the number of elements in a row of the transpose.
i64 transposed_band(i64 rows);

}  // namespace spillway::data
