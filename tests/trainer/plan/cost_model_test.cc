// Tests the predicted cost of a plan: which properties of the model enter it,
// what is prefetched, and at how many tokens computing takes as long as the disk.
#include "trainer/plan/cost_model.h"
#include "trainer/settings/placement_settings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/model.h"
#include "models/presets.h"
#include "trainer/plan/search.h"

namespace spillway::trainer::cost_model_test {
namespace {

using parallel::Order;
using parallel::Tier;

class CostModel : public testing::Test {
 protected:
  CostModel() : model_(models::build(models::preset("gpt2-tiny"), DType::f32)) {
    request_.model = &model_;
    request_.layout = parallel::make_layout(model_);
    request_.sequence_length = 32;
    request_.micro_batch_size = 8;
  }
  parallel::Plan plan(Tier weights, Tier activations) {
    request_.placement = parallel::Placement::uniform(request_.layout, weights, weights, weights, {.tier = activations});
    return make_plan(request_);
  }
  nn::Sequential model_;
  parallel::PlanRequest request_;
};

TEST_F(CostModel, SmallCopiesDoNotCountSpilledActivations) {
  const Rates rates;
  const double alone = small_copies_tokens(plan(Tier::host, Tier::device), model_, rates);
  EXPECT_GT(alone, 0);
  EXPECT_DOUBLE_EQ(small_copies_tokens(plan(Tier::host, Tier::host), model_, rates), alone);
  EXPECT_EQ(small_copies_tokens(plan(Tier::device, Tier::host), model_, rates), 0);
}

// A plan's break-even is the number of tokens that the machine computes while the disk moves the bytes of one step.
TEST_F(CostModel, BreakEvenIsTheTokensOfTheDisksTime) {
  Rates rates;
  rates.blocks.assign(request_.layout.blocks.size(), {.forward = 0.01, .backward = 0.02, .backward_more = 0.02});
  const parallel::Plan on_nvme = plan(Tier::nvme, Tier::device);
  const parallel::TierBytes moved = on_nvme.moved_per_step();
  const double disk_s = rates.disk_s(static_cast<double>(moved.read[2]), static_cast<double>(moved.written[2]));
  const double step_s = 0.03 * static_cast<double>(rates.blocks.size());
  EXPECT_NEAR(break_even_tokens(on_nvme, model_, rates), 8 * 32 * disk_s / step_s, 1e-6);
  EXPECT_EQ(break_even_tokens(plan(Tier::host, Tier::device), model_, rates), 0);
}

// With N ranks (here 3), a reduce-scatter reads N buffers and writes one, and an all-gather
// writes N. The rates of both collectives are so low that they bound the step time.
TEST_F(CostModel, ExchangesTakeTheTimeOfTheirBytes) {
  Rates rates;
  rates.blocks.assign(request_.layout.blocks.size(), {.forward = 1e-6, .backward = 1e-6, .backward_more = 1e-6});
  rates.machine.cores = 8;
  rates.reduce_scatter_bytes_per_s = 3e7, rates.all_gather_bytes_per_s = 2e7;
  for (const int stage : {0, 3}) {
    request_.scheduling.sharding = {stage, 1, 3};
    const parallel::Plan of_three = plan(Tier::device, Tier::device);
    double expected_s = 0;
    for (const parallel::List* list : {&of_three.train.head, &of_three.train.commit}) {
      for (const parallel::Instruction& i : *list) {
        const auto whole = static_cast<double>(i.exchanged_bytes);
        if (i.op == parallel::Op::Exchange) expected_s += 4 * whole / 3e7 + (stage == 0 ? 3 * whole / 2e7 : 0);
        if (i.op == parallel::Op::Gather) expected_s += 3 * whole / 2e7;
      }
    }
    const StepCost cost = predict(of_three, {}, model_, rates);
    EXPECT_GT(expected_s, 0);
    // Computing runs at the same time as the exchange and takes a few of its cores, so predicted and expected time differ a little.
    EXPECT_NEAR(cost.phase_ms.at("exchange"), expected_s * 1e3, expected_s) << stage;
    EXPECT_EQ(cost.account.bound_by(), parallel::Resource::ranks) << stage;
  }
}

// Activations that are spilled to nvme are prefetched, even if all weights are in host memory and need no prefetch.
TEST_F(CostModel, ActivationsOnNvmeAreFetchedAhead) {
  PlacementSettings wishes;
  wishes.parameters = wishes.gradients = wishes.optimizer = PlacementWish::whole(Tier::host);
  const auto deepest = [&](Tier activations) {
    wishes.activations = PlacementWish::whole(activations);
    int most = 0;
    for (const Candidate& c : candidates(request_, wishes, {.bytes = {kGiB, kGiB, kGiB}}, Rates()))
      most = std::max(most, c.request.scheduling.prefetch);
    return most;
  };
  EXPECT_EQ(deepest(Tier::host), 0);
  EXPECT_GT(deepest(Tier::nvme), 0);
}

// The estimate of a plan's bytes on nvme is a lower bound. It leaves out gradients that go to nvme only because their buffers in memory
// are too small.
TEST_F(CostModel, EstimatesTheRoomOnNvme) {
  const TierBudgets budgets{.bytes = {kGiB, kGiB, kGiB}};
  PlacementSettings wishes;
  wishes.parameters = wishes.activations = PlacementWish::whole(Tier::device);
  wishes.gradients = wishes.optimizer = PlacementWish::whole(Tier::nvme);
  for (const auto& [micro_batches, order] :
       {std::pair(i64{1}, Order::micro_batch), {i64{3}, Order::vertical}, {i64{3}, Order::micro_batch}}) {
    request_.scheduling.micro_batches = micro_batches;
    wishes.order = order;
    for (const Candidate& c : candidates(request_, wishes, budgets, Rates())) {
      const parallel::Plan plan = make_plan(c.request);
      EXPECT_LE(c.bytes[2], plan.store.data_bytes);
      EXPECT_GE(c.bytes[2], plan.store.data_bytes - request_.scheduling.micro_batches * 2 * 4 * request_.layout.elems());
    }
  }
}

// Without overlap, the predicted time in which the device computes is the sum of its phases, including optimizer steps that it runs itself.
TEST_F(CostModel, TheDeviceComputesBlocksAndItsOwnUpdates) {
  Rates rates;
  rates.blocks.assign(request_.layout.blocks.size(), {.forward = 1e-3, .backward = 2e-3, .backward_more = 2e-3});
  rates.unit = {.tile_s = 1e-8, .copy_s = 1e-9, .update_s = 1e-8, .norm_s = 1e-9, .gpu_update_s = 1e-8, .gpu_norm_s = 1e-9};
  const auto ms = [&](const StepCost& cost, std::initializer_list<const char*> phases) {
    double sum = 0;
    for (const char* phase : phases) sum += cost.phase_ms.contains(phase) ? cost.phase_ms.at(phase) : 0;
    return sum;
  };
  const StepCost on_cpu = predict(plan(Tier::host, Tier::device), {}, model_, rates);
  EXPECT_GT(ms(on_cpu, {"fetch"}), 0) << "in the lane that computes";
  EXPECT_NEAR(1e3 * on_cpu.computing_s, ms(on_cpu, {"forward", "backward", "reduce"}), 1e-6);

  request_.device = Device::Kind::cuda;
  request_.scheduling.copy_engines = true;
  rates.machine.cores = parallel::kLanes;
  const StepCost spilled = predict(plan(Tier::host, Tier::device), {}, model_, rates);
  EXPECT_GT(ms(spilled, {"optimizer"}), 0);
  EXPECT_NEAR(1e3 * spilled.computing_s, ms(spilled, {"forward", "backward", "reduce"}), 1e-6);
  const StepCost resident = predict(plan(Tier::device, Tier::device), {}, model_, rates);
  EXPECT_NEAR(1e3 * resident.computing_s, ms(resident, {"forward", "backward", "reduce", "optimizer"}), 1e-6);

  request_.scheduling.overlap = parallel::OptimizerOverlap::backward;
  const StepCost at_once = predict(plan(Tier::device, Tier::device), {}, model_, rates);
  EXPECT_LT(1e3 * at_once.computing_s, ms(at_once, {"forward", "backward", "reduce", "optimizer"}) - 1);
  EXPECT_LE(at_once.computing_s, at_once.seconds + 1e-9);
}

// The cost of a backward in two parts is that of an input part and a weight part, each times the number of instructions of that kind.
TEST_F(CostModel, PricesABackwardInParts) {
  request_.scheduling.micro_batches = 4;
  request_.scheduling.pipeline = {.rank = 1, .ranks = 2, .kind = parallel::ScheduleKind::zb_h1};
  const parallel::Plan in_parts = plan(Tier::device, Tier::device);
  Rates rates;
  rates.blocks.assign(request_.layout.blocks.size(), {.forward = 1, .backward = 5, .backward_more = 6, .backward_input = 2});
  std::map<std::string, double> ms = predict(in_parts, {}, model_, rates).phase_ms;
  const auto blocks = static_cast<double>(std::ranges::count(in_parts.layout.rank_of, 1));
  EXPECT_NEAR(ms["forward"], 1e3 * blocks * 4, 1);
  EXPECT_NEAR(ms["backward"], 1e3 * blocks * 4 * 2, 1);
  EXPECT_NEAR(ms["backward_weight"], 1e3 * blocks * ((5 - 2) + 3 * (6 - 2)), 1);
  ThreadPool threads(1);
  i64 peak = 0;
  for (const BlockSeconds& b : time_blocks(request_, Device::cpu(), {}, threads, kGiB, 1e12, peak)) EXPECT_GT(b.backward_input, 0);
}

// time_blocks() measures as many rows of a micro-batch as fit in memory. If not even one row fits, it returns no times.
TEST_F(CostModel, BlocksAreTimedInTheMemoryThereIs) {
  request_.placement = parallel::Placement::uniform(request_.layout, Tier::device, Tier::device, Tier::device);
  ThreadPool threads(2);
  i64 all = 0, fewer = 0, none = 0;
  const auto blocks = time_blocks(request_, Device::cpu(), {}, threads, kGiB, 1e12, all);
  ASSERT_EQ(blocks.size(), request_.layout.blocks.size());
  for (const BlockSeconds& b : blocks) {
    EXPECT_GT(b.forward, 0);
    EXPECT_GT(b.backward, 0);
  }
  EXPECT_EQ(time_blocks(request_, Device::cpu(), {}, threads, all - 1, 1e12, fewer).size(), blocks.size());
  EXPECT_GT(fewer, 0);
  EXPECT_LT(fewer, all);
  EXPECT_TRUE(time_blocks(request_, Device::cpu(), {}, threads, 1000, 1e12, none).empty());
}

// Bytes written to nvme have a price that spares the drive: a gigabyte that takes two seconds to write costs 0.2 s, worked out by hand.
TEST_F(CostModel, WritesToADriveHaveAPrice) {
  Rates rates;
  rates.disk_write_bytes_per_s = 5e8;
  EXPECT_DOUBLE_EQ(rates.write_price_s(1e9), 0.2);
  const parallel::Plan on_nvme = plan(Tier::nvme, Tier::device);
  const auto written_bytes = static_cast<double>(on_nvme.moved_per_step().written[2]);
  EXPECT_DOUBLE_EQ(step_cost_s(on_nvme, model_, rates), step_seconds(on_nvme, model_, rates) + rates.write_price_s(written_bytes));
  const parallel::Plan in_memory = plan(Tier::host, Tier::device);
  EXPECT_EQ(step_cost_s(in_memory, model_, rates), step_seconds(in_memory, model_, rates));
}

}  // namespace
}  // namespace spillway::trainer::cost_model_test
