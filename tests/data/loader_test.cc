#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "device/arena.h"
#include "tests/data/support_files.h"

namespace spillway::data::loader_test {
namespace {

using spillway::test::error_of;
using testing::HasSubstr;

// Token i of source s is 1000 s + i: every token says where it comes from.
class Counting final : public TokenSource {
 public:
  Counting(i32 base, i64 tokens) : base_(base), tokens_(tokens) {}
  const std::string& name() const override { return name_; }
  i64 tokens() const override { return tokens_; }
  void read(i64 begin, std::span<i32> out) const override {
    ASSERT_LE(begin + static_cast<i64>(out.size()), tokens_);
    std::iota(out.begin(), out.end(), base_ + static_cast<i32>(begin));
  }

 private:
  i32 base_;
  i64 tokens_;
  std::string name_ = "counting";
};

using Sources = std::vector<std::unique_ptr<TokenSource>>;

Sources counting(const std::vector<i64>& lengths) {
  Sources sources;
  for (size_t s = 0; s < lengths.size(); ++s) sources.push_back(std::make_unique<Counting>(static_cast<i32>(1000 * s), lengths[s]));
  return sources;
}

std::vector<i32> values(const Tensor& t) {
  const auto span = t.span<i32>();
  return {span.begin(), span.end()};
}

std::vector<i32> range(i32 begin, i32 end) {
  std::vector<i32> out(static_cast<size_t>(end - begin));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

// First tokens of the rows of a step, in the order of micro-batches and rows.
std::vector<i32> firsts(const StepBatch& batch) {
  std::vector<i32> out;
  for (const MicroBatch& mb : batch.micro_batches) {
    for (i64 row = 0; row < mb.tokens_BT.size(0); ++row)
      out.push_back(mb.tokens_BT.span<i32>()[static_cast<size_t>(row * mb.tokens_BT.size(1))]);
  }
  return out;
}

TEST(Loader, AWindowAndItsTargets) {
  const Sources sources = counting({41});
  const Loader loader(sources, {.sequence_length = 4, .micro_batch_size = 2, .shuffled = false});
  EXPECT_EQ(loader.windows(), 10);
  const StepBatch step = loader.step(2);
  ASSERT_EQ(step.micro_batches.size(), 1u);
  const MicroBatch& mb = step.micro_batches[0];
  EXPECT_EQ(mb.tokens_BT.shape(), (Shape{2, 4}));
  EXPECT_EQ(mb.tokens_BT.dtype(), DType::int32);
  EXPECT_EQ(values(mb.tokens_BT), range(8, 16));
  EXPECT_EQ(values(mb.targets_BT), range(9, 17));
  EXPECT_EQ(values(mb.positions_BT), (std::vector<i32>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(mb.first_sample, 2);
  EXPECT_EQ(mb.counted_targets, 8);
  EXPECT_EQ(step.cursor, 2);
  EXPECT_EQ(step.counted_targets, 8);
}

TEST(Loader, WindowsThatDoNotFillAreDropped) {
  for (const auto& [tokens, windows] : std::map<i64, i64>{{5, 1}, {8, 1}, {9, 2}, {12, 2}, {13, 3}}) {
    const Sources sources = counting({tokens});
    EXPECT_EQ(Loader(sources, {.sequence_length = 4}).windows(), windows) << tokens;
  }
}

// Row b of micro-batch k of rank r of R is window q + (k R + r) B + b.
TEST(Loader, RowsOfAllRanksTileTheStep) {
  const Sources sources = counting({1000});
  const i64 K = 3, B = 2, q = 5;
  const int R = 4;
  std::set<i32> seen;
  for (int r = 0; r < R; ++r) {
    const Loader loader(sources,
                        {.sequence_length = 1, .micro_batch_size = B, .micro_batches = K, .rank = r, .ranks = R, .shuffled = false});
    EXPECT_EQ(loader.windows_per_step(), K * R * B);
    const StepBatch step = loader.step(q);
    EXPECT_EQ(step.counted_targets, K * B);
    for (i64 k = 0; k < K; ++k) {
      const MicroBatch& mb = step.micro_batches[static_cast<size_t>(k)];
      EXPECT_EQ(mb.first_sample, q + (k * R + r) * B);
      for (i64 b = 0; b < B; ++b) {
        const i32 token = mb.tokens_BT.span<i32>()[static_cast<size_t>(b)];
        EXPECT_EQ(token, q + (k * R + r) * B + b);
        EXPECT_TRUE(seen.insert(token).second);
      }
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(K * R * B));
  EXPECT_EQ(*seen.begin(), q);
}

TEST(Loader, SeveralSourcesAreNumberedThroughAndNoWindowCrosses) {
  const Sources sources = counting({10, 3, 0, 9});  // 2, 0, 0 and 2 windows of 4
  const Loader loader(sources, {.sequence_length = 4, .micro_batch_size = 4, .shuffled = false});
  EXPECT_EQ(loader.windows(), 4);
  EXPECT_EQ(firsts(loader.step(0)), (std::vector<i32>{0, 4, 3000, 3004}));
}

TEST(Loader, TheOrderWrapsAtTheEnd) {
  const Sources sources = counting({7});
  const Loader loader(sources, {.sequence_length = 1, .micro_batch_size = 4, .shuffled = false});
  EXPECT_EQ(firsts(loader.step(4)), (std::vector<i32>{4, 5, 0, 1}));
  EXPECT_EQ(firsts(loader.step(6'000'000'000'004)), (std::vector<i32>{4, 5, 0, 1}));
  EXPECT_EQ(loader.step(6'000'000'000'004).micro_batches[0].first_sample, 6'000'000'000'004);  // the numbering does not
}

TEST(Loader, ShuffledEpochsAreDifferentPermutations) {
  const Sources sources = counting({101});
  const LoaderOptions options{.sequence_length = 1, .micro_batch_size = 7, .seed = 5};
  const Loader loader(sources, options);
  std::vector<i32> run;
  for (i64 cursor = 0; cursor < 700; cursor += 7) {  // batches straddle epochs: 100 is no multiple of 7
    for (const i32 token : firsts(loader.step(cursor))) run.push_back(token);
  }
  std::set<std::vector<i32>> orders;
  for (auto at = run.begin(); at != run.end(); at += 100) {
    std::vector<i32> epoch(at, at + 100);
    orders.insert(epoch);
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, range(0, 100));
  }
  EXPECT_EQ(orders.size(), 7u);
  LoaderOptions other = options;
  other.seed = 6;
  EXPECT_NE(firsts(Loader(sources, other).step(0)), firsts(loader.step(0)));
}

TEST(Loader, AStepIsAFunctionOfTheCursorAlone) {
  const Sources sources = counting({500});
  const LoaderOptions options{.sequence_length = 3, .micro_batch_size = 2, .micro_batches = 2};
  const Loader a(sources, options), b(sources, options);
  a.step(0);
  a.validation_micro_batches();
  EXPECT_EQ(firsts(a.step(40)), firsts(b.step(40)));
  EXPECT_EQ(firsts(a.step(40)), firsts(a.step(40)));
}

// The same global batch on other data-parallel sizes sees the same windows in the same (k, r, b) order.
TEST(Loader, TheStepsWindowsDoNotDependOnTheRanks) {
  const Sources sources = counting({500});
  const Loader one(sources, {.sequence_length = 3, .micro_batch_size = 2, .micro_batches = 4});
  std::vector<i32> joined(8);
  for (int r = 0; r < 2; ++r) {
    const Loader half(sources, {.sequence_length = 3, .micro_batch_size = 2, .micro_batches = 2, .rank = r, .ranks = 2});
    const auto rows = firsts(half.step(48));
    for (size_t k = 0; k < 2; ++k) {
      for (size_t row = 0; row < 2; ++row) joined[(k * 2 + static_cast<size_t>(r)) * 2 + row] = rows[k * 2 + row];
    }
  }
  EXPECT_EQ(joined, firsts(one.step(48)));
}

TEST(Loader, ValidationTakesTheLastWindowsOfEachSource) {
  const Sources sources = counting({11, 6, 2});  // 10, 5 and 1 windows of one token
  const Loader loader(sources, {.sequence_length = 1, .micro_batch_size = 2, .shuffled = false, .validation_fraction = 0.2});
  EXPECT_EQ(loader.windows(), 8 + 4 + 1);
  EXPECT_EQ(loader.validation_windows(), 2 + 1);
  EXPECT_EQ(loader.validation_micro_batches(), 2);
  EXPECT_EQ(values(loader.validation(0).tokens_BT), (std::vector<i32>{8, 9}));
  const MicroBatch last = loader.validation(1);
  EXPECT_EQ(values(last.tokens_BT), (std::vector<i32>{1004, 0}));
  EXPECT_EQ(values(last.targets_BT), (std::vector<i32>{1005, kPaddingTarget}));
  EXPECT_EQ(last.counted_targets, 1);
  std::set<i32> training;
  for (i64 cursor = 0; cursor < 14; cursor += 2) {
    for (const i32 token : firsts(loader.step(cursor))) training.insert(token);
  }
  EXPECT_EQ(training, (std::set<i32>{0, 1, 2, 3, 4, 5, 6, 7, 1000, 1001, 1002, 1003, 2000}));
}

TEST(Loader, ValidationGivesAllRanksEquallyManyMicroBatches) {
  const Sources sources = counting({10});
  std::vector<i32> seen;
  i64 counted = 0;
  for (i64 i = 0; i < 2; ++i) {
    for (int r = 0; r < 3; ++r) {
      const Loader loader(sources, {.sequence_length = 1, .micro_batch_size = 2, .rank = r, .ranks = 3, .validation_fraction = 1});
      ASSERT_EQ(loader.validation_micro_batches(), 2);
      const MicroBatch mb = loader.validation(i);
      counted += mb.counted_targets;
      for (size_t row = 0; row < 2; ++row) {
        if (mb.targets_BT.span<i32>()[row] != kPaddingTarget) seen.push_back(mb.tokens_BT.span<i32>()[row]);
      }
    }
  }
  EXPECT_EQ(seen, range(0, 9));
  EXPECT_EQ(counted, 9);
}

TEST(Loader, AFractionInBetweenTakesAndLeavesAtLeastOne) {
  const Sources sources = counting({4});
  EXPECT_EQ(Loader(sources, {.sequence_length = 1, .validation_fraction = 0.01}).validation_windows(), 1);
  EXPECT_EQ(Loader(sources, {.sequence_length = 1, .validation_fraction = 0.99}).windows(), 1);
  EXPECT_EQ(Loader(sources, {.sequence_length = 1}).validation_windows(), 0);
}

TEST(Loader, WrongOptionsNameTheFlag) {
  const Sources sources = counting({100});
  const auto refused = [&](const LoaderOptions& options) { return error_of(ErrorCode::usage, [&] { Loader loader(sources, options); }); };
  EXPECT_THAT(refused({.sequence_length = 0}), HasSubstr("--sequence-length"));
  EXPECT_THAT(refused({.sequence_length = 4, .micro_batch_size = 0}), HasSubstr("--micro-batch-size"));
  EXPECT_THAT(refused({.sequence_length = 4, .validation_fraction = 1.5}), HasSubstr("--validation-fraction"));
  const std::string text = refused({.sequence_length = 100});
  EXPECT_THAT(text, HasSubstr("100 tokens"));
  EXPECT_THAT(text, HasSubstr("--sequence-length 100"));
  EXPECT_THAT(text, HasSubstr("101"));
  error_of(ErrorCode::usage, [&] { Loader loader(Sources(), {.sequence_length = 4}); });
}

TEST(Loader, OnTheMetaDeviceSizesAndCountsOnly) {
  Arena arena;
  const Stream stream{Device::meta(), nullptr, &arena};
  const StreamScope scope(stream);
  const Sources sources = counting({100});
  const StepBatch step = Loader(sources, {.sequence_length = 4, .micro_batch_size = 2}).step(0);
  EXPECT_EQ(step.micro_batches[0].tokens_BT.shape(), (Shape{2, 4}));
  EXPECT_EQ(step.counted_targets, 8);
  EXPECT_GT(arena.peak_bytes(), 0);
}

// Rows of equal weight from 10 and from 3 windows: each source by itself is walked in epochs, each of them in another order.
TEST(Loader, AMixtureWalksEachSourceInItsOwnEpochs) {
  const Sources sources = counting({41, 13});
  const Loader loader(sources, {.sequence_length = 4, .micro_batch_size = 60, .weights = {1, 1}});
  EXPECT_EQ(loader.windows(), 13);
  std::vector<std::vector<i32>> of_source(2);
  for (const i32 first : firsts(loader.step(0))) of_source[static_cast<size_t>(first / 1000)].push_back(first % 1000 / 4);
  std::set<std::vector<i32>> orders;
  for (const auto& [source, windows] : {std::pair{0, 10}, {1, 3}}) {
    const auto& all = of_source[static_cast<size_t>(source)];
    ASSERT_EQ(all.size(), 30u);
    for (auto epoch = all.begin(); epoch != all.end(); epoch += windows) {
      std::vector<i32> order(epoch, epoch + windows);
      orders.insert(order);
      std::ranges::sort(order);
      EXPECT_EQ(order, range(0, windows));
    }
  }
  EXPECT_GE(orders.size(), 6u);
}

TEST(Loader, AMixtureIsTheSameFromAnyStepOnAndOnAnyRanks) {
  const Sources sources = counting({41, 13, 90});
  const auto rows_of = [&](int ranks, i64 first_step) {
    std::vector<i32> all;
    for (i64 step = first_step; step < 6; ++step) {
      for (int r = 0; r < ranks; ++r) {
        const Loader loader(sources,
                            {.sequence_length = 4, .micro_batch_size = 4 / ranks, .rank = r, .ranks = ranks, .weights = {0.5, 0.2, 0.3}});
        for (const i32 first : firsts(loader.step(4 * step))) all.push_back(first);
      }
    }
    return all;
  };
  const std::vector<i32> whole = rows_of(1, 0);
  EXPECT_EQ(rows_of(2, 0), whole);
  EXPECT_EQ(rows_of(4, 0), whole);
  EXPECT_EQ(rows_of(2, 3), std::vector(whole.begin() + 12, whole.end()));
}

TEST(Loader, AMixtureHoldsOutTheEndOfEachSource) {
  const Sources sources = counting({41, 81});
  const Loader loader(sources,
                      {.sequence_length = 4, .micro_batch_size = 100, .shuffled = false, .weights = {3, 1}, .validation_fraction = 0.1});
  EXPECT_EQ(loader.validation_windows(), 3);
  i64 second = 0;
  for (const i32 first : firsts(loader.step(0))) {
    EXPECT_TRUE(first < 36 || (first >= 1000 && first < 1072)) << first;
    second += first >= 1000;
  }
  EXPECT_EQ(second, 25);
  EXPECT_EQ(values(loader.validation(0).tokens_BT)[0], 36);
}

TEST(Loader, AMixtureRefusesWhatItCannotDealOut) {
  const Sources sources = counting({41, 3});
  const auto said = [&](const std::vector<double>& weights) {
    return error_of(ErrorCode::usage, [&] { Loader(sources, {.sequence_length = 4, .weights = weights}); });
  };
  EXPECT_THAT(said({1, 1}), HasSubstr("none of source 2"));
  EXPECT_THAT(said({1, 0}), HasSubstr("weights above 0"));
  EXPECT_THAT(said({1, std::nan("")}), HasSubstr("weights above 0"));
}

TEST(Loader, FingerprintsTellDataApart) {
  const auto of = [](const std::vector<i64>& lengths, i64 T, bool shuffled = true) {
    const Sources sources = counting(lengths);
    return Loader(sources, {.sequence_length = T, .shuffled = shuffled}).fingerprint();
  };
  EXPECT_EQ(of({1001, 500}, 10), of({1001, 500}, 10, false));  // of the data alone
  EXPECT_EQ(of({1001, 500}, 10).substr(0, 4), "100:");
  EXPECT_NE(of({1001, 500}, 10), of({1011, 500}, 10));
  EXPECT_NE(of({1001, 500}, 10), of({1001, 510}, 10));
  EXPECT_NE(of({1001, 500}, 10), of({1001, 500}, 11));
  EXPECT_NE(of({11}, 10), of({21}, 10));
  Sources moved;
  moved.push_back(std::make_unique<Counting>(1, 1001));
  const std::string other = Loader(moved, {.sequence_length = 10}).fingerprint();
  EXPECT_EQ(other.substr(0, 4), "100:");
  EXPECT_NE(other, of({1001}, 10));
}

}  // namespace
}  // namespace spillway::data::loader_test
