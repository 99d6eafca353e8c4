#include "data/loader/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "device/arena.h"
#include "tests/data/loader/support_loader.h"
#include "tests/data/support_files.h"

namespace spillway::data::loader_test {
namespace {

using spillway::test::error_of;
using testing::HasSubstr;

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

// On rank r of R ranks, row b of micro-batch k is window q + (k R + r) B + b, where q is the first window of the step.
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
  const Sources sources = counting({10, 3, 0, 9});  // the numbers of tokens, which make 2, 0, 0 and 2 windows of 4 tokens
  const Loader loader(sources, {.sequence_length = 4, .micro_batch_size = 4, .shuffled = false});
  EXPECT_EQ(loader.windows(), 4);
  EXPECT_EQ(firsts(loader.step(0)), (std::vector<i32>{0, 4, 3000, 3004}));
}

TEST(Loader, AStepEndsWhereItsEpochDoes) {
  const Sources sources = counting({7});
  const Loader loader(sources, {.sequence_length = 1, .micro_batch_size = 4, .shuffled = false});
  for (const i64 cursor : {i64{4}, i64{6'000'000'000'004}}) {
    const StepBatch step = loader.step(cursor);
    EXPECT_EQ(values(step.micro_batches[0].tokens_BT), (std::vector<i32>{4, 5, 0, 0}));
    EXPECT_EQ(values(step.micro_batches[0].targets_BT), (std::vector<i32>{5, 6, kPaddingTarget, kPaddingTarget}));
    EXPECT_EQ(step.counted_targets, 2);
    EXPECT_EQ(step.data_tokens, 2);
    EXPECT_EQ(step.micro_batches[0].first_sample, cursor);
    EXPECT_EQ(loader.cursor_after(cursor), cursor + 2);
  }
  EXPECT_EQ(firsts(loader.step(6)), (std::vector<i32>{0, 1, 2, 3}));
}

// Returns the rows that a run trains on, step by step, each as its first token. Several loaders stand for as many ranks.
std::vector<std::vector<i32>> rows_by_step(const std::vector<std::unique_ptr<Loader>>& ranks, i64 steps, i64 cursor = 0) {
  std::vector<std::vector<i32>> run;
  for (i64 step = 0; step < steps; ++step, cursor = ranks[0]->cursor_after(cursor)) {
    std::vector<i32>& rows = run.emplace_back();
    i64 tokens = 0;
    std::vector<StepBatch> batches;
    for (const auto& rank : ranks) batches.push_back(rank->step(cursor));
    for (size_t k = 0; k < batches[0].micro_batches.size(); ++k) {
      for (const StepBatch& batch : batches) {
        const MicroBatch& mb = batch.micro_batches[k];
        const i64 B = mb.tokens_BT.size(0), T = mb.tokens_BT.size(1);
        i64 counted = 0;
        for (i64 b = 0; b < B; ++b) {
          const auto at = static_cast<size_t>(b * T);
          if (mb.targets_BT.span<i32>()[at] != kPaddingTarget) rows.push_back(mb.tokens_BT.span<i32>()[at]), counted += T;
        }
        EXPECT_EQ(mb.counted_targets, counted);
        EXPECT_EQ(mb.data_tokens, counted);
        tokens += counted;
      }
    }
    EXPECT_EQ(ranks[0]->rows_of_step(cursor).count(), std::ssize(rows));
    EXPECT_EQ(tokens, std::ssize(rows) * batches[0].micro_batches[0].tokens_BT.size(1));
  }
  return run;
}

std::vector<std::unique_ptr<Loader>> loaders(const Sources& sources, LoaderOptions options) {
  std::vector<std::unique_ptr<Loader>> all;
  for (int rank = 0; rank < options.ranks; ++rank) {
    options.rank = rank;
    all.push_back(std::make_unique<Loader>(sources, options));
  }
  return all;
}

// Compares the loader with lists: each epoch is cut into global batches, and the last, smaller batch of an epoch is kept or dropped.
TEST(Loader, AnEpochHasEachRowOnceOnAnyBatchAccumulationAndRanks) {
  for (const i64 N : {1, 3, 8, 10, 23}) {
    const Sources sources = counting({N + 1});
    for (const i64 B : {1, 2, 5}) {
      for (const i64 K : {1, 3}) {
        for (const int R : {1, 2, 4}) {
          for (const int way : {0, 1, 2, 3}) {
            const bool shuffled = way % 2 == 1, drops = way >= 2;
            const i64 batch = B * K * R, each = drops ? N / batch : (N + batch - 1) / batch;
            if (each == 0) continue;
            SCOPED_TRACE(testing::Message() << N << " rows, " << B << " x " << K << " x " << R << ", way " << way);
            const auto ranks = loaders(
                sources,
                {.sequence_length = 1, .micro_batch_size = B, .micro_batches = K, .ranks = R, .shuffled = shuffled, .drop_last = drops});
            ASSERT_EQ(ranks[0]->steps_per_epoch(), each);
            const auto run = rows_by_step(ranks, 3 * each);
            for (i64 epoch = 0; epoch < 3; ++epoch) {
              std::vector<i32> rows;
              for (i64 s = 0; s < each; ++s) {
                const auto& step = run[static_cast<size_t>(epoch * each + s)];
                ASSERT_EQ(std::ssize(step), drops ? batch : std::min(batch, N - s * batch));
                rows.insert(rows.end(), step.begin(), step.end());
              }
              if (!shuffled) {
                ASSERT_EQ(rows, range(0, static_cast<i32>(rows.size())));
              }
              std::ranges::sort(rows);
              if (!drops) {
                ASSERT_EQ(rows, range(0, static_cast<i32>(N)));
              }
              ASSERT_EQ(std::ranges::adjacent_find(rows), rows.end());
            }
          }
        }
      }
    }
  }
}

TEST(Loader, DroppedRowsAreOthersInEachShuffledEpochAndASmallerBatchGoesOnWhereItIs) {
  const Sources sources = counting({11});
  const auto drops = loaders(sources, {.sequence_length = 1, .micro_batch_size = 4, .drop_last = true});
  std::set<i32> seen;
  for (const auto& step : rows_by_step(drops, 20)) seen.insert(step.begin(), step.end());
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(drops[0]->cursor_after(4), 10);
  EXPECT_EQ(drops[0]->rows_of_step(8).begin, 10) << "of a cursor that --drop-last has not seen";
  EXPECT_EQ(loaders(sources, {.sequence_length = 1, .micro_batch_size = 3})[0]->rows_of_step(8).count(), 2);
}

TEST(Loader, DropLastRefusesStepsLargerThanAnEpoch) {
  const Sources sources = counting({4});
  const std::string said =
      error_of(ErrorCode::usage, [&] { Loader(sources, {.sequence_length = 1, .micro_batch_size = 4, .drop_last = true}); });
  for (const char* piece : {"--drop-last", "3 rows", "got 4"}) EXPECT_THAT(said, HasSubstr(piece));
  EXPECT_EQ(
      Loader(sources, {.sequence_length = 1, .micro_batch_size = 4, .drop_last = true, .validation_fraction = 1}).validation_windows(), 3);
}

// As in transformers' num_train_epochs, the number of steps is the product of epochs and steps
// per epoch, rounded up. Unlike in transformers, the product is exact for decimal numbers.
TEST(Loader, StepsOfEpochsAreExactProducts) {
  const auto steps = [](i64 rows, i64 batch, double epochs, bool drop_last = false) {
    const Sources sources = counting({rows + 1});
    return Loader(sources, {.sequence_length = 1, .micro_batch_size = batch, .drop_last = drop_last}).steps_of_epochs(epochs);
  };
  EXPECT_EQ(steps(10, 4, 1), 3);
  EXPECT_EQ(steps(10, 4, 3), 9);
  EXPECT_EQ(steps(10, 4, 3, true), 6);
  EXPECT_EQ(steps(3, 8, 1), 1);
  EXPECT_EQ(steps(3, 8, 2.5), 3);
  EXPECT_EQ(steps(10, 4, 0.5), 2);
  EXPECT_EQ(steps(10, 4, 1e-300), 1);
  EXPECT_EQ(steps(1, 1, 1e15), 1'000'000'000'000'000);
  EXPECT_EQ(steps(1, 1, 1234567.5), 1234568);
  for (i64 hundredths = 1; hundredths < 1000; ++hundredths) {
    ASSERT_EQ(steps(100, 1, static_cast<double>(hundredths) / 100), hundredths);
    ASSERT_EQ(steps(1000, 1, static_cast<double>(hundredths) / 100), 10 * hundredths);
  }
  const Sources sources = counting({101});
  const Loader loader(sources, {.sequence_length = 1});
  EXPECT_THAT(error_of(ErrorCode::usage, [&] { loader.steps_of_epochs(1e300); }), HasSubstr("--epochs"));
}

TEST(Loader, ShuffledEpochsAreDifferentPermutations) {
  const Sources sources = counting({101});
  const LoaderOptions options{.sequence_length = 1, .micro_batch_size = 7, .seed = 5};
  const Loader loader(sources, options);
  std::vector<i32> run;
  for (const auto& step : rows_by_step(loaders(sources, options), 7 * 15)) run.insert(run.end(), step.begin(), step.end());
  ASSERT_EQ(run.size(), 700u);
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

// A global batch has the same windows in the same (micro-batch, rank, row) order for any number of data-parallel ranks.
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
  const Sources sources = counting({11, 6, 2});  // the numbers of tokens, which make 10, 5 and 1 windows of one token
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

// A mixture reads two sources of 10 and 3 windows with equal weight. Each source has its own epochs, each in a different order.
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

TEST(Loader, AMixturesStepsAreFullAndItsEpochsAreRows) {
  const Sources sources = counting({41, 13});
  const auto steps = [&](double epochs, bool drop_last = false) {
    return Loader(sources, {.sequence_length = 4, .micro_batch_size = 4, .drop_last = drop_last, .weights = {1, 1}})
        .steps_of_epochs(epochs);
  };
  EXPECT_EQ(steps(1), 4) << "13 rows";
  EXPECT_EQ(steps(1, true), 3);
  EXPECT_EQ(steps(2), 7);
  EXPECT_EQ(steps(0.01, true), 1);
  for (const auto& step :
       rows_by_step(loaders(sources, {.sequence_length = 4, .micro_batch_size = 4, .drop_last = true, .weights = {1, 1}}), 20))
    EXPECT_EQ(step.size(), 4u);
}

// Changing the mixture's weights does not change the order in which each source is read, whatever its place among the sources.
TEST(Loader, OtherWeightsNeitherSkipNorRepeatRowsOfASource) {
  const Sources before = counting({41, 13, 90});
  const auto own_rows = [](const std::vector<i32>& run, i32 source) {
    std::vector<i32> own;
    for (const i32 first : run) {
      if (first / 1000 == source) own.push_back(first % 1000);
    }
    return own;
  };
  const auto walk = [](const Loader& loader, i64 from, i64 to) {
    std::vector<i32> run;
    for (i64 cursor = from; cursor < to; cursor = loader.cursor_after(cursor)) {
      for (const i32 first : firsts(loader.step(cursor))) run.push_back(first);
    }
    return run;
  };
  const LoaderOptions options{.sequence_length = 4, .micro_batch_size = 5, .weights = {0.5, 0.2, 0.3}};
  const Loader first(before, options);
  std::vector<i32> run = walk(first, 0, 30);
  LoaderOptions changed = options;
  changed.weights = {4, 1};
  Sources after;  // the new order of sources: the third, then the first; the second is missing
  after.push_back(std::make_unique<Counting>(2000, 90));
  after.push_back(std::make_unique<Counting>(0, 41));
  Loader second(after, changed);
  second.set_mixture_start(with_other_weights(*first.mixture_start(), {"a", "b", "c"}, 30, {"c", "a"}, changed.weights));
  for (const i32 row : walk(second, 30, 90)) run.push_back(row);
  EXPECT_EQ(std::ranges::count_if(run, [](i32 row) { return row >= 2000; }), 9 + 48) << "shares by the weights in force";
  const std::vector<i32> plain = walk(first, 0, 900);
  for (const i32 source : {0, 2}) {
    const std::vector<i32> own = own_rows(run, source), whole = own_rows(plain, source);
    EXPECT_TRUE(std::equal(own.begin(), own.end(), whole.begin())) << source;
  }
  EXPECT_EQ(second.parts(90)[1].before, 15);
  EXPECT_EQ(second.parts(90)[1].rows, 12);
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
  EXPECT_THAT(said({1, 1}), HasSubstr("source 2"));
  EXPECT_THAT(said({1, 0}), HasSubstr("weights above 0"));
  EXPECT_THAT(said({1, std::nan("")}), HasSubstr("weights above 0"));
}

TEST(Loader, FingerprintsTellDataApart) {
  const auto of = [](const std::vector<i64>& lengths, i64 T, bool shuffled = true) {
    const Sources sources = counting(lengths);
    return Loader(sources, {.sequence_length = T, .shuffled = shuffled}).fingerprint();
  };
  EXPECT_EQ(of({1001, 500}, 10), of({1001, 500}, 10, false));  // shuffling does not change the sequence of sources
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
