// Tests on several ranks that neither the tiers that hold the tensors nor sharding change a bit of a training's results. A covering array
// of strength 3 contains every combination of three settings among ZeRO stages, pipeline schedules, tiers, overlap, threads and
// communicators. The quick tests cover every combination of two on two models, the soak tests the rest. Some cells are tested by name. The
// data-parallel size is 2. The reference is ZeRO 0 on the device without a pipeline, on ranks that are threads. In every cell the bytes
// that each rank moved, gathered, summed and sent must equal those of its plan. scripts/matrix.sh runs the full product, a part at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <numeric>

#include "models/model.h"
#include "parallel/layout/sharding.h"
#include "tests/app/program/support_faulty_ranks.h"
#include "tests/app/program/support_rank_cells.h"

namespace spillway::app::rank_matrix_test {
namespace {

using test::Row;

const test::CoveringArray& array() {
  static const test::CoveringArray all(
      rank_factor_sizes(), [](const Row& row) { return possible_ranks(row) && row[kRankModel] < kFirstKind; }, 20261122);
  return all;
}

// Returns the covering array for models of other kinds: experts, sliding window, packed rows and adapters.
const test::CoveringArray& kinds() {
  static const test::CoveringArray all(
      rank_factor_sizes(),
      [](const Row& row) { return possible_ranks(row) && (row[kRankModel] == test::kOpen || row[kRankModel] >= kFirstKind); }, 20261125);
  return all;
}

// Checks the cells of `model` among the rows [from, to). Cells of one model share a reference run, and ctest runs the models in parallel.
void expect_same_bits(const test::CoveringArray& rows, int model, size_t from, size_t to) {
  RankCells cells;
  int count = 0;
  for (size_t n = from; n < to; ++n) {
    const Row& cell = rows.rows()[n];
    if (cell[kRankModel] != model) continue;
    EXPECT_EQ(cells.objection(cell), "") << to_string(cell);
    ++count;
  }
  EXPECT_GE(count, 5);
  std::cout << count << " cells\n";
}

// The covering array's first rows, which contain all pairs, run in release builds. All rows take minutes and run as soak tests only.
struct RankMatrixRelease : testing::TestWithParam<int> {};
TEST_P(RankMatrixRelease, EveryPairGivesTheSameBits) { expect_same_bits(array(), GetParam(), 0, array().rows_for_pairs()); }
INSTANTIATE_TEST_SUITE_P(Models, RankMatrixRelease, testing::Range(0, 1));
INSTANTIATE_TEST_SUITE_P(SoakModels, RankMatrixRelease, testing::Range(1, kFirstKind));

struct SoakRankTriples : testing::TestWithParam<int> {};
TEST_P(SoakRankTriples, GiveTheSameBits) { expect_same_bits(array(), GetParam(), array().rows_for_pairs(), array().rows().size()); }
INSTANTIATE_TEST_SUITE_P(Models, SoakRankTriples, testing::Range(0, kFirstKind));

struct SoakRankKinds : testing::TestWithParam<int> {};
TEST_P(SoakRankKinds, EveryPairGivesTheSameBits) { expect_same_bits(kinds(), GetParam(), 0, kinds().rows_for_pairs()); }
TEST_P(SoakRankKinds, TriplesGiveTheSameBits) { expect_same_bits(kinds(), GetParam(), kinds().rows_for_pairs(), kinds().rows().size()); }
INSTANTIATE_TEST_SUITE_P(Models, SoakRankKinds, testing::Range(kFirstKind, kFirstKind + kKinds));

// Lists the cells that a change is most likely to break. They run whether or not the covering array contains them.
struct NamedCell {
  const char* name;
  Row cell;  // the cell has one value for each RankFactor
};
const NamedCell kNamed[] = {
    // The values of a cell are: model, ZeRO stage, pipeline, tiers of parameters,
    // gradients and optimizer, activations, overlap, threads, communicator, reduction.
    {"zero3_all_on_nvme_forward", {2, 3, 0, 2, 2, 2, 0, 2, 1, 0, 0}},
    {"zero3_1f1b_all_on_nvme", {0, 3, 2, 2, 2, 2, 2, 0, 1, 2, 0}},
    {"zero2_vertical_stages_all_on_nvme", {3, 2, 6, 2, 2, 2, 2, 1, 0, 0, 0}},
    {"each_zero3_interleaved_backward", {3, 3, 3, 0, 1, 2, 0, 1, 1, 0, 1}},
    {"zero3_all_on_nvme_backward_recompute", {1, 3, 0, 2, 2, 2, 3, 1, 0, 1, 0}},
    {"zero2_gradients_on_nvme", {0, 2, 0, 0, 2, 1, 0, 1, 1, 0, 0}},
    {"zero1_weights_on_host_forward", {3, 1, 0, 1, 0, 2, 1, 2, 0, 0, 0}},
    {"zero0_gpipe_all_on_nvme", {0, 0, 1, 2, 2, 2, 3, 2, 0, 1, 0}},
    {"zero3_interleaved_on_host", {1, 3, 3, 1, 1, 1, 1, 1, 1, 0, 0}},
    {"zero3_zb_v_all_on_nvme_forward", {2, 3, 5, 2, 2, 2, 0, 2, 1, 0, 0}},
    {"each_zero2_all_on_nvme", {0, 2, 0, 2, 2, 2, 0, 0, 0, 1, 1}},
    {"each_zero3_zb_h1_all_on_nvme_forward", {2, 3, 4, 2, 2, 2, 3, 2, 1, 2, 1}},
    {"experts_zero3_1f1b_all_on_nvme", {4, 3, 2, 2, 2, 2, 2, 2, 1, 0, 0}},
    {"window_zero2_zb_v_on_host_backward", {5, 2, 5, 1, 1, 1, 1, 1, 1, 0, 0}},
    {"packed_zero3_interleaved_all_on_nvme_recompute", {6, 3, 3, 2, 2, 2, 3, 0, 1, 0, 0}},
    {"adapters_zero3_vertical_all_on_nvme", {7, 3, 6, 2, 2, 2, 2, 1, 1, 0, 0}},
    {"adapters_nf4_zero3_gpipe_all_on_nvme_forward", {8, 3, 1, 2, 2, 2, 0, 2, 1, 0, 0}},
};

class RankCorners : public testing::TestWithParam<NamedCell> {};

TEST_P(RankCorners, GiveTheSameBits) {
  RankCells cells;
  Row cell = GetParam().cell;
  if (!possible_ranks(cell)) cell[kRankCommunicator] = 0;
  EXPECT_EQ(cells.objection(cell), "") << to_string(cell);
}
// The first four cells (training runs) of the list kNamed run with every change, also under the sanitizers. The other cells run as soak
// tests only.
std::string corner_name(const testing::TestParamInfo<NamedCell>& cell) { return cell.param.name; }
INSTANTIATE_TEST_SUITE_P(Corners, RankCorners, testing::ValuesIn(std::begin(kNamed), std::begin(kNamed) + 4), corner_name);
INSTANTIATE_TEST_SUITE_P(SoakCorners, RankCorners, testing::ValuesIn(std::begin(kNamed) + 4, std::end(kNamed)), corner_name);

// In the uneven models every bucket spans several tiles on each rank, and their number differs
// between ranks. As the only exception, the last norm has a single tile, which one rank holds.
TEST(RankMatrix, ShardsAreUneven) {
  const TemporaryFolder folder;
  for (const char* family : {"gpt2", "llama", "mistral", "mixtral"}) {
    const parallel::Layout layout =
        parallel::make_layout(models::build(models::read_config(write_uneven_model(folder, family)), DType::f32));
    ASSERT_EQ(std::ssize(layout.buckets), std::ssize(layout.groups));
    int several = 0;
    for (const parallel::Group& group : layout.groups) {
      i64 least = group.elems, most = 0;
      for (int r = 0; r < kCellDataRanks; ++r) {
        const i64 tiles = parallel::Sharding{3, r, kCellDataRanks}.own(group).count();
        least = std::min(least, tiles), most = std::max(most, tiles);
      }
      EXPECT_LT(least, most) << family << ", group " << group.id;
      several += least >= 2;
    }
    EXPECT_GE(several, std::ssize(layout.groups) - 1) << family;
  }
}

// Shows that the comparison of runs can fail: it must detect a run with a different learning rate.
TEST(RankMatrix, ADifferenceShows) {
  RankCells cells;
  EXPECT_EQ(cells.objection(Row(kRankFactors, 0), {"--learning-rate", "1.1e-3"}), "losses and norms differ");
}

// Shows that the comparison of runs detects wrong bytes that rank 1 sends once. The fault is planted in one collective of the run.
struct PlantedFault {
  const char* name;
  Row cell;
  parallel::Collective where;
  std::function<void(std::span<std::byte> tiles)> plant;
};

constexpr size_t kTileBytes = static_cast<size_t>(parallel::kTileElems) * sizeof(float);

void PrintTo(const PlantedFault& fault, std::ostream* out) { *out << fault.name; }

const PlantedFault kFaults[] = {
    {"last_bits_of_a_tile_of_a_summed_gradient",
     {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     parallel::Collective::all_reduce,
     [](std::span<std::byte> tiles) {
       for (size_t i = 0; i < kTileBytes; i += sizeof(float)) tiles[i] ^= std::byte{1};
     }},
    {"last_bits_of_a_tile_of_a_scattered_gradient",
     {3, 2, 0, 0, 1, 2, 0, 0, 0, 0, 0},
     parallel::Collective::reduce_scatter,
     [](std::span<std::byte> tiles) {
       for (size_t i = 0; i < kTileBytes; i += sizeof(float)) tiles[i] ^= std::byte{1};
     }},
    {"last_bits_of_a_tile_of_a_micro_batchs_gradient",
     {3, 3, 0, 0, 0, 2, 0, 0, 0, 0, 1},
     parallel::Collective::reduce_scatter,
     [](std::span<std::byte> tiles) {
       for (size_t i = 0; i < kTileBytes; i += sizeof(float)) tiles[i] ^= std::byte{1};
     }},
    {"tiles_of_gathered_weights_in_each_others_place",
     {2, 3, 0, 2, 2, 2, 0, 0, 0, 0, 0},
     parallel::Collective::all_gather,
     [](std::span<std::byte> tiles) { std::swap_ranges(tiles.begin(), tiles.begin() + kTileBytes, tiles.begin() + kTileBytes); }},
};

class RankFaults : public testing::TestWithParam<PlantedFault> {};

TEST_P(RankFaults, Show) {
  const PlantedFault& fault = GetParam();
  std::atomic<int> planted{-1};  // -1: no fault is wanted yet; 0: the next collective gets the fault; 1: the fault was planted
  const auto spoil = [&](parallel::Collective what, std::span<std::byte> given) {
    if (what != fault.where || given.size() < 2 * kTileBytes || given.size() % kTileBytes != 0) return;
    if (int none = 0; planted.compare_exchange_strong(none, 1)) fault.plant(given);
  };
  const auto wrap = [&](int rank, auto end) { return rank == 1 ? with_fault(std::move(end), spoil) : std::move(end); };
  RankCells cells([&](int ranks, const std::vector<std::string>& args) { return train_on(ranks, args, {}, wrap).front(); });
  EXPECT_EQ(cells.objection(fault.cell), "") << "without a fault";
  planted = 0;
  EXPECT_EQ(cells.objection(fault.cell), "losses and norms differ");
  EXPECT_EQ(planted, 1);
}
INSTANTIATE_TEST_SUITE_P(PlantedMore, RankFaults, testing::ValuesIn(kFaults), [](const auto& fault) { return fault.param.name; });

// Runs one part of the full product. SPILLWAY_MATRIX=PART/PARTS selects the part, whose cells are spread over the whole product.
TEST(SoakRankMatrix, APartOfTheFullProduct) {
  i64 part = 0, parts = 1000;
  if (const char* text = std::getenv("SPILLWAY_MATRIX")) {
    ASSERT_EQ(std::sscanf(text, "%ld/%ld", &part, &parts), 2) << text;
  }
  const std::vector<int> sizes = rank_factor_sizes();
  const i64 all = std::accumulate(sizes.begin(), sizes.end(), i64{1}, std::multiplies<>());
  constexpr i64 kStride = 1000003;  // a prime that does not divide the product's size, so that the stride reaches every cell
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
  std::cout << count << " cells of part " << part << " of " << parts << ", " << all << " in all\n";
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace spillway::app::rank_matrix_test
