// Tests Muon through a Rank. The parameters that Muon updates, and by how much, are compared with Muon's formula, applied to gradients that
// are taken from a step of plain SGD. Matrices of many tiles and chunks give bitwise the same results in any tier, even if some ranks
// update no matrix.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/model.h"
#include "models/presets.h"
#include "tests/optim/support_newton_schulz.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::muon_test {
namespace {

using namespace optim;
using parallel::OptimizerOverlap;
using parallel::Tier;

RunOptions of_width(i64 width, const RuleSettings& settings) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.model.layers = 1;
  o.model.width = width;
  o.model.head_dim = width / o.model.heads;
  o.model.mlp_width = 4 * width;
  o.sequence_length = 16;
  o.update = settings;
  o.learning_rate = 0.01;
  return o;
}

std::vector<std::vector<double>> after_one_step(const RuleSettings& settings, double learning_rate) {
  RunOptions o = of_width(132, settings);  // at this width matrices end within tiles
  o.dtype = DType::f64;
  o.steps = 1;
  o.gradient_clipping = 0;
  o.learning_rate = learning_rate;
  return train(o).weights;
}

std::vector<double> gradient_of(const nn::Parameter& p, const std::vector<double>& stepped) {
  std::vector<double> g(stepped.size());
  nn::initial_values(p, 1, 0, g);
  for (size_t i = 0; i < g.size(); ++i) g[i] -= stepped[i];
  return g;
}

// Compares the first step with Muon's formula. The momentum is then 0.05 times the gradient, and the
// matrix that is orthogonalized is 0.0975 times it. This factor does not matter to the result.
TEST(MuonRank, MovesMatricesByItsFormulaAndTheRestAsAdamW) {
  const auto sgd = after_one_step(SgdSettings{}, 1),
             adamw = after_one_step(AdamSettings{.beta2 = 0.95, .weight_decay = 0.1, .decoupled_weight_decay = true}, 0.01),
             muon = after_one_step(MuonSettings{}, 0.01);
  const nn::Sequential model = models::build(of_width(132, MuonSettings{}).model, DType::f64);
  std::vector<std::string> matrices;
  for (const auto& p : model.parameters) {
    const auto& got = muon[p->id];
    const bool matrix = p->name.find(".c_") != p->name.npos && p->name.ends_with(".weight");
    if (!matrix) {
      EXPECT_EQ(got, adamw[p->id]) << p->name;
      continue;
    }
    matrices.push_back(p->name);
    const Extents e{p->shape[0], p->shape[1]};
    const std::vector<double> direction = newton_schulz(gradient_of(*p, sgd[p->id]), e);
    std::vector<double> want(got.size());
    nn::initial_values(*p, 1, 0, want);
    const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(e.rows, e.columns)));
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i)
      worst = std::max(worst, std::abs(want[i] * (1 - 0.01 * 0.1) - 0.01 * scale * direction[i] - got[i]));
    // Here the gradient is computed as the difference of two weights, accurate to 1e-16 of their size. Singular values as small as that
    // error give other results.
    EXPECT_LT(worst, 1e-9) << p->name;
  }
  EXPECT_EQ(matrices.size(), 4u);
}

// Compares runs whose long matrices lie in different tiers. All matrices but one have more than one chunk of 16 tiles, and end with a part
// of a tile.
TEST(MuonRankMore, LongMatricesGiveTheSameBitsAnywhere) {
  const auto options = [] {
    RunOptions o = of_width(324, MuonSettings{});
    o.micro_batches = 2, o.steps = 2;
    return o;
  };
  const RunResult want = train(options());
  for (const OptimizerOverlap overlap : {OptimizerOverlap::none, OptimizerOverlap::backward}) {
    RunOptions o = options();
    o.threads = 2, o.overlap = overlap;
    o.parameters = o.gradients = o.optimizer = Tier::nvme;
    expect_same_run(train(o), want);
  }
  RunOptions o = options();
  o.ranks = 2, o.zero_stage = 3, o.micro_batches = 1;
  expect_same_run(train(o), want);
}

// Shows that an update inside the backward is redone if the step turns out to be clipped.
TEST(MuonRank, ClippingRedoesTheStep) {
  RunOptions o = of_width(128, MuonSettings{});
  o.gradient_clipping = 0.1;
  const RunResult want = train(o);
  o.overlap = OptimizerOverlap::backward;
  const RunResult got = train(o);
  EXPECT_TRUE(got.steps[1].redo);
  expect_same_run(got, want);
}

// Shows that shards are cut where a matrix ends, so that all of a matrix belongs to one rank.
TEST(MuonRank, RanksStepWholeMatrices) {
  const nn::Sequential model = models::build(of_width(128, MuonSettings{}).model, DType::f32);
  for (const int ranks : {2, 3, 8}) {
    RunOptions o = of_width(128, MuonSettings{});
    o.ranks = ranks, o.zero_stage = 1;
    std::vector<i64> held;
    for (int rank = 0; rank < ranks; ++rank) {
      const parallel::Plan plan = make_plan(plan_request(model, o, rank));
      held.push_back(0);
      for (const parallel::Bucket& b : plan.layout.buckets) {
        if (!plan.layout.groups[b.group].by_parameter) continue;
        const i64 tiles = plan.stepped(b).count();
        EXPECT_TRUE(tiles == 0 || tiles == b.tiles) << ranks << " ranks, rank " << rank;
        held.back() += tiles;
      }
      const bool has_matrix = std::ranges::any_of(plan.rows, [](const parallel::PlanRow& row) { return row.what == "matrix under way"; });
      EXPECT_EQ(has_matrix, held.back() > 0);
    }
    EXPECT_EQ(std::accumulate(held.begin(), held.end(), i64{0}), 12);  // the four matrices take 3, 1, 4 and 4 tiles
    if (ranks == 8) {
      EXPECT_NE(std::ranges::find(held, 0), held.end());
    }
  }
  RunOptions o = of_width(128, MuonSettings{});
  o.micro_batches = 8, o.micro_batch_size = 1, o.steps = 2;
  const RunResult want = train(o);
  o.ranks = 8, o.micro_batches = 1;
  for (const int stage : {1, 3}) {
    o.zero_stage = stage;
    expect_same_run(train(o), want);
  }
}

}  // namespace
}  // namespace spillway::test::muon_test
