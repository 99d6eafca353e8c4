// Tests plans for a GPU: data from other tiers is prefetched, optimizer steps on the CPU overlap with
// computing, and the cost model prices each optimizer step on the processor that runs it. No GPU is needed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/model.h"
#include "models/presets.h"
#include "trainer/plan/candidates.h"
#include "trainer/plan/reasons.h"
#include "trainer/plan/stage_plans.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer::gpu_plan_test {
namespace {

using parallel::Instruction;
using parallel::Lane;
using parallel::Op;
using parallel::Order;
using parallel::Plan;
using parallel::Tier;
using Overlap = parallel::OptimizerOverlap;

constexpr Tier kTiers[] = {Tier::device, Tier::host, Tier::nvme};
constexpr TierBudgets kRoomy{.bytes = {kGiB, kGiB, 0}};

class GpuPlan : public testing::Test {
 protected:
  GpuPlan() : model_(models::build(small(), DType::bf16)) {
    request_.model = &model_;
    request_.layout = parallel::make_layout(model_);
    request_.sequence_length = 32;
    request_.scheduling.format = optim::plain_format(DType::bf16);
    on(Device::Kind::cuda);
  }
  static models::ModelConfig small() {
    models::ModelConfig config = models::preset("gpt2-tiny");
    config.layers = 6;
    return config;
  }
  void on(Device::Kind device) {
    request_.device = device;
    request_.scheduling.copy_engines = device == Device::Kind::cuda;
    rates_ = make_rates({}, device, DType::bf16, {}, {});
    rates_.threads = 2;
    rates_.unit.tile_s = rates_.unit.update_s = 1e-10;  // the CPU updates an element before its bytes have crossed the link
  }
  static PlacementSettings all_on(Tier tier) {
    PlacementSettings wishes;
    wishes.parameters = wishes.gradients = wishes.optimizer = PlacementWish::whole(tier);
    wishes.activations = PlacementWish::whole(Tier::device);
    wishes.recompute = Recompute::none;
    return wishes;
  }
  ChosenPlan chosen(const PlacementSettings& wishes) const { return choose_plan(request_, wishes, kRoomy, rates_); }
  StepCost cost(const Plan& plan) const { return predict(plan, {}, model_, rates_); }

  nn::Sequential model_;
  parallel::PlanRequest request_;
  Rates rates_;
};

const std::string& line_of(const std::vector<std::string>& why, const std::string& begin) {
  static const std::string none;
  const auto at = std::ranges::find_if(why, [&](const std::string& line) { return line.starts_with(begin); });
  return at == why.end() ? none : *at;
}

// An optimizer step costs some seconds per element on the GPU and nothing on the CPU, so the predicted time shows where each one runs.
TEST_F(GpuPlan, AStepIsPricedWhereItRuns) {
  model_ = models::build(models::preset("gpt2-tiny"), DType::bf16);
  request_.layout = parallel::make_layout(model_);
  request_.scheduling.micro_batches = 2;
  rates_.unit = {.gpu_update_s = 1e-3};
  rates_.disk_read_bytes_per_s = rates_.disk_write_bytes_per_s = 1e30;
  int by_gpu = 0, by_cpu = 0, streamed = 0;
  const auto check = [&](const std::string& name) {
    const Plan plan = make_plan(request_);
    double want_s = 0;
    for (const parallel::List* list : {&plan.train.head, &plan.train.commit}) {
      for (const Instruction& i : *list) {
        if (i.op != Op::Step) continue;
        const parallel::Placement& p = plan.placement;
        const bool gradient_there = i.in.bytes > 0 || p.gradients[i.group] == Tier::device;
        const bool gpu = p.parameters[i.group] == Tier::device && p.optimizer[i.group] == Tier::device && gradient_there;
        const bool streams = !gpu && request_.scheduling.streams_steps;
        (gpu ? by_gpu : streams ? streamed : by_cpu) += 1;
        if (gpu || streams) want_s += 1e-3 * static_cast<double>(i.tiles.count() * parallel::kTileElems);
      }
    }
    EXPECT_NEAR(cost(plan).phase_ms.at("optimizer"), want_s * 1e3, 1e-6 * want_s * 1e3 + 1e-12) << name;
  };
  for (const Tier weights : kTiers) {
    for (const Tier gradients : kTiers) {
      for (const Tier state : kTiers) {
        request_.placement = parallel::Placement::uniform(request_.layout, weights, gradients, state);
        for (const Overlap overlap : {Overlap::none, Overlap::backward, Overlap::forward}) {
          for (const Order order : {Order::micro_batch, Order::vertical}) {
            for (const int stage : {0, 1, 2, 3}) {
              request_.scheduling.overlap = overlap;
              request_.scheduling.order = order;
              request_.scheduling.sharding = {stage, 1, stage == 0 ? 1 : 2};
              request_.scheduling.streams_steps = overlap == Overlap::backward && order == Order::vertical;
              check(fmt::format("{} {} {} overlap {} order {} stage {}", to_string(weights), to_string(gradients), to_string(state),
                                static_cast<int>(overlap), static_cast<int>(order), stage));
            }
          }
        }
      }
    }
  }
  EXPECT_GT(by_gpu, 0);
  EXPECT_GT(by_cpu, by_gpu);
  EXPECT_GT(streamed, by_gpu);
}

TEST_F(GpuPlan, WhatIsFetchedOrGatheredComesAhead) {
  EXPECT_GE(chosen(all_on(Tier::host)).plan.scheduling.prefetch, 1);
  PlacementSettings gathered = all_on(Tier::device);
  gathered.zero_stage = 3;
  request_.scheduling.sharding = {0, 0, 4};
  EXPECT_GE(chosen(gathered).plan.scheduling.prefetch, 1);
  gathered.zero_stage = 2;
  EXPECT_EQ(chosen(gathered).plan.scheduling.prefetch, 0) << "nothing comes from elsewhere";
  request_.scheduling.sharding = {};
  request_.training = false;
  EXPECT_GE(chosen(all_on(Tier::host)).plan.scheduling.prefetch, 1) << "generating too";
}

TEST_F(GpuPlan, TheCpuStepsBesideComputing) {
  for (const Tier weights : {Tier::device, Tier::host}) {
    for (const Tier state : {Tier::device, Tier::host}) {
      PlacementSettings wishes = all_on(Tier::device);
      wishes.parameters = PlacementWish::whole(weights);
      wishes.optimizer = PlacementWish::whole(state);
      const Plan plan = chosen(wishes).plan;
      const bool all_there = weights == Tier::device && state == Tier::device;
      EXPECT_EQ(plan.train.overlap == Overlap::none, all_there) << to_string(weights) << " " << to_string(state);
    }
  }
}

// On the CPU backend nothing copies in the background and no core is idle. Its plans neither prefetch from memory nor overlap the
// optimizer.
TEST_F(GpuPlan, ACpusPlansStayAsTheyAre) {
  on(Device::Kind::cpu);
  rates_.machine.cores = 2;
  const ChosenPlan one = chosen(all_on(Tier::host));
  EXPECT_EQ(one.plan.scheduling.prefetch, 0);
  EXPECT_EQ(one.plan.train.overlap, Overlap::none);
  EXPECT_EQ(line_of(one.why, "optimizer: "), "optimizer: after backward");
  EXPECT_EQ(line_of(one.why, "prefetch: "), "");
  PlacementSettings gathered = all_on(Tier::device);
  gathered.zero_stage = 3;
  request_.scheduling.sharding = {0, 0, 4};
  EXPECT_EQ(chosen(gathered).plan.scheduling.prefetch, 0);
}

TEST_F(GpuPlan, WhatWasAskedForStays) {
  PlacementSettings wishes = all_on(Tier::host);
  wishes.prefetch = 0;
  wishes.overlap = OptimizerOverlap::none;
  const ChosenPlan asked = chosen(wishes);
  EXPECT_EQ(asked.plan.scheduling.prefetch, 0);
  EXPECT_EQ(asked.plan.train.overlap, Overlap::none);
  EXPECT_EQ(line_of(asked.why, "prefetch: "), "prefetch: 0 blocks ahead, from host memory, so computing waits for each copy");
  EXPECT_EQ(line_of(asked.why, "optimizer: "), "optimizer: after backward, on the CPU, while the GPU waits");
}

TEST_F(GpuPlan, TheReasonsSayWhatGoesBesideComputing) {
  const ChosenPlan spilled = chosen(all_on(Tier::host));
  EXPECT_EQ(line_of(spilled.why, "prefetch: "), "prefetch: 2 blocks ahead, from host memory, copied while the GPU computes");
  EXPECT_TRUE(line_of(spilled.why, "optimizer: ").ends_with(", on the CPU, while the GPU computes")) << line_of(spilled.why, "optimizer: ");
  const ChosenPlan resident = chosen(all_on(Tier::device));
  EXPECT_EQ(line_of(resident.why, "prefetch: "), "");
  EXPECT_EQ(line_of(resident.why, "optimizer: "),
            "optimizer: after backward, on the GPU, which holds all weights, gradients and state of the step");
}

// Bytes of a bf16 weight cross the link to its update and back: a gradient, a master and two moments go, and the latter three and the
// weight come. Whether the GPU or the CPU makes the updates is decided by how fast each of them, the link and host memory are.
TEST_F(GpuPlan, TheFasterOfCpuAndLinkUpdatesWhatRestsElsewhere) {
  constexpr const char* kOnGpu = ", on the GPU, to which tiles are copied for it and back, beside computing";
  const auto expect = [&](bool on_gpu, const char* name) {
    const ChosenPlan made = chosen(all_on(Tier::host));
    EXPECT_EQ(made.plan.scheduling.streams_steps, on_gpu) << name;
    EXPECT_EQ(line_of(made.why, "optimizer: ").ends_with(kOnGpu), on_gpu) << name << ": " << line_of(made.why, "optimizer: ");
    const std::string& line = line_of(made.why, on_gpu ? "optimizer updates on the GPU" : "optimizer updates on the CPU");
    EXPECT_NE(line.find(on_gpu ? "on the CPU it would take " : "on the GPU it would take "), std::string::npos) << line;
    const auto row = std::ranges::find(made.plan.rows, "optimizer updates on the GPU", &parallel::PlanRow::what);
    ASSERT_EQ(row != made.plan.rows.end(), on_gpu) << name;
    if (!on_gpu) return;
    EXPECT_EQ(row->bytes[0], parallel::kStreamedBuffers * made.plan.streamed_bytes);
  };
  expect(false, "a fast CPU");
  rates_.unit.update_s = 2e-9;
  expect(true, "a slow CPU");
  rates_.host_memory_s = 2e-9 / 20;
  expect(false, "memory that takes as long as the CPU for 20 of the 30 bytes");
  rates_.host_memory_s = 0;
  rates_.unit.gpu_update_s = 3e-9;
  expect(false, "a GPU that is slower than the CPU");
}

// A device without room for the buffers leaves the updates to the CPU, however slow it is.
TEST_F(GpuPlan, WithoutRoomOnTheGpuTheCpuUpdates) {
  const i64 least_bytes = chosen(all_on(Tier::host)).plan.total[0];
  rates_.unit.update_s = 1e-7;
  ASSERT_TRUE(chosen(all_on(Tier::host)).plan.scheduling.streams_steps);
  const ChosenPlan tight = choose_plan(request_, all_on(Tier::host), {.bytes = {least_bytes, kGiB, 0}}, rates_);
  EXPECT_FALSE(tight.plan.scheduling.streams_steps);
  EXPECT_NE(line_of(tight.why, "optimizer updates: on the CPU, because"), "");
}

// The state of one pipeline stage fits on its GPU and that of the other does not. In both stages optimizer updates are deferred to the
// next forward.
TEST_F(GpuPlan, StagesThatDifferStepBesideComputingToo) {
  request_.scheduling.micro_batches = 2;
  request_.scheduling.pipeline = {.rank = 0, .ranks = 2};
  const std::vector<u16> rank_of = make_stages(request_.layout, request_.scheduling).rank_of;
  std::array<i64, 2> state{};
  for (const parallel::Group& g : request_.layout.groups)
    state[rank_of[g.owner_block]] += whole(g).count() * request_.scheduling.format.state_tile_bytes();
  ASSERT_NE(state[0], state[1]);
  PlacementSettings wishes = all_on(Tier::device);
  wishes.optimizer.automatic = false;
  wishes.optimizer.bytes = {std::min(state[0], state[1]), PlacementWish::kRest, 0};
  for (const int rank : {0, 1}) {
    request_.scheduling.pipeline.rank = rank;
    EXPECT_EQ(choose_stage_plans(request_, wishes, kRoomy, rates_).plan.train.overlap, Overlap::forward);
  }
}

// Copying a block's weights takes as long as computing the block. The weights still arrive in time, because they are copied while the GPU
// computes the block before.
TEST_F(GpuPlan, TheNextBlocksWeightsComeWhileOneComputes) {
  const Plan plan = chosen(all_on(Tier::host)).plan;
  const parallel::List& head = plan.train.head;
  const auto timings =
      simulate(head,
               [](const Instruction& i) {
                 return i.op == Op::Fetch ? parallel::Work{.to_gpu_s = 1} : parallel::Work{.cpu_s = i.op == Op::Forward ? 1.0 : 0.0};
               },
               {.cores = parallel::kLanes});
  const auto forward = [&](u16 block) {
    const auto at = std::ranges::find_if(head, [&](const Instruction& i) { return i.op == Op::Forward && i.block == block; });
    return static_cast<size_t>(at - head.begin());
  };
  int seen = 0;
  for (u16 b = 1; b + 1 < static_cast<u16>(plan.layout.blocks.size()); ++b) {
    for (const u32 before : head[forward(b)].after) {
      if (head[before].op != Op::Fetch) continue;
      EXPECT_LT(timings[before].start_us, timings[forward(b - 1)].end_us) << "block " << b;
      ++seen;
    }
  }
  EXPECT_GE(seen, 6);
}

// While a block's gradient is copied to the host, the next block writes its own gradient to another slot of device memory.
TEST_F(GpuPlan, AGradientLeavesWhileTheNextBlockComputes) {
  const Plan plan = chosen(all_on(Tier::host)).plan;
  const auto timings =
      simulate(plan.train.head,
               [](const Instruction& i) {
                 return i.op == Op::Evict ? parallel::Work{.from_gpu_s = 1} : parallel::Work{.cpu_s = i.op == Op::Backward ? 1.0 : 0.0};
               },
               {.cores = parallel::kLanes});
  double backward_s = 0, end_us = 0;
  for (size_t i = 0; i < timings.size(); ++i) {
    if (plan.train.head[i].op != Op::Backward) continue;
    backward_s += 1;
    end_us = std::max(end_us, timings[i].end_us);
  }
  EXPECT_GE(backward_s, 8);
  EXPECT_NEAR(end_us, backward_s * 1e6, 1);
}

// Compares the predicted time of the chosen plan with that of a plan without prefetch and overlap.
// Computing a block, copying its weights over the link and updating them take equally long.
TEST_F(GpuPlan, AStepTakesLessThanOneThatWaits) {
  rates_.blocks.assign(request_.layout.blocks.size(), {.forward = 1e-3, .backward = 2e-3, .backward_more = 2e-3});
  rates_.unit.copy_s = 1e-3 / (2.0 * 200'000);
  rates_.unit.update_s = 1e-3 / 200'000;
  PlacementSettings waiting = all_on(Tier::host);
  waiting.prefetch = 0;
  waiting.overlap = OptimizerOverlap::none;
  const StepCost before = cost(chosen(waiting).plan), after = cost(chosen(all_on(Tier::host)).plan);
  EXPECT_LT(after.seconds, 0.7 * before.seconds);
  const auto computes = [](const StepCost& c) { return c.account.busy_s[static_cast<size_t>(Lane::compute)] / c.seconds; };
  EXPECT_GT(computes(after), computes(before) + 0.2);
}

}  // namespace
}  // namespace spillway::trainer::gpu_plan_test
