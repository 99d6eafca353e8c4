// Tests products of f32 by bf16, where bf16 is widened while it is packed. They are bitwise equal to products whose bf16 operand was
// widened before.
#include <hwy/targets.h>

#include "base/error.h"
#include "tests/kernels/products/support_matmul.h"

namespace spillway::narrow_columns_test {
namespace {

using kernels::Store;
using test::Extents;

void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store = Store::replace) {
  const i64 bytes = kernels::matmul_workspace_bytes(out.size(0), out.size(1), a.size(1), a.dtype(), out.dtype());
  kernels::matmul(a, b, bias, out, empty({bytes}, DType::uint8), store);
}

void expect_the_bits_of_widened(const Extents& e, int layout, Store store) {
  SCOPED_TRACE(test::to_string(e, {DType::f32, DType::f32}) + " layout " + std::to_string(layout));
  const bool transposed = layout & 2, padded = layout & 4;
  const Tensor whole = test::whole_of(e.k, e.n, transposed, padded, DType::bf16, 2);
  const Tensor b = test::view_in(whole, e.k, e.n, transposed), wide = test::view_in(test::as(DType::f32, whole), e.k, e.n, transposed);
  const Tensor a = test::view_in(test::whole_of(e.m, e.k, layout & 1, padded, DType::f32, 1), e.m, e.k, layout & 1);
  const Tensor bias = layout & 1 ? test::random({e.n}, DType::f32, 3) : Tensor();
  const Tensor out = test::random({e.m, e.n}, DType::f32, 4), want = test::random({e.m, e.n}, DType::f32, 4);
  multiply(a, b, bias, out, store);
  multiply(a, wide, bias, want, store);
  EXPECT_TRUE(test::same_bits(out, want));
  // A planted error, one value of B off by its last bit, must change the result.
  whole.data<BFloat16>()[0].bits ^= 1;
  multiply(a, b, bias, out, store);
  EXPECT_FALSE(test::same_bits(out, want));
}

// The matrices have few and many rows, with either side smaller. Their extents are around strips and across chunks of k and slabs.
TEST(NarrowColumns, HaveTheBitsOfWidenedOnesByEveryInstructionSet) {
  for (i64 targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    SCOPED_TRACE(hwy::TargetName(targets & -targets));
    for (const Extents& e :
         {Extents{1, 1, 1}, {1, 64, 8}, {2, 300, 515}, {4, 97, 257}, {3, 65, 1030}, {5, 60, 33}, {130, 31, 300}, {50, 200, 2053}}) {
      for (int layout = 0; layout < 8; ++layout) {
        for (const Store store : {Store::replace, Store::add}) expect_the_bits_of_widened(e, layout, store);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(NarrowColumns, NothingElseIsMixed) {
  const auto refused = [](DType a, DType b, DType out) {
    EXPECT_THROW(multiply(test::random({2, 3}, a, 1), test::random({3, 4}, b, 2), {}, empty({2, 4}, out)), Error);
  };
  refused(DType::bf16, DType::f32, DType::f32);
  refused(DType::f32, DType::f16, DType::f32);
  refused(DType::f64, DType::bf16, DType::f64);
  refused(DType::f32, DType::bf16, DType::bf16);
}

}  // namespace
}  // namespace spillway::narrow_columns_test
