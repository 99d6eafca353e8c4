#include "data/loader/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace spillway::data::mixture_test {
namespace {

using Weights = std::vector<double>;

TEST(Mixture, HasEachSourcesShareAtAnyRow) {
  for (const Weights& weights : {Weights{0.7, 0.3}, {1, 1}, {1, 1, 1}, {0.5, 0.3, 0.2}, {1e-3, 1}, {5}, {0.1, 0.2, 0.3, 0.15, 0.25}}) {
    const Mixture mixture(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<i64> counts(weights.size());
    const double most = weights.size() <= 2 ? 0.5 + 1e-9 : 1;
    for (i64 row = 0; row < 5000; ++row) {
      for (size_t s = 0; s < weights.size(); ++s) {
        ASSERT_EQ(mixture.rows_of(s, row), counts[s]) << "row " << row;
        ASSERT_LE(std::abs(static_cast<double>(counts[s]) - weights[s] / sum * static_cast<double>(row)), most) << "row " << row;
      }
      const Mixture::Row at = mixture.at(row);
      ASSERT_EQ(at.row, counts[at.source]++) << "each source's rows in their order";
    }
  }
}

TEST(Mixture, OfSevenToThreeIsExactlyThat) {
  const Mixture mixture({0.7, 0.3}), same({7e200, 3e200});
  std::string order;
  for (i64 row = 0; row < 20; ++row) order += static_cast<char>('a' + mixture.at(row).source);
  EXPECT_EQ(order, "abaabaaabaabaabaaaba");
  for (const i64 count : {i64{10}, i64{1'000'000}, i64{10'000'000'000'000}}) {
    EXPECT_EQ(mixture.rows_of(0, count), count / 10 * 7);
    EXPECT_EQ(mixture.rows_of(1, count), count / 10 * 3);
    EXPECT_EQ(mixture.at(count).source, mixture.at(0).source) << "it begins anew";
    EXPECT_EQ(same.at(count).source, 0u);
    EXPECT_EQ(same.rows_of(1, count + 2), mixture.rows_of(1, count + 2)) << "only ratios count";
  }
}

TEST(Mixture, OfAnyWeightsIsFoundAnywhere) {
  const Mixture mixture({1e308, 1e308, 1e-308, 3});
  for (const i64 row : {i64{0}, i64{12345}, i64{1} << 40, (i64{1} << 53) + 1, i64{1} << 60}) {
    i64 all = 0;
    for (size_t s = 0; s < 4; ++s) {
      const i64 before = mixture.rows_of(s, row);
      all += before;
      EXPECT_EQ(mixture.rows_of(s, row + 1) - before, mixture.at(row).source == s ? 1 : 0);
    }
    EXPECT_EQ(all, row);
  }
  EXPECT_EQ(mixture.rows_of(2, i64{1} << 40), 0) << "a share of next to nothing";
}

TEST(MixtureStart, ChangesKeepEachSourcesPlaceAndOrder) {
  const MixtureStart start = mixture_from_the_beginning({0.7, 0.3});
  EXPECT_EQ(source_rows(start, 20), (std::vector<i64>{14, 6}));
  const MixtureStart other = with_other_weights(start, {"a", "b"}, 20, {"new", "b", "a"}, {1, 1, 2});
  EXPECT_EQ(other, (MixtureStart{20, {1, 1, 2}, {0, 6, 14}, {2, 1, 0}}));
  EXPECT_EQ(source_rows(other, 28), (std::vector<i64>{2, 8, 18}));
  const MixtureStart third = with_other_weights(other, {"new", "b", "a"}, 28, {"a", "a"}, {1, 1});
  EXPECT_EQ(third, (MixtureStart{28, {1, 1}, {18, 0}, {0, 3}})) << "twice the same: the second one is new";
}

}  // namespace
}  // namespace spillway::data::mixture_test
