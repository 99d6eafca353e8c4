#include "kernels/products/instruction_sets.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "kernels/products/gemm.h"

namespace spillway::test::instruction_sets_test {
namespace {

using kernels::InstructionSet;

// The chosen instruction set is read before SupportedTargets() is called, since that call chooses among all targets again.
TEST(InstructionSets, NoneBeyondThePinnedOneIsChosen) {
  const kernels::gemm::Pairs best = kernels::gemm::pairs_in_use();
  const i64 all = hwy::SupportedTargets();
  kernels::use_at_most(InstructionSet::avx2);
  EXPECT_EQ(kernels::gemm::pairs_in_use(), kernels::gemm::Pairs::widened);
  EXPECT_EQ(hwy::SupportedTargets() & HWY_AVX3, 0);
  EXPECT_EQ(hwy::SupportedTargets() & HWY_AVX2, all & HWY_AVX2);
  kernels::use_at_most(InstructionSet::baseline);
  EXPECT_EQ(hwy::SupportedTargets() & (HWY_AVX3 | HWY_AVX2), 0);
  kernels::use_at_most(InstructionSet::best);
  EXPECT_EQ(kernels::gemm::pairs_in_use(), best);
  EXPECT_EQ(hwy::SupportedTargets(), all);
}

}  // namespace
}  // namespace spillway::test::instruction_sets_test
