// Tests that blocks ask for the same memory in the dry run of a plan as in a training step. First fit gives other offsets for other
// requests, and then a slab of the planned size may have no room for a request of the step.
#include <gtest/gtest.h>

#include "device/arena.h"
#include "models/model.h"
#include "models/presets.h"
#include "nn/eager.h"
#include "parallel/blocks/accumulator.h"
#include "parallel/blocks/block_runner.h"

namespace spillway::parallel::dry_run_test {
namespace {

struct Requests final : Allocator {
  Arena arena;
  std::vector<std::string> names;
  Allocation allocate(i64 bytes, const char* what) override {
    names.push_back(what);
    return arena.allocate(bytes, what);
  }
  void release(std::byte*, i64, i64) noexcept override {}
};

std::vector<std::string> requests_of_backward(Device::Kind kind) {
  const nn::Sequential model = models::build(models::preset("gpt2-tiny"), DType::f32);
  const Layout layout = make_layout(model);
  Requests requests;
  const StreamScope scope(Stream{Device::meta(kind), nullptr, &requests});
  const std::vector<MicroBatch> batches{nn::empty_batch(model, 1, 8)};
  BlockRunner runner(model);
  Accumulator accumulator(layout, DType::f32);
  runner.begin(batches, nn::Mode::train, {}, 1);
  Instruction i;
  i.micro_batch = 0;
  for (u16 block = 0; block < model.blocks.size(); ++block) i.op = Op::Forward, i.block = block, runner.forward(i);
  requests.names.clear();
  i.op = Op::Backward, i.first = true;  // of the last block
  for (const GroupUse& use : layout.blocks[i.block]) accumulator.place(use, nullptr, true);
  runner.backward(i, accumulator);
  return requests.names;
}

// With a GPU, the gradient of the loss lies in CPU memory, so the dry run must not ask the arena for it. tensor_of() would ask for a
// "tensor".
TEST(DryRun, OfAGpuDoesNotAskItsMemoryForTheGradientOfTheLoss) {
  EXPECT_EQ(std::ranges::count(requests_of_backward(Device::Kind::cpu), "tensor"), 1);
  const auto on_gpu = requests_of_backward(Device::Kind::cuda);
  EXPECT_EQ(std::ranges::count(on_gpu, "tensor"), 0);
  EXPECT_GT(std::ranges::count(on_gpu, "kernel workspace"), 0);
}

}  // namespace
}  // namespace spillway::parallel::dry_run_test
