// Tests that the eager optimizer gives bitwise the same results on a GPU as on the CPU, for every update rule and type, over whole tiles of
// 16,384 elements and parts of one. Its saved state is compared too.
#include <gtest/gtest.h>

#include "base/units.h"
#include "device/gpu_queue.h"
#include "eager/optimizer.h"
#include "eager/square_sum.h"
#include "ops/elementwise/elementwise.h"
#include "ops/rows/reduce.h"
#include "tensor/create.h"
#include "tests/support/gpu.h"
#include "tests/support/gpu_log.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace spillway::eager::optimizer_cuda_test {
namespace {

class OptimizerTwins : public test::GpuTest {};

std::vector<optim::RuleSettings> settings() {
  using namespace optim;
  return {SgdSettings{.lr = 0.05, .weight_decay = 0.01},
          AdamSettings{.weight_decay = 0.1, .decoupled_weight_decay = true},
          AdamSettings{.amsgrad = true},
          AdagradSettings{.initial_accumulator_value = 0.2},
          RmspropSettings{.momentum = 0.7, .centered = true},
          LionSettings{.weight_decay = 0.1}};
}

// Takes two optimizer steps with a given gradient on the current stream's device. Saves the state to `file` and returns the weights.
Tensor stepped(DType dtype, const optim::RuleSettings& settings, const std::filesystem::path& file,
               const Shape& shape = {optim::kTileElems + 77}) {
  const auto w = nn::make_parameter("w", shape, dtype, {});
  nn::EagerParameters weights({w});
  const Tensor gradient = randn(shape, RandomKey{2}, dtype);  // a gradient on the current stream's device
  Optimizer optimizer(weights, settings);
  for (int step = 0; step < 2; ++step) {
    autograd::Tape tape(&weights);
    const autograd::Variable v = tape.parameter(w->value(), w->id);
    optimizer.zero_grad();
    ops::sum(ops::mul(v, gradient)).backward();
    optimizer.step();
    if (step == 0) {
      optimizer.save(file);
      optimizer.load(file);
    }
  }
  return to_host(w->value());
}

TEST_F(OptimizerTwins, StepsToTheBitsOfTheCpu) {
  const test::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const optim::RuleSettings& one : settings()) {
      const Tensor there = gpu().run([&] { return stepped(dtype, one, folder / "there"); });
      const Tensor here = stepped(dtype, one, folder / "here");
      EXPECT_TRUE(test::same_bits(there, here)) << optim::to_string(optim::rule_of(one)) << " " << to_string(dtype);
    }
  }
}

// The parameters of the test are a vector, and a matrix that takes one whole tile (16,384 elements) and a part of a second tile.
TEST_F(OptimizerTwins, WholeParametersStepToTheBitsOfTheCpu) {
  const test::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const optim::RuleSettings& one : std::initializer_list<optim::RuleSettings>{optim::MuonSettings{}, optim::AdafactorSettings{}}) {
      for (const Shape& shape : {Shape{97, 101}, Shape{50}}) {
        const Tensor there = gpu().run([&] { return stepped(dtype, one, folder / "there", shape); });
        const Tensor here = stepped(dtype, one, folder / "here", shape);
        EXPECT_TRUE(test::same_bits(there, here)) << optim::to_string(optim::rule_of(one)) << " " << to_string(dtype) << shape.rank();
        EXPECT_NE(values_of(there).back(), 0) << "it began at 0";
      }
    }
  }
}

// Gradients of two whole tiles (of 16,384 elements), of one and a part, and of a few elements.
TEST_F(OptimizerTwins, NormHasTheBitsOfTheCpuAndNoGradientComesToTheHost) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const auto gradients = [&] {
      std::vector<Tensor> all;
      for (const i64 elems : {2 * optim::kTileElems, optim::kTileElems + 77, i64{3}, i64{0}})
        all.push_back(randn({elems}, RandomKey{7}, dtype));
      return all;
    };
    const double here = square_sum(gradients());
    double exact = 0;
    for (const Tensor& gradient : gradients()) {
      for (const double x : values_of(gradient)) exact += x * x;
    }
    EXPECT_NEAR(here, exact, 1e-9 * exact);
    const std::vector<Tensor> there = gpu().run(gradients);
    const test::GpuLog log;
    EXPECT_EQ(gpu().run([&] { return square_sum(there); }), here) << to_string(dtype);
    if (log.kept()) {
      EXPECT_EQ(log.count("cudaMemcpyAsync"), 3) << "expected two parts of a tile, and the sums of all tiles";
    }
  }
}

TEST_F(OptimizerTwins, ParametersMoveThereAndBack) {
  const auto w = nn::make_parameter("w", {5}, DType::f32, {});
  nn::EagerParameters weights({w});
  const Tensor values = test::random({5}, DType::f32, 1);
  std::memcpy(w->value().raw(), values.raw(), 20);
  gpu().run([&] { weights.to_current_device(); });
  EXPECT_TRUE(w->value().device().is_cuda());
  gpu().run([&] { EXPECT_EQ(values_of(w->value()), values_of(values)); });
  gpu().run([&] { weights.to_host(); });
  EXPECT_EQ(w->value().device(), Device::cpu());
  EXPECT_TRUE(test::same_bits(w->value(), values));
}

// A second parameter does not fit on the GPU. The first parameter and the gradients must then be back in host memory, too.
TEST_F(OptimizerTwins, ParametersMoveTogetherOrStay) {
  const auto a = nn::make_parameter("a", {kMiB / 4}, DType::f32, {}), b = nn::make_parameter("b", {kMiB / 4}, DType::f32, {});
  nn::EagerParameters weights({a, b});
  a->value().span<float>()[7] = 2;
  const Tensor gradient = weights.target(a->id, 0, a->shape, DType::f32);
  gradient.span<float>()[7] = 3;
  weights.done(a->id, 0);
  MemoryPool small("device", 3 * kMiB / 2, "", pooled_gpu_memory(0));
  const Stream stream{Device::cuda(0), nullptr, &small, common_gpu_queue()};
  {
    const StreamScope scope(stream);
    EXPECT_THROW(weights.to_current_device(), Error);
  }
  EXPECT_EQ(small.used_bytes(), 0);
  EXPECT_EQ(a->value().device(), Device::cpu());
  EXPECT_EQ(a->value().span<float>()[7], 2);
  EXPECT_EQ(weights.gradient(a->id).span<float>()[7], 3);
}

TEST_F(OptimizerTwins, TensorsAreMadeThereAlike) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::int32}) {
    const Tensor there = gpu().run([&] { return arange(0, 100, 1, dtype); });
    EXPECT_TRUE(there.device().is_cuda());
    gpu().run([&] { EXPECT_EQ(values_of(there.slice(0, 3, 9)), values_of(arange(3, 9, 1, dtype))); });
  }
}

}  // namespace
}  // namespace spillway::eager::optimizer_cuda_test
