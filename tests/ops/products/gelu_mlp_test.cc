// Tests that gelu_mlp on a CPU is bitwise equal to the ops that it combines: the output and all gradients, with a backward in one or two
// parts, whichever inputs are trained.
#include <gtest/gtest.h>

#include "ops/elementwise/elementwise.h"
#include "ops/products/linear.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway::gelu_mlp_test {
namespace {

using autograd::Tape;
using autograd::Variable;
using ops::WeightLayout;

struct Results {
  Tensor y, dx;
  std::map<std::pair<u32, u8>, Tensor> parameters;
};

struct Case {
  DType dtype;
  WeightLayout layout;
  bool bias, in_parts, trained;  // `trained` tells whether the second weight is trained
};

Results run(const Case& c, bool fused) {
  const bool in_out = c.layout == WeightLayout::in_out;
  const auto weight = [&](i64 in, i64 out, u64 seed) { return test::random(in_out ? Shape{in, out} : Shape{out, in}, c.dtype, seed, 0.4); };
  test::Sink sink;
  Tape tape(&sink);
  const Variable x = tape.input(test::random({2, 5, 12}, c.dtype, 1));
  const auto bias = [&](i64 n, u64 seed, u32 id) { return c.bias ? tape.parameter(test::random({n}, c.dtype, seed), id) : Variable(); };
  const ops::LinearWeights up{tape.parameter(weight(12, 40, 2), 0), bias(40, 3, 1), c.layout};
  const ops::LinearWeights down{c.trained ? tape.parameter(weight(40, 9, 4), 2) : Tape::frozen(weight(40, 9, 4)), bias(9, 5, 3), c.layout};
  const Variable y = fused ? ops::gelu_mlp(x, up, down) : ops::linear(ops::gelu_tanh(ops::linear(x, up)), down);
  const Tensor dy = test::random({2, 5, 9}, c.dtype, 6);
  if (c.in_parts) {
    tape.backward_input(y, dy);
    tape.backward_weight();
  } else {
    tape.backward(y, dy);
  }
  return {y.value, tape.take_gradient(x), sink.gradients};
}

TEST(GeluMlp, HasTheBitsOfItsParts) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (int which = 0; which < 16; ++which) {
      const Case c{dtype, which & 1 ? WeightLayout::in_out : WeightLayout::out_in, (which & 2) != 0, (which & 4) != 0, (which & 8) != 0};
      const Results got = run(c, true), want = run(c, false);
      EXPECT_TRUE(test::same_bits(got.y, want.y)) << which;
      EXPECT_TRUE(test::same_bits(got.dx, want.dx)) << which;
      ASSERT_EQ(got.parameters.size(), want.parameters.size());
      for (const auto& [id, gradient] : want.parameters) EXPECT_TRUE(test::same_bits(got.parameters.at(id), gradient)) << which;
    }
  }
}

TEST(GeluMlp, SavesWhatItsPartsSave) {
  const Tensor x = test::random({6, 8}, DType::bf16, 1), w = test::random({8, 8}, DType::bf16, 2);
  Tape tape;
  const Variable in = tape.input(x);
  ops::gelu_mlp(in, {Tape::frozen(w), {}, WeightLayout::out_in}, {Tape::frozen(w), {}, WeightLayout::out_in});
  EXPECT_EQ(tape.saved_bytes(), x.bytes()) << "frozen weights: what gelu was taken of, alone";
}

}  // namespace
}  // namespace spillway::gelu_mlp_test
