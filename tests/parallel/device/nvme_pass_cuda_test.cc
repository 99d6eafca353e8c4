// Tests NvmePass, which moves bytes from nvme to a GPU and back through host memory. The bytes arrive unchanged, with
// many reads in flight and few waits; a damaged read is repeated; and an error leaves no transfer in flight.
#include "parallel/device/nvme_pass.h"

#include <cstring>

#include "base/error.h"
#include "tests/parallel/device/support_gpu_state.h"

namespace spillway::test::nvme_pass_cuda_test {
namespace {

using parallel::Tier;

// GpuNvmePass is a fixture whose buffers hold one tile each, so that the largest group uses every buffer several times.
class GpuNvmePass : public GpuRuns {
 protected:
  void SetUp() override {
    GpuRuns::SetUp();
    if (IsSkipped()) return;
    RunOptions o = small_gpu_run("gpt2-tiny");
    o.model = models::preset("gpt2-tiny");
    o.model.layers = 1;
    o.model.width *= 2, o.model.mlp_width *= 2;
    o.parameters = o.gradients = Tier::nvme;
    rest_.emplace(o, [](parallel::Plan& plan) { plan.bounce_bytes = parallel::kTileElems * 4; });
    queue_.emplace(Device::cuda(0));
    pass_.emplace(rest_->plan(), rest_->state(), rest_->host());
    bytes_ = blob().bytes();
    on_gpu_ = rest_->device().allocate(bytes_, "test");
    here_ = rest_->host().allocate(bytes_, "test");
    ASSERT_GE(blob().tiles(), 2 * rest_->plan().bounces + 3);
    for (size_t at = 0; at < static_cast<size_t>(bytes_); at += sizeof(size_t)) want_.push_back(at);
    rest_->state().fill(rest_->largest().id, [&](parallel::TileRange range, std::span<std::byte> weights, std::span<std::byte>) {
      std::memcpy(weights.data(), want(range), weights.size());
    });
  }
  const std::byte* want(parallel::TileRange tiles) {
    return reinterpret_cast<const std::byte*>(want_.data()) + tiles.begin * blob().tile_bytes();
  }
  offload::Blob& blob() { return rest_->state().weights(rest_->largest().id); }
  parallel::TileRange first(i64 tiles) { return {blob().held().begin, blob().held().begin + tiles}; }
  void fetch(parallel::TileRange tiles) { pass_->fetch(blob(), tiles, on_gpu_.data(), *queue_); }
  /// Returns true if the GPU's memory holds the bytes that these tiles were filled with.
  bool has(parallel::TileRange tiles) {
    const i64 bytes = tiles.count() * blob().tile_bytes();
    queue_->copy(here_.data(), on_gpu_.data(), bytes);
    queue_->wait();
    return std::memcmp(here_.data(), want(tiles), static_cast<size_t>(bytes)) == 0;
  }

  std::optional<GpuState> rest_;
  std::optional<GpuQueue> queue_;
  std::optional<parallel::NvmePass> pass_;
  i64 bytes_ = 0;
  std::vector<size_t> want_;
  Allocation on_gpu_, here_;
};

TEST_F(GpuNvmePass, BringsTheBytesWithTwoWaitsATurnOfItsBuffers) {
  const i64 before = gpu_waits();
  fetch(blob().held());
  EXPECT_LE(gpu_waits() - before, 2 * ceil_div(blob().tiles(), rest_->plan().bounces));
  EXPECT_TRUE(has(blob().held()));
  // a transfer begins at the buffer that follows the last one used by the transfer before
  for (const i64 tiles : {1, 3, 4, 5, 7, 8, 9, 17}) {
    fetch(first(tiles));
    EXPECT_TRUE(has(first(tiles))) << tiles;
  }
}

TEST_F(GpuNvmePass, TakesThemBackWithTwoWaitsATurn) {
  fetch(blob().held());
  queue_->wait();
  offload::Blob& into = blob();
  const i64 before = gpu_waits();
  pass_->evict(on_gpu_.data(), into, into.held(), *queue_);
  EXPECT_LE(gpu_waits() - before, 2 * ceil_div(blob().tiles(), rest_->plan().bounces));
  fetch(into.held());
  EXPECT_TRUE(has(into.held()));
}

TEST_F(GpuNvmePass, DoesNotWaitForTheGpuWhileThereAreBuffers) {
  GpuGate gate;
  gate.hold(*queue_);
  fetch(first(rest_->plan().bounces));
  gate.open();
  EXPECT_TRUE(has(first(rest_->plan().bounces)));
  EXPECT_TRUE(gate.was_opened_in_time());
}

TEST_F(GpuNvmePass, ReadsAhead) {
  rest_->disk().hold_until_at_work = rest_->plan().bounces / 2;
  rest_->disk().most_at_work = 0;
  fetch(blob().held());
  EXPECT_GE(rest_->disk().most_at_work, rest_->plan().bounces / 2);
  EXPECT_TRUE(has(blob().held()));
}

TEST_F(GpuNvmePass, ABadTileIsReadAgainOnce) {
  rest_->disk().spoil_first_reads = true;
  fetch(blob().held());
  rest_->disk().spoil_first_reads = false;
  EXPECT_TRUE(has(blob().held()));
  const std::string told = rest_->state().take_rereads();
  EXPECT_NE(told.find(" " + std::to_string(blob().tiles()) + " times)"), std::string::npos) << told;
  rest_->disk().spoil_reads = true;
  try {
    fetch(blob().held());
    ADD_FAILURE() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(std::string(e.what()).find("CRC32C"), std::string::npos) << e.what();
  }
}

// Shows that nothing uses the buffers and the GPU's memory any more after an error is thrown, so that both may be freed.
TEST_F(GpuNvmePass, AnErrorLeavesNothingUnderWay) {
  for (const bool back : {false, true}) {
    for (const i64 nth : {0, 1, 6, 13}) {
      rest_->disk().delay_us = 200;
      rest_->disk().fail_at = rest_->disk().transfers + nth;
      try {
        back ? static_cast<void>(pass_->evict(on_gpu_.data(), blob(), blob().held(), *queue_)) : fetch(blob().held());
        ADD_FAILURE() << "expected transfer " << nth << " to fail";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::io);
      }
      EXPECT_EQ(rest_->disk().at_work, 0);
      const i64 before = gpu_waits();
      queue_->wait();
      EXPECT_EQ(gpu_waits(), before) << "the queue had not come to its end";
      rest_->disk().fail_at = -1;
      if (back) continue;
      fetch(blob().held());
      EXPECT_TRUE(has(blob().held()));
    }
  }
}

}  // namespace
}  // namespace spillway::test::nvme_pass_cuda_test
