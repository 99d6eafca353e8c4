// Tests a disk that fails during a step. Whichever thread meets the failure, train_step throws a typed error that names the file, the
// offset and errno, and nothing hangs. Short reads and writes are no failure and change no bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "models/presets.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/faulty_engine.h"

namespace spillway::test::fault_test {
namespace {

using parallel::Tier;

RunOptions on_disk(FaultyEngine*& engine, offload::IoEngineKind kind) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.parameters = o.gradients = o.optimizer = Tier::nvme;
  o.steps = 2;
  o.wrap_engine = [&engine, kind](std::unique_ptr<offload::IoEngine>) {
    auto faulty = std::make_unique<FaultyEngine>(kind);
    engine = faulty.get();
    return faulty;
  };
  return o;
}

class Faults : public testing::TestWithParam<offload::IoEngineKind> {};

TEST_P(Faults, AnErrorAnywhereInAStepComesOut) {
  FaultyEngine* engine = nullptr;
  RunOptions o = on_disk(engine, GetParam());
  i64 at_load = 0, all = 0;
  o.batches = [&](i64 step, int) {  // the function is called on the data thread in each step
    (step == 0 ? at_load : all) = engine->system().transfers;
    return random_batch(o, step);
  };
  train(o);
  ASSERT_GT(all - at_load, 50);
  for (int error : {EIO, ENOSPC}) {
    for (i64 part = 1; part <= 6; ++part) {  // the loop makes failures at six places, among fetches, evictions and the optimizer's streams
      const i64 fail_at = at_load + (all - at_load) * part / 7;
      o.batches = [&](i64 step, int) {
        if (step == 0) {
          engine->system().error_number = error;
          engine->system().fail_at = fail_at;
        }
        return random_batch(o, step);
      };
      try {
        train(o);
        ADD_FAILURE() << "expected transfer " << fail_at << " to fail";
      } catch (const Error& e) {
        const std::string what = e.what();
        EXPECT_EQ(e.code(), ErrorCode::io) << what;
        EXPECT_NE(what.find("/tiles"), std::string::npos) << what;
        EXPECT_NE(what.find("offset"), std::string::npos) << what;
        EXPECT_NE(what.find(std::to_string(error)), std::string::npos) << what;
      }
    }
  }
}

TEST_P(Faults, ShortCountsChangeNoBit) {
  FaultyEngine* engine = nullptr;
  RunOptions o = on_disk(engine, GetParam());
  const RunResult want = train(o);
  o.batches = [&](i64 step, int) {
    engine->system().most_requested_bytes = 12288;
    return random_batch(o, step);
  };
  const RunResult got = train(o);
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.weights, want.weights);
}

TEST_P(Faults, WhatIsRightWhenReadAgainChangesNoBitAndIsToldOf) {
  FaultyEngine* engine = nullptr;
  RunOptions o = on_disk(engine, GetParam());
  const RunResult want = train(o);
  std::string told;
  o.batches = [&](i64 step, int) {
    engine->system().spoil_first_reads = true;
    return random_batch(o, step);
  };
  o.between = [&](parallel::Rank& rank, i64) {
    engine->system().spoil_first_reads = false;
    told = rank.state().take_rereads();
    EXPECT_EQ(rank.state().take_rereads(), "");
  };
  const RunResult got = train(o);
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.weights, want.weights);
  EXPECT_NE(told.find("when it was read again"), std::string::npos) << told;
  EXPECT_NE(told.find("CRC32C"), std::string::npos) << told;
}

// Shows that a damaged gradient leaves the committed state valid, so that a restart can go on from it, and that damaged weights make it
// invalid.
TEST_P(Faults, OnlyASpoiltCommitIsGivenUp) {
  FaultyEngine* engine = nullptr;
  RunOptions o = on_disk(engine, GetParam());
  o.between = [&](parallel::Rank& rank, i64 step) {
    if (step != o.steps) return;
    parallel::ModelState& state = rank.state();
    state.commit(state.generation(), "a step");
    const auto read_spoilt = [&](offload::Blob& blob) {
      MemoryPool memory("a tile", blob.tile_bytes());
      const Allocation tile = memory.allocate(blob.tile_bytes(), "a tile");
      const std::span<std::byte> into(tile.data(), static_cast<size_t>(tile.bytes()));
      engine->system().spoil_reads = true;
      EXPECT_THROW(state.read(blob, {blob.held().begin, blob.held().begin + 1}, into), Error) << blob.what();
      engine->system().spoil_reads = false;
    };
    const auto rests = [&](const parallel::Group& g) { return rank.plan().gradient_rests(g, 0); };
    const auto group = std::ranges::find_if(rank.plan().layout.groups, rests);
    ASSERT_NE(group, rank.plan().layout.groups.end());
    read_spoilt(state.gradients(group->id, 0));
    EXPECT_TRUE(state.weights(0).is_committed(state.generation()));
    read_spoilt(state.weights(0));
    EXPECT_FALSE(state.weights(0).is_committed(state.generation()));
  };
  train(o);
}

INSTANTIATE_TEST_SUITE_P(Engines, Faults, testing::Values(offload::IoEngineKind::io_uring, offload::IoEngineKind::pread),
                         [](const auto& cell) { return cell.param == offload::IoEngineKind::pread ? "pread" : "io_uring"; });

}  // namespace
}  // namespace spillway::test::fault_test
