// Provides operands of matrix products and error bounds of results, for matmul_test.cc and matmul_cuda_test.cc.
#pragma once
#include <string>
#include <vector>

#include "kernels/products/matmul.h"
#include "tests/support/numbers.h"

namespace spillway::test {

/// Names the dtype of both operands and the dtype of the result.
struct Types {
  DType in, out;
};
constexpr Types kAllTypes[] = {{DType::f32, DType::f32},   {DType::f64, DType::f64}, {DType::bf16, DType::f32},
                               {DType::bf16, DType::bf16}, {DType::f16, DType::f32}, {DType::f16, DType::f16}};

struct Extents {
  i64 m, n, k;
};
inline std::string to_string(const Extents& e, const Types& types) {
  return std::string(spillway::to_string(types.in)) + " to " + std::string(spillway::to_string(types.out)) + " " + std::to_string(e.m) +
         " x " + std::to_string(e.n) + " x " + std::to_string(e.k);
}

/// Returns a random tensor that contains a view [rows, columns]: transposed if requested, and inside wider rows if `padded`.
inline Tensor whole_of(i64 rows, i64 columns, bool transposed, bool padded, DType dtype, u64 seed) {
  return random({transposed ? columns : rows, (transposed ? rows : columns) + (padded ? 5 : 0)}, dtype, seed);
}
inline Tensor view_in(const Tensor& whole, i64 rows, i64 columns, bool transposed) {
  const Tensor inner = whole.slice(1, 0, transposed ? rows : columns);
  return transposed ? inner.transpose(0, 1) : inner;
}

inline double element(const Tensor& t, i64 i, i64 j) {
  const i64 at = i * t.stride(0) + j * t.stride(1);
  if (t.dtype() == DType::bf16) return widen(t.data<BFloat16>()[at]);
  if (t.dtype() == DType::f16) return widen(t.data<Float16>()[at]);
  return t.dtype() == DType::f64 ? t.data<double>()[at] : t.data<float>()[at];
}

/// Returns the elements of a matrix row by row as doubles.
inline std::vector<double> plain(const Tensor& t) {
  const i64 rows = t.size(0), columns = t.size(1), down = t.stride(0), right = t.stride(1);
  const Elements elements(t);
  std::vector<double> all;
  for (i64 i = 0; i < rows; ++i) {
    for (i64 j = 0; j < columns; ++j) all.push_back(elements[i * down + j * right]);
  }
  return all;
}

/// Checks a product. The error of a sum of k products, a previous value and a bias, added in any order, is at
/// most (k + 2) eps times the sum of their magnitudes. A narrow result is rounded once more. `eps` is the error
/// of one addition: half_ulp if additions round. `before` holds the previous values: undefined or [M, N].
inline void expect_product(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, double eps, const Tensor& before = {}) {
  const i64 k = a.size(1), rows = out.size(0), columns = out.size(1);
  const std::vector<double> left = plain(a), right = plain(b.transpose(0, 1)), got = plain(out);
  for (i64 i = 0; i < rows; ++i) {
    for (i64 j = 0; j < columns; ++j) {
      const double first = bias.defined() ? at(bias, j) : 0, second = before.defined() ? element(before, i, j) : 0;
      double sum = first + second, size = std::abs(first) + std::abs(second);
      const double *row = left.data() + i * k, *column = right.data() + j * k;
      for (i64 p = 0; p < k; ++p) {
        sum += row[p] * column[p];
        size += std::abs(row[p] * column[p]);
      }
      const double stored = stored_error(out.dtype(), sum);
      ASSERT_NEAR(got[static_cast<size_t>(i * columns + j)], sum, 1.01 * static_cast<double>(k + 2) * eps * size + stored)
          << i << ", " << j;
    }
  }
}

}  // namespace spillway::test
