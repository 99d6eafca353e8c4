#include <hwy/targets.h>

#include <cstring>

#include "base/error.h"
#include "device/device_query.h"
#include "kernels/products/gemm.h"
#include "tests/kernels/products/support_matmul.h"

namespace spillway::matmul_test {
namespace {

using kernels::Store;
using test::element;
using test::Extents;
using test::Types;
using test::view_in;
using test::whole_of;
constexpr auto& kAll = test::kAllTypes;

void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store = Store::replace) {
  const i64 bytes = kernels::matmul_workspace_bytes(out.size(0), out.size(1), a.size(1), a.dtype(), out.dtype());
  kernels::matmul(a, b, bias, out, empty({bytes}, DType::uint8), store);
}

Tensor view(i64 rows, i64 columns, bool transposed, bool padded, DType dtype, u64 seed) {
  return view_in(whole_of(rows, columns, transposed, padded, dtype, seed), rows, columns, transposed);
}

void expect_product(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out) {
  test::expect_product(a, b, bias, out, test::half_ulp(wide_dtype(a.dtype())));
}

void check_all_layouts(const Extents& e, const Types& types) {
  SCOPED_TRACE(test::to_string(e, types));
  for (int layout = 0; layout < 16; ++layout) {
    const Tensor a = view(e.m, e.k, layout & 1, layout & 4, types.in, 1), b = view(e.k, e.n, layout & 2, layout & 4, types.in, 2);
    const Tensor bias = layout & 8 ? test::random({e.n}, types.in, 3) : Tensor();
    const Tensor out = view(e.m, e.n, false, layout & 4, types.out, 4);
    multiply(a, b, bias, out);
    expect_product(a, b, bias, out);
  }
}

// Extents 1 and 3 are smaller than every panel, 47 to 49 are around a strip, and 257 spans two chunks of k.
const std::vector<Extents> kOdd{{1, 1, 1}, {3, 5, 2}, {1, 97, 33}, {97, 1, 33}, {47, 49, 48}, {8, 48, 257}, {130, 31, 65}, {29, 131, 300}};

TEST(Matmul, OddShapesTransposesAndStrides) {
  for (const Extents& e : kOdd) {
    for (const Types& types : kAll) check_all_layouts(e, types);
  }
}

TEST(Matmul, LongInnerExtent) {
  for (const Types& types : kAll) {
    check_all_layouts({17, 9, 4096}, types);
    check_all_layouts({5, 60, 4095}, types);
  }
}

// A large packed operand is processed in slabs of 4 MiB: 1000 rows by 2100 in f32 are more than that, and so are 1000 by 3100 in bf16.
TEST(Matmul, SlabsOfTheInnerExtent) {
  for (const Types& types : {kAll[0], kAll[2], kAll[3]}) {
    const i64 k = types.in == DType::bf16 ? 3101 : 2100;
    const Tensor a = test::random({1000, k}, types.in, 1), b = test::random({k, 1001}, types.in, 2), out = empty({1000, 1001}, types.out);
    multiply(a, b, {}, out);
    const Tensor rows = a.slice(0, 990, 1000), few = empty({10, 1001}, types.out);
    multiply(rows, b, {}, few);
    expect_product(rows, b, {}, few);
    EXPECT_TRUE(test::same_bits(few, out.slice(0, 990, 1000)));
  }
}

TEST(Matmul, AddsToWhatIsThere) {
  for (const DType in : {DType::f32, DType::bf16}) {
    const Tensor a = test::random({20, 2300}, in, 1), b = test::random({2300, 70}, in, 2);
    const Tensor out = test::random({20, 70}, DType::f32, 3), before = test::random({20, 70}, DType::f32, 3),
                 product = empty({20, 70}, DType::f32);
    multiply(a, b, {}, out, Store::add);
    multiply(a, b, {}, product);
    for (i64 i = 0; i < out.elems(); ++i) ASSERT_NEAR(test::at(out, i), test::at(before, i) + test::at(product, i), 1e-4);
  }
  const Tensor narrow_one = test::random({2, 2}, DType::bf16, 1);
  EXPECT_THROW(multiply(narrow_one, narrow_one, {}, empty({2, 2}, DType::bf16), Store::add), Error) << "it would be rounded twice";
}

TEST(Matmul, SameBitsAtAnyThreadCount) {
  for (const Types& types : kAll) {
    const Tensor a = test::random({100, 1515}, types.in, 1), b = test::random({1515, 333}, types.in, 2),
                 bias = test::random({333}, types.in, 3), alone = empty({100, 333}, types.out);
    multiply(a, b, bias, alone);
    for (int threads = 2; threads <= 3; ++threads) {
      const Tensor out = empty({100, 333}, types.out);
      test::with_threads(threads, [&] { multiply(a, b, bias, out); });
      EXPECT_TRUE(test::same_bits(out, alone)) << threads << " threads";
    }
  }
}

// Any block of the result C that is computed by itself is bitwise the same as within the whole product. This is the invariant that the
// header states.
TEST(Matmul, AnElementDependsOnItsRowAndColumnAlone) {
  for (const Types& types : kAll) {
    const Tensor a = test::random({90, 1777}, types.in, 1), b = test::random({1777, 150}, types.in, 2), whole = empty({90, 150}, types.out);
    multiply(a, b, {}, whole);
    for (const auto& [row, rows, column, columns] : std::vector<std::array<i64, 4>>{{7, 1, 0, 150}, {0, 90, 49, 3}, {33, 50, 5, 101}}) {
      const Tensor part = empty({rows, columns}, types.out);
      multiply(a.slice(0, row, row + rows), b.slice(1, column, column + columns), {}, part);
      for (i64 i = 0; i < rows; ++i) {
        for (i64 j = 0; j < columns; ++j) ASSERT_EQ(element(part, i, j), element(whole, row + i, column + j));
      }
    }
  }
}

// Results of 2 MiB and more are written past the caches where whole tiles lie on cache lines: 784 columns are 16 tiles of 48 and one of 16,
// 770 columns do not lie on lines, and a view of 784 of 785 columns does not either.
TEST(Matmul, LargeResultsHaveTheBitsOfTheirParts) {
  constexpr i64 kRows = 701;
  for (const auto& [columns, stride] : {std::pair<i64, i64>{784, 784}, {784, 800}, {770, 770}, {784, 785}}) {
    const Tensor a = test::random({kRows, 70}, DType::bf16, 1), b = test::random({70, columns}, DType::bf16, 2);
    const Tensor memory = test::random({kRows, stride}, DType::f32, 3), out = memory.slice(1, 0, columns);
    const Tensor beside = test::random({kRows, stride}, DType::f32, 3).slice(1, columns, stride);
    test::with_threads(2, [&] { multiply(a, b, {}, out); });
    for (i64 row = 0; row < kRows; row += 100) {
      const i64 end = std::min(kRows, row + 100);
      const Tensor part = empty({end - row, columns}, DType::f32);
      multiply(a.slice(0, row, end), b, {}, part);
      for (i64 i = row; i < end; ++i)
        ASSERT_EQ(std::memcmp(out.data<float>() + i * stride, part.data<float>() + (i - row) * columns, 4 * static_cast<size_t>(columns)),
                  0);
    }
    for (i64 i = 0; i < kRows && stride > columns; ++i)
      ASSERT_EQ(element(memory.slice(1, columns, stride), i, 0), element(beside, i, 0)) << "elements beside the result stay";
  }
}

// A sum is not rounded between two chunks of K. Adding 2^11 + 2^-4 three times gives 3 * 2^11 + 3 * 2^-4,
// of which bf16 and f16 would lose the last term each time. After subtracting 3 * 2^11 the result is exact.
template <class T>
void expect_wide_sums() {
  constexpr DType dtype = DTypeOf<T>::value;
  const i64 depth = kernels::gemm::kDepth<kernels::gemm::PanelOf<T>>, k = 3 * depth + 1;
  const Tensor a = test::as(dtype, zeros({1, k}, DType::f32)), b = test::as(dtype, zeros({k, 1}, DType::f32)), out = empty({1, 1}, dtype);
  const auto set = [&](i64 p, float x) {
    a.data<T>()[p] = narrow<T>(x);
    b.data<T>()[p] = narrow<T>(1);
  };
  for (i64 chunk = 0; chunk < 3; ++chunk) {
    set(chunk * depth + 2, 2048);
    set(chunk * depth + 9, 0x1p-4F);
  }
  set(k - 1, -6144);
  multiply(a, b, {}, out);
  EXPECT_EQ(test::at(out, 0), 3 * 0x1p-4);
}

TEST(Matmul, SumsOfHalvesStayWideBetweenChunks) {
  expect_wide_sums<BFloat16>();
  expect_wide_sums<Float16>();
}

// A single product is exact in f32, so a narrow result must equal the rounded
// product to the bit: ties, both signs, large and small numbers, infinities and NaN.
template <class T>
void expect_stored_as_narrow_does(const std::function<u16(i64)>& left, const std::function<u16(i64)>& right) {
  constexpr i64 kEach = 300;
  constexpr DType dtype = DTypeOf<T>::value;
  const Tensor a = empty({kEach, 1}, dtype), b = empty({1, kEach}, dtype), out = empty({kEach, kEach}, dtype);
  const u16 nan = narrow<T>(NAN).bits, infinity = narrow<T>(INFINITY).bits;
  for (i64 i = 0; i < kEach; ++i) {
    a.data<T>()[i] = {left(i)};
    b.data<T>()[i] = {i < kEach - 2 ? right(i) : i == kEach - 2 ? nan : infinity};
  }
  for (i64 targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    multiply(a, b, {}, out);
    for (i64 i = 0; i < kEach; ++i) {
      for (i64 j = 0; j < kEach; ++j) {
        const auto want = narrow<T>(widen(a.data<T>()[i]) * widen(b.data<T>()[j]));
        if (std::isnan(widen(want))) {
          ASSERT_TRUE(std::isnan(element(out, i, j)));
        } else {
          ASSERT_EQ(element(out, i, j), widen(want)) << i << ", " << j;
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Matmul, StoresBf16AsNarrowDoes) {
  expect_stored_as_narrow_does<BFloat16>([](i64 i) { return static_cast<u16>(0x2f80 + i * 37); },
                                         [](i64 i) { return static_cast<u16>(0xaf80 + i * 41); });
}

// The products, stored as f16, range from 2^-25, half the smallest f16 number, to beyond the largest.
TEST(Matmul, StoresF16AsNarrowDoes) {
  expect_stored_as_narrow_does<Float16>([](i64 i) { return static_cast<u16>(0x0001 + i * 91); },
                                        [](i64 i) { return static_cast<u16>(0x8400 + i * 90); });
}

TEST(Matmul, EveryInstructionSet) {
  for (i64 targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const i64 target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const Types& types : kAll) check_all_layouts({13, 67, 1101}, types);
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Tests every instruction with which this processor multiplies pairs. Results must depend on row, column and K alone.
TEST(Matmul, EveryWayToMultiplyPairs) {
  for (const kernels::gemm::Pairs pairs : kernels::gemm::available_pairs()) {
    kernels::gemm::pin_pairs_for_test(pairs);
    SCOPED_TRACE(static_cast<int>(pairs));
    for (const Types& types : {kAll[2], kAll[3]}) {
      for (const Extents& e : kOdd) check_all_layouts(e, types);
      check_all_layouts({13, 67, 1101}, types);
      const Tensor a = test::random({90, 1777}, types.in, 1), b = test::random({1777, 150}, types.in, 2),
                   whole = empty({90, 150}, types.out), part = empty({50, 101}, types.out);
      multiply(a, b, {}, whole);
      multiply(a.slice(0, 33, 83), b.slice(1, 5, 106), {}, part);
      for (i64 i = 0; i < 50; ++i) {
        for (i64 j = 0; j < 101; ++j) ASSERT_EQ(element(part, i, j), element(whole, 33 + i, 5 + j));
      }
    }
  }
  kernels::gemm::pin_pairs_for_test(kernels::gemm::Pairs::best);
}

// A plan for a GPU uses a GPU's workspace sizes, even if it is made on a machine without one.
TEST(Matmul, WorkspaceOfWhatTheStreamStandsFor) {
  const auto bytes_on = [](Device device, i64 m, i64 n, i64 k, const Types& types) {
    const Stream stream{device, nullptr, Stream::current().memory};
    const StreamScope scope(stream);
    return kernels::matmul_workspace_bytes(m, n, k, types.in, types.out);
  };
  const Device planned = Device::meta(Device::Kind::cuda);
  const GpuReport report = query_gpus();  // a plan for a GPU can be made on a machine without one
  const Device gpu = !report.gpus.empty() && report.gpus[0].problem.empty() ? Device::cuda(0) : planned;
  for (const Types& types : kAll) {
    for (const Extents& e : std::vector<Extents>{{1, 1, 1}, {300, 200, 1000}, {8192, 50257, 4096}}) {
      const i64 bytes = bytes_on(planned, e.m, e.n, e.k, types);
      EXPECT_GE(bytes, kMiB);
      EXPECT_LE(bytes, 32 * kMiB);
      EXPECT_EQ(bytes, bytes_on(gpu, e.m, e.n, e.k, types));
      EXPECT_EQ(bytes_on(Device::cpu(), e.m, e.n, e.k, types), bytes_on(Device::meta(), e.m, e.n, e.k, types));
    }
  }
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  const Tensor a = empty({2, 3}, DType::f32), b = empty({4, 5}, DType::f32), out = empty({2, 5}, DType::f32);
  EXPECT_THROW(multiply(a, b, {}, out), Error);
  EXPECT_THROW(multiply(a, test::random({3, 5}, DType::f16, 1), {}, out), Error) << "operands of two types";
  EXPECT_THROW(multiply(a, b.slice(0, 0, 3), {}, empty({2, 5}, DType::bf16)), Error) << "a narrower result than f32";
  EXPECT_THROW(kernels::matmul(a, b.slice(0, 0, 3), {}, out, empty({1}, DType::uint8)), Error) << "a workspace too small";
}

}  // namespace
}  // namespace spillway::matmul_test
