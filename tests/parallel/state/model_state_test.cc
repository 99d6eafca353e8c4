// Tests a committed state that the drive no longer returns intact, or that a new start does not use.
#include "parallel/state/model_state.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/faulty_engine.h"

namespace spillway::test::model_state_test {
namespace {

using parallel::ModelState;
using parallel::Tier;

// Holds the training state of a small model, all of it on nvme, without a rank that trains it.
class StateOnDisk : public testing::Test {
 protected:
  StateOnDisk() : model_(models::build(options().model, DType::f32)), plan_(make_plan(plan_request(model_, options()))) {
    resources_ = {&device_, &host_, &threads_, &engine_, {{folder_.path() / "0", 1}}, "test"};
    std::filesystem::create_directory(folder_.path() / "0");
  }
  static RunOptions options() {
    RunOptions o;
    o.model = models::preset("gpt2-tiny");
    o.parameters = o.gradients = o.optimizer = Tier::nvme;
    return o;
  }
  void commit(ModelState& state, const std::string& record) {
    for (const parallel::Group& g : plan_.layout.groups) {
      state.fill(g.id, [](parallel::TileRange, std::span<std::byte> weights, std::span<std::byte> moments) {
        for (const std::span<std::byte> part : {weights, moments}) std::ranges::fill(part, std::byte{1});
      });
    }
    state.commit(state.generation(), record);
  }
  void read_one(ModelState& state) {
    offload::Blob& blob = state.weights(0);
    const Allocation tile = host_.allocate(blob.tile_bytes(), "a tile");
    state.read(blob, {blob.held().begin, blob.held().begin + 1}, {tile.data(), static_cast<size_t>(tile.bytes())});
  }

  const nn::Sequential model_;
  const parallel::Plan plan_;
  MemoryPool device_{"device", plan_.total[0]}, host_{"host", plan_.total[1] + kMiB};
  ThreadPool threads_{1};
  FaultyEngine engine_;
  const TemporaryFolder folder_;
  parallel::Resources resources_;
};

// Shows that a commit is kept if a second read of a damaged tile fails. The data itself is then not known to be damaged.
TEST_F(StateOnDisk, ACommitThatCannotBeReadAgainStays) {
  FaultySystem& disk = engine_.system();
  {
    ModelState state(plan_, resources_);
    commit(state, "a step");
    const i64 before = disk.transfers;
    read_one(state);
    disk.fail_at = disk.transfers + (disk.transfers - before);
    disk.failures = 1'000'000;
    disk.spoil_first_reads = true;
    try {
      read_one(state);
      ADD_FAILURE() << "expected the second read to fail";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io);
      EXPECT_NE(std::string(e.what()).find(std::to_string(EIO)), std::string::npos) << e.what();
    }
    disk.fail_at = -1;
    disk.spoil_first_reads = false;
    EXPECT_TRUE(state.weights(0).is_committed(state.generation()));
  }
  const ModelState again(plan_, resources_);
  EXPECT_EQ(again.recovered(), "a step") << again.why_not_recovered();
}

TEST_F(StateOnDisk, ANewStoreLeavesTheOldOneForALaterStart) {
  {
    ModelState state(plan_, resources_);
    commit(state, "a step");
  }
  resources_.new_store = true;
  {
    const ModelState state(plan_, resources_);
    EXPECT_FALSE(state.recovered());
    EXPECT_FALSE(state.why_not_recovered().empty());
    EXPECT_NE(state.store_moved().find("set aside as " + (folder_.path() / "0.aside-").string()), std::string::npos) << state.store_moved();
  }
  resources_.new_store = false;
  const ModelState state(plan_, resources_);
  EXPECT_EQ(state.recovered(), "a step") << state.why_not_recovered();
}

}  // namespace
}  // namespace spillway::test::model_state_test
