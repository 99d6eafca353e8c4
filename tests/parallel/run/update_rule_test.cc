// Tests every update rule through the same Rank: it follows the trajectory of PyTorch's optimizer, gives bitwise the same results in any
// tier and under any sharding, and takes the bytes of its state arrays, or none if it has no arrays.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/safetensors/safetensors.h"
#include "models/model.h"
#include "models/presets.h"
#include "models/weights.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/fixtures.h"

namespace spillway::test::update_rule_test {
namespace {

using namespace optim;
using parallel::Tier;

// Describes a case of tests/peers/training_optimizers.py, which made the reference values.
struct Case {
  const char* name;
  RuleSettings settings;
  double learning_rate;
  std::vector<std::string> own_rates_in = {};
};
const Case kCases[] = {
    {"sgd", SgdSettings{.weight_decay = 0.1}, 0.05},
    {"sgd_momentum", SgdSettings{.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1}, 0.02},
    {"sgd_nesterov", SgdSettings{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}, 0.02},
    {"adam", AdamSettings{.weight_decay = 0.1}, 0.003},
    {"adam_amsgrad", AdamSettings{.weight_decay = 0.1, .amsgrad = true}, 0.003},
    {"adamw", AdamSettings{.weight_decay = 0.1, .decoupled_weight_decay = true}, 0.003},
    {"adagrad", AdagradSettings{.weight_decay = 0.1}, 0.01},
    {"rmsprop", RmspropSettings{.weight_decay = 0.1}, 0.001},
    {"rmsprop_centered_momentum", RmspropSettings{.weight_decay = 0.1, .momentum = 0.7, .centered = true}, 0.001},
    {"adafactor", AdafactorSettings{.weight_decay = 0.1, .eps1 = 1e-8}, 0.01},
    {"lion", LionSettings{.weight_decay = 0.1}, 0.0003},
    {"adamw_groups", AdamSettings{.weight_decay = 0.1, .decoupled_weight_decay = true}, 0.003, {"mlp", "bias"}},
};
const std::vector<parallel::OwnRates> kOwnRates{{0.001, {}}, {0.003, 0.5}};

StepBatch reference_batch(i64 step) {
  const data::SafetensorsReader reference(test::data("gpt2-tiny") / "reference_f64.safetensors");
  const data::TensorInfo& info = *reference.find("train/input_ids");
  const i64 B = info.shape[1], T = info.shape[2];
  std::vector<i64> ids(static_cast<size_t>(info.shape.elems()));
  reference.read(info, 0, std::as_writable_bytes(std::span(ids)));
  MicroBatch m{empty({B, T}, DType::int32), empty({B, T}, DType::int32), empty({B, T}, DType::int32)};
  for (i64 i = 0; i < B * T; ++i) {
    const auto at = static_cast<size_t>(step * B * T + i);
    m.tokens_BT.data<i32>()[i] = static_cast<i32>(ids[at]);
    m.targets_BT.data<i32>()[i] = i % T == T - 1 ? kIgnoredTarget : static_cast<i32>(ids[at + 1]);
    m.positions_BT.data<i32>()[i] = static_cast<i32>(i % T);
  }
  StepBatch batch;
  batch.counted_targets = m.counted_targets = B * (T - 1);
  batch.micro_batches.push_back(std::move(m));
  return batch;
}

RunResult ten_steps(const RuleSettings& settings, double learning_rate, const std::vector<std::string>& own_rates_in) {
  RunOptions o;
  o.model = models::read_config(test::data("gpt2-tiny"));
  o.dtype = DType::f64;
  const nn::Sequential names = models::build(o.model, o.dtype);
  const models::FolderWeights weights(names, test::data("gpt2-tiny"));
  o.parameters = o.gradients = o.optimizer = Tier::nvme;
  o.steps = 10;
  o.sequence_length = 24;
  o.update = settings;
  o.learning_rate = learning_rate;
  o.own_rates_in = own_rates_in;
  if (!own_rates_in.empty()) o.own_rates = kOwnRates;
  o.batches = [](i64 step, int) { return reference_batch(step); };
  o.weights = [&](const nn::Parameter& p, i64 begin, std::span<double> out) { weights.read(p, begin, out); };
  return train(o);
}

// Returns the largest relative difference from PyTorch's losses, norms and the norms of the final weights.
double worst(const char* name, const RunResult& got) {
  const nlohmann::json want = nlohmann::json::parse(std::ifstream(test::data("optim") / "training.json")).at(name);
  double worst = 0;
  const auto compare = [&](double x, double y) { worst = std::max(worst, std::abs(x - y) / std::abs(y)); };
  for (size_t s = 0; s < 10; ++s) compare(got.losses[s], want["loss"][s]), compare(got.norms[s], want["norm"][s]);
  const nn::Sequential model = models::build(models::read_config(test::data("gpt2-tiny")), DType::f64);
  for (const auto& p : model.parameters) {
    if (!want["final"].contains(p->name)) continue;  // key biases are missing in the reference, since their gradients are rounding noise
    double squares = 0;
    for (const double x : got.weights[p->id]) squares += x * x;
    compare(std::sqrt(squares), want["final"][p->name]);
  }
  return worst;
}

class Trajectory : public testing::TestWithParam<Case> {};

// Compares trajectories with PyTorch's. The tolerance covers ten steps of fp64 rounding errors, which a division by a small root amplifies.
TEST_P(Trajectory, IsPyTorchs) {
  const auto& [name, settings, learning_rate, own_rates_in] = GetParam();
  EXPECT_LT(worst(name, ten_steps(settings, learning_rate, own_rates_in)), 1e-10);
  EXPECT_GT(worst(name, ten_steps(settings, learning_rate * 1.001, own_rates_in)), 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Rules, Trajectory, testing::ValuesIn(kCases), [](const auto& one) { return one.param.name; });

// Lists rules with 0, 1 and 3 state arrays, and a rounded state.
struct Kind {
  const char* name;
  RuleSettings settings;
  DType dtype = DType::f32;
  Master master = Master::fp32;
  Moments moments = Moments::fp32;
  bool has_own_rates = false;
};
const Kind kKinds[] = {
    {"sgd_f32", SgdSettings{.weight_decay = 0.1}},
    {"sgd_bf16_split", SgdSettings{.weight_decay = 0.1}, DType::bf16, Master::split},
    {"sgd_momentum_f32", SgdSettings{.momentum = 0.9, .weight_decay = 0.1}},
    {"amsgrad_f32", AdamSettings{.weight_decay = 0.1, .amsgrad = true}},
    {"amsgrad_bf16_rounded", AdamSettings{.weight_decay = 0.1, .amsgrad = true}, DType::bf16, Master::fp32, Moments::bf16},
    {"muon_f32", MuonSettings{}, DType::f32, Master::fp32, Moments::fp32, true},
    {"muon_bf16_rounded", MuonSettings{.nesterov = false}, DType::bf16, Master::split, Moments::bf16},
    {"adafactor_f32", AdafactorSettings{.weight_decay = 0.1}, DType::f32, Master::fp32, Moments::fp32, true},
    {"adafactor_bf16_split", AdafactorSettings{}, DType::bf16, Master::split},
    {"lion_bf16", LionSettings{.weight_decay = 0.1}, DType::bf16, Master::fp32, Moments::fp32, true},
};

RunOptions tiny(const Kind& kind) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.model.layers = 2;
  o.sequence_length = 16;
  o.update = kind.settings;
  o.dtype = kind.dtype, o.master = kind.master, o.moments = kind.moments;
  o.max_bucket_elems = 4 * parallel::kTileElems;
  o.micro_batches = 2;
  o.learning_rate = 0.01;
  if (kind.has_own_rates) o.own_rates = kOwnRates, o.own_rates_in = {"mlp", "bias"};
  return o;
}

class Placed : public testing::TestWithParam<Kind> {};

TEST_P(Placed, GivesTheSameBitsAnywhere) {
  const RunResult want = train(tiny(GetParam()));
  for (const Way& way : common_ways()) {
    SCOPED_TRACE(way.name);
    RunOptions o = tiny(GetParam());
    o.threads = 2;
    way.change(o);
    expect_same_run(train(o), want);
  }
}

TEST_P(Placed, GivesTheBitsOfOneRankAtEveryZeroStage) {
  const RunResult want = train(tiny(GetParam()));
  for (const size_t way : {size_t{0}, size_t{1}}) {
    for (int stage = 0; stage < 4; ++stage) {
      SCOPED_TRACE(testing::Message() << common_ways()[way].name << " stage " << stage);
      RunOptions o = tiny(GetParam());
      common_ways()[way].change(o);
      o.ranks = 2, o.zero_stage = stage, o.micro_batches = 1;
      expect_same_run(train(o), want);
    }
  }
}

TEST_P(Placed, GivesTheSameBitsInTwoStages) {
  const RunResult want = train(tiny(GetParam()));
  for (const size_t way : {size_t{0}, size_t{1}}) {
    SCOPED_TRACE(common_ways()[way].name);
    RunOptions o = tiny(GetParam());
    common_ways()[way].change(o);
    o.pipeline = {.ranks = 2};
    expect_same_run(train(o), want);
  }
}

// Shows that the state holds the update rule's arrays and the master for every trained tile. The tests above check that the peak use of
// memory equals the plan's.
TEST_P(Placed, HoldsTheRulesBytes) {
  const RunResult got = train(tiny(GetParam()));
  const Kind& kind = GetParam();
  const i64 master = kind.dtype == DType::f32 ? 0 : kind.master == Master::split ? 2 : 4, array = kind.moments == Moments::bf16 ? 2 : 4;
  const Rule rule = rule_of(kind.settings);
  i64 want = 0;
  for (const parallel::Group& g : got.plan.layout.groups) {
    const Rule its = is_of_matrices(rule) && !g.by_parameter ? Rule::adamw : rule;
    const i64 factors = g.factors > 0 ? 4096 : 0;  // bytes that Adafactor's factors take in each tile of these matrices
    want += parallel::whole(g).count() * (parallel::kTileElems * (master + (factors > 0 ? 0 : array * state_arrays(its))) + factors);
  }
  i64 planned = 0;
  for (const parallel::PlanRow& row : got.plan.rows) planned += row.what.starts_with("optimizer state (") ? row.bytes[0] : 0;
  EXPECT_EQ(planned, want);
}

std::string name_of(const testing::TestParamInfo<Kind>& kind) { return kind.param.name; }
INSTANTIATE_TEST_SUITE_P(Kinds, Placed, testing::Values(kKinds[4]), name_of);
INSTANTIATE_TEST_SUITE_P(SoakKinds, Placed,
                         testing::Values(kKinds[0], kKinds[1], kKinds[2], kKinds[3], kKinds[5], kKinds[6], kKinds[7], kKinds[8], kKinds[9]),
                         name_of);

TEST(UpdateRule, TheTableNamesTheArrays) {
  const auto row_of = [](RuleSettings settings, DType dtype) {
    RunOptions o = tiny({"", settings, dtype});
    const parallel::Plan plan = make_plan(plan_request(models::build(o.model, o.dtype), o));
    for (const parallel::PlanRow& row : plan.rows) {
      if (row.what.starts_with("optimizer state")) return row.what;
    }
    return std::string("none");
  };
  EXPECT_EQ(row_of(AdamSettings{.decoupled_weight_decay = true}, DType::f32), "optimizer state (m, v)");
  EXPECT_EQ(row_of(AdamSettings{.amsgrad = true}, DType::bf16), "optimizer state (master, m, v, max v)");
  EXPECT_EQ(row_of(SgdSettings{}, DType::bf16), "optimizer state (master)");
  EXPECT_EQ(row_of(SgdSettings{}, DType::f32), "none");
  EXPECT_EQ(row_of(MuonSettings{}, DType::bf16), "optimizer state (master, momentum or m, v)");
  EXPECT_EQ(row_of(AdafactorSettings{}, DType::bf16), "optimizer state (master, v or its means)");
}

TEST(UpdateRule, APlanIsOfOneRule) {
  RunOptions o = tiny({"", SgdSettings{.momentum = 0.9}});
  o.change_plan = [](parallel::Plan& plan) { plan.scheduling.format.rule = Rule::lion; };
  EXPECT_THROW(train(o), Error);
}

}  // namespace
}  // namespace spillway::test::update_rule_test
