// Tests Adafactor through a Rank. Parameters of many tiles and chunks, whose factors take more than one tile, give bitwise the same results
// in whichever tier they lie and whichever rank updates them. The optimizer state is small.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/model.h"
#include "models/presets.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::adafactor_test {
namespace {

using namespace optim;
using parallel::OptimizerOverlap;
using parallel::Tier;

RunOptions of_width(i64 width, DType dtype = DType::f32) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.model.layers = 1;
  o.model.width = width;
  o.model.head_dim = width / o.model.heads;
  o.model.mlp_width = 4 * width;
  o.sequence_length = 16;
  o.dtype = dtype;
  o.update = AdafactorSettings{.weight_decay = 0.1};
  o.learning_rate = 0.01;
  return o;
}

// Compares runs whose tensors lie in different tiers, with long parameters. The embedding, tied to the head, forms a separate group. With
// 324 columns its rows end within tiles, and the widest matrix has 1620 factors, which take more than one tile.
TEST(AdafactorRankMore, LongParametersGiveTheSameBitsAnywhere) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto options = [&] {
      RunOptions o = of_width(324, dtype);
      o.micro_batches = 2, o.steps = 3;
      return o;
    };
    const RunResult want = train(options());
    bool several = false;
    for (const parallel::Group& g : want.plan.layout.groups) {
      for (const parallel::Segment& s : g.segments) several |= g.factors > 0 && s.matrices.factors() > 1024;
    }
    EXPECT_TRUE(several) << "factors of a parameter in more than one tile";
    for (const OptimizerOverlap overlap : {OptimizerOverlap::none, OptimizerOverlap::backward, OptimizerOverlap::forward}) {
      RunOptions o = options();
      o.threads = 2, o.overlap = overlap;
      o.parameters = o.gradients = o.optimizer = Tier::nvme;
      expect_same_run(train(o), want);
    }
    for (const int stage : {1, 2, 3}) {
      RunOptions o = options();
      o.ranks = 2, o.zero_stage = stage, o.micro_batches = 1;
      expect_same_run(train(o), want);
    }
    RunOptions o = options();
    o.pipeline = {.ranks = 2};
    expect_same_run(train(o), want);
  }
}

TEST(AdafactorRank, EveryParameterIsSteppedByOneRank) {
  const nn::Sequential model = models::build(of_width(128).model, DType::f32);
  for (const int ranks : {2, 3}) {
    RunOptions o = of_width(128);
    o.ranks = ranks, o.zero_stage = 1;
    i64 held = 0, all = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const parallel::Plan plan = make_plan(plan_request(model, o, rank));
      all = 0;
      for (const parallel::Bucket& b : plan.layout.buckets) {
        EXPECT_TRUE(plan.layout.groups[b.group].by_parameter);
        EXPECT_TRUE(plan.stepped(b).count() == 0 || plan.stepped(b).count() == b.tiles) << ranks << " ranks, rank " << rank;
        held += plan.stepped(b).count(), all += b.tiles;
      }
      const bool has_memory =
          std::ranges::any_of(plan.rows, [](const parallel::PlanRow& row) { return row.what == "parameter under way"; });
      EXPECT_EQ(has_memory, std::ranges::any_of(plan.layout.buckets, [&](const auto& b) { return plan.stepped(b).count() > 0; }));
    }
    EXPECT_EQ(held, all);
  }
}

// Shows that an update inside the backward is redone if the step turns out to be clipped.
TEST(AdafactorRank, ClippingRedoesTheStep) {
  RunOptions o = of_width(128);
  o.gradient_clipping = 0.1;
  const RunResult want = train(o);
  o.overlap = OptimizerOverlap::backward;
  const RunResult got = train(o);
  EXPECT_TRUE(got.steps[1].redo);
  expect_same_run(got, want);
}

}  // namespace
}  // namespace spillway::test::adafactor_test
