// Compares linear layers that multiply in fp8 with fp64 products of the rounded operands. Each of the three products is rounded once to its
// type after sums in fp32.
#include "kernels/products/fp8.h"
#include "ops/products/linear.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway::fp8_linear_test {
namespace {

using kernels::Fp8;
using ops::Variable;
using ops::WeightLayout;

constexpr i64 kRows = 48, kIn = 40, kOut = 24;

// Returns the values of x[rows, columns] rounded to the format, in fp64.
std::vector<double> rounded(Fp8 format, const Tensor& x) {
  const Tensor to = empty(x.shape(), DType::bf16);
  kernels::fp8_round({x, format}, to, empty({kernels::kFp8ScratchBytes}, DType::uint8));
  std::vector<double> values;
  for (i64 i = 0; i < x.elems(); ++i) values.push_back(test::at(to, i));
  return values;
}

struct Layer {
  WeightLayout layout;
  Tensor x = test::random({kRows, kIn}, DType::bf16, 1), dy = test::random({kRows, kOut}, DType::bf16, 4, 1e-3);
  Tensor w = test::random(layout == WeightLayout::out_in ? Shape{kOut, kIn} : Shape{kIn, kOut}, DType::bf16, 2, 0.05);
  Tensor bias = test::random({kOut}, DType::bf16, 3), residual = test::random({kRows, kOut}, DType::bf16, 5);
  size_t at_w(i64 in, i64 out) const { return static_cast<size_t>(layout == WeightLayout::out_in ? out * kIn + in : in * kOut + out); }
};

void expect_close(const Tensor& got, i64 i, double want, double size, i64 terms) {
  const double sums = static_cast<double>(terms + 2) * test::half_ulp(DType::f32) * size;
  ASSERT_NEAR(test::at(got, i), want, 1.01 * sums + test::stored_error(got.dtype(), want)) << i;
}

void check(WeightLayout layout) {
  const Layer l{layout};
  test::Sink sink;
  autograd::Tape tape(&sink);
  const Variable x = tape.input(l.x), w = tape.parameter(l.w, 0), bias = tape.parameter(l.bias, 1);
  const Variable y = ops::linear(x, ops::LinearWeights{w, bias, layout, true});
  tape.backward(y, l.dy);
  const std::vector<double> rx = rounded(Fp8::e4m3, l.x), rw = rounded(Fp8::e4m3, l.w), rdy = rounded(Fp8::e5m2, l.dy);
  const Tensor dx = tape.take_gradient(x), dw = sink.gradients.at({0, 0}), dbias = sink.gradients.at({1, 0});
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(dx.dtype(), DType::bf16);
  EXPECT_EQ(dw.dtype(), DType::f32);
  const auto row = [](const std::vector<double>& of, i64 i, i64 width, i64 j) { return of[static_cast<size_t>(i * width + j)]; };
  for (i64 i = 0; i < kRows; ++i) {
    for (i64 o = 0; o < kOut; ++o) {
      double sum = test::at(l.bias, o), size = std::abs(sum);
      for (i64 k = 0; k < kIn; ++k) sum += row(rx, i, kIn, k) * rw[l.at_w(k, o)], size += std::abs(row(rx, i, kIn, k) * rw[l.at_w(k, o)]);
      expect_close(y.value, i * kOut + o, sum, size, kIn);
    }
    for (i64 k = 0; k < kIn; ++k) {
      double sum = 0, size = 0;
      for (i64 o = 0; o < kOut; ++o)
        sum += row(rdy, i, kOut, o) * rw[l.at_w(k, o)], size += std::abs(row(rdy, i, kOut, o) * rw[l.at_w(k, o)]);
      expect_close(dx, i * kIn + k, sum, size, kOut);
    }
  }
  for (i64 o = 0; o < kOut; ++o) {
    double sum_dy = 0, size_dy = 0;
    for (i64 i = 0; i < kRows; ++i) sum_dy += test::at(l.dy, i * kOut + o), size_dy += std::abs(test::at(l.dy, i * kOut + o));
    expect_close(dbias, o, sum_dy, size_dy, kRows);
    for (i64 k = 0; k < kIn; ++k) {
      double sum = 0, size = 0;
      for (i64 i = 0; i < kRows; ++i)
        sum += row(rdy, i, kOut, o) * row(rx, i, kIn, k), size += std::abs(row(rdy, i, kOut, o) * row(rx, i, kIn, k));
      expect_close(dw, static_cast<i64>(l.at_w(k, o)), sum, size, kRows);
    }
  }
}

TEST(Fp8Linear, ProductsAndGradientsOfTheRoundedOperands) {
  check(WeightLayout::out_in);
  check(WeightLayout::in_out);
}

TEST(Fp8Linear, ResidualsAreNotRounded) {
  const Layer l{WeightLayout::out_in};
  const Variable plain = ops::linear(l.x, ops::LinearWeights{l.w, l.bias, l.layout, true});
  const Variable onto = ops::linear(l.x, ops::LinearWeights{l.w, l.bias, l.layout, true}, l.residual);
  for (i64 i = 0; i < onto.value.elems(); ++i) {
    const double product = test::at(plain.value, i), sum = product + test::at(l.residual, i);
    ASSERT_NEAR(test::at(onto.value, i), sum, test::stored_error(DType::bf16, sum)) << i;
  }
}

// Each of the two parts of backward rounds the same gradient anew.
TEST(Fp8Linear, BackwardInTwoPartsHasTheSameBits) {
  const Layer l{WeightLayout::in_out};
  const auto gradients = [&](bool in_parts) {
    test::Sink sink;
    autograd::Tape tape(&sink);
    const Variable x = tape.input(l.x), w = tape.parameter(l.w, 0);
    const Variable y = ops::linear(x, ops::LinearWeights{w, {}, l.layout, true});
    in_parts ? tape.backward_input(y, l.dy) : tape.backward(y, l.dy);
    const Tensor dx = tape.take_gradient(x);
    if (in_parts) tape.backward_weight();
    return std::pair(dx, sink.gradients.at({0, 0}));
  };
  const auto [dx, dw] = gradients(false);
  const auto [later_dx, later_dw] = gradients(true);
  EXPECT_TRUE(test::same_bits(dx, later_dx));
  EXPECT_TRUE(test::same_bits(dw, later_dw));
}

}  // namespace
}  // namespace spillway::fp8_linear_test
