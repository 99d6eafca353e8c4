#include "kernels/matmul.h"

#include <hwy/targets.h>

#include "base/error.h"
#include "tests/support/numbers.h"

namespace spillway {
namespace {

using kernels::gemm::Store;

Tensor workspace_for(i64 m, i64 n, i64 k, DType dtype) { return empty({kernels::matmul_workspace_bytes(m, n, k, dtype)}, DType::uint8); }

void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store = Store::replace) {
  kernels::matmul(a, b, bias, out, workspace_for(out.size(0), out.size(1), a.size(1), a.dtype()), store);
}

double element(const Tensor& t, i64 i, i64 j) {
  const i64 at = i * t.stride(0) + j * t.stride(1);
  return t.dtype() == DType::f64 ? t.data<double>()[at] : t.data<float>()[at];
}

// A view [rows, columns] of random numbers: transposed, and inside wider rows, if asked for.
Tensor view(i64 rows, i64 columns, bool transposed, bool padded, DType dtype, u64 seed) {
  const i64 outer = transposed ? columns : rows, inner = transposed ? rows : columns, extra = padded ? 5 : 0;
  const Tensor whole = test::random({outer, inner + extra}, dtype, seed).slice(1, 0, inner);
  return transposed ? whole.transpose(0, 1) : whole;
}

// Row by row, in fp64.
std::vector<double> plain(const Tensor& t) {
  std::vector<double> all;
  for (i64 i = 0; i < t.size(0); ++i) {
    for (i64 j = 0; j < t.size(1); ++j) all.push_back(element(t, i, j));
  }
  return all;
}

// The error of a sum of k products is at most k * eps * sum |a b|.
void expect_product(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out) {
  const i64 k = a.size(1);
  const double eps = a.dtype() == DType::f64 ? 0x1p-53 : 0x1p-24;
  const std::vector<double> left = plain(a), right = plain(b.transpose(0, 1)), got = plain(out);
  for (i64 i = 0; i < out.size(0); ++i) {
    for (i64 j = 0; j < out.size(1); ++j) {
      double sum = bias.defined() ? test::at(bias, j) : 0, size = std::abs(sum);
      const double *row = left.data() + i * k, *column = right.data() + j * k;
      for (i64 p = 0; p < k; ++p) {
        sum += row[p] * column[p];
        size += std::abs(row[p] * column[p]);
      }
      ASSERT_NEAR(got[static_cast<size_t>(i * out.size(1) + j)], sum, static_cast<double>(k + 2) * eps * size) << i << ", " << j;
    }
  }
}

struct Extents {
  i64 m, n, k;
};

void check_all_layouts(const Extents& e, DType dtype) {
  SCOPED_TRACE(std::to_string(e.m) + " x " + std::to_string(e.n) + " x " + std::to_string(e.k));
  for (int layout = 0; layout < 16; ++layout) {
    const Tensor a = view(e.m, e.k, layout & 1, layout & 4, dtype, 1), b = view(e.k, e.n, layout & 2, layout & 4, dtype, 2);
    const Tensor bias = layout & 8 ? test::random({e.n}, dtype, 3) : Tensor();
    const Tensor out = view(e.m, e.n, false, layout & 4, dtype, 4);
    multiply(a, b, bias, out);
    expect_product(a, b, bias, out);
  }
}

// 1 and 3 below every panel; 47..49 around a strip; 257 across a chunk of k.
const std::vector<Extents> kOdd{{1, 1, 1}, {3, 5, 2}, {1, 97, 33}, {97, 1, 33}, {47, 49, 48}, {8, 48, 257}, {130, 31, 65}, {29, 131, 300}};

TEST(Matmul, OddShapesTransposesAndStrides) {
  for (const Extents& e : kOdd) {
    check_all_layouts(e, DType::f32);
    check_all_layouts(e, DType::f64);
  }
}

TEST(Matmul, LongInnerExtent) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    check_all_layouts({17, 9, 4096}, dtype);
    check_all_layouts({5, 60, 4095}, dtype);
  }
}

// The packed operand is walked in slabs where it is large: 1000 rows by 2100 are more than 4 MiB.
TEST(Matmul, SlabsOfTheInnerExtent) {
  const Tensor a = test::random({1000, 2100}, DType::f32, 1), b = test::random({2100, 1001}, DType::f32, 2),
               out = empty({1000, 1001}, DType::f32);
  multiply(a, b, {}, out);
  const Tensor rows = a.slice(0, 990, 1000), few = empty({10, 1001}, DType::f32);
  multiply(rows, b, {}, few);
  expect_product(rows, b, {}, few);
  EXPECT_TRUE(test::same_bits(few, out.slice(0, 990, 1000)));
}

TEST(Matmul, AddsToWhatIsThere) {
  const Tensor a = test::random({20, 300}, DType::f32, 1), b = test::random({300, 70}, DType::f32, 2);
  const Tensor out = test::random({20, 70}, DType::f32, 3), before = test::random({20, 70}, DType::f32, 3),
               product = empty({20, 70}, DType::f32);
  multiply(a, b, {}, out, Store::add);
  multiply(a, b, {}, product);
  for (i64 i = 0; i < out.elems(); ++i) ASSERT_NEAR(test::at(out, i), test::at(before, i) + test::at(product, i), 1e-4);
}

TEST(Matmul, SameBitsAtAnyThreadCount) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor a = test::random({100, 515}, dtype, 1), b = test::random({515, 333}, dtype, 2), bias = test::random({333}, dtype, 3);
    const Tensor alone = empty({100, 333}, dtype);
    multiply(a, b, bias, alone);
    for (int threads = 2; threads <= 3; ++threads) {
      const Tensor out = empty({100, 333}, dtype);
      test::with_threads(threads, [&] { multiply(a, b, bias, out); });
      EXPECT_TRUE(test::same_bits(out, alone)) << threads << " threads";
    }
  }
}

// The header's invariant: any block of C, computed by itself, is the same bits.
TEST(Matmul, AnElementDependsOnItsRowAndColumnAlone) {
  const Tensor a = test::random({90, 777}, DType::f32, 1), b = test::random({777, 150}, DType::f32, 2),
               whole = empty({90, 150}, DType::f32);
  multiply(a, b, {}, whole);
  for (const auto& [row, rows, column, columns] : std::vector<std::array<i64, 4>>{{7, 1, 0, 150}, {0, 90, 49, 3}, {33, 50, 5, 101}}) {
    const Tensor part = empty({rows, columns}, DType::f32);
    multiply(a.slice(0, row, row + rows), b.slice(1, column, column + columns), {}, part);
    for (i64 i = 0; i < rows; ++i) {
      for (i64 j = 0; j < columns; ++j) ASSERT_EQ(element(part, i, j), element(whole, row + i, column + j));
    }
  }
}

TEST(Matmul, EveryInstructionSet) {
  for (i64 targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const i64 target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    check_all_layouts({29, 131, 300}, DType::f32);
    check_all_layouts({29, 131, 300}, DType::f64);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  const Tensor a = empty({2, 3}, DType::f32), b = empty({4, 5}, DType::f32), out = empty({2, 5}, DType::f32);
  EXPECT_THROW(multiply(a, b, {}, out), Error);
  EXPECT_THROW(kernels::matmul(a, b.slice(0, 0, 3), {}, out, empty({1}, DType::uint8)), Error) << "a workspace too small";
}

}  // namespace
}  // namespace spillway
