#include "nn/image_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "nn/eager.h"
#include "tests/nn/support_blocks.h"
#include "tests/support/numbers.h"

namespace spillway::nn::image_layers_test {
namespace {

std::vector<double> initial(const Parameter& p) {
  std::vector<double> values(static_cast<size_t>(p.elems()));
  initial_values(p, 1, 0, values);
  return values;
}

TEST(Conv2d, HasPyTorchsNamesShapesAndInitialValues) {
  const Conv2d conv("conv1", 6, 40, {5, 3}, DType::f32, {.groups = 2});
  const ParameterList list = listed(conv);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].parameter->name, "conv1.weight");
  EXPECT_EQ(list[0].parameter->shape, (Shape{40, 3, 5, 3}));
  EXPECT_EQ(list[1].parameter->name, "conv1.bias");
  const double bound = 1 / std::sqrt(3.0 * 5 * 3);
  for (const auto& use : list) {
    const std::vector<double> values = initial(*use.parameter);
    const auto [least, most] = std::ranges::minmax(values);
    EXPECT_GE(least, -bound);
    EXPECT_LT(most, bound);
    EXPECT_LT(least, -0.85 * bound);
    EXPECT_GT(most, 0.85 * bound);
  }
  EXPECT_EQ(listed(Conv2d("c", 1, 1, 3, DType::f32, {.bias = false})).size(), 1u);
  EXPECT_THROW(Conv2d("c", 3, 4, 3, DType::f32, {.groups = 2}), Error);
}

TEST(Linear, StartsAsPyTorchsWhenUniform) {
  const ParameterList list = listed(Linear("fc", 400, 120, DType::f32, {.uniform = true}));
  for (const auto& use : list) {
    EXPECT_EQ(use.parameter->init.kind, Initializer::Kind::uniform);
    for (double v : initial(*use.parameter)) ASSERT_LE(std::abs(v), 1 / std::sqrt(400.0));
  }
}

// Holds a batch-norm layer, and a batch whose mean is 2 and whose variance is 1 (biased) or 4/3 (unbiased).
struct Batch {
  const BatchNorm2d layer{"bn", 1, DType::f32, 0};
  Sequential model;
  std::unique_ptr<EagerParameters> weights;
  Tensor x = tensor_of<float>(std::vector<float>{1, 3, 1, 3}, {2, 1, 1, 2});
  Batch() {
    model.push(test::block(listed(layer)));
    weights = std::make_unique<EagerParameters>(model);
    for (const u32 ones : {0u, 3u}) *model.parameters[ones]->value().data<float>() = 1;
  }
  float running(u32 id) const { return *model.parameters[id]->value().data<float>(); }
};

TEST(BatchNorm2d, TrainsByTheBatchAndEvaluatesByTheRunningStatistics) {
  Batch b;
  EXPECT_EQ(b.model.parameters[2]->name, "bn.running_mean");
  EXPECT_EQ(b.model.parameters[3]->name, "bn.running_var");
  EXPECT_TRUE(b.model.parameters[2]->statistic && b.model.parameters[3]->statistic);
  EXPECT_EQ(b.model.parameter_elems(), 2) << "statistics are no weights";
  autograd::Tape tape(b.weights.get());
  Context context;
  context.tape = &tape;
  const Variable y = b.layer(b.x, context);
  for (i64 i = 0; i < 4; ++i) EXPECT_EQ(spillway::test::at(y.value, i), i % 2 == 0 ? -1 : 1);
  tape.backward(y, b.x);
  EXPECT_EQ(b.weights->gradient(2).item(), 2);
  EXPECT_FLOAT_EQ(static_cast<float>(b.weights->gradient(3).item()), 4.0f / 3);
  EXPECT_EQ(b.running(2), 0) << "a forward writes none";
  EXPECT_EQ(b.running(3), 1);
  const auto expect_fixed = [&] { EXPECT_NEAR(spillway::test::at(b.layer(b.x, context).value, 1), (3 - 0.5) / 2, 1e-6); };
  *b.model.parameters[2]->value().data<float>() = 0.5f;
  *b.model.parameters[3]->value().data<float>() = 4;
  context.mode = Mode::evaluate;
  expect_fixed();
  context.mode = Mode::train;
  for (const u32 statistic : {2u, 3u}) b.model.parameters[statistic]->frozen = true;
  expect_fixed();
}

TEST(Pools, AreTheOps) {
  const Tensor x = spillway::test::random({2, 3, 6, 5}, DType::f32, 1);
  const Context context;
  EXPECT_EQ((MaxPool2d{2, 2}(x, context).shape()), (Shape{2, 3, 3, 2}));
  EXPECT_EQ((AvgPool2d{3, 2, 1}(x, context).shape()), (Shape{2, 3, 3, 3}));
  EXPECT_EQ((AdaptiveAvgPool2d{{2, 1}}(x, context).shape()), (Shape{2, 3, 2, 1}));
  EXPECT_EQ(flatten(x).shape(), (Shape{2, 90}));
}

}  // namespace
}  // namespace spillway::nn::image_layers_test
