// Tests that a backward in two parts gives bitwise the gradients of a single backward: for every layer and typical blocks, in every type,
// whatever is frozen, with or without a gradient of the input. A second part that reads no weights must run without them in memory.
#include <gtest/gtest.h>

#include "nn/eager.h"
#include "nn/image_layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/glu.h"
#include "ops/experts/experts.h"
#include "ops/layout/shape.h"
#include "ops/losses/loss.h"
#include "ops/products/matmul.h"
#include "ops/rows/norm.h"
#include "ops/sequence/attention.h"
#include "tests/nn/support_blocks.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway::nn::backward_parts_test {
namespace {

using autograd::Tape;
using spillway::test::random;
using spillway::test::same_bits;
using spillway::test::Sink;

const Tensor& tokens() {
  static const Tensor ids = spillway::test::ints({3, 0, 5, 3, 6, 1}, {2, 3});
  return ids;
}

struct Case {
  std::string name;
  ParameterList uses;
  test::Forward forward;
  Shape input;
  bool reads = false;  // whether the weight part of backward needs the weights
  bool narrow = true;  // whether bf16 and f16 are tested too; copies of views support one type only
};

template <class Layer>
Case layer(const char* name, const Layer& layer, const Shape& input, bool reads = false) {
  Case c{name, {}, [layer](const Variable& x, const Context& context) { return layer(x, context); }, input, reads};
  if constexpr (requires { layer.list(c.uses); }) layer.list(c.uses);
  return c;
}

// A parameter that a block uses directly, without a layer.
struct Weight {
  std::shared_ptr<Parameter> parameter;
  Weight(const char* name, const Shape& shape, DType dtype) : parameter(test::weight(name, shape, dtype)) {}
  Variable operator()(const Context& c) const { return c.use(*parameter); }
  void list(ParameterList& parameters) const { parameters.push_back({parameter, 0}); }
};

std::vector<Case> layers(DType dtype) {
  const Shape rows{2, 3, 8}, images{2, 4, 5, 5};
  std::vector<Case> all = {
      layer("linear", Linear("l", 8, 6, dtype, {}), rows),
      layer("linear in out", Linear("l", 8, 6, dtype, {true, ops::WeightLayout::in_out}), rows),
      layer("linear without bias", Linear("l", 8, 6, dtype, {false}), rows),
      layer("layer norm", LayerNorm("n", 8, dtype, 1e-5), rows),
      layer("rms norm", RmsNorm("n", 8, dtype, 1e-5), rows),
      layer("dropout", Dropout("d", 0.5), rows),
      layer("conv2d", Conv2d("c", 4, 6, 3, dtype, {.groups = 2}), images),
      layer("batch norm", BatchNorm2d("b", 4, dtype), images, true),
      layer("max pool", MaxPool2d{2, 2}, images),
      layer("avg pool", AvgPool2d{2, 2}, images),
      layer("adaptive avg pool", AdaptiveAvgPool2d{2}, images),
  };
  const Embedding words("wte", 7, 8, dtype, 1), places("wpe", 3, 8, dtype, 1);
  all.push_back({"embeddings", listed(words, places),
                 [=](const Variable& x, const Context& c) {
                   return ops::add(ops::add(words(tokens(), c), places(spillway::test::ints({0, 1, 2, 0, 1, 2}, {2, 3}), c)), x);
                 },
                 rows});
  return all;
}

std::vector<Case> blocks(DType dtype) {
  const Shape rows{2, 3, 8};
  const LayerNorm norm("ln", 8, dtype, 1e-5);
  const RmsNorm rms("rms", 8, dtype, 1e-5);
  const Linear up("up", 8, 16, dtype, {}), gate("gate", 8, 16, dtype, {}), down("down", 16, 8, dtype, {}), qkv("qkv", 8, 24, dtype, {}),
      out("out", 8, 8, dtype, {});
  const Weight head("head", {7, 8}, dtype), square("square", {8, 8}, dtype), gain("gain", {8}, dtype), first("first", {2, 1, 8}, dtype);
  const Linear router("router", 8, 3, dtype, {false});
  const std::vector<Weight> experts{{"e0", {8, 8}, dtype}, {"e1", {8, 8}, dtype}, {"e2", {8, 8}, dtype}};
  const auto head_of = [=](i64 chunk_bytes) {
    return
        [=](const Variable& x, const Context& c) { return ops::linear_cross_entropy(norm(x, c), head(c), tokens(), 0.25, {chunk_bytes}); };
  };
  return {
      {"mlp", listed(norm, up, down),
       [=](const Variable& x, const Context& c) { return ops::add(x, down(ops::gelu_tanh(up(norm(x, c), c)), c)); }, rows},
      {"gelu mlp", listed(norm, up, down),
       [=](const Variable& x, const Context& c) { return ops::add(x, ops::gelu_mlp(norm(x, c), up.weights(c), down.weights(c))); }, rows},
      {"gated mlp", listed(rms, gate, up, down),
       [=](const Variable& x, const Context& c) {
         const Variable h = rms(x, c);
         return ops::add(down(ops::swiglu(gate(h, c), up(h, c)), c), x);
       },
       rows},
      {"experts", listed(rms, router, experts[0], experts[1], experts[2]),
       [=](const Variable& x, const Context& c) {
         const Variable h = ops::reshape(rms(x, c), {6, 8});
         const ops::Routed routed = ops::router(router(h, c), 2, {.normalised = true});
         const ops::ExpertRows chosen = ops::expert_rows(routed.experts_NK, 3);
         const std::vector<Variable> weights{experts[0](c), experts[1](c), experts[2](c)};
         const Variable y = ops::expert_linear(ops::to_experts(h, chosen), {weights.begin(), weights.end()}, chosen);
         return ops::add(x, ops::reshape(ops::from_experts(y, routed.weights_NK, chosen), {2, 3, 8}));
       },
       rows},
      {"attention", listed(norm, qkv, out),
       [=](const Variable& x, const Context& c) {
         ops::AttentionOptions causal;
         causal.causal = true;
         causal.scale = 0.5;
         return ops::add(x, out(ops::attention_packed(qkv(norm(x, c), c), 2, causal), c));
       },
       rows},
      {"head", listed(norm, head), head_of(1 << 20), rows, true},
      {"head in chunks", listed(norm, head), head_of(7 * 8 * 2), rows, true},
      {"a weight twice", listed(square),
       [=](const Variable& x, const Context& c) { return ops::matmul(ops::matmul(x, square(c)), square(c)); }, rows},
      {"a weight turned", listed(square),
       [=](const Variable& x, const Context& c) {
         return ops::matmul(x, ops::permute(square(c), {1, 0}));
       },
       rows, false, false},
      {"a weight stretched", listed(gain), [=](const Variable& x, const Context& c) { return ops::div(ops::mul(x, gain(c)), gain(c)); },
       rows, true},
      {"weights alone", listed(gain, square),
       [=](const Variable& x, const Context& c) { return ops::add(x, ops::mul(gain(c), ops::relu(gain(c)))); }, rows, true},
      {"a weight among others", listed(first),
       [=](const Variable& x, const Context& c) {
         return ops::concat({first(c), x}, 1);
       },
       rows, false, false},
  };
}

struct Gradients {
  Tensor input;
  std::map<std::pair<u32, u8>, Tensor> parameters;
  std::map<std::pair<u32, u8>, int> finished;
};

class Model {
 public:
  Model(const Case& c, DType dtype) : case_(c), dtype_(dtype) {
    sequential_.push(test::block(c.uses, c.forward));
    weights_ = std::make_unique<EagerParameters>(sequential_);
    for (size_t p = 0; p < parameters().size(); ++p) {
      const Tensor to = parameters()[p]->value();
      const Tensor from = spillway::test::as(to.dtype(), random(to.shape(), DType::f64, 10 + p, 0.5));
      std::memcpy(to.raw(), from.raw(), static_cast<size_t>(to.bytes()));
      frozen_.push_back(parameters()[p]->frozen);
    }
  }
  const std::vector<std::shared_ptr<Parameter>>& parameters() const { return sequential_.parameters; }
  /// Freezes parameter `one`, besides those that the block itself freezes.
  void freeze(std::optional<size_t> one) {
    for (size_t p = 0; p < parameters().size(); ++p) parameters()[p]->frozen = frozen_[p] || p == one;
  }

  Gradients run(bool in_parts, bool of_input) {
    Sink sink;
    Tape tape(&sink);
    Context context;
    context.tape = &tape;
    const MicroBatch batch;
    context.batch = &batch;
    Tensor x = random(case_.input, dtype_, 1);
    const Variable in = of_input ? tape.input(x) : Variable(x);
    const Variable y = sequential_.blocks[0]->forward(in, context);
    Gradients g;
    if (!y.needs_gradient()) return g;
    Tensor dy = random(y.shape(), y.dtype(), 2);
    if (in_parts) {
      tape.backward_input(y, std::move(dy));
      EXPECT_TRUE(sink.gradients.empty()) << "the input part has touched the sink";
      if (of_input) g.input = tape.take_gradient(in);
      std::vector<std::byte*> places = case_.reads ? std::vector<std::byte*>() : drop();
      tape.backward_weight();
      EXPECT_FALSE(tape.has_weight_part());
      for (size_t p = 0; p < places.size(); ++p) parameters()[p]->storage->fill(places[p]);
    } else {
      tape.backward(y, std::move(dy));
      if (of_input) g.input = tape.take_gradient(in);
    }
    EXPECT_EQ(tape.saved_bytes(), 0);
    g.parameters = sink.gradients;
    g.finished = sink.finished;
    return g;
  }

 private:
  std::vector<std::byte*> drop() {
    std::vector<std::byte*> places;
    for (const auto& p : parameters()) {
      places.push_back(p->storage->data());
      p->storage->drop();
    }
    return places;
  }
  const Case& case_;
  const DType dtype_;
  Sequential sequential_;
  std::unique_ptr<EagerParameters> weights_;
  std::vector<bool> frozen_;
};

void expect_equal(const Gradients& got, const Gradients& want) {
  EXPECT_EQ(got.input.defined(), want.input.defined());
  if (want.input.defined()) {
    EXPECT_TRUE(same_bits(got.input, want.input)) << "input";
  }
  EXPECT_EQ(got.finished, want.finished);
  ASSERT_EQ(got.parameters.size(), want.parameters.size());
  for (const auto& [key, gradient] : want.parameters) EXPECT_TRUE(same_bits(got.parameters.at(key), gradient)) << "parameter " << key.first;
}

class BackwardInParts : public testing::TestWithParam<DType> {};

TEST_P(BackwardInParts, GivesTheBitsOfOneAtOnce) {
  int gradients = 0;
  for (const auto& cases : {layers(GetParam()), blocks(GetParam())}) {
    for (const Case& c : cases) {
      if (!c.narrow && is_half(GetParam())) continue;
      SCOPED_TRACE(c.name);
      Model model(c, GetParam());
      for (size_t frozen = 0; frozen <= model.parameters().size(); ++frozen) {
        model.freeze(frozen == 0 ? std::nullopt : std::optional(frozen - 1));
        for (const bool of_input : {true, false}) {
          const Gradients want = model.run(false, of_input);
          expect_equal(model.run(true, of_input), want);
          gradients += static_cast<int>(want.parameters.size());
        }
      }
    }
  }
  EXPECT_GT(gradients, 100);
}

INSTANTIATE_TEST_SUITE_P(Types, BackwardInParts, testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace spillway::nn::backward_parts_test
