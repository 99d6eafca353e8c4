// Tests an average of the weights that a rank keeps. Its numbers agree with a recurrence over the weights after each step, it is bitwise
// the same in any tier and under any sharding, its memory is what the plan says, and it changes nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/model.h"
#include "models/presets.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::average_test {
namespace {

using namespace optim;
using parallel::OptimizerOverlap;
using parallel::Tier;

constexpr double kDecay = 0.9;

// Lists update rules with 0, 2 and 3 state arrays, rules that update whole matrices, and rounded optimizer states. The average itself is
// never rounded.
struct Kind {
  const char* name;
  RuleSettings settings;
  DType dtype = DType::f32;
  Master master = Master::fp32;
  Moments moments = Moments::fp32;
};
const Kind kKinds[] = {
    {"sgd_f32", SgdSettings{.weight_decay = 0.1}},
    {"amsgrad_bf16", AdamSettings{.weight_decay = 0.1, .amsgrad = true}, DType::bf16, Master::fp32, Moments::bf16},
    {"muon_f32", MuonSettings{.weight_decay = 0.1}},
    {"adafactor_bf16", AdafactorSettings{.weight_decay = 0.1}, DType::bf16},
    {"adamw_bf16_split_int8", AdamSettings{.weight_decay = 0.1, .decoupled_weight_decay = true}, DType::bf16, Master::split, Moments::int8},
};

RunOptions options(const Kind& kind) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.model.layers = 2;
  o.sequence_length = 16;
  o.update = kind.settings;
  o.dtype = kind.dtype, o.master = kind.master, o.moments = kind.moments;
  o.average_decay = kDecay;
  o.max_bucket_elems = 4 * parallel::kTileElems;
  o.micro_batches = 2;
  o.learning_rate = 0.01;
  return o;
}

std::vector<std::vector<double>> initial_weights(const RunOptions& o) {
  const nn::Sequential model = models::build(o.model, o.dtype);
  std::vector<std::vector<double>> all;
  for (const auto& p : model.parameters) nn::initial_values(*p, 1, 0, all.emplace_back(static_cast<size_t>(p->elems())));
  return all;
}

// Computes the average in fp64 from the master weights after each step, each taken from a run of that many steps. The average begins as the
// initial weights.
std::vector<std::vector<double>> recurrence(RunOptions o) {
  std::vector<std::vector<double>> average = initial_weights(o);
  if (o.dtype != DType::f64) {
    for (auto& p : average) std::ranges::transform(p, p.begin(), [](double x) { return static_cast<double>(static_cast<float>(x)); });
  }
  const i64 steps = o.steps;
  for (o.steps = 1; o.steps <= steps; ++o.steps) {
    const RunResult run = train(o);
    for (size_t p = 0; p < average.size(); ++p) {
      for (size_t i = 0; i < average[p].size(); ++i) average[p][i] += (1 - o.average_decay) * (run.weights[p][i] - average[p][i]);
    }
  }
  return average;
}

// Compares the averages. Each step makes three rounding errors of numbers no larger than the largest one seen.
void expect_near(const RunOptions& o, const RunResult& got, const std::vector<std::vector<double>>& want) {
  double largest = 0, worst = 0;
  for (size_t p = 0; p < want.size(); ++p) {
    ASSERT_EQ(got.average[p].size(), want[p].size());
    for (size_t i = 0; i < want[p].size(); ++i) {
      largest = std::max({largest, std::abs(want[p][i]), std::abs(got.weights[p][i])});
      worst = std::max(worst, std::abs(got.average[p][i] - want[p][i]));
    }
  }
  const double unit = o.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  EXPECT_LE(worst, 4 * unit * static_cast<double>(o.steps) * largest);
  EXPECT_NE(got.average, got.weights);
}

class Averages : public testing::TestWithParam<Kind> {};

TEST_P(Averages, FollowTheWeightsOfEachStep) {
  const RunOptions o = options(GetParam());
  expect_near(o, train(o), recurrence(o));
}

TEST(AverageOfWeights, InFp64FollowsThemToFp64) {
  RunOptions o = options(kKinds[0]);
  o.dtype = DType::f64;
  expect_near(o, train(o), recurrence(o));
}

// Shows that a skipped step leaves the average unchanged. Row 200 of the position embedding holds infinite values, and only step 2 reads
// this row.
TEST(AverageOfWeights, StaysWithAStepThatIsSkipped) {
  RunOptions o = options(kKinds[0]);
  o.weights = [](const nn::Parameter& p, i64 begin, std::span<double> out) {
    nn::initial_values(p, 1, begin, out);
    const i64 width = p.shape[-1];
    for (i64 i = 0; p.name.ends_with("wpe.weight") && i < std::ssize(out); ++i) {
      if ((begin + i) / width == 200) out[static_cast<size_t>(i)] = std::numeric_limits<double>::infinity();
    }
  };
  o.batches = [o](i64 step, int) {
    StepBatch batch = random_batch(o, step);
    if (step == 1) batch.micro_batches[0].positions_BT.data<i32>()[5] = 200;
    return batch;
  };
  o.steps = 1;
  const RunResult one = train(o);
  for (const auto overlap : {OptimizerOverlap::none, OptimizerOverlap::backward, OptimizerOverlap::forward}) {
    RunOptions two = o;
    two.steps = 2, two.overlap = overlap;
    if (overlap != OptimizerOverlap::none) two.parameters = two.gradients = two.optimizer = Tier::nvme;
    const RunResult got = train(two);
    ASSERT_TRUE(got.steps[1].skipped);
    for (size_t p = 0; p < one.average.size(); ++p) {  // some elements of the position embedding are not finite
      for (size_t i = 0; i < one.average[p].size(); ++i)
        ASSERT_TRUE(got.average[p][i] == one.average[p][i] || std::isnan(one.average[p][i])) << p << " " << i;
    }
  }
}

TEST_P(Averages, AreTheSameBitsAnywhere) {
  const RunResult want = train(options(GetParam()));
  for (const Way& way : common_ways()) {
    SCOPED_TRACE(way.name);
    RunOptions o = options(GetParam());
    o.threads = 2;
    way.change(o);
    expect_same_run(train(o), want);
  }
}

TEST_P(Averages, AreTheBitsOfOneRankAtEveryZeroStage) {
  const RunResult want = train(options(GetParam()));
  for (const size_t way : {size_t{0}, size_t{1}, size_t{3}}) {
    for (int stage = 0; stage < 4; ++stage) {
      SCOPED_TRACE(testing::Message() << common_ways()[way].name << " stage " << stage);
      RunOptions o = options(GetParam());
      common_ways()[way].change(o);
      o.ranks = 2, o.zero_stage = stage, o.micro_batches = 1;
      expect_same_run(train(o), want);
    }
  }
}

TEST_P(Averages, AreTheSameBitsInTwoStages) {
  const RunResult want = train(options(GetParam()));
  RunOptions o = options(GetParam());
  common_ways()[1].change(o);
  o.pipeline = {.ranks = 2};
  expect_same_run(train(o), want);
}

// Shows that losses, norms, weights and the optimizer state equal those of a run without an average. The plan has 4 more bytes a
// parameter.
TEST_P(Averages, ChangeNothingElse) {
  RunOptions o = options(GetParam());
  const RunResult with = train(o);
  o.average_decay = 0;
  const RunResult without = train(o);
  EXPECT_EQ(with.losses, without.losses);
  EXPECT_EQ(with.norms, without.norms);
  EXPECT_EQ(with.weights, without.weights);
  EXPECT_EQ(with.m, without.m);
  EXPECT_EQ(with.v, without.v);
  i64 tiles = 0;
  for (const parallel::Group& g : with.plan.layout.groups) tiles += parallel::whole(g).count();
  const auto state_bytes = [](const RunResult& run) {
    i64 bytes = 0;
    for (const parallel::PlanRow& row : run.plan.rows) bytes += row.what.starts_with("optimizer state (") ? row.bytes[0] : 0;
    return bytes;
  };
  EXPECT_EQ(state_bytes(with), state_bytes(without) + 4 * tiles * parallel::kTileElems);
}

std::string kind_name(const testing::TestParamInfo<Kind>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Kinds, Averages, testing::Values(kKinds[1]), kind_name);
INSTANTIATE_TEST_SUITE_P(SoakKinds, Averages, testing::Values(kKinds[0], kKinds[2], kKinds[3]), kind_name);

}  // namespace
}  // namespace spillway::test::average_test
