// Compares formulas and selections on a GPU with the CPU. Their results are bitwise equal to the CPU's, except for formulas that use a
// function of CUDA, which are within 4 ulp of their terms.
#include "kernels/elementwise/pointwise.h"

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::pointwise_cuda_test {
namespace {

using kernels::Compare;
using kernels::Numbers;
using kernels::Pointwise;

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

bool exact(Pointwise op) {
  for (const Pointwise other : {Pointwise::power, Pointwise::power_slope, Pointwise::pow, Pointwise::logistic_error, Pointwise::divergence,
                                Pointwise::divergence_of_logs, Pointwise::pow_base_slope, Pointwise::pow_exponent_slope,
                                Pointwise::logistic_error_slope, Pointwise::divergence_of_logs_slope, Pointwise::elu, Pointwise::elu_slope,
                                Pointwise::softplus, Pointwise::softplus_slope, Pointwise::mish, Pointwise::mish_slope}) {
    if (op == other) return false;
  }
  return true;
}

// Returns whether a formula accepts negative operands, since it has no power or logarithm of an operand.
bool takes_any_sign(Pointwise op) {
  return (Pointwise::leaky_relu <= op && op <= Pointwise::clamp) || (Pointwise::leaky_relu_slope <= op && op <= Pointwise::clamp_slope);
}

class PointwiseTwins : public test::GpuTest {};

TEST_F(PointwiseTwins, EveryFormula) {
  // The operands of a case have equal shapes, are broadcast along each axis, or are scalars. Some sizes are no multiple of the vector
  // width.
  const std::vector<std::array<Shape, 4>> shapes{{Shape{64}, {64}, {64}, {64}},
                                                 {Shape{7, 33}, {7, 33}, {7, 33}, {7, 33}},
                                                 {Shape{3, 4, 5}, {4, 1}, {3, 1, 5}, {3, 4, 5}},
                                                 {Shape{6, 16}, {}, {16}, {6, 16}}};
  for (int i = 0; i < kernels::kPointwiseCount; ++i) {
    const auto op = static_cast<Pointwise>(i);
    for (const auto& [out, first, second, third] : shapes) {
      for (const DType dtype : kFloats) {
        SCOPED_TRACE(std::to_string(i) + " " + to_string(out) + " " + std::string(to_string(dtype)));
        const auto positive = [&](const Shape& shape, u64 seed) {
          const Tensor x = test::random(shape, DType::f64, seed);
          for (double& v : x.span<double>()) v = std::abs(v) + 0.1;
          return test::as(dtype, x);
        };
        const Tensor a = takes_any_sign(op) ? test::random(first, dtype, 1) : positive(first, 1), b = positive(second, 2),
                     c = test::random(third, dtype, 3), want = empty(out, dtype), got = gpu().empty(out, dtype);
        const auto run = [&](const Tensor& x, const Tensor& y, const Tensor& z, const Tensor& to) {
          const Numbers numbers{0.6, 1.1};
          if (operands_of(op) == 0) kernels::pointwise(op, {}, numbers, to);
          if (operands_of(op) == 1) kernels::pointwise(op, {x}, numbers, to);
          if (operands_of(op) == 2) kernels::pointwise(op, {x, y}, numbers, to);
          if (operands_of(op) == 3) kernels::pointwise(op, {x, y, z}, numbers, to);
        };
        run(a, b, c, want);
        gpu().run([&] { run(gpu()(a), gpu()(b), gpu()(c), got); });
        const Tensor host = gpu().host(got);
        if (exact(op)) {
          EXPECT_TRUE(test::same_bits(host, want));
        }
        // The terms of the formulas are of size 4 at most, and so are their products with the result.
        const double eps = 2 * test::half_ulp(wide_dtype(dtype));
        test::expect_near(host, want, 2 * test::half_ulp(dtype) + 16 * eps, 64 * eps, "formula");
      }
    }
  }
}

TEST_F(PointwiseTwins, MasksAndChoices) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : kFloats) {
    const Tensor whole = test::random({6, 35}, DType::f64, 1), row = test::random({35}, dtype, 2);
    for (i64 i = 0; i < 35; ++i) whole.data<double>()[i] = i % 7 == 0 ? nan : test::at(row, i);
    const Tensor x = test::as(dtype, whole);
    for (const Compare op : {Compare::eq, Compare::ne, Compare::lt, Compare::le, Compare::gt, Compare::ge}) {
      const Tensor mask = empty({6, 35}, DType::uint8), got = gpu().empty({6, 35}, DType::uint8), of_number = empty({6, 35}, DType::uint8),
                   got_of_number = gpu().empty({6, 35}, DType::uint8);
      kernels::compare(op, x, row, 0, mask);
      kernels::compare(op, x, {}, 0.25, of_number);
      const Tensor want = empty({6, 35}, dtype), chosen = gpu().empty({6, 35}, dtype), filled = gpu().empty({6, 35}, dtype),
                   want_filled = empty({6, 35}, dtype);
      kernels::where(mask, x, row, want);
      kernels::fill_where(mask, false, 0.5, x, want_filled);
      gpu().run([&] {
        kernels::compare(op, gpu()(x), gpu()(row), 0, got);
        kernels::compare(op, gpu()(x), {}, 0.25, got_of_number);
        kernels::where(got, gpu()(x), gpu()(row), chosen);
        kernels::fill_where(got, false, 0.5, gpu()(x), filled);
      });
      EXPECT_TRUE(test::same_bits(gpu().host(got), mask));
      EXPECT_TRUE(test::same_bits(gpu().host(got_of_number), of_number));
      EXPECT_TRUE(test::same_bits(gpu().host(filled), want_filled));
      for (i64 i = 0; i < 6 * 35; ++i) {  // NaNs are compared as such, because their sign and payload may differ between the devices
        const double a = test::at(gpu().host(chosen), i), b = test::at(want, i);
        EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << i;
      }
    }
  }
}

// A formula of transposed views gives the results that it gives of their copies.
TEST_F(PointwiseTwins, OfViews) {
  for (const DType dtype : kFloats) {
    const Tensor x = test::random({33, 20}, dtype, 1), y = test::random({20, 33}, dtype, 2), want = empty({20, 33}, dtype),
                 got = gpu().empty({20, 33}, dtype);
    kernels::pointwise(Pointwise::maximum, {x.transpose(0, 1), y}, {}, want);
    for (i64 i = 0; i < 20; ++i) {
      for (i64 j = 0; j < 33; ++j) ASSERT_EQ(test::at(want, i * 33 + j), std::max(test::at(x, j * 20 + i), test::at(y, i * 33 + j)));
    }
    gpu().run([&] { kernels::pointwise(Pointwise::maximum, {gpu()(x).transpose(0, 1), gpu()(y)}, {}, got); });
    EXPECT_TRUE(test::same_bits(gpu().host(got), want));
  }
}

}  // namespace
}  // namespace spillway::pointwise_cuda_test
