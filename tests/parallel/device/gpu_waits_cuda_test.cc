// Counts how often the CPU waits for the GPU in a training step. With state in host memory the count does not depend on the size of the
// model. If the CPU updates weights that reside in GPU memory, it waits less than once per copy, and copies overlap the update.
#include "parallel/state/stepper.h"
#include "tests/parallel/device/support_gpu_state.h"

namespace spillway::test::gpu_waits_cuda_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Tier;

class GpuWaits : public GpuRuns {
 protected:
  // Holds the waits of the second step of a run, and the number of chunks that the optimizer updates of that step process.
  struct Counted {
    i64 waits = 0, chunks = 0;
  };
  static Counted waits_of_a_step(RunOptions o) {
    o.steps = 2;
    o.model.vocabulary = 64;
    std::vector<i64> all;
    o.between = [&](parallel::Rank&, i64) { all.push_back(gpu_waits()); };
    const RunResult r = train(o);
    Counted counted{all.at(1) - all.at(0)};
    for (const parallel::Bucket& b : r.plan.layout.buckets) counted.chunks += ceil_div(r.plan.stepped(b).count(), r.plan.chunk_tiles);
    return counted;
  }
};

// Shows that a step waits 13 times at most: twice at the start of both lists; in the first list twice for queues, once
// for the sums and once for the work queued before them; seven times at its end, once for each CUDA stream.
TEST_F(GpuWaits, AStepOverHostMemoryWaitsAsOftenWhateverTheModel) {
  constexpr i64 kMost = 13;
  const std::pair<i64, OptimizerOverlap> models[] = {
      {1, OptimizerOverlap::none}, {3, OptimizerOverlap::none}, {2, OptimizerOverlap::forward}};
  for (const auto& [layers, overlap] : models) {
    RunOptions o = small_gpu_run("gpt2-tiny");
    o.model.width /= 2, o.model.heads /= 2, o.model.kv_heads /= 2, o.model.mlp_width /= 2;
    o.model.layers = layers;
    o.micro_batches = layers;
    o.sequence_length = 2;
    placed(Tier::host, Tier::host, Tier::host, overlap)(o);
    EXPECT_LE(waits_of_a_step(o).waits, kMost) << layers << " layers";
  }
}

// Shows that the CPU waits at most twice for each chunk that it updates. A chunk takes three copies: gradients and weights arrive on the
// CPU, and weights go back.
TEST_F(GpuWaits, CpuStepsOverGpuMemoryWaitTwiceAChunkAtMost) {
  RunOptions o = small_gpu_run("gpt2-tiny");
  o.model = models::preset("gpt2-tiny");
  placed(Tier::device, Tier::device, Tier::host, OptimizerOverlap::none)(o);
  o.model.layers = 2;
  o.micro_batches = 1;
  o.sequence_length = 2;
  const Counted counted = waits_of_a_step(o);
  EXPECT_GT(counted.chunks, 13) << "fewer copies than the bound";
  EXPECT_LE(counted.waits, 2 * counted.chunks + 13);
}

TEST_F(GpuWaits, CpuStepsGoOnBesideTheirCopiesToTheGpu) {
  RunOptions o = small_gpu_run("gpt2-tiny");
  placed(Tier::device, Tier::host, Tier::host, OptimizerOverlap::none)(o);
  GpuState rest(o);
  parallel::ModelState& state = rest.state();
  const parallel::Group& group = rest.largest();
  state.fill(group.id, [](parallel::TileRange, std::span<std::byte> weights, std::span<std::byte> moments) {
    for (const std::span<std::byte> part : {weights, moments}) std::ranges::fill(part, std::byte{});
  });
  std::ranges::fill(state.gradients(group.id, 0).view(state.gradients(group.id, 0).held(), 0), std::byte{});
  parallel::Stepper stepper(rest.plan(), state);
  GpuGate gate;
  gate.hold(state.queues()->to_gpu);
  const parallel::Bucket& bucket = rest.plan().layout.buckets[group.buckets.front()];
  stepper.step(bucket, rest.plan().stepped(bucket), {}, 0, {});
  gate.open();
  stepper.drain();
  EXPECT_TRUE(gate.was_opened_in_time());
}

}  // namespace
}  // namespace spillway::test::gpu_waits_cuda_test
