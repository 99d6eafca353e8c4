// Tests products and norms that add to an existing tensor, forward and backward. On a CPU they are bitwise equal to the separate ops,
// whichever weights are trained. On a GPU they launch no separate addition kernel.
#include "ops/elementwise/elementwise.h"
#include "ops/products/linear.h"
#include "ops/rows/norm.h"
#include "tests/support/gpu.h"
#include "tests/support/gpu_log.h"
#include "tests/support/numbers.h"

namespace spillway::residual_cuda_test {
namespace {

using autograd::Tape;
using autograd::Variable;
using ops::WeightLayout;

struct Case {
  DType dtype;
  bool bias, in_parts, trained;
};

struct Results {
  Tensor y, dx;
  std::map<std::pair<u32, u8>, Tensor> parameters;
};

// Receives parameter gradients, and allocates their memory on the current stream's device.
struct Sink final : autograd::GradientSink {
  std::map<std::pair<u32, u8>, Tensor> gradients;
  Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override {
    return gradients[{parameter, use}] = empty(shape, dtype);
  }
  void done(u32, u8) override {}
};

// Returns random numbers on the device on which a test needs them.
using Place = std::function<Tensor(const Shape&, DType, u64 seed, double scale)>;

// Computes s = x + (n w1 + n w2) w3 and then s + gelu(n' w4) w5, where n is the norm of x and n' that of s.
// These are the additions in a transformer block. `fused` tells whether the products make the additions.
Results run(const Case& c, bool fused, const Place& at) {
  constexpr i64 kC = 16;
  Sink sink;
  Tape tape(&sink);
  u32 next = 0;
  const auto parameter = [&](const Shape& shape) {
    const u32 id = next++;
    const Tensor value = at(shape, c.dtype, 10 + id, 0.4);
    return c.trained ? tape.parameter(value, id) : Tape::frozen(value);
  };
  const auto weights = [&] {
    const Variable w = parameter({kC, kC});
    return ops::LinearWeights{w, c.bias ? parameter({kC}) : Variable(), WeightLayout::out_in};
  };
  const auto linear = [&](const Variable& in, const ops::LinearWeights& p, const Variable& onto) {
    if (fused || !onto.value.defined()) return ops::linear(in, p, onto);
    return ops::add(onto, ops::linear(in, p));
  };
  const Variable x = tape.input(at({2, 8, kC}, c.dtype, 1, 1));
  const Variable n = ops::layer_norm(x, parameter({kC}), parameter({kC}), 1e-5);
  const Variable q = linear(n, weights(), {}), both = linear(n, weights(), q), sum = linear(both, weights(), x);
  const Variable n2 = ops::rms_norm(sum, parameter({kC}), 1e-5);
  const ops::LinearWeights up = weights(), down = weights();
  const Variable y = fused ? ops::gelu_mlp(n2, up, down, sum) : ops::add(sum, ops::gelu_mlp(n2, up, down));
  const Tensor dy = at({2, 8, kC}, c.dtype, 2, 1);
  if (c.in_parts) {
    tape.backward_input(y, dy);
    tape.backward_weight();
  } else {
    tape.backward(y, dy);
  }
  return {y.value, tape.take_gradient(x), sink.gradients};
}

TEST(Residual, HasTheBitsOfItsPartsOnACpu) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (int which = 0; which < 8; ++which) {
      const Case c{dtype, (which & 1) != 0, (which & 2) != 0, (which & 4) != 0};
      const Results got = run(c, true, test::random), want = run(c, false, test::random);
      EXPECT_TRUE(test::same_bits(got.y, want.y)) << which;
      EXPECT_TRUE(test::same_bits(got.dx, want.dx)) << which;
      ASSERT_EQ(got.parameters.size(), want.parameters.size());
      for (const auto& [id, gradient] : want.parameters) EXPECT_TRUE(test::same_bits(got.parameters.at(id), gradient)) << which;
    }
  }
}

class ResidualOnGpu : public test::GpuTest {
 protected:
  Results there(const Case& c, bool fused = true) {
    const Stream host = Stream::current();
    const Place at = [&](const Shape& shape, DType dtype, u64 seed, double scale) {
      const StreamScope made_here(host);
      return gpu()(test::random(shape, dtype, seed, scale));
    };
    return gpu().run([&] { return run(c, fused, at); });
  }
};

TEST_F(ResidualOnGpu, TheSameBitsAtOnceAndInTwoParts) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Results once = there({dtype, true, false, true}), parts = there({dtype, true, true, true});
    EXPECT_TRUE(test::same_bits(gpu().host(once.y), gpu().host(parts.y)));
    EXPECT_TRUE(test::same_bits(gpu().host(once.dx), gpu().host(parts.dx)));
    for (const auto& [id, gradient] : once.parameters)
      EXPECT_TRUE(test::same_bits(gpu().host(gradient), gpu().host(parts.parameters.at(id))));
  }
}

// Compares the fused ops with the separate ones, which round every sum. The tolerance is some tens of rounding errors of numbers of size
// 1 to 4.
TEST_F(ResidualOnGpu, NearItsParts) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Results fused = there({dtype, true, false, true}), parts = there({dtype, true, false, true}, false);
    const double u = test::half_ulp(dtype);
    test::expect_near(gpu().host(fused.y), test::as(DType::f64, gpu().host(parts.y)), 8 * u, 32 * u, "y");
    test::expect_near(gpu().host(fused.dx), test::as(DType::f64, gpu().host(parts.dx)), 8 * u, 32 * u, "dx");
  }
}

// The forward of the fused block has two norms and five products. Its backward has
// twice as many products, and two norms that compute only the gradient of their input.
TEST_F(ResidualOnGpu, NothingIsAddedApart) {
  const test::GpuLog log;
  there({DType::bf16, true, false, false});
  if (!log.kept()) GTEST_SKIP() << "a GPU keeps no list of its kernels";
  i64 adds = 0;
  for (const test::GpuLog::Product& p : log.products()) adds += p.adds;
  EXPECT_EQ(adds, 4) << "two onto a residual, one onto q, one onto another's gradient";
  EXPECT_EQ(log.launches(), 14);
}

}  // namespace
}  // namespace spillway::residual_cuda_test
