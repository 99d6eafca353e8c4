#include "nn/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/eager.h"
#include "tests/nn/support_blocks.h"

namespace spillway::nn::layers_test {
namespace {

using ops::WeightLayout;

std::vector<float> values(const Tensor& t) {
  const auto span = t.span<float>();
  return {span.begin(), span.end()};
}

Tensor numbers(std::vector<float> v, const Shape& shape) { return tensor_of<float>(v, shape); }

// Makes a model whose only block is one layer, with memory for its parameters.
template <class Layer>
struct Alone {
  explicit Alone(const Layer& layer) {
    model.push(test::block(listed(layer)));
    weights = std::make_unique<EagerParameters>(model);
  }
  void set(size_t id, std::initializer_list<float> v) {
    std::ranges::copy(v, model.parameters[id]->value().template span<float>().begin());
  }
  Sequential model;
  std::unique_ptr<EagerParameters> weights;
};

TEST(Linear, ComputesBothLayouts) {
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const Linear linear("fc", 2, 3, DType::f32, {true, layout, 0.5});
    Alone alone(linear);
    ASSERT_EQ(alone.model.parameters.size(), 2u);
    EXPECT_EQ(alone.model.parameters[0]->name, "fc.weight");
    EXPECT_EQ(alone.model.parameters[0]->init.std, 0.5);
    EXPECT_EQ(alone.model.parameters[0]->shape, (layout == WeightLayout::out_in ? Shape{3, 2} : Shape{2, 3}));
    EXPECT_EQ(alone.model.parameters[1]->name, "fc.bias");
    EXPECT_EQ(alone.model.parameters[1]->init.kind, Initializer::Kind::zeros);
    if (layout == WeightLayout::out_in) {
      alone.set(0, {1, 2, 3, 4, 5, 6});
    } else {
      alone.set(0, {1, 3, 5, 2, 4, 6});
    }
    alone.set(1, {10, 20, 30});
    EXPECT_EQ(values(linear(numbers({1, -1}, {1, 2}), Context()).value), (std::vector<float>{9, 19, 29}));
  }
}

TEST(Linear, WithoutABiasHasOneParameter) {
  const Linear linear("fc", 2, 1, DType::f32, {false, WeightLayout::out_in, 0.02});
  Alone alone(linear);
  ASSERT_EQ(alone.model.parameters.size(), 1u);
  alone.set(0, {3, 4});
  EXPECT_EQ(values(linear(numbers({1, 10}, {1, 2}), Context()).value), (std::vector<float>{43}));
}

TEST(Embedding, LooksRowsUp) {
  const Embedding embedding("wte", 3, 2, DType::f32, 0.02);
  Alone alone(embedding);
  alone.set(0, {1, 2, 3, 4, 5, 6});
  const std::vector<i32> ids{2, 0};
  const Variable y = embedding(tensor_of<i32>(ids, {1, 2}), Context());
  EXPECT_EQ(y.shape(), (Shape{1, 2, 2}));
  EXPECT_EQ(values(y.value), (std::vector<float>{5, 6, 1, 2}));
}

TEST(Norms, NormaliseAndScale) {
  const LayerNorm layer("ln", 2, DType::f32, 0);
  Alone with_layer(layer);
  EXPECT_EQ(with_layer.model.parameters[0]->init.kind, Initializer::Kind::ones);
  with_layer.set(0, {2, 3});
  with_layer.set(1, {10, 20});
  // the layer normalises (4, 8) to (-1, 1)
  EXPECT_EQ(values(layer(numbers({4, 8}, {1, 2}), Context()).value), (std::vector<float>{8, 23}));

  const RmsNorm rms("norm", 2, DType::f32, 0);
  Alone with_rms(rms);
  with_rms.set(0, {1, 10});
  const auto y = values(rms(numbers({7, 1}, {1, 2}), Context()).value);  // the root mean square of (7, 1) is 5
  EXPECT_NEAR(y[0], 1.4, 1e-6);
  EXPECT_NEAR(y[1], 2, 1e-6);
}

TEST(Dropout, WorksInTrainingOnlyAndTellsPlacesApart) {
  MicroBatch batch;
  batch.first_sample = 11;
  Context context;
  context.batch = &batch;
  const Tensor x = numbers(std::vector<float>(256, 1), {2, 128});
  const Dropout here("h.0.drop", 0.5), there("h.1.drop", 0.5);

  context.mode = Mode::evaluate;
  EXPECT_EQ(values(here(x, context).value), values(x));
  EXPECT_EQ(here.share(context), 0);

  context.mode = Mode::train;
  const auto dropped = values(here(x, context).value);
  EXPECT_EQ(dropped, values(here(x, context).value)) << "the mask is a function of key and sample";
  EXPECT_NE(dropped, values(there(x, context).value));
  for (float v : dropped) EXPECT_TRUE(v == 0 || v == 2);
  // The number of zeros among 256 elements, each dropped with probability 1/2, may be off by five standard deviations of 8.
  EXPECT_NEAR(static_cast<double>(std::ranges::count(dropped, 0.0f)), 128, 40);

  batch.first_sample = 12;  // row 1 of the earlier batch is now row 0
  const auto shifted = values(here(x, context).value);
  EXPECT_TRUE(std::equal(dropped.begin() + 128, dropped.end(), shifted.begin()));
  EXPECT_EQ(values(Dropout("h.0.drop", 0)(x, context).value), values(x));
}

}  // namespace
}  // namespace spillway::nn::layers_test
