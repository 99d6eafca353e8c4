// Tests ranks whose GPUs talk to each other over NCCL. All numbers are bitwise those of a single rank, as they are when ranks exchange
// through host memory, and no bytes pass through host memory.
#include "tests/parallel/exchange/support_nccl.h"
#include "tests/parallel/run/support_sparse_batch.h"
#include "tests/support/cells.h"

#ifdef SPILLWAY_HAS_NCCL
namespace spillway::test::gpu_nccl_cuda_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::ScheduleKind;
using parallel::Tier;
constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {{"device", placed(device, device, device, OptimizerOverlap::backward)},
                                       {"host", placed(host, host, host, OptimizerOverlap::none)},
                                       {"nvme", placed(nvme, nvme, nvme, OptimizerOverlap::forward)}};
  return all;
}

class GpuNcclZero : public GpuNccl, public testing::WithParamInterface<std::tuple<int, int, size_t>> {};

// Shows that ranks that compute one micro-batch each give bitwise the results of a single rank that computes all of them. With three ranks
// the shards are unequal.
TEST_P(GpuNcclZero, GivesTheBitsOfOneRank) {
  const auto& [ranks, stage, way] = GetParam();
  const char* preset = (static_cast<size_t>(stage) + way) % 2 ? "gpt2-tiny" : "llama-tiny";
  RunOptions o = over_nccl(preset, ranks, stage, 1);
  ways()[way].change(o);
  const RunResult got = train(o);
  expect_same_run(got, result_alone(preset, ranks));
  expect_no_host(got);
  EXPECT_GT(got.moved.exchanged, 0);
  EXPECT_GT(calls_.sums, 0);
  if (stage > 0) {
    EXPECT_GT(calls_.gathers, 0);
  }
}
std::string zero_name(const testing::TestParamInfo<GpuNcclZero::ParamType>& cell) {
  const auto& [ranks, stage, way] = cell.param;
  return std::to_string(ranks) + "_stage" + std::to_string(stage) + "_" + ways()[way].name;
}
const auto kCells = cells_of(std::vector{2, 3}, range(0, 4), range(size_t{0}, ways().size()));
INSTANTIATE_TEST_SUITE_P(Ranks, GpuNcclZero, testing::ValuesIn(kCells.diagonal), zero_name);
INSTANTIATE_TEST_SUITE_P(RanksMore, GpuNcclZero, testing::ValuesIn(kCells.rest), zero_name);

// Compares the exchange over NCCL with the exchange through host memory, on the same ranks: results are bitwise the same, and so is the
// number of exchanged bytes.
TEST_F(GpuNccl, IsHostMemoryToTheBit) {
  RunOptions o = over_nccl("gpt2-tiny", 3, 2, 1);
  o.dtype = DType::bf16;
  const RunResult got = train(o);
  o.gpu_to_gpu = false;
  const RunResult want = train(o);
  EXPECT_GT(want.plan.pass_bytes, 0);
  expect_same_run(got, want);
  EXPECT_EQ(got.moved.exchanged, want.moved.exchanged);
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
      {"gpipe_nvme", {.ranks = 2, .kind = ScheduleKind::gpipe}, placed(nvme, nvme, nvme, OptimizerOverlap::forward)},
      {"zb_h1", {.ranks = 2, .kind = ScheduleKind::zb_h1}, placed(device, host, device, OptimizerOverlap::backward)},
      {"vertical", {.ranks = 2}, [](RunOptions& o) { o.order = Order::vertical, o.activations = host, o.optimizer = nvme; }, DType::bf16},
  };
  return all;
}

class GpuNcclPipelines : public GpuNccl, public testing::WithParamInterface<size_t> {};

TEST_P(GpuNcclPipelines, GiveTheBitsOfOneStage) {
  const Dealt& deal = dealt()[GetParam()];
  RunOptions o = over_nccl("gpt2-tiny", 1, 0, 2);
  o.pipeline = deal.pipeline;
  o.dtype = deal.dtype;
  deal.place(o);
  const RunResult got = train(o);
  expect_same_run(got, result_alone("gpt2-tiny", 2, deal.dtype));
  expect_no_host(got);
  EXPECT_GT(calls_.sent, 0);
  EXPECT_EQ(calls_.sent, calls_.received);
}
INSTANTIATE_TEST_SUITE_P(TwoStages, GpuNcclPipelines, testing::Range(size_t{0}, dealt().size()),
                         [](const auto& cell) { return dealt()[cell.param].name; });

TEST_F(GpuNccl, StagesOfSeveralRanksGiveTheBitsOfOneStage) {
  for (const int stage : {1, 3}) {
    RunOptions o = over_nccl("gpt2-tiny", 2, stage, 1);
    o.pipeline = {.ranks = 2};
    o.overlap = stage == 1 ? OptimizerOverlap::backward : OptimizerOverlap::forward;
    const RunResult got = train(o);
    expect_same_run(got, result_alone("gpt2-tiny", 2));
    expect_no_host(got);
  }
}

TEST_F(GpuNccl, ReductionOfEachMicroBatchGivesTheBitsOfOneRank) {
  constexpr int kRanks = 2;
  RunOptions one = alone("gpt2-tiny", 2 * kRanks);
  one.batches = [=](i64 step, int rank) { return sparse_batch(one, step, rank, kRanks); };
  const RunResult want = train(one);
  for (const int stage : {2, 3}) {
    RunOptions o = over_nccl("gpt2-tiny", kRanks, stage, 2);
    o.reduce_each = true;
    o.batches = [=](i64 step, int rank) { return sparse_batch(o, step, rank, kRanks); };
    const RunResult got = train(o);
    expect_no_host(got);
    EXPECT_EQ(got.norms, want.norms);
    EXPECT_EQ(got.weights, want.weights);
    EXPECT_EQ(got.m, want.m);
    EXPECT_EQ(got.v, want.v);
  }
}

}  // namespace
}  // namespace spillway::test::gpu_nccl_cuda_test
#endif
