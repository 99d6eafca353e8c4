// Tests that ops on transposed views give bitwise the results of the same ops on contiguous tensors, forward and backward.
#include "ops/elementwise/dropout.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/glu.h"
#include "ops/experts/experts.h"
#include "ops/images/batch_norm.h"
#include "ops/images/conv.h"
#include "ops/images/pool.h"
#include "ops/layout/shape.h"
#include "ops/losses/loss.h"
#include "ops/products/linear.h"
#include "ops/rows/norm.h"
#include "ops/rows/reduce.h"
#include "ops/sequence/attention.h"
#include "ops/sequence/embedding.h"
#include "ops/sequence/rope.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway::views_test {
namespace {

using ops::Variable;
using test::Function;

void check(const std::vector<Shape>& shapes, const Function& f) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : shapes) {
      inputs.push_back(test::random(shape, dtype, inputs.size() + 1));
      for (i64 i = 0; i < inputs.back().elems(); ++i) {  // makes values positive, since roots and logarithms are among the tested ops
        dtype == DType::f32 ? inputs.back().data<float>()[i] += 2 : inputs.back().data<double>()[i] += 2;
      }
    }
    ASSERT_FALSE(test::turned(inputs[0]).is_contiguous());
    test::check_views(inputs, f);
  }
}

TEST(Views, Elementwise) {
  using Unary = Variable (*)(const Variable&);
  for (const Unary op : {Unary(ops::exp), Unary(ops::log), Unary(ops::sqrt), Unary(ops::rsqrt), Unary(ops::tanh), Unary(ops::sigmoid),
                         Unary(ops::relu), Unary(ops::silu), Unary(ops::gelu_tanh), Unary(ops::gelu_erf)})
    check({{3, 5, 7}}, [=](const auto& in) { return op(in[0]); });
  using Binary = Variable (*)(const Variable&, const Variable&);
  for (const Binary op : {Binary(ops::add), Binary(ops::sub), Binary(ops::mul), Binary(ops::div)}) {
    for (const Shape& other : {Shape{3, 5, 7}, Shape{5, 1}, Shape{3, 1, 7}, Shape{}, Shape{2, 1, 1, 7}})
      check({{3, 5, 7}, other}, [=](const auto& in) { return op(in[0], in[1]); });
  }
  check({{3, 5}}, [](const auto& in) { return ops::scale(in[0], 0.3); });
  check({{3, 5}, {3, 5}}, [](const auto& in) { return ops::swiglu(in[0], in[1]); });
  check({{3, 5}, {3, 5}}, [](const auto& in) { return ops::geglu(in[0], in[1]); });
  check({{3, 5}}, [](const auto& in) { return ops::dropout(in[0], 0.3, RandomKey{1}, 5); });
}

TEST(Views, ShapesAndSums) {
  check({{3, 5, 7}}, [](const auto& in) { return ops::reshape(in[0], {7, 15}); });
  check({{3, 5, 7}}, [](const auto& in) { return ops::permute(in[0], {1, 2, 0}); });
  check({{3, 5, 7}}, [](const auto& in) { return ops::slice(in[0], 1, 1, 4); });
  check({{3, 5}, {2, 5}}, [](const auto& in) { return ops::concat({in[0], in[1]}, 0); });
  check({{3, 5, 7}}, [](const auto& in) { return ops::sum(in[0]); });
  check({{3, 5, 7}}, [](const auto& in) { return ops::mean(in[0], 1, false); });
}

TEST(Views, Products) {
  check({{3, 5, 7}, {4, 7}, {4}, {3, 5, 4}},
        [](const auto& in) { return ops::linear(in[0], in[1], in[2], ops::WeightLayout::out_in, in[3]); });
  check({{5, 7}, {7, 4}}, [](const auto& in) { return ops::linear(in[0], in[1], {}, ops::WeightLayout::in_out); });
  check({{5, 7}, {9, 7}, {9}, {4, 9}}, [](const auto& in) {
    using ops::WeightLayout;
    return ops::gelu_mlp(in[0], {in[1], in[2], WeightLayout::out_in}, {in[3], {}, WeightLayout::out_in});
  });
  const Tensor x = test::random({5, 7}, DType::f32, 1), w = test::random({9, 7}, DType::f32, 2);
  EXPECT_TRUE(test::same_bits(ops::logits(x, w), ops::logits(test::turned(x), test::turned(w))));
}

TEST(Views, NormsAndImages) {
  check({{3, 5, 7}, {7}, {7}}, [](const auto& in) { return ops::layer_norm(in[0], in[1], in[2], 1e-5); });
  check({{3, 5, 7}, {7}}, [](const auto& in) { return ops::rms_norm(in[0], in[1], 1e-5); });
  check({{2, 4, 5, 7}, {6, 2, 3, 3}, {6}}, [](const auto& in) { return ops::conv2d(in[0], in[1], in[2], {1, 1, 1, 2}); });
  check({{2, 4, 5, 7}}, [](const auto& in) { return ops::max_pool2d(in[0], 3, 2, 1); });
  check({{2, 4, 5, 7}}, [](const auto& in) { return ops::avg_pool2d(in[0], 3, 2, 1); });
  check({{2, 4, 5, 7}}, [](const auto& in) { return ops::adaptive_avg_pool2d(in[0], {2, 3}); });
  for (const bool training : {true, false}) {
    ops::BatchNormOptions options;
    options.training = training;
    check({{3, 4, 5, 7}, {4}, {4}}, [&](const auto& in) {
      const Tensor mean = test::random({4}, in[0].dtype(), 7), variance = test::as(in[0].dtype(), ops::exp(mean).value);
      return ops::batch_norm2d(in[0], in[1], in[2], mean, variance, options);
    });
  }
}

TEST(Views, Transformers) {
  const Tensor ids = test::turned(test::ints({2, 0, 2, 2, 4, 0}, {2, 3})), targets = test::turned(test::ints({2, 0, 1, 2, 4, 0}, {2, 3}));
  check({{5, 7}}, [&](const auto& in) { return ops::embedding(ids, in[0]); });
  const std::vector<double> frequencies{1, 0.1};
  check({{2, 3, 2, 4}}, [&](const auto& in) { return ops::rope(in[0], ids, frequencies); });
  ops::AttentionOptions options;
  options.scale = 0.35;
  check({{2, 5, 4, 8}, {2, 5, 2, 8}, {2, 5, 2, 8}}, [&](const auto& in) { return ops::attention(in[0], in[1], in[2], options); });
  check({{2, 5, 24}}, [&](const auto& in) { return ops::attention_packed(in[0], 2, options); });
  options.positions_BT = test::turned(test::ints({0, 1, 2, 0, 1, 0, 1, 0, 1, 2}, {2, 5}));
  check({{2, 5, 24}}, [&](const auto& in) { return ops::attention_packed(in[0], 2, options); });
  check({{2, 3, 5}}, [&](const auto& in) { return ops::cross_entropy_sum(in[0], targets, 0.5); });
  check({{2, 3, 5}}, [&](const auto& in) { return ops::cross_entropy_mean(in[0], targets); });
  check({{2, 3, 4}, {5, 4}}, [&](const auto& in) { return ops::linear_cross_entropy(in[0], in[1], targets, 0.5); });
  const ops::ExpertRows rows = ops::expert_rows(test::turned(test::ints({0, 2, 1, 4, 0, 4, 2, 4, 0, 1, 1, 2}, {6, 2})), 5);
  check({{6, 3}}, [&](const auto& in) { return ops::to_experts(in[0], rows); });
  check({{12, 3}, {6, 2}}, [&](const auto& in) { return ops::from_experts(in[0], in[1], rows); });
  check({{6, 5}}, [](const auto& in) { return ops::router(in[0], 2, {.normalised = true}).weights_NK; });
  check({{12, 3}, {4, 3}, {4, 3}, {4, 3}, {4, 3}, {4, 3}}, [&](const auto& in) {
    return ops::expert_linear(in[0], {in.begin() + 1, in.end()}, rows);
  });
}

// A transposed parameter gets a contiguous gradient of the parameter's shape. The tape saves a copy of the parameter, which counts as
// saved.
TEST(Views, OfAParameter) {
  const Tensor x = test::random({3, 5}, DType::bf16, 1), stored = test::random({5, 4}, DType::bf16, 2), w = stored.transpose(0, 1);
  const auto run = [&](const Tensor& weight) {
    test::Sink sink;
    autograd::Tape tape(&sink);
    const Variable in = tape.input(x), y = ops::linear(in, tape.parameter(weight, 0), {}, ops::WeightLayout::out_in);
    EXPECT_EQ(tape.saved_bytes(), x.bytes() + (weight.is_contiguous() ? 0 : weight.bytes()));
    tape.backward(y, y.value);
    return std::pair(tape.take_gradient(in), sink.gradients.at({0, 0}));
  };
  const auto [dx, dw] = run(w);
  const auto [plain_dx, plain_dw] = run(ops::permute(stored, {1, 0}).value);
  EXPECT_EQ(dw.shape(), (Shape{4, 5}));
  EXPECT_TRUE(test::same_bits(dx, plain_dx) && test::same_bits(dw, plain_dw));
}

TEST(Views, RefusalsSayWhatCame) {
  const Tensor x = test::random({2, 3}, DType::f64, 1), narrow = test::random({2, 3}, DType::f32, 1),
               four = test::random({4}, DType::f64, 1);
  EXPECT_EQ(test::refusal([&] { ops::add(x, four); }),
            "[add] expected inputs of the same dtype whose shapes broadcast, got f64 [2, 3] and f64 [4]");
  EXPECT_EQ(test::refusal([&] { ops::mul(x, narrow); }),
            "[mul] expected inputs of the same dtype whose shapes broadcast, got f64 [2, 3] and f32 [2, 3]");
  EXPECT_EQ(test::refusal([&] { ops::reshape(x, {4}); }), "[reshape] expected as many elements as [4] has, got f64 [2, 3]");
  EXPECT_EQ(test::refusal([&] { ops::sum(x, 2, false); }), "[sum] expected an axis of the tensor, not 2, got f64 [2, 3]");
  EXPECT_EQ(test::refusal([&] { ops::linear(x, four, {}, ops::WeightLayout::out_in); }),
            "[linear] expected a weight with 2 axes, got f64 [4]");
  EXPECT_EQ(test::refusal([&] { ops::dropout(x, 1, {}, 0); }), "[dropout] expected a probability in [0, 1), not 1.000000, got f64 [2, 3]");
}

}  // namespace
}  // namespace spillway::views_test
