// Tests overlap on a GPU: weights are copied while blocks are computed. Start and end
// times come from an emulated GPU whose kernels are slowed down.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "device/cuda_handle.h"
#include "tests/parallel/exchange/support_nccl.h"

#ifdef __CUDA_EMULATED__
namespace spillway::test::gpu_overlap_cuda_test {
namespace {

using parallel::Instruction;
using parallel::Op;
using parallel::OptimizerOverlap;
using parallel::Tier;
using parallel::What;

// Counts the transfers of what a block needs (Fetch or Gather) that could overlap the computation of another block.
struct Beside {
  int brought = 0;
  int begun = 0;  // number of these transfers that began before the preceding block was computed
};

Beside beside(const RunResult& run, Op op, What what = What::weights) {
  const parallel::List& list = run.plan.train.head;
  Beside seen;
  for (size_t n = 0; n < list.size(); ++n) {
    if (list[n].op != op || list[n].what != what) continue;
    const Instruction *before = nullptr, *reader = nullptr;
    for (const Instruction& i : list) {
      if (!computes_block(i.op)) continue;
      if (std::ranges::find(i.after, static_cast<u32>(n)) != i.after.end()) {
        reader = &i;
        break;
      }
      before = &i;
    }
    if (!reader || !before) continue;
    ++seen.brought;
    seen.begun += run.head_timings[n].start_us < run.head_timings[static_cast<size_t>(before - list.data())].end_us;
  }
  return seen;
}

// Returns the share of the time between the start of the first block and the end of the last one in which a block is computed.
double computes(const RunResult& run) {
  double begin_us = std::numeric_limits<double>::max(), end_us = 0, busy_us = 0;
  for (size_t n = 0; n < run.head_timings.size(); ++n) {
    if (!computes_block(run.plan.train.head[n].op)) continue;
    const parallel::Timing& t = run.head_timings[n];
    begin_us = std::min(begin_us, t.start_us), end_us = std::max(end_us, t.end_us), busy_us += t.end_us - t.start_us;
  }
  return busy_us / (end_us - begin_us);
}

// At these rates a block's weights arrive in less time than a block takes to compute.
constexpr emulated_cuda::Rates kSlowKernels = {.copy_bytes_per_s = 200e9, .threads_per_s = 1e9, .flops = 1e12};

class GpuOverlap : public GpuRuns {
 protected:
  void SetUp() override {
    GpuRuns::SetUp();
    emulated_cuda::use_rates(kSlowKernels);
  }
  void TearDown() override { emulated_cuda::forget_rates(); }

  static RunOptions from_host(int prefetch) {
    RunOptions o = small_gpu_run("gpt2-tiny");
    o.model.layers = 4;
    o.steps = 1;
    o.parameters = Tier::host;
    o.prefetch = prefetch;
    return o;
  }
};

TEST_F(GpuOverlap, WeightsComeWhileTheBlockBeforeIsComputed) {
  const Beside seen = beside(train(from_host(1)), Op::Fetch);
  EXPECT_GE(seen.brought, 8);
  EXPECT_EQ(seen.begun, seen.brought);
}

// Shows that the overlap is gone without prefetch, and so that the test above can fail.
TEST_F(GpuOverlap, WithoutPrefetchTheyDoNot) {
  const Beside seen = beside(train(from_host(0)), Op::Fetch);
  EXPECT_GE(seen.brought, 8);
  EXPECT_LE(seen.begun, 2) << "while the embedding's backward, which wants no weights, is computed";
}

// Counts the evictions of activations that had not ended when the next block began to be computed.
int evicted_beside(const RunResult& run) {
  const parallel::List& list = run.plan.train.head;
  int beside = 0;
  for (size_t n = 0; n < list.size(); ++n) {
    if (list[n].op != Op::Evict || list[n].what != What::activations) continue;
    const auto next =
        std::find_if(list.begin() + static_cast<std::ptrdiff_t>(n), list.end(), [](const auto& i) { return computes_block(i.op); });
    if (next == list.end()) continue;
    beside += run.head_timings[n].end_us > run.head_timings[static_cast<size_t>(next - list.begin())].start_us;
  }
  return beside;
}

// All micro-batches of a block come before the next block, so each block's activations are away for a while.
TEST_F(GpuOverlap, ActivationsTravelWhileBlocksAreComputed) {
  RunOptions o = from_host(1);
  o.parameters = Tier::device;
  o.activations = Tier::host;
  o.order = parallel::Order::vertical;
  const RunResult run = train(o);
  const Beside seen = beside(run, Op::Fetch, What::activations);
  EXPECT_GE(seen.brought, 8);
  EXPECT_EQ(seen.begun, seen.brought);
  EXPECT_GE(evicted_beside(run), 8);
  o.prefetch = 0;
  const RunResult waits = train(o);
  EXPECT_GT(computes(run), computes(waits)) << "each Forward then waits until the activations of the one before are in host memory";
  RecordProperty("shares", testing::PrintToString(std::pair(computes(run), computes(waits))));
}

// Counts the optimizer updates of the head, and those that had left the GPU when the last block was still computed. (Their start is a
// time of the CPU, which an emulated GPU's clock does not know.)
std::pair<int, int> updates_beside(const RunResult& run) {
  const parallel::List& list = run.plan.train.head;
  double computed_us = 0;
  for (size_t n = 0; n < list.size(); ++n) {
    if (computes_block(list[n].op)) computed_us = std::max(computed_us, run.head_timings[n].end_us);
  }
  std::pair<int, int> updates;
  for (size_t n = 0; n < list.size(); ++n) {
    if (list[n].op != Op::Step) continue;
    ++updates.first;
    updates.second += run.head_timings[n].end_us < computed_us;
  }
  return updates;
}

// The updates of the first blocks have nothing to run beside, as the backward ends with these blocks.
TEST_F(GpuOverlap, UpdatesStreamThroughTheGpuWhileBlocksAreComputed) {
  RunOptions o = from_host(1);
  o.gradients = o.optimizer = Tier::host;
  o.overlap = OptimizerOverlap::backward;
  o.streams_steps = true;
  const auto [all, beside] = updates_beside(train(o));
  EXPECT_GT(all, 8);
  EXPECT_GE(beside, all / 2);
  RecordProperty("updates", testing::PrintToString(std::pair(all, beside)));
}

TEST_F(GpuOverlap, WithPrefetchTheGpuComputesMoreOfTheStep) {
  const double ahead = computes(train(from_host(1))), waits = computes(train(from_host(0)));
  EXPECT_GT(ahead, waits + 0.02);
  EXPECT_LE(ahead, 1 + 1e-9);
  RecordProperty("shares", testing::PrintToString(std::pair(ahead, waits)));
}

#ifdef SPILLWAY_HAS_NCCL
class GpuNcclOverlap : public GpuNccl {
 protected:
  void SetUp() override {
    GpuNccl::SetUp();
    emulated_cuda::use_rates(kSlowKernels);
  }
  void TearDown() override {
    emulated_cuda::forget_rates();
    GpuNccl::TearDown();
  }
  // Sums the counts over all ranks of two pipeline stages with two data-parallel ranks each.
  Beside gathered(int prefetch) {
    RunOptions o = over_nccl("gpt2-tiny", 2, 3, 1);
    o.model.layers = 4;
    o.pipeline = {.ranks = 2};
    o.prefetch = prefetch;
    const RunResult run = train(o);
    Beside all = beside(run, Op::Gather);
    for (const RunResult& other : run.others) {
      const Beside more = beside(other, Op::Gather);
      all.brought += more.brought, all.begun += more.begun;
    }
    return all;
  }
};

TEST_F(GpuNcclOverlap, WeightsAreGatheredWhileTheBlockBeforeIsComputed) {
  const Beside seen = gathered(1);
  EXPECT_GE(seen.brought, 16);
  EXPECT_EQ(seen.begun, seen.brought);
}

TEST_F(GpuNcclOverlap, WithoutPrefetchTheyAreNot) {
  const Beside seen = gathered(0);
  EXPECT_GE(seen.brought, 16);
  EXPECT_LE(seen.begun, seen.brought / 4);
}
#endif

}  // namespace
}  // namespace spillway::test::gpu_overlap_cuda_test
#endif
