// Compares every op in bf16 and f16 with the same op in fp64 on the widened inputs. An op computes in f32 and rounds
// each result once. A result, or the gradient of an activation, is therefore off by half a unit in the last place of its
// type (bf16: 2^-8 relative) and by the f32 arithmetic before that (`f32`, absolute). A parameter's gradient is f32 and
// is off by the f32 arithmetic alone. Cases state the error of intermediate results that an op rounds (`on_the_way`).
#include "base/error.h"
#include "ops/elementwise/dropout.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/glu.h"
#include "ops/experts/experts.h"
#include "ops/images/batch_norm.h"
#include "ops/images/conv.h"
#include "ops/images/pool.h"
#include "ops/layout/index.h"
#include "ops/layout/shape.h"
#include "ops/losses/loss.h"
#include "ops/products/linear.h"
#include "ops/products/matmul.h"
#include "ops/rows/norm.h"
#include "ops/rows/reduce.h"
#include "ops/sequence/attention.h"
#include "ops/sequence/embedding.h"
#include "ops/sequence/rope.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway::halves_test {
namespace {

using ops::Variable;
using Function = std::function<Variable(const std::vector<Variable>&)>;

struct Case {
  std::vector<Shape> activations, parameters;  // the shapes of the inputs; f() gets activations first and then parameters
  double f32 = 4e-6;                           // the absolute error of the f32 arithmetic
  // the absolute error of intermediate results that are rounded to bf16; that of f16 is an eighth
  double on_the_way = 0;
};

Tensor ones_of(i64 n) { return tensor_of<float>(std::vector<float>(static_cast<size_t>(n), 1), {n}); }

struct Results {
  Tensor output;
  std::vector<Tensor> activation_gradients, parameter_gradients;
};

Tensor input(const Case& c, size_t i, DType narrow, DType dtype) {
  const bool activation = i < c.activations.size();
  return test::as(dtype, test::random(activation ? c.activations[i] : c.parameters[i - c.activations.size()], narrow, i + 1));
}

Results run(const Case& c, const Function& f, DType narrow, DType dtype) {
  test::Sink sink;
  autograd::Tape tape(&sink);
  std::vector<Variable> variables;
  for (size_t i = 0; i < c.activations.size() + c.parameters.size(); ++i) {
    const Tensor value = input(c, i, narrow, dtype);
    variables.push_back(i < c.activations.size() ? tape.input(value) : tape.parameter(value, static_cast<u32>(i)));
  }
  const Variable y = f(variables);
  Results results{y.value, {}, {}};
  const bool loss = y.dtype() == DType::f64 && y.value.elems() == 1;
  tape.backward(y, loss ? Tensor() : test::as(dtype, test::random(y.shape(), narrow, 99)));
  for (size_t i = 0; i < c.activations.size(); ++i) results.activation_gradients.push_back(tape.take_gradient(variables[i]));
  for (size_t i = 0; i < c.parameters.size(); ++i) {
    results.parameter_gradients.push_back(sink.gradients.at({static_cast<u32>(i + c.activations.size()), 0}));
  }
  EXPECT_EQ(tape.saved_bytes(), 0);
  return results;
}

void check(const Case& c, const Function& f, DType narrow) {
  SCOPED_TRACE(to_string(narrow));
  const Results got = run(c, f, narrow, narrow), want = run(c, f, narrow, DType::f64);
  const bool loss = got.output.dtype() == DType::f64;
  const double rounding = test::half_ulp(narrow), inside = c.f32 + c.on_the_way * rounding / test::half_ulp(DType::bf16);
  EXPECT_EQ(got.output.dtype(), loss ? DType::f64 : narrow);
  test::expect_near(got.output, want.output, loss ? 1e-6 : rounding, inside, "output");
  for (size_t i = 0; i < c.activations.size(); ++i) {
    EXPECT_EQ(got.activation_gradients[i].dtype(), narrow);
    test::expect_near(got.activation_gradients[i], want.activation_gradients[i], rounding, inside, "activation " + std::to_string(i));
  }
  for (size_t i = 0; i < c.parameters.size(); ++i) {
    EXPECT_EQ(got.parameter_gradients[i].dtype(), DType::f32);
    test::expect_near(got.parameter_gradients[i], want.parameter_gradients[i], 1e-6, inside, "parameter " + std::to_string(i));
  }
}

void check(const Case& c, const Function& f) {
  for (const DType narrow : {DType::bf16, DType::f16}) check(c, f, narrow);
}

TEST(Halves, ElementwiseAndShapes) {
  check({{{5, 37}, {5, 37}}, {}}, [](const auto& in) { return ops::add(in[0], in[1]); });
  check({{{5, 37}, {5, 37}}, {}}, [](const auto& in) { return ops::mul(in[0], in[1]); });
  check({{{5, 37}, {5, 37}}, {}}, [](const auto& in) { return ops::swiglu(in[0], in[1]); });
  check({{{5, 37}}, {}}, [](const auto& in) { return ops::gelu_tanh(in[0]); });
  check({{{5, 37}}, {}}, [](const auto& in) { return ops::gelu_erf(in[0]); });
  check({{{5, 37}}, {}}, [](const auto& in) { return ops::relu(in[0]); });
  check({{{5, 37}}, {}}, [](const auto& in) { return ops::relu_squared(in[0]); });
  check({{{5, 37}}, {}}, [](const auto& in) { return ops::dropout(in[0], 0.3, RandomKey{1}, 5); });
  check({{{5, 37}}, {}}, [](const auto& in) { return ops::sum(in[0], 0, false); });
  check({{{5, 37}}, {}}, [](const auto& in) { return ops::slice(ops::permute(in[0], {1, 0}), 0, 3, 20); });
}

// The gradient of a parameter is f32, so an op that copies parts of its own gradient widens them.
TEST(Halves, ParametersOfOpsThatCopy) {
  check({{}, {{5, 37}}}, [](const auto& in) { return ops::permute(in[0], {1, 0}); });
  check({{}, {{5, 37}}}, [](const auto& in) { return ops::slice(in[0], 1, 3, 20); });
  check({{}, {{5, 37}}}, [](const auto& in) { return ops::slice(in[0], 0, 1, 5, 2); });
  check({{}, {{5, 37}}}, [](const auto& in) { return ops::reshape(in[0], {37, 5}); });
  check({{}, {{5, 37}}}, [](const auto& in) { return ops::pad(in[0], {{1, 2}}, 0); });
  check({{}, {{5, 37}}}, [](const auto& in) { return ops::tril(in[0], 0); });
  check({{}, {{5, 37}}}, [](const auto& in) { return ops::index_select(in[0], 0, test::ints({4, 0, 2}, {3})); });
  check({{}, {{5, 37}, {5, 2}}}, [](const auto& in) { return ops::concat({in[0], in[1]}, 1); });
  check({{}, {{5, 37}}}, [](const auto& in) { return ops::split(in[0], {30, 7}, 1)[1]; });
  check({{}, {{5, 37}, {5, 37}}}, [](const auto& in) { return ops::stack({in[0], in[1]}, 1); });
}

TEST(Halves, BiasesOfExperts) {
  std::vector<i32> choices;
  for (i32 i = 0; i < 200; ++i) choices.push_back(i * i % 3);  // the last of four experts is not chosen
  const Tensor experts = test::ints(choices, {100, 2});
  const ops::ExpertRows rows = ops::expert_rows(experts, 4);
  check({{{200, 7}}, {{7}, {7}, {7}, {7}}, 2e-5}, [&](const auto& in) {
    return ops::add_expert_biases(in[0], {in.begin() + 1, in.end()}, experts, rows);
  });
}

TEST(Halves, ABiasAsAParameterOfAPlainSum) {
  check({{{5, 37}}, {{5, 37}}}, [](const auto& in) { return ops::add(in[0], in[1]); });
}

// The sums have 70 products of size about 1 each. A case with an inner dimension of 1100 spans several chunks.
TEST(Halves, Linear) {
  for (const auto layout : {ops::WeightLayout::out_in, ops::WeightLayout::in_out}) {
    const bool in_out = layout == ops::WeightLayout::in_out;
    check({{{2, 9, 70}}, {in_out ? Shape{70, 33} : Shape{33, 70}, {33}}, 1e-5},
          [=](const auto& in) { return ops::linear(in[0], in[1], in[2], layout); });
    check({{{3, 1100}}, {in_out ? Shape{1100, 1200} : Shape{1200, 1100}}, 4e-4},
          [=](const auto& in) { return ops::linear(in[0], in[1], {}, layout); });
  }
  check({{{2, 7, 20}, {2, 20, 11}}, {}}, [](const auto& in) { return ops::matmul(in[0], in[1]); });
  check({{{2, 7, 20}}, {{2, 20, 11}}, 1e-5}, [](const auto& in) { return ops::matmul(in[0], in[1]); });
  check({{{7, 20}}, {{20}}, 1e-5}, [](const auto& in) { return ops::matmul(in[0], in[1]); });
  // The gradient of an input that is broadcast adds three products, each of size 15 at most and each rounded.
  check({{{3, 1, 7, 20}, {2, 20, 11}}, {}, 1e-5, 3 * 15 * 0x1p-8}, [](const auto& in) { return ops::matmul(in[0], in[1]); });
}

TEST(Halves, Norms) {
  check({{{3, 40, 33}}, {{33}, {33}}, 4e-5}, [](const auto& in) { return ops::layer_norm(in[0], in[1], in[2], 1e-5); });
  check({{{3, 40, 33}}, {{33}}, 4e-5}, [](const auto& in) { return ops::rms_norm(in[0], in[1], 1e-6); });
}

// The sums have up to 9 * 130 = 1170 products, which span several chunks.
TEST(Halves, Images) {
  check({{{2, 5, 9, 7}}, {{3, 5, 3, 3}, {3}}, 2e-5}, [](const auto& in) { return ops::conv2d(in[0], in[1], in[2], {2, 1, 1, 1}); });
  check({{{2, 130, 5, 6}}, {{4, 130, 3, 3}}, 4e-4}, [](const auto& in) { return ops::conv2d(in[0], in[1], {}, {1, 1, 1, 1}); });
  check({{{2, 6, 5, 6}}, {{4, 3, 3, 3}}, 2e-5}, [](const auto& in) { return ops::conv2d(in[0], in[1], {}, {1, 1, 1, 2}); });
  check({{{2, 3, 9, 7}}, {}}, [](const auto& in) { return ops::max_pool2d(in[0], 3, 2, 1); });
  check({{{2, 3, 9, 7}}, {}}, [](const auto& in) { return ops::avg_pool2d(in[0], 3, 2, 1); });
  check({{{2, 3, 9, 7}}, {}}, [](const auto& in) { return ops::adaptive_avg_pool2d(in[0], {2, 3}); });
  for (const bool training : {true, false}) {
    ops::BatchNormOptions options;
    options.training = training;
    check({{{3, 4, 5, 7}}, {{4}, {4}}, 4e-5}, [&](const auto& in) {
      const Tensor ones = test::as(in[0].dtype(), ones_of(4));
      return ops::batch_norm2d(in[0], in[1], in[2], ones, ones, options);
    });
  }
}

TEST(Halves, MoreImages) {
  check({{{2, 4, 17}}, {{6, 2, 3}, {6}}, 2e-5}, [](const auto& in) { return ops::conv1d(in[0], in[1], in[2], {2, 1, 1, 2}); });
  check({{{2, 6, 5, 7}}, {{6, 3, 3, 3}, {6}}, 2e-5}, [](const auto& in) {
    return ops::conv_transpose2d(in[0], in[1], in[2], {{2, 1, 1, 2}, 1});
  });
  check({{{2, 3, 9, 7}}, {}}, [](const auto& in) { return ops::avg_pool2d(in[0], 3, 2, 1, false); });
  check({{{2, 3, 9, 7}}, {}}, [](const auto& in) { return ops::adaptive_max_pool2d(in[0], {4, 3}); });
  check({{{3, 6, 5, 7}}, {{6}, {6}}, 4e-5}, [](const auto& in) { return ops::group_norm(in[0], 3, in[1], in[2]); });
}

TEST(Halves, EmbeddingAddsInF32) {
  const Tensor ids = test::ints({2, 0, 2, 2, 4, 0}, {2, 3});
  check({{}, {{5, 9}}}, [&](const auto& in) { return ops::embedding(ids, in[0]); });
}

TEST(Halves, Rope) {
  const std::vector<double> frequencies{1, 0.1, 0.01, 0.001};
  check({{{2, 5, 3, 8}}, {}}, [&](const auto& in) {
    return ops::rope(in[0], test::ints({0, 1, 2, 3, 4, 9, 8, 7, 6, 5}, {2, 5}), frequencies);
  });
}

// The backward of attention reads the output as it was stored. The sum delta = out * dout over the width is therefore off by up to 2^-8
// of its terms (8 terms of size 1, two of them large). The gradient of a score is off by that error times the score's probability, and
// the results are sums of few such gradients.
TEST(Halves, Attention) {
  for (const double dropout : {0.0, 0.2}) {
    ops::AttentionOptions options;
    options.scale = 0.35;
    options.dropout = dropout;
    check({{{2, 70, 4, 8}, {2, 70, 2, 8}, {2, 70, 2, 8}}, {}, 2e-5, 0.02},
          [&](const auto& in) { return ops::attention(in[0], in[1], in[2], options); });
    check({{{2, 35, 3 * 2 * 8}}, {}, 2e-5, 0.02}, [&](const auto& in) { return ops::attention_packed(in[0], 2, options); });
  }
}

// Gradients of scores and probabilities stay in f32. With one key the output
// is v, so delta is exact and the only error is the rounding of the results.
TEST(Halves, AttentionOfOneKeyIsItsValue) {
  ops::AttentionOptions options;
  options.scale = 1;
  check({{{2, 1, 2, 8}, {2, 1, 2, 8}, {2, 1, 2, 8}}, {}, 4e-6},
        [&](const auto& in) { return ops::attention(in[0], in[1], in[2], options); });
}

// Logits are f32. Their gradient is rounded before its two products, so errors
// are 2^-8 of |dlogits| <= 1 times |w| or |x| of about 1, over 11 or 7 terms.
TEST(Halves, LinearCrossEntropyInOneChunkAndInSeveral) {
  const Tensor targets = test::ints({3, -100, 10, 0, 7, 7, 2}, {7});
  for (const i64 chunk_bytes : {256 * kMiB, i64{2 * 11 * 4}, i64{1}}) {
    check({{{7, 6}}, {{11, 6}}, 4e-6, 0.01},
          [&](const auto& in) { return ops::linear_cross_entropy(in[0], in[1], targets, 1, {chunk_bytes}); });
  }
}

TEST(Halves, CrossEntropyOfLogits) {
  const Tensor targets = test::ints({3, -100, 40, 0, 7}, {5});
  check({{{5, 41}}, {}}, [&](const auto& in) { return ops::cross_entropy_sum(in[0], targets, 0.5); });
}

// The fused head gives bitwise the results of its separate ops, since f32 logits are not rounded. The logits for sampling are those of the
// loss.
TEST(Halves, LogitsAreWide) {
  for (const DType narrow : {DType::bf16, DType::f16}) {
    const Tensor x = test::random({3, 20}, narrow, 1), w = test::random({50, 20}, narrow, 2), wide = ops::logits(x, w);
    EXPECT_EQ(wide.dtype(), DType::f32);
    const Tensor targets = test::ints({1, 49, 20}, {3});
    EXPECT_EQ(ops::linear_cross_entropy(x, w, targets, 1).value.item(), ops::cross_entropy_sum(wide, targets, 1).value.item());
  }
}

TEST(Halves, RefusesWhatWouldAddInIt) {
  for (const DType narrow : {DType::bf16, DType::f16}) {
    autograd::Tape tape;
    const Variable table = tape.input(test::random({5, 3}, narrow, 1));
    const Variable y = ops::embedding(test::ints({1, 1}, {2}), table);
    EXPECT_THROW(tape.backward(y, test::random({2, 3}, narrow, 2)), Error) << "a table that is no parameter";
    EXPECT_THROW(ops::add(table, test::random({5, 3}, DType::f32, 1)), Error) << "two types in one op";
  }
}

}  // namespace
}  // namespace spillway::halves_test
