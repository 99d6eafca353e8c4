// Computes Muon's Newton-Schulz iteration in plain loops in fp64, as a reference for tests.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/types.h"

namespace spillway::test {

struct Extents {
  i64 rows, columns;
  i64 elems() const { return rows * columns; }
};

// Computes the Newton-Schulz iteration as Muon's author writes it down, always multiplying on the side of the rows.
inline std::vector<double> rows_orthonormal(std::vector<double> x, Extents e) {
  const auto at = [](const std::vector<double>& m, i64 columns, i64 r, i64 c) { return m[static_cast<size_t>(r * columns + c)]; };
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    std::vector<double> a(static_cast<size_t>(e.rows * e.rows)), b = a, next = x;
    for (i64 i = 0; i < e.rows * e.rows; ++i) {
      for (i64 k = 0; k < e.columns; ++k) a[static_cast<size_t>(i)] += at(x, e.columns, i / e.rows, k) * at(x, e.columns, i % e.rows, k);
    }
    for (i64 i = 0; i < e.rows * e.rows; ++i) {
      double square = 0;
      for (i64 k = 0; k < e.rows; ++k) square += at(a, e.rows, i / e.rows, k) * at(a, e.rows, k, i % e.rows);
      b[static_cast<size_t>(i)] = -4.7750 * a[static_cast<size_t>(i)] + 2.0315 * square;
    }
    for (i64 i = 0; i < e.elems(); ++i) {
      double sum = 3.4445 * x[static_cast<size_t>(i)];
      for (i64 k = 0; k < e.rows; ++k) sum += at(b, e.rows, i / e.columns, k) * at(x, e.columns, k, i % e.columns);
      next[static_cast<size_t>(i)] = sum;
    }
    x = std::move(next);
  }
  return x;
}

inline std::vector<double> transposed(const std::vector<double>& x, Extents e) {
  std::vector<double> flipped(x.size());
  for (i64 i = 0; i < e.elems(); ++i) flipped[static_cast<size_t>(i % e.columns * e.rows + i / e.columns)] = x[static_cast<size_t>(i)];
  return flipped;
}

/// Applies Newton-Schulz to the shorter side of the matrix x, and returns the result.
inline std::vector<double> newton_schulz(const std::vector<double>& x, Extents e) {
  if (e.rows <= e.columns) return rows_orthonormal(x, e);
  const Extents flipped{e.columns, e.rows};
  return transposed(rows_orthonormal(transposed(x, e), flipped), flipped);
}

}  // namespace spillway::test
