// Tests several ranks that compute on one GPU. As on a CPU, every number is bitwise equal to the number that a single rank computes,
// whatever part of the weights, gradients, optimizer state and blocks each rank holds, and in whichever tier.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "base/error.h"
#include "tests/parallel/device/support_gpu_run.h"
#include "tests/parallel/run/support_sparse_batch.h"
#include "tests/support/cells.h"

namespace spillway::test::gpu_ranks_cuda_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::ScheduleKind;
using parallel::Tier;
constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;

// Returns a run whose exchange buffers hold two tiles per rank, or half a page, so that parameter groups and messages are sent in several
// pieces.
RunOptions small(const std::string& preset, int ranks, int stage, i64 micro_batches) {
  RunOptions o = small_gpu_run(preset);
  o.model.layers = 1;
  o.ranks = ranks;
  o.zero_stage = stage;
  o.sequence_length = 12;
  o.micro_batches = micro_batches;
  o.gradient_clipping = 0.5;
  o.change_plan = [](parallel::Plan& plan) {
    const i64 bytes = plan.scheduling.sharding.ranks > 1 ? 2 * plan.scheduling.sharding.ranks * parallel::kTileElems * 4 : 2048;
    plan.total[1] += 2 * std::ssize(plan.passing_lanes()) * (bytes - plan.pass_bytes);
    plan.pass_bytes = bytes;
  };
  return o;
}

const RunResult& alone(const std::string& preset, i64 micro_batches, DType dtype = DType::f32) {
  static std::map<std::tuple<std::string, i64, DType>, RunResult> all;
  const std::tuple key{preset, micro_batches, dtype};
  if (const auto found = all.find(key); found != all.end()) return found->second;
  RunOptions o = small(preset, 1, 0, micro_batches);
  o.dtype = dtype;
  return all[key] = train(o);
}

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {{"device", placed(device, device, device, OptimizerOverlap::backward)},
                                       {"host", placed(host, host, host, OptimizerOverlap::none)},
                                       {"nvme", placed(nvme, nvme, nvme, OptimizerOverlap::forward)},
                                       {"mixed", placed(device, nvme, host, OptimizerOverlap::forward)},
                                       {"streamed", streamed(placed(host, host, nvme, OptimizerOverlap::backward))}};
  return all;
}

class GpuZero : public GpuRuns, public testing::WithParamInterface<std::tuple<int, size_t>> {};

// Shows that ranks, each of which computes one micro-batch, give bitwise the results of a single rank that computes all of them.
TEST_P(GpuZero, GivesTheBitsOfOneRank) {
  const auto& [stage, way] = GetParam();
  const char* preset = (stage + way / 2) % 2 ? "gpt2-tiny" : "llama-tiny";
  RunOptions o = small(preset, 2, stage, 1);
  ways()[way].change(o);
  const RunResult got = train(o);
  expect_same_run(got, alone(preset, 2));
  EXPECT_GT(got.moved.exchanged, 0);
}
std::string zero_name(const testing::TestParamInfo<GpuZero::ParamType>& cell) {
  return "stage" + std::to_string(std::get<0>(cell.param)) + "_" + ways()[std::get<1>(cell.param)].name;
}
const auto kCells = cells_of(range(0, 4), range(size_t{0}, ways().size()));
INSTANTIATE_TEST_SUITE_P(TwoRanks, GpuZero, testing::ValuesIn(kCells.diagonal), zero_name);
INSTANTIATE_TEST_SUITE_P(TwoRanksMore, GpuZero, testing::ValuesIn(kCells.rest), zero_name);

TEST_F(GpuRuns, ThreeRanksOfUnequalPartsGiveTheBitsOfOne) {
  RunOptions o = small("gpt2-tiny", 3, 3, 1);
  o.dtype = DType::bf16;
  expect_same_run(train(o), alone("gpt2-tiny", 3, DType::bf16));
}

struct Dealt {
  std::string name;
  parallel::Pipeline pipeline;
  std::function<void(RunOptions&)> place;
  DType dtype = DType::f32;
};
const std::vector<Dealt>& dealt() {
  static const std::vector<Dealt> all = {
      {"1f1b", {.ranks = 2}, placed(device, device, device, OptimizerOverlap::none)},
      {"1f1b_host_backward", {.ranks = 2}, placed(host, host, host, OptimizerOverlap::backward), DType::bf16},
      {"gpipe_nvme", {.ranks = 2, .kind = ScheduleKind::gpipe}, placed(nvme, nvme, nvme, OptimizerOverlap::forward)},
      {"zb_h1", {.ranks = 2, .kind = ScheduleKind::zb_h1}, placed(device, host, device, OptimizerOverlap::backward)},
      {"vertical", {.ranks = 2}, [](RunOptions& o) { o.order = Order::vertical, o.activations = host, o.optimizer = nvme; }, DType::bf16},
      {"recomputed", {.ranks = 2}, [](RunOptions& o) { o.recompute = true, o.activations = nvme, o.parameters = nvme; }},
      {"streamed", {.ranks = 2}, streamed(placed(host, device, host, OptimizerOverlap::forward)), DType::bf16},
  };
  return all;
}

class GpuPipelines : public GpuRuns, public testing::WithParamInterface<size_t> {};

TEST_P(GpuPipelines, GiveTheBitsOfOneStage) {
  const Dealt& deal = dealt()[GetParam()];
  RunOptions o = small("gpt2-tiny", 1, 0, 2);
  o.pipeline = deal.pipeline;
  o.dtype = deal.dtype;
  deal.place(o);
  const RunResult got = train(o);
  expect_same_run(got, alone("gpt2-tiny", 2, deal.dtype));
  EXPECT_GT(got.moved.sent, 0);
}
INSTANTIATE_TEST_SUITE_P(TwoStages, GpuPipelines, testing::Range(size_t{0}, dealt().size()),
                         [](const auto& cell) { return dealt()[cell.param].name; });

TEST_F(GpuRuns, StagesOfSeveralRanksGiveTheBitsOfOneStage) {
  for (const int stage : {1, 3}) {
    RunOptions o = small("gpt2-tiny", 2, stage, 1);
    o.pipeline = {.ranks = 2};
    o.overlap = stage == 1 ? OptimizerOverlap::backward : OptimizerOverlap::forward;
    expect_same_run(train(o), alone("gpt2-tiny", 2));
  }
}

class GpuReduction : public GpuRuns, public testing::WithParamInterface<size_t> {};

// Shows that ZeRO stages 2 and 3, which sum the gradient of each micro-batch over the ranks, give the bitwise gradient of a single rank,
// whichever tiers hold weights, activations and optimizer state, and whether micro-batches run in horizontal or vertical order.
TEST_P(GpuReduction, OfEachMicroBatchGivesTheBitsOfOneRank) {
  constexpr int kRanks = 2;
  RunOptions one = small("gpt2-tiny", 1, 0, 2 * kRanks);
  one.batches = [=](i64 step, int rank) { return sparse_batch(one, step, rank, kRanks); };
  static const RunResult want = train(one);
  RunOptions o = small("gpt2-tiny", kRanks, 2, 2);
  o.reduce_each = true;
  o.batches = [=](i64 step, int rank) { return sparse_batch(o, step, rank, kRanks); };
  ways()[GetParam()].change(o);
  if (GetParam() % 2) o.zero_stage = 3, o.order = Order::vertical;
  const RunResult got = train(o);
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_EQ(got.weights, want.weights);
  EXPECT_EQ(got.m, want.m);
  EXPECT_EQ(got.v, want.v);
}
std::string way_name(const testing::TestParamInfo<size_t>& cell) { return ways()[cell.param].name; }
INSTANTIATE_TEST_SUITE_P(TwoRanks, GpuReduction, testing::Values(1, 2), way_name);
INSTANTIATE_TEST_SUITE_P(TwoRanksMore, GpuReduction, testing::Values(0, 3, 4), way_name);

// Shows that validation and generation run through both pipeline stages, and that every rank returns the result.
TEST_F(GpuRuns, StagesAnswerAsOne) {
  std::mutex mutex;
  std::vector<std::pair<double, std::vector<double>>> answers;
  RunOptions o = small("gpt2-tiny", 1, 0, 1);
  o.steps = 1;
  o.at_end = [&](parallel::Rank& rank) {
    const MicroBatch batch = random_batch(o, 9).micro_batches[0];
    const double loss = rank.evaluate(batch);
    const std::vector<double> logits = rank.logits(batch, 5);
    const std::lock_guard lock(mutex);
    answers.emplace_back(loss, logits);
  };
  train(o);
  o.pipeline = {.ranks = 2};
  o.parameters = nvme;
  o.overlap = OptimizerOverlap::forward;
  train(o);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(std::ssize(answers[0].second), o.model.vocabulary);
  EXPECT_EQ(answers[1], answers[0]);
  EXPECT_EQ(answers[2], answers[0]);
}

// Shows that a fault on one rank also ends the other ranks, whose transfers are in flight. The first rank's error tells whose fault it was.
TEST_F(GpuRuns, AFaultOnOneRankReachesAll) {
  RunOptions o = small("gpt2-tiny", 2, 3, 1);
  o.pipeline = {.ranks = 2};
  std::atomic<int> loads{0};
  o.batches = [&](i64 step, int rank) -> StepBatch {
    if (loads++ == 5) throw Error(ErrorCode::data, "planted");
    return random_batch(o, step, rank);
  };
  try {
    train(o);
    FAIL() << "the fault was lost";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("planted"), std::string::npos) << e.what();
  }
}

// Shows that two pipeline stages with two data-parallel ranks each take snapshots while they train
// on. Together the snapshots hold the bytes of weights and state of every tile once.
TEST_F(GpuRuns, SnapshotsOfSeveralRanksHoldEveryTileOnce) {
  using Tiles = std::map<std::pair<u16, i64>, std::string>;
  const auto snapshot_of = [](RunOptions o) {
    std::mutex mutex;
    Tiles tiles;
    const auto keep = [&](u16 group, parallel::TileRange range, std::span<const std::byte> weights, std::span<const std::byte> state) {
      const std::lock_guard lock(mutex);
      for (i64 t = 0; t < range.count(); ++t) {
        std::string bytes;
        for (const auto& all : {weights, state}) {
          const size_t each = all.size() / static_cast<size_t>(range.count());
          bytes.append(reinterpret_cast<const char*>(all.data()) + static_cast<size_t>(t) * each, each);
        }
        EXPECT_TRUE(tiles.emplace(std::pair(group, range.begin + t), std::move(bytes)).second) << "tile " << t << " came twice";
      }
    };
    o.between = [&](parallel::Rank& rank, i64 steps) {
      if (steps == 1) rank.begin_snapshot([&](const parallel::Snapshot::Tiles& all) { all(keep); });
    };
    o.at_end = [](parallel::Rank& rank) {
      rank.snapshot()->drain();
      EXPECT_EQ(rank.snapshot()->outcome().error, nullptr);
      rank.end_snapshot();
    };
    train(o);
    return tiles;
  };
  const Tiles want = snapshot_of(small("gpt2-tiny", 1, 0, 2));
  EXPECT_GT(want.size(), 4u);
  RunOptions o = small("gpt2-tiny", 2, 2, 1);
  o.pipeline = {.ranks = 2};
  EXPECT_TRUE(snapshot_of(o) == want);
  o.zero_stage = 0;
  EXPECT_TRUE(snapshot_of(o) == want);
}

// Shows that the peak use of either tier equals the plan's total, except that the plan counts the input tokens in whole pages.
TEST_F(GpuRuns, PeaksAreThePlans) {
  const auto expect_planned = [](const RunResult& r) {
    EXPECT_LE(r.peak_bytes[0], r.plan.total[0]);
    EXPECT_GE(r.peak_bytes[0], r.plan.total[0] - r.plan.input_bytes);
    EXPECT_EQ(r.peak_bytes[1], r.plan.total[1]);
  };
  for (const int stages : {1, 2}) {
    for (const Way& way : {ways()[0], ways()[2]}) {
      RunOptions o = small("gpt2-tiny", 2, 3, 1);
      o.change_plan = {};
      o.pipeline.ranks = stages;
      o.steps = 1;
      way.change(o);
      const RunResult r = train(o);
      expect_planned(r);
      for (const RunResult& other : r.others) expect_planned(other);
      const auto row = std::ranges::find(r.plan.rows, "between the GPU and other ranks", &parallel::PlanRow::what);
      ASSERT_NE(row, r.plan.rows.end());
      EXPECT_EQ(row->bytes[1], (stages == 1 ? 1 : 3) * 2 * r.plan.pass_bytes);
    }
  }
}

}  // namespace
}  // namespace spillway::test::gpu_ranks_cuda_test
