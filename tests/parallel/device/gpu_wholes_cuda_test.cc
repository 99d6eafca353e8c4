// Tests update rules that need whole parameters (Muon, Adafactor), on a machine with a GPU. Parameters of several tiles give bitwise the
// same results in every tier, on data-parallel ranks and on pipeline stages, and nearly the CPU's numbers.
#include "tests/parallel/device/support_gpu_run.h"

namespace spillway::test::gpu_wholes_cuda_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Tier;

// Returns a run of width 132, at which a matrix ends within a tile; the widest matrix has five tiles.
RunOptions of_rule(const optim::RuleSettings& settings) {
  RunOptions o = small_gpu_run("gpt2-tiny");
  o.model.layers = 1;
  o.model.width = 132, o.model.head_dim = 132 / o.model.heads, o.model.mlp_width = 528;
  o.update = settings;
  o.sequence_length = 4;
  o.learning_rate = 0.01;
  o.overlap = OptimizerOverlap::backward;
  return o;
}

struct Named {
  const char* name;
  optim::RuleSettings settings;
};
const Named kRules[] = {{"muon", optim::MuonSettings{}}, {"adafactor", optim::AdafactorSettings{.weight_decay = 0.1}}};

class GpuWholes : public GpuRuns, public testing::WithParamInterface<Named> {};
using GpuWholesMore = GpuWholes;

TEST_P(GpuWholesMore, GiveTheSameBitsAnywhere) {
  const RunOptions options = of_rule(GetParam().settings);
  const RunResult want = train(options);
  EXPECT_GT(want.plan.whole_bytes, 4 * parallel::kTileElems * 4);
  RunOptions o = options;
  o.parameters = Tier::host, o.gradients = Tier::nvme, o.optimizer = Tier::nvme;
  o.overlap = OptimizerOverlap::none;
  expect_same_run(train(o), want);
  o = options;
  o.pipeline = {.ranks = 2};
  o.overlap = OptimizerOverlap::forward;
  expect_same_run(train(o), want);
  o = options;
  o.ranks = 2, o.zero_stage = 3, o.micro_batches = 1;
  expect_same_run(train(o), want);
}

// Compares the first step with the CPU's. Differences grow in later steps.
TEST_P(GpuWholes, AreNearTheCpus) {
  RunOptions o = small_gpu_run("gpt2-tiny");
  o.model.layers = o.steps = o.micro_batches = 1;
  o.dtype = DType::f64;
  o.update = GetParam().settings;
  const RunResult got = train(o);
  EXPECT_EQ(got.plan.whole_gpu_bytes > 0, GetParam().name == std::string("muon"));
  o.on_gpu = false;
  const RunResult want = train(o);
  i64 moved = 0;
  for (size_t p = 0; p < want.weights.size(); ++p) {
    for (size_t i = 0; i < want.weights[p].size(); ++i) {
      // CPU and GPU both sum in fp64, so they differ only by rounding errors. Muon magnifies singular values near zero by up to 3.4^5;
      // Adafactor divides tiny gradients by their size.
      ASSERT_NEAR(got.weights[p][i], want.weights[p][i], 1e-7) << p << ", " << i;
      moved += got.weights[p][i] != want.weights[p][i];
    }
  }
  EXPECT_GT(moved, 0) << "it was the CPU";
}

INSTANTIATE_TEST_SUITE_P(Rules, GpuWholes, testing::ValuesIn(kRules), [](const auto& rule) { return rule.param.name; });
INSTANTIATE_TEST_SUITE_P(Rules, GpuWholesMore, testing::ValuesIn(kRules), [](const auto& rule) { return rule.param.name; });

}  // namespace
}  // namespace spillway::test::gpu_wholes_cuda_test
