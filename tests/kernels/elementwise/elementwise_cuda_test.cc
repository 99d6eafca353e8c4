// Compares element-wise kernels on a GPU with the CPU. Kernels without a transcendental function
// equal the CPU's to the bit. The others are near the formula computed in the next wider type.
#include "kernels/elementwise/elementwise.h"

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::elementwise_cuda_test {
namespace {

using kernels::Unary;

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
// Lists sizes: less than a vector, not a multiple of a vector, and more than a block of vectors.
constexpr i64 kSizes[] = {1, 301, 4099};
constexpr Unary kAll[] = {Unary::exp,     Unary::log,  Unary::sqrt, Unary::rsqrt,     Unary::tanh,
                          Unary::sigmoid, Unary::relu, Unary::relu_squared, Unary::silu, Unary::gelu_tanh, Unary::gelu_erf};

bool wants_positive(Unary op) { return op == Unary::log || op == Unary::sqrt || op == Unary::rsqrt; }

using Wider = long double;

Wider sigmoid(Wider x) { return 1 / (1 + std::exp(-x)); }
Wider gelu_sigmoid(Wider x) { return sigmoid(2 * std::sqrt(2 / std::acos(Wider(-1))) * (x + Wider(0.044715) * x * x * x)); }
Wider gaussian_integral(Wider x) { return std::erfc(-x / std::sqrt(Wider(2))) / 2; }
Wider gaussian_density(Wider x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(Wider(-1))); }

Wider value_of(Unary op, Wider x) {
  switch (op) {
    case Unary::exp:
      return std::exp(x);
    case Unary::log:
      return std::log(x);
    case Unary::sqrt:
      return std::sqrt(x);
    case Unary::rsqrt:
      return 1 / std::sqrt(x);
    case Unary::tanh:
      return std::tanh(x);
    case Unary::sigmoid:
      return sigmoid(x);
    case Unary::relu:
      return x < 0 ? 0 : x;
    case Unary::relu_squared:
      return x < 0 ? 0 : x * x;
    case Unary::silu:
      return x * sigmoid(x);
    case Unary::gelu_tanh:
      return x * gelu_sigmoid(x);
    case Unary::gelu_erf:
      return x * gaussian_integral(x);
  }
  return 0;
}

Wider slope_of(Unary op, Wider kept) {
  const Wider s = op == Unary::gelu_tanh ? gelu_sigmoid(kept) : sigmoid(kept);
  switch (op) {
    case Unary::exp:
      return kept;
    case Unary::log:
      return 1 / kept;
    case Unary::sqrt:
      return 1 / (2 * kept);
    case Unary::rsqrt:
      return -kept * kept * kept / 2;
    case Unary::tanh:
      return 1 - kept * kept;
    case Unary::sigmoid:
      return kept * (1 - kept);
    case Unary::relu:
      return kept > 0 ? 1 : 0;
    case Unary::relu_squared:
      return kept > 0 ? 2 * kept : 0;
    case Unary::silu:
      return s * (1 + kept * (1 - s));
    case Unary::gelu_tanh:
      return s + kept * s * (1 - s) * 2 * std::sqrt(2 / std::acos(Wider(-1))) * (1 + 3 * Wider(0.044715) * kept * kept);
    case Unary::gelu_erf:
      return gaussian_integral(kept) + kept * gaussian_density(kept);
  }
  return 0;
}

// Returns the error bound of a result; an ulp is eps |result| in the type of the computation. CUDA's exp, log, tanh and erf are accurate to
// 2 ulp (Programming Guide 13.0, "Mathematical Functions"; so are those of the C library, which the emulation calls). A formula adds at
// most six more roundings. The exponential amplifies the error of its argument: the argument grows like x (gelu's like x^3) and has an
// error of 2 eps, which becomes at most 4 (1 + x^2) of the result. 1 + erf, 1 - x^2 and the sums in slopes cancel, so their error is
// relative to the terms, not to the result.
double bound(DType dtype, Unary op, bool slope, double x, double want, double factor) {
  const double eps = 2 * test::half_ulp(wide_dtype(dtype)), stored = is_half(dtype) ? test::half_ulp(dtype) : 0;
  const double tiny = dtype == DType::f64 ? 0x1p-1022 : 0x1p-126;
  const bool alone = op == Unary::exp || op == Unary::log || op == Unary::tanh;
  const double relative = alone ? 2 * eps : 8 * eps * (gradient_wants_output(op) && op != Unary::sigmoid ? 1 : 1 + x * x);
  // The error of a sum depends on its terms. These are x (1 - s) and 1 in the derivative of silu, x Phi'(x) and Phi(x) in that of
  // gelu_erf, and erf and 1 in gelu_erf itself.
  const double terms = op == Unary::gelu_erf ? (slope ? 1 + std::abs(x) : std::abs(x)) : slope ? 1 + std::abs(x) : 0;
  const double sums = 8 * eps * terms;
  return relative * std::abs(want) + test::stored_error(dtype, want) + sums * std::abs(factor) * (1 + stored) +
         tiny * (1 + std::abs(x)) * (1 + std::abs(factor));
}

// The functions below return whether values, or slopes, use no function of CUDA. Such values must equal the CPU's to the bit.
bool exact_value(Unary op) { return op == Unary::sqrt || op == Unary::rsqrt || op == Unary::relu || op == Unary::relu_squared; }
bool exact_slope(Unary op) { return gradient_wants_output(op) || op == Unary::log || op == Unary::relu || op == Unary::relu_squared; }

class ElementwiseTwins : public test::GpuTest {
 protected:
  Tensor inputs(Unary op, i64 n, DType dtype, u64 seed) const {
    const Tensor x = test::random({n}, DType::f64, seed, 3);
    for (double& v : x.span<double>()) v = wants_positive(op) ? std::abs(v) + 0.01 : v;
    return test::as(dtype, x);
  }
};

TEST_F(ElementwiseTwins, ValuesAndGradients) {
  for (const Unary op : kAll) {
    for (const DType dtype : kFloats) {
      for (const i64 n : kSizes) {
        SCOPED_TRACE(std::to_string(static_cast<int>(op)) + " " + std::string(to_string(dtype)) + " " + std::to_string(n));
        const Tensor x = inputs(op, n, dtype, 1), dy = test::random({n}, dtype, 2), y = empty({n}, dtype), dx = empty({n}, dtype);
        kernels::unary(op, x, y);
        const Tensor kept = gradient_wants_output(op) ? y : x;
        kernels::unary_gradient(op, kept, dy, dx);
        const Tensor got_y = gpu().empty({n}, dtype), got_dx = gpu()(dy);
        gpu().run([&] {
          kernels::unary(op, gpu()(x), got_y);
          kernels::unary_gradient(op, gpu()(kept), got_dx, got_dx);
        });
        const Tensor value = gpu().host(got_y), slope = gpu().host(got_dx);
        if (exact_value(op)) {
          EXPECT_TRUE(test::same_bits(value, y));
        }
        if (exact_slope(op)) {
          EXPECT_TRUE(test::same_bits(slope, dx));
        }
        for (i64 i = 0; i < n; ++i) {
          const double at = test::at(x, i), of = test::at(kept, i), factor = test::at(dy, i);
          const auto want = static_cast<double>(value_of(op, at)), wanted_slope = static_cast<double>(slope_of(op, of) * factor);
          ASSERT_NEAR(test::at(value, i), want, bound(dtype, op, false, at, want, 1)) << "of " << at;
          ASSERT_NEAR(test::at(slope, i), wanted_slope, bound(dtype, op, true, of, wanted_slope, factor)) << "slope of " << of;
        }
      }
    }
  }
}

TEST_F(ElementwiseTwins, LimitsAndNotANumberAreTheCpus) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor all = tensor_of<double>(std::vector<double>{nan, inf, -inf, 0, -0.0, 1000, -1000}, {7});
  for (const Unary op : kAll) {
    for (const DType dtype : kFloats) {
      const Tensor x = test::as(dtype, all), want = empty({7}, dtype), got = gpu().empty({7}, dtype);
      kernels::unary(op, x, want);
      gpu().run([&] { kernels::unary(op, gpu()(x), got); });
      const Tensor host = gpu().host(got);
      for (i64 i = 0; i < 7; ++i) {
        const double a = test::at(host, i), b = test::at(want, i), x_i = test::at(x, i);
        EXPECT_TRUE((std::isnan(a) && std::isnan(b)) || a == b) << static_cast<int>(op) << " of " << x_i << ": " << a << " for " << b;
      }
    }
  }
}

// A view that begins at an odd element is not accessed in vectors. An element must be bitwise the same wherever it is stored.
TEST_F(ElementwiseTwins, AValueDoesNotDependOnItsPlace) {
  for (const DType dtype : kFloats) {
    const Tensor x = test::random({333}, dtype, 3, 3), dy = test::random({333}, dtype, 4);
    for (const Unary op : {Unary::silu, Unary::gelu_erf}) {
      const auto both = [&](i64 begin, i64 end) {
        const Tensor y = gpu().empty({333}, dtype).slice(0, begin, end), dx = gpu().empty({333}, dtype).slice(0, begin, end);
        gpu().run([&] {
          const Tensor input = gpu()(x).slice(0, begin, end);
          kernels::unary(op, input, y);
          kernels::unary_gradient(op, input, gpu()(dy).slice(0, begin, end), dx);
        });
        return std::pair(gpu().host(y), gpu().host(dx));
      };
      const auto whole = both(0, 333);
      for (const i64 begin : {1, 2, 5, 16}) {
        const auto part = both(begin, 333);
        EXPECT_TRUE(test::same_bits(part.first, whole.first.slice(0, begin, 333)));
        EXPECT_TRUE(test::same_bits(part.second, whole.second.slice(0, begin, 333)));
      }
    }
  }
}

TEST_F(ElementwiseTwins, ScaleHasTheBitsOfTheCpu) {
  for (const DType dtype : kFloats) {
    for (const i64 n : kSizes) {
      const Tensor x = test::random({n}, dtype, 5), want = empty({n}, dtype), got = gpu()(x);
      kernels::scale(x, 0.1, want);
      gpu().run([&] { kernels::scale(got, 0.1, got); });
      EXPECT_TRUE(test::same_bits(gpu().host(got), want));
    }
  }
}

TEST_F(ElementwiseTwins, SwiGlu) {
  for (const DType dtype : kFloats) {
    for (const i64 n : kSizes) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(n));
      const Tensor gate = test::random({n}, dtype, 6, 3), up = test::random({n}, dtype, 7), dy = test::random({n}, dtype, 8);
      const Tensor y = gpu().empty({n}, dtype), dgate = gpu().empty({n}, dtype), dup = gpu().empty({n}, dtype);
      const Tensor dgate_alone = gpu().empty({n}, dtype), dup_alone = gpu().empty({n}, dtype);
      gpu().run([&] {
        const Tensor g = gpu()(gate), u = gpu()(up), gradient = gpu()(dy);
        kernels::glu(kernels::Glu::silu, g, u, y);
        kernels::glu_gradient(kernels::Glu::silu, g, u, gradient, dgate, dup);
        kernels::glu_gradient(kernels::Glu::silu, g, u, gradient, dgate_alone, {});
        kernels::glu_gradient(kernels::Glu::silu, g, u, gradient, {}, dup_alone);
      });
      EXPECT_TRUE(test::same_bits(gpu().host(dgate), gpu().host(dgate_alone)));
      EXPECT_TRUE(test::same_bits(gpu().host(dup), gpu().host(dup_alone)));
      const Tensor got_y = gpu().host(y), got_gate = gpu().host(dgate), got_up = gpu().host(dup);
      for (i64 i = 0; i < n; ++i) {
        const double g = test::at(gate, i), u = test::at(up, i), d = test::at(dy, i);
        const auto value = static_cast<double>(value_of(Unary::silu, g)), slope = static_cast<double>(slope_of(Unary::silu, g));
        ASSERT_NEAR(test::at(got_y, i), value * u, bound(dtype, Unary::silu, false, g, value * u, u)) << i;
        ASSERT_NEAR(test::at(got_up, i), value * d, bound(dtype, Unary::silu, false, g, value * d, d)) << i;
        ASSERT_NEAR(test::at(got_gate, i), slope * u * d, bound(dtype, Unary::silu, true, g, slope * u * d, u * d)) << i;
      }
    }
  }
}

TEST_F(ElementwiseTwins, NoElementsAreNoWork) {
  const Tensor none = gpu().empty({0}, DType::f32);
  gpu().run([&] {
    kernels::unary(Unary::exp, none, none);
    kernels::unary_gradient(Unary::silu, none, none, none);
    kernels::scale(none, 2, none);
    kernels::glu(kernels::Glu::silu, none, none, none);
    kernels::glu_gradient(kernels::Glu::silu, none, none, none, none, none);
  });
}

}  // namespace
}  // namespace spillway::elementwise_cuda_test
