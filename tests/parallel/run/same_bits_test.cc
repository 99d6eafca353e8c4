// Tests the law that where the bytes reside never changes a number. Every cell trains the same steps with the tensors in other tiers. Each
// loss, norm and weight must equal, to the bit, that of the run with everything on the device. The cell must also have moved exactly the
// bytes that its plan says, so that a placement that was ignored cannot pass.
#include <gtest/gtest.h>

#include <cstdlib>

#include "models/presets.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/cells.h"

namespace spillway::test::same_bits_test {
namespace {

using parallel::Tier;
const std::vector<Tier> kTiers{Tier::device, Tier::host, Tier::nvme};

// The number of training steps. Builds with a sanitizer are ten times slower, so they run fewer steps on the same code paths.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr i64 kSteps = 2;
#else
constexpr i64 kSteps = 20;
#endif

RunOptions tiny(const char* preset) {
  RunOptions o;
  o.model = models::preset(preset);
  o.steps = kSteps;
  o.max_bucket_elems = 4 * parallel::kTileElems;  // buckets are this small so that a group has several
  return o;
}

const RunResult& reference(const std::string& preset) {
  static std::map<std::string, RunResult> all;
  if (!all.count(preset)) all[preset] = train(tiny(preset.c_str()));
  return all[preset];
}

void expect_same_bits(const RunResult& got, const RunResult& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (size_t p = 0; p < got.weights.size(); ++p) ASSERT_EQ(got.weights[p], want.weights[p]) << "parameter " << p;
}

void expect_moved_as_planned(const RunResult& r, const RunOptions& o) {
  const parallel::TierBytes per_step = r.plan.moved_per_step();
  for (size_t t = 0; t < offload::kTiers; ++t) {
    EXPECT_EQ(r.moved.read[t], r.planned.read[t]) << "read, tier " << t;
    EXPECT_EQ(r.moved.written[t], r.planned.written[t]) << "written, tier " << t;
    EXPECT_GE(r.planned.read[t], o.steps * per_step.read[t]);
  }
  for (Tier t : {Tier::host, Tier::nvme}) {
    const bool used = o.parameters == t || o.gradients == t || o.optimizer == t;
    EXPECT_EQ(per_step.read[static_cast<size_t>(t)] > 0, used);
    EXPECT_EQ(per_step.written[static_cast<size_t>(t)] > 0, used);
    // host memory is used in any case, since the checkpoint queue is there
    EXPECT_EQ(r.plan.total[static_cast<size_t>(t)] > 0, used || t == Tier::host);
  }
  // The budgets of the pools are the plan's totals. If the peaks reach these totals, the prediction is exact.
  EXPECT_LE(r.peak_bytes[0], r.plan.total[0]);
  EXPECT_EQ(r.peak_bytes[1], r.plan.total[1]);
}

class SameBits : public testing::TestWithParam<std::tuple<const char*, Tier, Tier, Tier>> {};

TEST_P(SameBits, UnderEveryPlacement) {
  const auto [preset, parameters, gradients, optimizer] = GetParam();
  RunOptions o = tiny(preset);
  o.parameters = parameters;
  o.gradients = gradients;
  o.optimizer = optimizer;
  const RunResult got = train(o);
  expect_same_bits(got, reference(preset));
  expect_moved_as_planned(got, o);
}

std::string cell_name(const testing::TestParamInfo<SameBits::ParamType>& info) {
  std::string name = std::string(std::get<0>(info.param)) + "_" + std::string(to_string(std::get<1>(info.param))) + "_" +
                     std::string(to_string(std::get<2>(info.param))) + "_" + std::string(to_string(std::get<3>(info.param)));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const auto kCells = cells_of(std::vector{"gpt2-tiny", "llama-tiny"}, kTiers, kTiers, kTiers);
INSTANTIATE_TEST_SUITE_P(Tiers, SameBits, testing::ValuesIn(kCells.diagonal), cell_name);
INSTANTIATE_TEST_SUITE_P(SoakTiers, SameBits, testing::ValuesIn(kCells.rest), cell_name);

struct Corner {
  Tier parameters, gradients, optimizer;
};
const Corner kCorners[] = {{Tier::device, Tier::device, Tier::nvme},
                           {Tier::host, Tier::host, Tier::host},
                           {Tier::nvme, Tier::host, Tier::nvme},
                           {Tier::nvme, Tier::nvme, Tier::nvme}};

class SameBitsCorner : public testing::TestWithParam<int> {
 protected:
  RunOptions corner(const char* preset) const {
    RunOptions o = tiny(preset);
    const Corner& c = kCorners[GetParam()];
    o.parameters = c.parameters;
    o.gradients = c.gradients;
    o.optimizer = c.optimizer;
    return o;
  }
  void expect_reference(const RunOptions& o, const char* preset) {
    const RunResult got = train(o);
    expect_same_bits(got, reference(preset));
    expect_moved_as_planned(got, o);
  }
};

TEST_P(SameBitsCorner, Recomputed) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    RunOptions o = corner(preset);
    o.recompute = true;
    expect_reference(o, preset);
  }
}

TEST_P(SameBitsCorner, BothEngines) {
  for (auto engine : {offload::IoEngineKind::io_uring, offload::IoEngineKind::pread}) {
    RunOptions o = corner("gpt2-tiny");
    o.engine = engine;
    expect_reference(o, "gpt2-tiny");
  }
}

TEST_P(SameBitsCorner, AnyPrefetch) {
  for (int prefetch : {0, 1, 3}) {
    RunOptions o = corner("gpt2-tiny");
    o.prefetch = prefetch;
    expect_reference(o, "gpt2-tiny");
  }
}

TEST_P(SameBitsCorner, AnyNumberOfThreads) {
  for (int threads : {2, 3}) {
    RunOptions o = corner("llama-tiny");
    o.threads = threads;
    expect_reference(o, "llama-tiny");
  }
}

TEST_P(SameBitsCorner, AnyInstructionSetOfTheOptimizer) {
  for (optim::Isa isa : optim::available_isas()) {
    RunOptions o = corner("gpt2-tiny");
    o.isa = isa;
    expect_reference(o, "gpt2-tiny");
  }
}

TEST_P(SameBitsCorner, AnyBucketSize) {
  RunOptions o = corner("gpt2-tiny");
  o.max_bucket_elems = parallel::kMaxBucketElems;
  expect_reference(o, "gpt2-tiny");
}

// Shows that gradient accumulation gives the same numbers in whichever tiers the tensors lie. These numbers differ from those of one
// micro-batch.
TEST_P(SameBitsCorner, WithAccumulation) {
  RunOptions o = corner("gpt2-tiny");
  o.steps = std::min<i64>(kSteps, 5);
  o.micro_batches = 3;
  o.recompute = GetParam() % 2 == 1;
  RunOptions device = o;
  device.parameters = device.gradients = device.optimizer = Tier::device;
  device.recompute = false;
  const RunResult got = train(o);
  expect_same_bits(got, train(device));
  expect_moved_as_planned(got, o);
}

TEST_P(SameBitsCorner, InFp64) {
  RunOptions o = corner("llama-tiny");
  o.steps = 2;
  o.dtype = DType::f64;
  RunOptions device = o;
  device.parameters = device.gradients = device.optimizer = Tier::device;
  const RunResult got = train(o);
  expect_same_bits(got, train(device));
  expect_moved_as_planned(got, o);
}

TEST_P(SameBitsCorner, WithDropout) {
  RunOptions o = corner("gpt2-tiny");
  o.steps = 2;
  o.model.residual_dropout = o.model.attention_dropout = o.model.embedding_dropout = 0.2;
  RunOptions device = o;
  device.parameters = device.gradients = device.optimizer = Tier::device;
  o.recompute = true;  // a recomputed block must use the same dropout masks as the first time
  o.threads = 2;
  const RunResult got = train(o), want = train(device);
  expect_same_bits(got, want);
  EXPECT_NE(want.losses, std::vector(reference("gpt2-tiny").losses.begin(), reference("gpt2-tiny").losses.begin() + 2));
}

INSTANTIATE_TEST_SUITE_P(Corners, SameBitsCorner, testing::Values(2));
INSTANTIATE_TEST_SUITE_P(SoakCorners, SameBitsCorner, testing::Values(0, 1, 3));

// Shows that the comparison can fail: training with a slightly different learning rate must differ.
TEST(SameBitsTest, ADifferenceShows) {
  RunOptions o = tiny("gpt2-tiny");
  o.learning_rate *= 1 + 1e-6;
  EXPECT_NE(train(o).weights, reference("gpt2-tiny").weights);
}

}  // namespace
}  // namespace spillway::test::same_bits_test
