// Tests fp16 with a dynamic loss scale. Planted overflows, at the beginning and later in a run, skip steps. Every loss, norm, weight,
// moment and the scale itself are the same in any tier and under any overlap, order of micro-batches, sharding and pipeline. Counters show
// that the events happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/presets.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/cells.h"

namespace spillway::test::loss_scale_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::ScheduleKind;
using parallel::Tier;
constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;

// Returns a run whose gradients exceed 65504 under a scale of 2^19, as the first test checks. The scale doubles after two finite steps.
RunOptions base(const char* preset = "gpt2-tiny") {
  RunOptions o;
  o.model = models::preset(preset);
  o.model.layers = 2;
  o.dtype = DType::f16;
  o.micro_batches = 2;
  o.micro_batch_size = 1;
  o.sequence_length = 12;
  o.steps = 8;
  o.max_bucket_elems = 4 * parallel::kTileElems;
  o.loss_scale = {0x1p20, 0};
  o.loss_scale_interval = 2;
  return o;
}

std::string pattern(const RunResult& r) {
  std::string text;
  for (const auto& step : r.steps) text += step.skipped ? 'x' : step.clipped ? 'c' : '.';
  return text;
}

const RunResult& reference(const char* preset = "gpt2-tiny") {
  static std::map<std::string, RunResult> all;
  const auto found = all.find(preset);
  return found != all.end() ? found->second : all[preset] = train(base(preset));
}

void expect_reference(RunOptions o, const char* preset = "gpt2-tiny") {
  const RunResult got = train(o);
  expect_same_numbers(got, reference(preset));
  for (size_t s = 0; s < got.steps.size() && o.pipeline.ranks == 1; ++s)
    EXPECT_EQ(got.steps[s].not_finite, reference(preset).steps[s].not_finite) << "step " << s;
}

TEST(LossScaledRun, OverflowsAtFirstAndWheneverTheScaleHasGrown) {
  const RunResult& r = reference();
  const std::string steps = pattern(r);
  EXPECT_EQ(steps.substr(0, 2), "xx") << steps;
  const size_t first = steps.find_first_not_of('x');
  ASSERT_NE(first, std::string::npos) << steps;
  EXPECT_NE(steps.find('x', first), std::string::npos) << "it overflows again: " << steps;
  for (const auto& step : r.steps) EXPECT_EQ(step.not_finite.empty(), !step.skipped) << "the parameters whose gradients are not finite";
  for (size_t s = 1; s < r.steps.size(); ++s) {
    if (r.steps[s - 1].skipped) {
      EXPECT_EQ(r.steps[s].loss_scale, r.steps[s - 1].loss_scale / 2);
    }
  }
  for (const double loss : r.losses) EXPECT_TRUE(std::isfinite(loss));
}

TEST(LossScaledRun, ASkippedStepLeavesEverythingAsItIs) {
  RunOptions o = base();
  o.steps = 2;  // both of these steps overflow and are skipped
  const RunResult got = train(o);
  o.steps = 0;
  const RunResult none = train(o);
  EXPECT_EQ(got.weights, none.weights);
  EXPECT_EQ(got.m, none.m);
  EXPECT_EQ(got.v, none.v);
}

// Shows that two loss scales give nearly the same numbers. A scale is a power of two, so dividing a gradient by it is exact. The
// tolerance is for gradients so small that f16 rounds them differently under the two scales (denormal numbers).
TEST(LossScaledRun, TheScaleIsTakenOutAgain) {
  RunOptions o = base();
  o.steps = 3;
  o.loss_scale_interval = 100;
  o.loss_scale = {0x1p10, 0};
  const RunResult small = train(o);
  o.loss_scale = {0x1p11, 0};
  const RunResult large = train(o);
  ASSERT_EQ(pattern(small).find('x'), std::string::npos);
  EXPECT_EQ(small.losses[0], large.losses[0]);
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_NEAR(small.norms[s] / large.norms[s], 1, 1e-4);
    EXPECT_NEAR(small.losses[s], large.losses[s], 1e-4);
  }
}

// Compares fp16 with fp32 from the same weights. The fp16 weights and activations are off by random
// rounding errors of 2^-12. The loss, of about 5.5, moves by a thousandth at most over these steps.
TEST(LossScaledRun, LearnsAsFp32Does) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    RunOptions o = base(preset);
    o.sequence_length = 32;
    o.micro_batch_size = 2;
    o.steps = 8;
    o.loss_scale = {};  // an empty setting means the program's default initial scale
    o.loss_scale_interval = optim::kLossScaleInterval;
    o.batches = [&](i64, int rank) { return random_batch(o, 0, rank); };  // every step trains on the same batch, which the model memorizes
    const RunResult narrow_run = train(o);
    ASSERT_EQ(pattern(narrow_run).find('x'), std::string::npos) << pattern(narrow_run);
    o.dtype = DType::f32;
    const RunResult wide = train(o);
    EXPECT_LT(narrow_run.losses.back(), narrow_run.losses.front() - 0.3);
    for (size_t s = 0; s < wide.losses.size(); ++s) {
      EXPECT_NEAR(narrow_run.losses[s], wide.losses[s], 2e-3) << preset << " step " << s;
      EXPECT_NEAR(narrow_run.norms[s] / wide.norms[s], 1, 1e-2) << preset << " step " << s;
    }
  }
}

class LossScaledPlaces : public testing::TestWithParam<std::tuple<int, OptimizerOverlap>> {};

TEST_P(LossScaledPlaces, SameBits) {
  constexpr struct {
    Tier parameters, gradients, optimizer;
  } kCorners[] = {{device, device, device}, {host, host, host}, {nvme, nvme, nvme}, {device, nvme, host}};
  RunOptions o = base();
  const auto& c = kCorners[std::get<0>(GetParam())];
  placed(c.parameters, c.gradients, c.optimizer, std::get<1>(GetParam()))(o);
  expect_reference(o);
  o.recompute = true, o.order = Order::vertical, o.threads = 2, o.activations = nvme;
  expect_reference(o);
}
std::string cell_name(const testing::TestParamInfo<LossScaledPlaces::ParamType>& info) {
  constexpr const char* kNames[] = {"none", "backward", "forward"};
  return "corner" + std::to_string(std::get<0>(info.param)) + "_" + kNames[static_cast<size_t>(std::get<1>(info.param))];
}

const auto kCells = cells_of(range(0, 4), std::vector{OptimizerOverlap::none, OptimizerOverlap::backward, OptimizerOverlap::forward});
INSTANTIATE_TEST_SUITE_P(Corners, LossScaledPlaces, testing::ValuesIn(kCells.diagonal), cell_name);
INSTANTIATE_TEST_SUITE_P(CornersMore, LossScaledPlaces, testing::ValuesIn(kCells.rest), cell_name);

TEST(LossScaledRun, AdaptiveOverlapChangesNoBit) {
  RunOptions o = base("llama-tiny");
  o.parameters = o.gradients = o.optimizer = nvme;
  o.adaptive = true;
  expect_reference(o, "llama-tiny");
}

// Shows that ranks with one micro-batch each agree on norm and scale, and give the numbers of a single rank with all micro-batches.
TEST(LossScaledRun, RanksAgreeOnTheScale) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    RunOptions o = base();
    o.ranks = 2, o.zero_stage = stage, o.micro_batches = 1;
    o.overlap = stage % 2 ? OptimizerOverlap::backward : OptimizerOverlap::forward;
    if (stage >= 2) o.optimizer = nvme;
    o.batches = [&](i64 step, int rank) { return random_batch(o, step, rank); };
    expect_reference(o);
  }
}

TEST(LossScaledRun, StagesAgreeOnTheScale) {
  for (const ScheduleKind kind : {ScheduleKind::one_forward_one_backward, ScheduleKind::zb_h1}) {
    RunOptions o = base();
    o.pipeline = {.ranks = 2, .kind = kind};
    o.overlap = OptimizerOverlap::backward;
    expect_reference(o);
  }
}

}  // namespace
}  // namespace spillway::test::loss_scale_test
