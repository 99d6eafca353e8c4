// Tests snapshots taken while a GPU trains. A snapshot saves the state as it was stored at the step at which the snapshot began, in
// whatever tier, and training gives bitwise the results that it gives without a snapshot. Visiting the weights works in every tier as well.
#include "tests/parallel/device/support_gpu_run.h"
#include "tests/parallel/run/support_visit.h"
#include "tests/parallel/state/support_snapshot.h"

namespace spillway::test::gpu_snapshot_cuda_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Tier;

struct Cell {
  std::string name;
  std::function<void(RunOptions&)> place;
  Pace pace;
};

const std::vector<Cell>& cells() {
  constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;
  static const std::vector<Cell> all = {
      {"device", placed(device, device, device, OptimizerOverlap::none), Pace::held_back},
      {"device_quick", placed(device, device, device, OptimizerOverlap::none), Pace::quick},
      {"device_backward", placed(device, device, device, OptimizerOverlap::backward), Pace::held_back},
      {"device_forward", placed(device, device, device, OptimizerOverlap::forward), Pace::slow},
      {"host", placed(host, host, host, OptimizerOverlap::backward), Pace::quick},
      {"state_on_host", placed(device, device, host, OptimizerOverlap::none), Pace::held_back},
      {"weights_on_host", placed(host, device, device, OptimizerOverlap::forward), Pace::slow},
      {"state_on_nvme", placed(device, device, nvme, OptimizerOverlap::backward), Pace::held_back},
      {"state_on_nvme_impatient", placed(device, host, nvme, OptimizerOverlap::none), Pace::impatient},
      {"weights_on_nvme", placed(nvme, device, device, OptimizerOverlap::none), Pace::held_back},
      {"nvme", placed(nvme, nvme, nvme, OptimizerOverlap::forward), Pace::quick},
      {"streamed_host", streamed(placed(host, host, host, OptimizerOverlap::none)), Pace::held_back},
      {"streamed_from_nvme", streamed(placed(device, host, nvme, OptimizerOverlap::backward)), Pace::held_back},
      {"streamed_nvme_impatient", streamed(placed(nvme, nvme, nvme, OptimizerOverlap::forward)), Pace::impatient},
  };
  return all;
}

class GpuSnapshots : public GpuRuns, public testing::WithParamInterface<size_t> {};

TEST_P(GpuSnapshots, AreTheBytesOfABlockingScan) {
  const Cell& cell = cells()[GetParam()];
  RunOptions o = small_gpu_run(GetParam() % 2 ? "gpt2-tiny" : "llama-tiny");
  o.model.layers = 1;
  o.micro_batches = 1;
  o.steps = 4;
  o.dtype = GetParam() % 3 ? DType::f32 : DType::bf16;
  cell.place(o);
  RunResult want, got;
  const std::map<i64, StateBytes> scans = train_with_scans(o, {1, 3}, want);
  EXPECT_FALSE(same(scans.at(1), scans.at(3))) << "the comparison cannot fail";
  const auto all = train_with_saves(o, {1, 3}, cell.pace, got);
  ASSERT_EQ(all.size(), 2u);
  for (const auto& saved : all) EXPECT_TRUE(same(saved->bytes, scans.at(saved->begun))) << "save after step " << saved->begun;
  EXPECT_EQ(got.weights, want.weights);
  EXPECT_EQ(got.m, want.m);
  EXPECT_EQ(got.v, want.v);
  EXPECT_LE(got.peak_bytes[0], got.plan.total[0]);
  EXPECT_EQ(got.peak_bytes[1], got.plan.total[1]);
}

TEST_P(GpuSnapshots, ALookShowsEveryWeightOnce) {
  RunOptions o = small_gpu_run(GetParam() % 2 ? "llama-tiny" : "gpt2-tiny");
  o.model.layers = 1;
  o.micro_batches = 1;
  o.steps = 2;
  o.dtype = GetParam() % 3 ? DType::bf16 : DType::f32;
  cells()[GetParam()].place(o);
  expect_all_shown(o);
}
std::string cell_name(const testing::TestParamInfo<size_t>& cell) { return cells()[cell.param].name; }
INSTANTIATE_TEST_SUITE_P(Cells, GpuSnapshots, testing::Values(3, 4, 7, 9, 10, 12), cell_name);
INSTANTIATE_TEST_SUITE_P(CellsMore, GpuSnapshots, testing::Values(0, 1, 2, 5, 6, 8, 11, 13), cell_name);

// Shows that snapshots hold frozen weights, wherever these reside, although no optimizer update reads or writes them.
TEST_F(GpuRuns, SnapshotsHoldFrozenWeights) {
  for (const Tier weights : {Tier::device, Tier::nvme}) {
    RunOptions o = small_gpu_run("gpt2-tiny");
    o.model.layers = 1;
    o.micro_batches = 1;
    o.steps = 3;
    o.parameters = weights;
    o.freeze = [](const nn::Parameter& p) { return p.name.ends_with("bias") || p.name.ends_with("wte.weight"); };
    RunResult want, got;
    const std::map<i64, StateBytes> scans = train_with_scans(o, {1}, want);
    const auto all = train_with_saves(o, {1}, Pace::held_back, got);
    EXPECT_TRUE(same(all.at(0)->bytes, scans.at(1)));
    EXPECT_EQ(got.weights, want.weights);
  }
}

}  // namespace
}  // namespace spillway::test::gpu_snapshot_cuda_test
