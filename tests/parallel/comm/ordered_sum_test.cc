#include "parallel/comm/ordered_sum.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstring>
#include <vector>

#include "tests/support/numbers.h"

namespace spillway::parallel::ordered_sum_test {
namespace {

// Computes the sum once more from its definition: sums are made of groups of 8 ranks in rank order, then of the groups in order.
template <class T>
T reference(const std::vector<std::vector<T>>& ranks, size_t i) {
  std::vector<T> groups;
  for (size_t r = 0; r < ranks.size(); ++r) r % 8 == 0 ? groups.push_back(ranks[r][i]) : void(groups.back() = groups.back() + ranks[r][i]);
  T total = groups[0];
  for (size_t g = 1; g < groups.size(); ++g) total = total + groups[g];
  return total;
}

template <class T>
std::vector<std::vector<T>> numbers(int ranks, i64 elems) {
  std::vector<std::vector<T>> all;
  for (int r = 0; r < ranks; ++r) {
    const Tensor values = spillway::test::random({elems}, DTypeOf<T>::value, static_cast<u64>(r + 1), r % 3 == 0 ? 1e3 : 1.0);
    all.emplace_back(values.span<T>().begin(), values.span<T>().end());
  }
  return all;
}

// Checks ordered_sum for several lengths and alignments, with either kind of store (cached or past the caches), into a
// separate buffer and into the buffers of the first and the last rank. No byte beside the result may change.
template <class T>
void check(int ranks) {
  constexpr i64 kMost = 1000, kEdge = 3;
  const auto values = numbers<T>(ranks, kMost);
  for (const i64 elems : {0, 1, 15, 16, 17, 63, 64, 257, 994}) {
    for (const i64 offset : {0, 1, 3}) {
      for (const int place : {-1, 0, ranks - 1}) {
        for (const Stores stores : {Stores::cached, Stores::past_caches}) {
          auto operands = values;
          std::vector<const T*> begins;
          for (const auto& operand : operands) begins.push_back(operand.data());
          std::vector<T> apart(static_cast<size_t>(kMost), T(-7));
          std::vector<T>& whole = place < 0 ? apart : operands[static_cast<size_t>(place)];
          const std::vector<T> before = whole;
          ordered_sum(begins, whole.data(), offset, offset + elems, stores);
          for (i64 i = 0; i < offset + elems + kEdge; ++i) {
            const auto at = static_cast<size_t>(i);
            const T want = i >= offset && i < offset + elems ? reference(values, at) : before[at];
            ASSERT_EQ(std::memcmp(&whole[at], &want, sizeof(T)), 0)
                << "element " << i << " of " << elems << " at " << offset << ", " << ranks << " ranks, into " << place;
          }
        }
      }
    }
  }
}

TEST(OrderedSum, HasTheBitsOfTheDefinitionOnEveryInstructionSet) {
  for (i64 targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const i64 target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const int ranks : {1, 2, 3, 7, 8, 9, 16, 17, 65}) check<float>(ranks), check<double>(ranks);
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Shows that groups of 8 ranks are summed first. In f32 a single 1 added to 2^24 is lost. Eight ones that are summed first are not.
TEST(OrderedSum, GroupsAreAddedBeforeTheyMeet) {
  const float big = 0x1p24F, one = 1;
  std::vector<const float*> ranks(16, &one);
  ranks[0] = &big;
  float sum = 0;
  ordered_sum(ranks, &sum, 0, 1);
  EXPECT_EQ(sum, 0x1p24F + 8);
}

TEST(OrderedSum, OfOneRankIsWhatItHas) {
  const float zero = -0.0F;
  const float* rank = &zero;
  float sum = 1;
  ordered_sum({&rank, 1}, &sum, 0, 1);
  EXPECT_TRUE(std::signbit(sum));
}

}  // namespace
}  // namespace spillway::parallel::ordered_sum_test
