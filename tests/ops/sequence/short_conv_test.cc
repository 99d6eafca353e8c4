// Checks the short convolution against its sum written out in fp64, against central differences, and against itself on documents that lie
// alone in their rows.
#include "ops/sequence/short_conv.h"

#include "base/error.h"
#include "ops/dense.h"
#include "tests/support/gradient_check.h"

namespace spillway::short_conv_test {
namespace {

using autograd::Tape;
using ops::ShortConvOptions;
using ops::Variable;

struct Case {
  i64 B, T, C, K;
  bool silu, biased;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all{{2, 1, 3, 4, true, true},
                                     {1, 2, 5, 8, false, true},
                                     {2, 9, 1, 1, true, false},
                                     {2, 70, 7, 3, false, false},
                                     {1, 130, 66, 4, true, true}};
  return all;
}

// x, w and, if there is one, the bias.
std::vector<Tensor> inputs(const Case& c, DType dtype) {
  std::vector<Tensor> in{test::random({c.B, c.T, c.C}, dtype, 1), test::random({c.C, c.K}, dtype, 2)};
  if (c.biased) in.push_back(test::random({c.C}, dtype, 3));
  return in;
}

Variable conv(const std::vector<Variable>& in, const ShortConvOptions& o) {
  return ops::short_conv(in[0], in[1], in.size() > 2 ? in[2] : Variable(), o);
}

// Returns positions of documents whose lengths are 1, 2, 3 and so on, in row b from b + 1 on.
Tensor documents(const Case& c) {
  const Tensor positions = empty({c.B, c.T}, DType::int32);
  for (i64 b = 0; b < c.B; ++b) {
    for (i64 t = 0, begin = 0, length = b + 1; t < c.T; ++t) {
      if (t == begin + length) begin = t, ++length;
      positions.data<i32>()[b * c.T + t] = static_cast<i32>(t - begin);
    }
  }
  return positions;
}

Tensor expected(const Case& c, const std::vector<Tensor>& in, const Tensor& positions) {
  const Tensor y = empty({c.B, c.T, c.C}, DType::f64);
  for (i64 i = 0; i < y.elems(); ++i) {
    const i64 channel = i % c.C, t = i / c.C % c.T, position = positions.defined() ? positions.data<i32>()[i / c.C] : t;
    double sum = c.biased ? test::at(in[2], channel) : 0;
    for (i64 j = 0; j < c.K; ++j) {
      const i64 back = c.K - 1 - j;
      if (back <= position) sum += test::at(in[1], channel * c.K + j) * test::at(in[0], i - back * c.C);
    }
    y.data<double>()[i] = c.silu ? sum / (1 + std::exp(-sum)) : sum;
  }
  return y;
}

TEST(ShortConv, IsItsSum) {
  for (const Case& c : cases()) {
    for (const bool packed : {false, true}) {
      const auto in = inputs(c, DType::f64);
      const Tensor positions = packed ? documents(c) : Tensor();
      test::expect_near(conv({in.begin(), in.end()}, {c.silu, positions, {}, {}}).value, expected(c, in, positions), 1e-13, 1e-13,
                        "T = " + std::to_string(c.T));
    }
  }
}

TEST(ShortConv, Gradients) {
  for (const Case& c : cases()) {
    for (const bool packed : {false, true}) {
      SCOPED_TRACE(c.T);
      const ShortConvOptions o{c.silu, packed ? documents(c) : Tensor(), {}, {}};
      if (c.C < 60) test::check_gradient(inputs(c, DType::f64), [&](const auto& in) { return conv(in, o); });
    }
  }
}

// Returns y and the gradients of all inputs.
std::vector<Tensor> run(const std::vector<Tensor>& in, const Tensor& dy, const ShortConvOptions& o) {
  Tape tape;
  std::vector<Variable> leaves;
  for (const Tensor& t : in) leaves.push_back(&t == &in[0] || t.dtype() == wide_dtype(t.dtype()) ? tape.input(t) : Variable(t));
  const Variable y = conv(leaves, o);
  tape.backward(y, dy);
  std::vector<Tensor> all{y.value};
  for (const Variable& leaf : leaves) {
    if (leaf.needs_gradient()) all.push_back(tape.take_gradient(leaf));
  }
  return all;
}

TEST(ShortConv, SameBitsOnAnyThreads) {
  const Case c{2, 150, 131, 4, true, true};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto in = inputs(c, dtype);
    const Tensor dy = test::random({c.B, c.T, c.C}, dtype, 4);
    test::check_threads([&] { return run(in, dy, {c.silu, documents(c), {}, {}}); });
  }
}

TEST(ShortConv, DocumentsAreAlone) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Case c{1, 105, 67, 4, true, true};
    const auto in = inputs(c, dtype);
    const Tensor dy = test::random({1, c.T, c.C}, dtype, 4);
    const auto whole = run(in, dy, {c.silu, documents(c), {}, {}});
    for (i64 begin = 0, length = 1; begin < c.T; begin += length, ++length) {
      const auto part = [&](const Tensor& t) { return ops::dense(t.slice(1, begin, begin + length)); };
      const auto alone = run({part(in[0]), in[1], in[2]}, part(dy), {c.silu, {}, {}, {}});
      for (size_t i = 0; i < 2; ++i)
        EXPECT_TRUE(test::same_bits(part(whole[i]), alone[i])) << to_string(dtype) << " result " << i << " at " << begin;
    }
  }
}

// Generation: a row in parts, each with the inputs that the part before left, is the row, to the bit.
TEST(ShortConv, GoesOnFromEarlierInputs) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool packed : {false, true}) {
      const Case c{2, 20, 5, 4, true, true};
      const auto in = inputs(c, dtype);
      const Tensor positions = packed ? documents(c) : Tensor();
      const Tensor whole = conv({in.begin(), in.end()}, {c.silu, positions, {}, {}}).value;
      ShortConvOptions o{c.silu, {}, {}, {}};
      i64 begin = 0;
      for (const i64 length : {2, 1, 1, 9, 7}) {
        const auto part = [&](const Tensor& t) { return t.defined() ? ops::dense(t.slice(1, begin, begin + length)) : t; };
        o.positions_BT = part(positions);
        o.last_inputs = empty({c.B, c.K - 1, c.C}, dtype);
        const Tensor y = conv({part(in[0]), in[1], in[2]}, o).value;
        EXPECT_TRUE(test::same_bits(y, part(whole))) << to_string(dtype) << " from " << begin;
        o.first_inputs = o.last_inputs;
        begin += length;
      }
    }
  }
}

TEST(ShortConv, RefusesWhatDoesNotFit) {
  const Variable x = test::random({1, 4, 3}, DType::f32, 1);
  EXPECT_THROW(ops::short_conv(x, test::random({3, 9}, DType::f32, 2), {}, {}), Error);
  EXPECT_THROW(ops::short_conv(x, test::random({2, 4}, DType::f32, 2), {}, {}), Error);
  EXPECT_THROW(ops::short_conv(x, test::random({3, 2, 4}, DType::f32, 2), {}, {}), Error);
  EXPECT_THROW(ops::short_conv(x, test::random({3, 4}, DType::f32, 2), test::random({4}, DType::f32, 2), {}), Error);
  ShortConvOptions o;
  o.positions_BT = test::ints({0, 1, 2}, {1, 3});
  EXPECT_THROW(ops::short_conv(x, test::random({3, 4}, DType::f32, 2), {}, o), Error);
}

}  // namespace
}  // namespace spillway::short_conv_test
