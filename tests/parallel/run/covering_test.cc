// Tests that no number depends on where tensors are stored (the law of same_bits_test.cc), for combinations of all factors. There are too
// many for one test (scripts/matrix.sh), so the test runs a covering array of strength 3, which contains every combination of any three
// settings, and some corners by name.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <set>

#include "models/presets.h"
#include "tests/parallel/run/support_cells.h"

namespace spillway::test::covering_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Tier;

// The number of training steps for each combination of settings: enough for an adaptive overlap to change its instruction lists, which it
// does when more than half of the steps so far were clipped.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr i64 kSteps = 4;
#else
constexpr i64 kSteps = 5;
#endif

const CoveringArray& array() {
  static const CoveringArray all(factor_sizes(), possible, 20240607);
  return all;
}

TEST(CoveringArrayTest, HoldsEveryTripleThatCanOccur) {
  std::set<std::array<int, 6>> met;
  i64 wanted = 0, impossible = 0;
  const std::vector<int> sizes = factor_sizes();
  for (int a = 0; a < kFactors; ++a) {
    for (int b = a + 1; b < kFactors; ++b) {
      for (int c = b + 1; c < kFactors; ++c) {
        const auto at = [](const Row& row, int f) { return row[static_cast<size_t>(f)]; };
        for (const Row& row : array().rows()) met.insert({a, at(row, a), b, at(row, b), c, at(row, c)});
        wanted += at(sizes, a) * at(sizes, b) * at(sizes, c);
        // A split master with f32 is impossible, which rules out one triple for each value of a third factor.
        for (const int third : {a, b, c}) {
          const std::set<int> others = {a, b, c};
          if (others.count(kMaster) && others.count(kPrecision) && third != kMaster && third != kPrecision) impossible += at(sizes, third);
        }
      }
    }
  }
  EXPECT_EQ(std::ssize(met), wanted - impossible);
  for (const Row& row : array().rows()) EXPECT_TRUE(possible(row)) << to_string(row);
  EXPECT_LE(array().rows().size(), 140u);
  std::cout << array().rows().size() << " cells hold " << met.size() << " triples\n";
}

// Runs all cells of the covering array, in release builds. They are grouped by precision and number of micro-batches, so that ctest runs
// the groups in parallel.
class CoveringRelease : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(CoveringRelease, EveryCellGivesTheSameBits) {
  References references(kSteps);
  int cells = 0;
  for (const Row& cell : array().rows()) {
    if (std::tuple(cell[kPrecision], cell[kMicroBatches]) != GetParam()) continue;
    EXPECT_EQ(objection(cell, references, kSteps), "") << to_string(cell);
    ++cells;
  }
  EXPECT_GE(cells, 10);
  std::cout << cells << " cells\n";
}

INSTANTIATE_TEST_SUITE_P(Numbers, CoveringRelease, testing::Combine(testing::Range(0, 2), testing::Range(0, 2)), [](const auto& cell) {
  const auto text = [](Factor f, int value) { return std::string(factor_texts()[f].values[static_cast<size_t>(value)]); };
  return text(kPrecision, std::get<0>(cell.param)) + "_K" + text(kMicroBatches, std::get<1>(cell.param));
});

// Names cells that a change is most likely to break. They are tested whatever the covering array contains.
struct NamedCell {
  const char* name;
  Row cell;  // one value for each Factor, in the order of the enum
};
const NamedCell kNamed[] = {
    // Values of these factors:               p  g  o  a  r  ov c  m  or s  e  p  t  bf K  llama
    {"all_nvme_backward_recompute_vertical", {2, 2, 2, 2, 1, 1, 2, 0, 1, 1, 0, 1, 1, 0, 1, 0}},
    {"all_nvme_backward_redone_every_step", {2, 2, 2, 2, 0, 1, 1, 1, 0, 1, 1, 2, 1, 1, 1, 1}},
    {"all_nvme_forward_split_master", {2, 2, 2, 2, 0, 2, 2, 1, 1, 0, 0, 2, 0, 1, 1, 0}},
    {"all_nvme_adaptive_that_changes", {2, 2, 2, 0, 0, 3, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1}},
    {"all_nvme_plain_without_prefetch", {2, 2, 2, 2, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}},
    {"all_host_backward_vertical", {1, 1, 1, 1, 0, 1, 2, 1, 1, 0, 0, 1, 1, 1, 1, 0}},
    {"all_host_forward_recompute", {1, 1, 1, 1, 1, 2, 1, 0, 0, 0, 0, 2, 0, 0, 1, 1}},
    {"optimizer_alone_on_nvme_backward", {0, 0, 2, 0, 0, 1, 2, 1, 0, 0, 0, 1, 1, 1, 0, 0}},
    {"parameters_alone_on_nvme_forward", {2, 0, 0, 0, 1, 2, 2, 1, 0, 1, 0, 2, 0, 1, 1, 1}},
    {"activations_alone_on_nvme", {0, 0, 0, 2, 0, 3, 1, 0, 1, 1, 1, 1, 0, 1, 1, 0}},
};

class NamedCells : public testing::TestWithParam<NamedCell> {};

TEST_P(NamedCells, GiveTheSameBits) {
  References references(kSteps);
  ASSERT_TRUE(possible(GetParam().cell));
  EXPECT_EQ(objection(GetParam().cell, references, kSteps), "") << to_string(GetParam().cell);
}

INSTANTIATE_TEST_SUITE_P(Corners, NamedCells, testing::ValuesIn(kNamed), [](const auto& cell) { return cell.param.name; });

// Shows that the comparison can fail: a run with another number of steps has other losses.
TEST(CoveringArrayTest, ADifferenceShows) {
  References shorter(1);
  EXPECT_EQ(objection(Row(kFactors, 0), shorter, 2), "losses differ");
}

// Tests moments in bf16 or 8 bits, which are rounded stochastically. Their numbers differ from fp32's, but do not depend on the tiers that
// hold the tensors.
class RoundedMoments : public testing::TestWithParam<std::tuple<optim::Moments, DType>> {};

TEST_P(RoundedMoments, AreTheSameBitsAnywhere) {
  RunOptions plain = options_of(Row(kFactors, 0), kSteps);
  plain.gradient_clipping = 1;
  std::tie(plain.moments, plain.dtype) = GetParam();
  const RunResult want = train(plain);
  for (const auto& [parameters, optimizer, overlap, master] :
       {std::tuple(Tier::device, Tier::nvme, OptimizerOverlap::backward, optim::Master::split),
        {Tier::host, Tier::host, OptimizerOverlap::none, optim::Master::fp32},
        {Tier::host, Tier::device, OptimizerOverlap::backward, optim::Master::fp32},
        {Tier::nvme, Tier::nvme, OptimizerOverlap::backward, optim::Master::fp32},
        {Tier::nvme, Tier::nvme, OptimizerOverlap::forward, optim::Master::split}}) {
    RunOptions o = plain;
    o.parameters = parameters;
    o.optimizer = optimizer;
    o.gradients = parameters == Tier::nvme ? Tier::nvme : Tier::host;
    o.overlap = overlap;
    if (o.dtype == DType::bf16) o.master = master;
    o.threads = 2;
    expect_same_run(train(o), want);
  }
  plain.moments = optim::Moments::fp32;
  EXPECT_NE(train(plain).weights, want.weights);
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundedMoments,
                         testing::Combine(testing::Values(optim::Moments::bf16, optim::Moments::int8),
                                          testing::Values(DType::f32, DType::bf16)),
                         [](const auto& cell) {
                           return std::string(std::get<0>(cell.param) == optim::Moments::bf16 ? "bf16" : "int8") + "_moments_" +
                                  (std::get<1>(cell.param) == DType::bf16 ? "bf16" : "f32");
                         });

// Runs one part of the full product, given by SPILLWAY_MATRIX=PART/PARTS (scripts/matrix.sh). The cells of a part are spread over the
// product.
TEST(SoakMatrix, APartOfTheFullProduct) {
  i64 part = 0, parts = 4000;
  if (const char* text = std::getenv("SPILLWAY_MATRIX")) {
    ASSERT_EQ(std::sscanf(text, "%ld/%ld", &part, &parts), 2) << text;
  }
  const std::vector<int> sizes = factor_sizes();
  const i64 all = std::accumulate(sizes.begin(), sizes.end(), i64{1}, std::multiplies<>());
  constexpr i64 kStride = 1000003;  // a prime number that does not divide the number of cells
  References references(kSteps);
  i64 cells = 0, wrong = 0;
  const i64 begin = all * part / parts, end = all * (part + 1) / parts;
  for (i64 n = begin; n < end; ++n) {
    Row cell;
    i64 rest = n * kStride % all;
    for (const int size : sizes) cell.push_back(static_cast<int>(rest % size)), rest /= size;
    if (!possible(cell)) continue;
    const std::string what = objection(cell, references, kSteps);
    EXPECT_EQ(what, "") << to_string(cell);
    wrong += !what.empty();
    if (++cells % 100 == 0) std::cout << cells << " cells, " << (end - n) << " to look at, " << wrong << " wrong" << std::endl;
  }
  std::cout << cells << " cells of part " << part << " of " << parts << ", " << all << " in all, " << wrong << " wrong\n";
  EXPECT_GT(cells, 0);
}

}  // namespace
}  // namespace spillway::test::covering_test
