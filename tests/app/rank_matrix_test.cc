// The law that where bytes lie and who holds them changes no bit, over ranks: of ZeRO stages, pipeline schedules, tiers, overlap and
// threads a covering array of strength 3, so that any three settings that break the law together are met, and corners by name.
// Data-parallel size 2; the reference is ZeRO 0 on the device without a pipeline. scripts/matrix.sh runs the full product, a part at a
// time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>

#include "tests/app/support_rank_cells.h"

namespace spillway::app {
namespace {

using test::Row;

const test::CoveringArray& array() {
  static const test::CoveringArray all(rank_factor_sizes(), possible_ranks, 20261122);
  return all;
}

// In pieces, so that ctest runs them side by side; all of them in release builds.
class RankMatrixRelease : public testing::TestWithParam<int> {};
constexpr int kPieces = 4;

TEST_P(RankMatrixRelease, EveryCellGivesTheSameBits) {
  RankCells cells;
  int count = 0;
  for (size_t n = 0; n < array().rows().size(); ++n) {
    if (static_cast<int>(n % kPieces) != GetParam()) continue;
    const Row& cell = array().rows()[n];
    EXPECT_EQ(cells.objection(cell), "") << to_string(cell);
    ++count;
  }
  EXPECT_GE(count, 15);
  std::cout << count << " cells\n";
}
INSTANTIATE_TEST_SUITE_P(Pieces, RankMatrixRelease, testing::Range(0, kPieces));

// What a change is most likely to break, whatever the array holds.
struct NamedCell {
  const char* name;
  Row cell;  // as RankFactor
};
const NamedCell kNamed[] = {
    //                                       model zero pipe p g o act over threads
    {"zero3_all_on_nvme_forward", {0, 3, 0, 2, 2, 2, 0, 2, 1}},
    {"zero3_all_on_nvme_backward_recompute", {1, 3, 0, 2, 2, 2, 3, 1, 0}},
    {"zero2_gradients_on_nvme", {0, 2, 0, 0, 2, 1, 0, 1, 1}},
    {"zero1_weights_on_host_forward", {1, 1, 0, 1, 0, 2, 1, 2, 0}},
    {"zero3_1f1b_all_on_nvme", {0, 3, 2, 2, 2, 2, 2, 0, 1}},
    {"zero0_gpipe_all_on_nvme", {0, 0, 1, 2, 2, 2, 3, 2, 0}},
    {"zero3_interleaved_on_host", {1, 3, 3, 1, 1, 1, 1, 1, 1}},
    {"zero3_zb_v_all_on_nvme_forward", {0, 3, 5, 2, 2, 2, 0, 2, 1}},
    {"zero2_vertical_stages_all_on_nvme", {0, 2, 6, 2, 2, 2, 2, 1, 0}},
};

class RankCorners : public testing::TestWithParam<NamedCell> {};

TEST_P(RankCorners, GiveTheSameBits) {
  RankCells cells;
  ASSERT_TRUE(possible_ranks(GetParam().cell));
  EXPECT_EQ(cells.objection(GetParam().cell), "") << to_string(GetParam().cell);
}
INSTANTIATE_TEST_SUITE_P(Corners, RankCorners, testing::ValuesIn(kNamed), [](const auto& cell) { return cell.param.name; });

// The comparison must be able to fail: another learning rate is another run.
TEST(RankMatrix, ADifferenceShows) {
  RankCells cells;
  EXPECT_EQ(cells.objection(Row(kRankFactors, 0), {"--learning-rate", "1.1e-3"}), "losses and norms differ");
}

// SPILLWAY_MATRIX=PART/PARTS of the full product. Parts are spread over it.
TEST(SoakRankMatrix, APartOfTheFullProduct) {
  i64 part = 0, parts = 1000;
  if (const char* text = std::getenv("SPILLWAY_MATRIX")) {
    ASSERT_EQ(std::sscanf(text, "%ld/%ld", &part, &parts), 2) << text;
  }
  const std::vector<int> sizes = rank_factor_sizes();
  const i64 all = std::accumulate(sizes.begin(), sizes.end(), i64{1}, std::multiplies<>());
  constexpr i64 kStride = 1000003;  // a prime that does not divide the product
  RankCells cells;
  i64 count = 0;
  for (i64 n = all * part / parts; n < all * (part + 1) / parts; ++n) {
    Row cell;
    i64 rest = n * kStride % all;
    for (const int size : sizes) cell.push_back(static_cast<int>(rest % size)), rest /= size;
    if (!possible_ranks(cell)) continue;
    EXPECT_EQ(cells.objection(cell), "") << to_string(cell);
    ++count;
  }
  std::cout << count << " cells of part " << part << " of " << parts << "\n";
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace spillway::app
