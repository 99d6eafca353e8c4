// Tests that a snapshot saves the same bytes as a blocking scan at the same step. The bytes are the same whatever the steps do meanwhile,
// wherever weights and state reside, and whether the save is quick, slow, or held back until the steps have overwritten everything.
// Training gives bitwise the same results as without a snapshot and reads no more bytes.
#include "parallel/state/snapshot.h"

#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <map>

#include "base/error.h"
#include "models/presets.h"
#include "tests/parallel/state/support_snapshot.h"
#include "tests/support/cells.h"

namespace spillway::test::snapshot_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::Rank;
using parallel::Snapshot;
using parallel::Tier;
using parallel::TileRange;

struct Corner {
  Tier parameters, gradients, optimizer;
};
constexpr Corner kCorners[] = {{Tier::device, Tier::device, Tier::device}, {Tier::host, Tier::host, Tier::host},
                               {Tier::device, Tier::device, Tier::nvme},   {Tier::nvme, Tier::host, Tier::host},
                               {Tier::host, Tier::device, Tier::device},   {Tier::nvme, Tier::nvme, Tier::nvme}};
// Says when the optimizer's update is made. "split" updates half of the groups inside the backward and half inside the next forward.
struct Where {
  const char* name;
  OptimizerOverlap overlap;
  int deferred_sixteenths = 0;
};
constexpr Where kNone{"none", OptimizerOverlap::none}, kForward{"forward", OptimizerOverlap::forward};
constexpr Where kWheres[] = {kNone, {"backward", OptimizerOverlap::backward}, kForward, {"split", OptimizerOverlap::backward, 8}};

RunOptions base(const Corner& corner, const Where& where) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.micro_batch_size = 1;
  o.sequence_length = 8;
  o.max_bucket_elems = 4 * parallel::kTileElems;
  o.parameters = corner.parameters;
  o.gradients = corner.gradients;
  o.optimizer = corner.optimizer;
  o.overlap = where.overlap;
  o.deferred_sixteenths = where.deferred_sixteenths;
  return o;
}

// Returns a run in which step 1 is skipped and step 2 is clipped. Row 200 of the position embedding holds infinite values, and only step
// 1 reads it. If the optimizer runs inside the backward, the clipped step redoes its update.
RunOptions eventful(const Corner& corner, const Where& where, i64 micro_batches) {
  RunOptions o = base(corner, where);
  o.steps = 5;
  o.micro_batches = micro_batches;
  o.order = micro_batches > 1 ? Order::vertical : Order::micro_batch;
  o.weights = [](const nn::Parameter& p, i64 begin, std::span<double> out) {
    nn::initial_values(p, 1, begin, out);
    for (i64 i = 0; p.name.ends_with("wpe.weight") && i < std::ssize(out); ++i) {
      if ((begin + i) / p.shape[-1] == 200) out[static_cast<size_t>(i)] = std::numeric_limits<double>::infinity();
    }
  };
  o.batches = [o](i64 step, int) {
    StepBatch batch = random_batch(o, step);
    if (step == 1) batch.micro_batches.back().positions_BT.data<i32>()[5] = 200;
    return batch;
  };
  o.clipping = [](i64 step) { return step == 2 ? 1e-3 : 100.0; };
  return o;
}

// Builds with a sanitizer are ten times slower, so they run fewer cells, leaving out some that differ only in numbers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr i64 kMicroBatches[] = {1};
constexpr Pace kPaces[] = {Pace::held_back, Pace::impatient};
#else
constexpr i64 kMicroBatches[] = {1, 4};
constexpr Pace kPaces[] = {Pace::quick, Pace::slow, Pace::held_back, Pace::impatient};
#endif

class Snapshots : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Snapshots, AreTheBytesOfABlockingScan) {
  const Corner& corner = kCorners[std::get<0>(GetParam())];
  const Where& where = kWheres[std::get<1>(GetParam())];
  const std::vector<i64> saves{1, 4};
  for (const i64 micro_batches : kMicroBatches) {
    const RunOptions o = eventful(corner, where, micro_batches);
    RunResult want;
    const std::map<i64, StateBytes> scans = train_with_scans(o, saves, want);
    EXPECT_TRUE(want.steps[1].skipped && want.steps[2].clipped);
    EXPECT_EQ(want.steps[2].redo, where.overlap == OptimizerOverlap::backward);
    EXPECT_FALSE(same(scans.at(1), scans.at(4))) << "the comparison cannot fail";
    for (const Pace pace : kPaces) {
      RunResult got;
      const auto all = train_with_saves(o, saves, pace, got);
      ASSERT_EQ(all.size(), 2u);
      for (const auto& saved : all) EXPECT_TRUE(same(saved->bytes, scans.at(saved->begun))) << "save after step " << saved->begun;
      EXPECT_EQ(got.weights, want.weights);
      EXPECT_EQ(got.v, want.v);
    }
  }
}

std::string cell_name(const testing::TestParamInfo<Snapshots::ParamType>& info) {
  return "corner" + std::to_string(std::get<0>(info.param)) + "_" + kWheres[std::get<1>(info.param)].name;
}

const auto kCells = cells_of(range(0, 6), range(0, 4));
INSTANTIATE_TEST_SUITE_P(Cells, Snapshots, testing::ValuesIn(kCells.diagonal), cell_name);
INSTANTIATE_TEST_SUITE_P(SoakCells, Snapshots, testing::ValuesIn(kCells.rest), cell_name);

// Shows that snapshots contain frozen weights (biases and the tied embedding), which no optimizer update reads or writes.
TEST(SnapshotMore, HoldsFrozenWeights) {
  for (const Corner& corner : kCorners) {
    for (const Where& where : {kNone, kForward}) {
      RunOptions o = base(corner, where);
      o.steps = 3;
      o.freeze = [](const nn::Parameter& p) { return p.name.ends_with("bias") || p.name.ends_with("wte.weight"); };
      RunResult want;
      const std::map<i64, StateBytes> scans = train_with_scans(o, {1}, want);
      for (const Pace pace : {Pace::quick, Pace::held_back, Pace::impatient}) {
        RunResult got;
        const auto all = train_with_saves(o, {1}, pace, got);
        EXPECT_TRUE(same(all.at(0)->bytes, scans.at(1)));
        EXPECT_EQ(got.weights, want.weights);
      }
    }
  }
}

// Shows that a save contains bf16 weights on nvme that have a full master, although the optimizer's update does not read such weights.
TEST(Snapshot, HoldsWeightsThatNoStepReads) {
  size_t next = 0;
  for (const Corner& corner : {Corner{Tier::nvme, Tier::host, Tier::host}, Corner{Tier::nvme, Tier::nvme, Tier::nvme}}) {
    for (const Where& where : kWheres) {
      RunOptions o = base(corner, where);
      o.dtype = DType::bf16;
      o.steps = 4;
      RunResult want;
      const std::map<i64, StateBytes> scans = train_with_scans(o, {1, 2}, want);
      EXPECT_FALSE(same(scans.at(1), scans.at(2))) << "the comparison cannot fail";
      RunResult got;
      const auto all = train_with_saves(o, {1, 2}, kPaces[next++ % std::size(kPaces)], got);
      for (const auto& saved : all) EXPECT_TRUE(same(saved->bytes, scans.at(saved->begun))) << "save after step " << saved->begun;
      EXPECT_EQ(got.weights, want.weights);
    }
  }
}

// Shows that the stored bf16 weights are those of their masters, in every tier. Comparisons of training runs look at masters only, so this
// needs a separate test.
TEST(Snapshot, WeightsAtRestAreThoseOfTheirMasters) {
  for (const Corner& corner : kCorners) {
    for (const Where& where : kWheres) {
      RunOptions o = base(corner, where);
      o.dtype = DType::bf16;
      o.steps = 2;
      i64 tiles = 0;
      o.at_end = [&tiles](Rank& rank) {
        rank.settle();
        const optim::StateFormat& format = rank.plan().scheduling.format;
        std::vector<std::byte> wanted(static_cast<size_t>(format.weight_tile_bytes()));
        for (const auto& [group, bytes] : scanned(rank).groups) {
          for (const auto& [tile, weights] : bytes.weights) {
            optim::weights_of_master(format, bytes.state.at(tile).data(), wanted.data());
            EXPECT_EQ(weights, wanted) << "group " << group << ", tile " << tile;
            ++tiles;
          }
        }
      };
      train(o);
      EXPECT_GT(tiles, 40);
    }
  }
}

TEST(SnapshotMore, ReadsNothingThatTheStepsDoNotRead) {
  for (const Corner& corner : kCorners) {
    for (const Where& where : kWheres) {
      RunOptions o = base(corner, where);
      o.dtype = corner.parameters == Tier::nvme ? DType::bf16 : DType::f32;
      o.steps = 4;
      RunResult got;
      const auto all = train_with_saves(o, {1, 3}, Pace::quick, got);
      // The counters are compared before the run's end, since the second save may be completed only at that end.
      for (size_t t = 0; t < offload::kTiers; ++t) {
        EXPECT_EQ(got.moved.read[t], got.planned.read[t]) << "tier " << t;
        EXPECT_EQ(got.moved.written[t], got.planned.written[t]) << "tier " << t;
      }
      EXPECT_EQ(got.peak_bytes[1], got.plan.total[1]);
    }
  }
}

// Shows that bytes that a save itself reads from nvme are not counted as the steps' reads.
TEST(Snapshot, CountsItsOwnReadsApart) {
  for (const Pace pace : {Pace::quick, Pace::impatient}) {
    for (const bool frozen : {false, true}) {
      RunOptions o = base(kCorners[5], kForward);
      o.steps = 4;
      if (frozen) o.freeze = [](const nn::Parameter& p) { return p.name.ends_with("wte.weight"); };
      i64 read_for_saves = 0;
      o.at_end = [&](Rank& rank) { read_for_saves = rank.state().traffic().read_for_saves_bytes[2]; };
      RunResult got;
      train_with_saves(o, {1, 2, 3}, pace, got);
      EXPECT_EQ(got.moved.read, got.planned.read);
      EXPECT_EQ(got.moved.written, got.planned.written);
      EXPECT_TRUE(read_for_saves > 0 || (pace == Pace::quick && !frozen));
    }
  }
}

// Plants a fault: a snapshot that the Stepper does not know of saves what later steps have made of the state.
TEST(Snapshot, WithoutTheStepperSavesOtherBytes) {
  for (const Corner& corner : {kCorners[0], kCorners[1], kCorners[5]}) {
    RunOptions o = base(corner, kNone);
    o.steps = 3;
    StateBytes want;
    Saved got;
    std::unique_ptr<Snapshot> blind;
    std::optional<offload::StagingRing> queue;
    std::string error;
    o.between = [&](Rank& rank, i64 steps) {
      if (steps > 1) return;
      want = scanned(rank);
      queue.emplace(MemoryPool::heap(), 4, rank.plan().queue_buffer_bytes, "queue");
      blind = std::make_unique<Snapshot>(rank.plan(), rank.state(), *queue, [&got](const Snapshot::Tiles& tiles) {
        got.gate.get_future().wait();
        tiles([&](u16 group, TileRange range, auto weights, auto state) { got.bytes.add(group, range, weights, state); });
      });
    };
    o.at_end = [&](Rank&) {
      got.gate.set_value();
      blind->drain();
      try {
        if (blind->outcome().error) std::rethrow_exception(blind->outcome().error);
      } catch (const Error& e) {
        error = e.what();
      }
      blind.reset();
    };
    train(o);
    EXPECT_FALSE(same(got.bytes, want));
    EXPECT_EQ(error.empty(), corner.optimizer != Tier::nvme) << "the tile's checksum is of another generation: " << error;
  }
}

// Shows that a save that fails takes no more tiles and does not disturb training.
TEST(Snapshot, AnErrorInTheSaveIsItsOutcome) {
  for (const Corner& corner : kCorners) {
    RunOptions o = base(corner, kNone);
    const RunResult want = train(o);
    i64 visits = 0;
    o.between = [&](Rank& rank, i64 steps) {
      if (steps > 1) return;
      rank.begin_snapshot([&](const Snapshot::Tiles& tiles) {
        tiles([&](auto&&...) {
          if (++visits == 2) throw Error(ErrorCode::io, "the disk is full");
        });
      });
    };
    o.at_end = [&](Rank& rank) {
      rank.snapshot()->drain();
      EXPECT_TRUE(rank.snapshot()->over());
      EXPECT_THROW(std::rethrow_exception(rank.snapshot()->outcome().error), Error);
      rank.end_snapshot();
    };
    EXPECT_EQ(train(o).weights, want.weights);
    EXPECT_EQ(visits, 2);
  }
}

// Ends a snapshot while its save waits for tiles that no optimizer update has handed over yet. The save must get an error.
TEST(Snapshot, GivenUpItEnds) {
  RunOptions o = base(kCorners[5], kNone);
  o.steps = 1;
  std::string told;
  o.between = [&](Rank& rank, i64) {
    rank.begin_snapshot([&](const Snapshot::Tiles& tiles) {
      try {
        tiles([](auto&&...) {});
      } catch (const Error& e) {
        told = e.what();
        throw;
      }
    });
    rank.end_snapshot();
  };
  train(o);
  EXPECT_NE(told.find("canceled"), std::string::npos);
}

}  // namespace
}  // namespace spillway::test::snapshot_test
