// Compares mixtures of experts in a trained model with transformers: which experts the router chooses, and with what weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/model.h"
#include "models/weights.h"
#include "nn/eager.h"
#include "ops/experts/experts.h"
#include "tests/models/support_reference.h"
#include "tests/support/fixtures.h"
#include "tests/support/numbers.h"

namespace spillway::experts_test {
namespace {

using test::Reference;

class Router : public ::testing::TestWithParam<const char*> {};

// Compares a router's choices. The reference lists the best expert first, while Spillway lists experts in ascending order.
TEST_P(Router, ChoosesWhatTransformersChooses) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Reference reference(GetParam(), dtype);
    for (const std::string layer : {"0", "1"}) {
      const std::vector<double> logits = reference.values("router/logits/" + layer), weights = reference.values("router/weights/" + layer);
      const Tensor experts = reference.ids("router/experts/" + layer);
      const i64 N = experts.size(0), K = experts.size(1), E = static_cast<i64>(logits.size()) / N;
      const Tensor given = tensor_of<double>(logits, {N, E});
      const ops::Routed routed = ops::router(test::as(dtype, given), K, {.normalised = true});
      for (i64 n = 0; n < N; ++n) {
        std::vector<std::pair<i32, double>> want;
        for (i64 k = 0; k < K; ++k) want.emplace_back(experts.data<i32>()[n * K + k], weights[static_cast<size_t>(n * K + k)]);
        std::ranges::sort(want);
        for (i64 k = 0; k < K; ++k) {
          ASSERT_EQ(routed.experts_NK.data<i32>()[n * K + k], want[static_cast<size_t>(k)].first) << "token " << n;
          ASSERT_NEAR(test::at(routed.weights_NK.value, n * K + k), want[static_cast<size_t>(k)].second,
                      dtype == DType::f64 ? 1e-14 : 1e-6);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Router, ::testing::Values("qwen3-moe-tiny", "mixtral-tiny"), [](const auto& entry) {
  std::string name = entry.param;
  std::erase(name, '-');
  return name;
});

std::vector<double> logits_of(const models::ModelConfig& config) {
  const nn::Sequential model = models::build(config, DType::f64);
  const nn::EagerParameters weights(model);
  models::fill(model, models::ScratchWeights(5));
  MicroBatch batch;
  batch.tokens_BT = test::ints({3, 0, 5, 3, 6, 1}, {2, 3});
  batch.positions_BT = test::ints({0, 1, 2, 0, 1, 2}, {2, 3});
  nn::Context context;
  context.mode = nn::Mode::generate;
  context.batch = &batch;
  context.logits_position = 2;
  return test::as_doubles(nn::run(model, context).value);
}

// A mixture-of-experts model may have some dense layers with a plain MLP. Their names and shapes are those of Qwen3.
TEST(Experts, DenseLayersAreAmongThem) {
  models::ModelConfig config = models::read_config(test::data("qwen3-moe-tiny"));
  config.experts->dense_layers = {1};
  const nn::Sequential model = models::build(config, DType::f32);
  std::vector<std::string> names;
  for (const auto& p : model.parameters) names.push_back(p->name);
  const auto has = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
  EXPECT_TRUE(has("model.layers.0.mlp.gate.weight"));
  EXPECT_TRUE(has("model.layers.0.mlp.experts.3.down_proj.weight"));
  EXPECT_FALSE(has("model.layers.1.mlp.gate.weight"));
  EXPECT_TRUE(has("model.layers.1.mlp.down_proj.weight"));
  EXPECT_EQ((*std::ranges::find(model.parameters, "model.layers.1.mlp.up_proj.weight", &nn::Parameter::name))->shape, (Shape{40, 24}));
  // Planted faults must change the logits: other dense layers, and router weights that are not divided by their sum.
  const std::vector<double> logits = logits_of(config);
  config.experts->dense_layers = {0};
  EXPECT_NE(logits_of(config), logits);
  config.experts->dense_layers = {1};
  EXPECT_EQ(logits_of(config), logits);
  config.experts->normalised = false;
  EXPECT_NE(logits_of(config), logits);
}

// Compares the router's load-balancing loss with transformers: its value
// is part of the loss, and its gradient is part of the routers' gradients.
TEST_P(Router, IsEvenedOutAsTransformersDoes) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Reference reference(GetParam(), dtype);
    models::ModelConfig config = models::read_config(test::data(GetParam()));
    config.experts->evened_out = true;
    test::Eager eager(GetParam(), config, dtype);
    const MicroBatch batch = reference.batch("input_ids", "labels");
    const double factor = 1 / static_cast<double>(batch.counted_targets), loss = eager.backward(batch, factor) * factor;
    const double allowed = dtype == DType::f64 ? 1e-12 : 1e-6;
    EXPECT_NEAR(loss, reference.value("with_aux/loss"), allowed * 10);
    EXPECT_NEAR((loss - reference.value("loss")) / config.experts->balance, reference.value("with_aux/aux_loss"),
                allowed * 10 / config.experts->balance);
    double squares = 0;
    int routers = 0;
    for (const auto& p : eager.model.parameters) {
      const std::vector<double> got = eager.gradient(p->name);
      for (const double g : got) squares += g * g;
      if (!p->name.ends_with(".gate.weight")) continue;
      ++routers;
      EXPECT_LE(test::worst_excess(got, reference.values("with_aux/grad/" + p->name), allowed, 0), 0) << p->name;
      EXPECT_GT(test::worst_excess(got, reference.values("grad/" + p->name), 1e-5, 0), 0) << "planted: it does something";
    }
    EXPECT_EQ(routers, 2);
    EXPECT_NEAR(std::sqrt(squares), reference.value("with_aux/grad_norm"), allowed * 10);
  }
}

// The planner counts an expert's parameters for half of all positions, since a token uses two of the four experts.
TEST(Experts, CountAsOftenAsTheyAreChosen) {
  const nn::Sequential model = models::build(models::read_config(test::data("mixtral-tiny")), DType::f32);
  for (const auto& p : model.parameters) EXPECT_EQ(p->positions, p->name.find(".experts.") != std::string::npos ? 0.5 : 1) << p->name;
}

}  // namespace
}  // namespace spillway::experts_test
