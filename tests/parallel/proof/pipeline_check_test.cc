// Tests the checker that examines the instruction lists of all ranks of a pipeline together. Generated lists pass, and every planted
// fault is found.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "parallel/proof/check.h"
#include "tests/parallel/program/support_program.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::pipeline_check_test {
namespace {

using parallel::Instruction;
using parallel::Lane;
using parallel::List;
using parallel::Op;
using parallel::OptimizerOverlap;
using parallel::Program;
using parallel::ScheduleKind;

RunOptions tiny(int data, parallel::Pipeline pipeline) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.model.layers = 6;
  o.sequence_length = 16;
  o.micro_batches = 4;
  o.ranks = data;
  o.pipeline = std::move(pipeline);
  return o;
}

// Holds the plans of all ranks. refusal() returns the checker's objection to their instruction lists, or "" if it has none.
class World {
 public:
  explicit World(const RunOptions& o) : mesh_{o.ranks, o.pipeline.ranks}, model_(models::build(o.model, o.dtype)) {
    for (int r = 0; r < mesh_.size(); ++r) plans_.push_back(make_plan(plan_request(model_, o, mesh_.data_rank(r), mesh_.pipeline_rank(r))));
  }
  parallel::Program& program(size_t rank) { return plans_[rank].train; }
  size_t size() const { return plans_.size(); }

  std::string refusal() const {
    try {
      for (const parallel::Plan& p : plans_) parallel::check(p.train, p.layout, p.placement, p.scheduling);
    } catch (const Error& e) {
      return e.what();
    }
    return refusal_of_all();
  }
  std::string refusal_of_all() const {
    std::vector<const Program*> programs;
    for (const parallel::Plan& p : plans_) programs.push_back(&p.train);
    try {
      parallel::check_together(programs, mesh_);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

 private:
  parallel::Mesh mesh_;
  nn::Sequential model_;
  std::vector<parallel::Plan> plans_;
};

bool is_message(const Instruction& i) { return i.peer != parallel::kNone; }

class EveryKind : public testing::TestWithParam<std::tuple<ScheduleKind, int, OptimizerOverlap>> {
 protected:
  RunOptions options() const {
    const auto& [kind, ranks, overlap] = GetParam();
    RunOptions o = tiny(1, {.ranks = ranks, .kind = kind, .chunks = parallel::default_chunks(kind)});
    if (kind == ScheduleKind::vertical) o.order = parallel::Order::vertical;
    o.overlap = overlap;
    o.deferred_sixteenths = 8;
    return o;
  }
};

TEST_P(EveryKind, OfScheduleComesToItsEnd) { EXPECT_EQ(World(options()).refusal(), ""); }

TEST_P(EveryKind, MissesEveryMessageThatIsLeftOut) {
  World world(options());
  int deleted = 0;
  for (size_t r = 0; r < world.size(); ++r) {
    for (const auto& [name, list] : parallel::kLists) {
      const List all = world.program(r).*list;
      for (size_t i = 0; i < all.size(); ++i) {
        if (!is_message(all[i])) continue;
        world.program(r).*list = without(all, i);
        EXPECT_NE(world.refusal(), "") << "rank " << r << " without " << to_string(all[i].op) << ", instruction " << i;
        ++deleted;
      }
      world.program(r).*list = all;
    }
  }
  EXPECT_GE(deleted, static_cast<int>(4 * 4 * (world.size() - 1)));
}

INSTANTIATE_TEST_SUITE_P(Pipeline, EveryKind,
                         testing::Combine(testing::Values(ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward,
                                                          ScheduleKind::interleaved, ScheduleKind::zb_h1, ScheduleKind::zb_v,
                                                          ScheduleKind::vertical),
                                          testing::Values(2, 3), testing::Values(OptimizerOverlap::none, OptimizerOverlap::forward)));

// Swaps two consecutive sends, or receives, of a rank. Ranks then wait for each other forever, or mistake one message for the other.
TEST(PipelineCheck, FindsMessagesInAnotherOrder) {
  World world(tiny(1, {.ranks = 3}));
  int swapped = 0;
  for (size_t r = 0; r < world.size(); ++r) {
    const List all = world.program(r).head;
    for (const Lane lane : {Lane::send, Lane::receive}) {
      std::vector<size_t> messages;
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].lane == lane) messages.push_back(i);
      }
      for (size_t m = 0; m + 1 < messages.size(); ++m) {
        List& head = world.program(r).head;
        Instruction &a = head[messages[m]], &b = head[messages[m + 1]];
        std::swap(a.op, b.op), std::swap(a.what, b.what), std::swap(a.block, b.block), std::swap(a.micro_batch, b.micro_batch);
        std::swap(a.peer, b.peer), std::swap(a.group, b.group), std::swap(a.use, b.use), std::swap(a.tiles, b.tiles);
        EXPECT_NE(world.refusal(), "") << "rank " << r << ", instructions " << messages[m] << " and " << messages[m + 1];
        head = all;
        ++swapped;
      }
    }
  }
  EXPECT_GE(swapped, 20);
}

// Shows that on a GPU every instruction that waits for other ranks must be on one of the three CUDA streams that are made for that.
TEST(PipelineCheck, FindsAnExchangeOnALaneOfOthers) {
  for (const Op op : {Op::SendActivation, Op::ReceiveGradient, Op::Gather}) {
    RunOptions o = tiny(2, {.ranks = 2});
    o.zero_stage = 3;
    World world(o);
    int found = 0;
    for (size_t rank = 0; rank < world.size(); ++rank) {
      for (Instruction& i : world.program(rank).head) {
        if (i.op == op && found++ == 0) i.lane = Lane::optimizer;
      }
    }
    ASSERT_GT(found, 0) << parallel::to_string(op);
    EXPECT_NE(world.refusal_of_all().find("is on the optimizer lane"), std::string::npos) << parallel::to_string(op);
  }
}

TEST(PipelineCheck, FindsARingOfWaits) {
  // Makes a receive wait until this rank has sent something that its peer takes later. The instruction list of each rank is valid by
  // itself, but together they deadlock.
  World world(tiny(1, {.ranks = 2}));
  bool found = false;
  for (size_t r = 0; r < world.size(); ++r) {
    List& head = world.program(r).head;
    const List all = head;
    for (u32 i = 0; i < head.size(); ++i) {
      for (u32 send = 0; send < i; ++send) {
        if (head[i].lane != Lane::receive || head[send].lane != Lane::send) continue;
        head[i].after.push_back(send);
      }
    }
    const std::string refusal = world.refusal();
    found |= refusal.find("wait for each other forever") != std::string::npos;
    head = all;
  }
  World both(tiny(1, {.ranks = 2}));
  for (size_t r = 0; r < both.size(); ++r) {
    List& head = both.program(r).head;
    for (u32 i = 1; i < head.size(); ++i) {
      if (head[i].op != Op::SendActivation && head[i].op != Op::SendGradient) continue;
      for (u32 receive = 0; receive < i; ++receive) {
        if (head[receive].lane == Lane::receive && head[receive].op != Op::ReceiveTied) head[i].after.push_back(receive);
      }
    }
    for (u32 i = 0; i < head.size(); ++i) {
      if (head[i].lane != Lane::receive) continue;
      for (u32 send = 0; send < i; ++send) {
        if (head[send].lane == Lane::send) head[i].after.push_back(send);
      }
    }
  }
  found |= both.refusal().find("wait for each other forever") != std::string::npos;
  EXPECT_TRUE(found);
}

// Shows that data from another rank must neither be read before it arrives nor be overwritten before it is read.
TEST(PipelineCheck, FindsSlotsThatOverlap) {
  World world(tiny(1, {.ranks = 2, .kind = ScheduleKind::gpipe}));
  int planted = 0;
  for (size_t r = 0; r < world.size(); ++r) {
    List& head = world.program(r).head;
    const List all = head;
    std::vector<u32> receives;
    for (u32 i = 0; i < all.size(); ++i) {
      if (all[i].op == Op::ReceiveActivation || all[i].op == Op::ReceiveGradient) receives.push_back(i);
    }
    for (size_t n = 0; n + 1 < receives.size(); ++n) {
      if (all[receives[n]].out == all[receives[n + 1]].out) continue;  // these two receives never overlap, since one follows the other
      for (Instruction& i : head) {
        if (i.in == all[receives[n + 1]].out && i.micro_batch == all[receives[n + 1]].micro_batch) i.in = all[receives[n]].out;
      }
      head[receives[n + 1]].out = all[receives[n]].out;
      EXPECT_NE(world.refusal(), "") << "rank " << r << ", instruction " << receives[n + 1];
      head = all;
      ++planted;
    }
    for (const u32 receive : receives) {
      for (Instruction& i : head) std::erase(i.after, receive);
      EXPECT_NE(world.refusal(), "") << "nobody waits for instruction " << receive;
      head = all;
      ++planted;
    }
  }
  EXPECT_GE(planted, 8);
}

TEST(PipelineCheck, ShardedRanksMeet) {
  for (const int stage : {0, 1, 2, 3}) {
    RunOptions o = tiny(2, {.ranks = 2, .kind = ScheduleKind::interleaved, .chunks = 2});
    o.zero_stage = stage;
    o.parameters = parallel::Tier::nvme;
    o.overlap = OptimizerOverlap::backward;
    o.deferred_sixteenths = 8;
    World world(o);
    EXPECT_EQ(world.refusal(), "") << "stage " << stage;
    const List all = world.program(3).head;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].op != Op::Exchange) continue;
      world.program(3).head = without(all, i);
      EXPECT_NE(world.refusal(), "");
      break;
    }
  }
}

}  // namespace
}  // namespace spillway::test::pipeline_check_test
