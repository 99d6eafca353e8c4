// Compares, on a GPU and on the CPU, ops that models do not use, forward and backward. Each step of an op must have a GPU kernel.
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise.h"
#include "ops/images/batch_norm.h"
#include "ops/images/conv.h"
#include "ops/images/pool.h"
#include "ops/layout/index.h"
#include "ops/layout/shape.h"
#include "ops/losses/class_loss.h"
#include "ops/losses/error_loss.h"
#include "ops/products/einsum.h"
#include "ops/products/matmul.h"
#include "ops/rows/axis.h"
#include "tests/support/gpu.h"
#include "tests/support/gradient_check.h"

namespace spillway::more_cuda_test {
namespace {

using ops::Variable;
// Copies a constant to the device of an op's inputs.
using On = std::function<Tensor(const Tensor&)>;
using Op = std::function<Variable(const Variable& x, const Variable& y, const On& on)>;

// as_images() views a [5, 7] tensor as an image row of five channels. as_kernels() views its first three columns as a kernel per channel.
Variable as_images(const Variable& x) { return ops::reshape(x, {1, 5, 7}); }
Variable as_kernels(const Variable& x) { return ops::reshape(ops::slice(x, 1, 0, 3), {5, 1, 3}); }

const std::vector<Op>& all() {
  static const Tensor places = test::ints({3, 0, 3, 6, 3}, {5}), classes = test::ints({1, -100, 4, 0, 3}, {5}),
                      of_each = test::ints({1, 1, 6, 0, 2, 3, 3, 3, 5, 0}, {5, 2}),
                      weights = tensor_of<float>(std::vector<float>{1, 2, 1, 3, 1, 0.5, 1}, {7});
  static const std::vector<Op> ops{
      [](const auto& x, const auto& y, const On&) { return ops::where(ops::lt(x, y), ops::pow(x, 3), ops::maximum(x, ops::neg(y))); },
      [](const auto& x, const auto& y, const On&) { return ops::masked_fill(ops::clamp(x, -1, 1), ops::gt(y, 0), 2); },
      [](const auto& x, const auto& y, const On&) { return ops::pow(ops::abs(x), y); },
      [](const auto& x, const auto& y, const On&) {
        return ops::concat({ops::max(x, {0}, true), ops::min(y, {0}, true)}, 0);
      },
      [](const auto& x, const auto&, const On&) { return ops::max(x); },
      [](const auto& x, const auto&, const On&) { return ops::topk(x, 3, 0).values; },
      [](const auto& x, const auto&, const On&) { return ops::var(x, {1}); },
      [](const auto& x, const auto&, const On&) { return ops::logsumexp(x, {}); },
      [](const auto& x, const auto&, const On&) { return ops::cumsum(ops::softmax(x, 0), 1); },
      [](const auto& x, const auto&, const On&) { return ops::log_softmax(x, 1); },
      [](const auto& x, const auto&, const On& on) { return ops::index_select(ops::transpose(x, 0, 1), 0, on(places)); },
      [](const auto& x, const auto&, const On& on) { return ops::gather(x, 1, on(of_each)); },
      [](const auto& x, const auto& y, const On& on) {
        return ops::scatter_add(x, 1, on(of_each), ops::split(y, {2, 5}, 1)[0]);
      },
      [](const auto& x, const auto& y, const On&) {
        return ops::pad(ops::stack({ops::tril(x), ops::triu(y, 1)}, 1), {{1, 2}}, 5);
      },
      [](const auto& x, const auto& y, const On&) { return ops::mse_loss(x, y); },
      [](const auto& x, const auto& y, const On&) { return ops::huber_loss(x, y, 0.5, ops::Reduction::sum); },
      [](const auto& x, const auto& y, const On&) { return ops::kl_div(x, y.value, true); },
      [](const auto& x, const auto&, const On& on) {
        return ops::cross_entropy(x, on(classes), {ops::Reduction::mean, on(weights), 0, 0.1});
      },
      [](const auto& x, const auto& y, const On&) {
        return ops::matmul(ops::reshape(x, {5, 1, 7}), ops::reshape(y, {1, 7, 5}));
      },
      [](const auto& x, const auto& y, const On&) { return ops::einsum("ij,kj->ki", x, y); },
      [](const auto& x, const auto& y, const On&) {
        return ops::conv1d(as_images(x), as_kernels(y), {}, {2, 1, 1, 5});
      },
      [](const auto& x, const auto& y, const On&) {
        return ops::conv_transpose1d(as_images(x), as_kernels(y), ops::reshape(ops::slice(y, 1, 3, 4), {5}), {{2, 1, 1, 5}, 1});
      },
      [](const auto& x, const auto& y, const On&) {
        const Variable gain = ops::reshape(ops::slice(y.value, 1, 0, 1), {5}), bias = ops::reshape(ops::slice(y.value, 1, 1, 2), {5});
        return ops::instance_norm(ops::group_norm(as_images(x), 1, gain, bias), gain, bias);
      },
      [](const auto& x, const auto& y, const On&) {
        return ops::add(ops::adaptive_max_pool2d(ops::reshape(x, {1, 1, 5, 7}), {2, 3}),
                        ops::avg_pool2d(ops::reshape(y, {1, 1, 5, 7}), 3, {3, 2}, {1, 0}, false));
      },
      [](const auto& x, const auto& y, const On&) { return ops::add(ops::mish(x), ops::softplus(ops::hardswish(y), 2)); },
      [](const auto& x, const auto& y, const On&) { return ops::add(ops::leaky_relu(x, 0.2), ops::elu(y, 0.5)); },
      [](const auto& x, const auto&, const On& on) { return ops::nll_loss(x, on(classes), {ops::Reduction::none}); }};
  return ops;
}

class MoreOps : public test::GpuTest {};

TEST_F(MoreOps, GpuBesideCpu) {
  const auto run = [](const Op& op, const Tensor& x, const Tensor& y, const On& on) {
    autograd::Tape tape;
    const Variable first = tape.input(on(x)), second = tape.input(on(y)), out = op(first, second, on);
    tape.backward(out, out.value);
    EXPECT_EQ(tape.saved_bytes(), 0);
    return std::vector<Tensor>{out.value, tape.take_gradient(first), tape.take_gradient(second)};
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = test::random({5, 7}, dtype, 1), y = test::random({5, 7}, dtype, 2);
    for (size_t i = 0; i < all().size(); ++i) {
      SCOPED_TRACE(std::to_string(i) + " " + std::string(to_string(dtype)));
      const auto want = run(all()[i], x, y, [](const Tensor& t) { return t; });
      const auto got = gpu().run([&] { return run(all()[i], x, y, [&](const Tensor& t) { return gpu()(t); }); });
      for (size_t n = 0; n < want.size(); ++n) {
        ASSERT_EQ(want[n].defined(), got[n].defined());
        // If the two outputs differ by an ulp, the gradients computed from them differ too.
        if (want[n].defined()) test::expect_near(gpu().host(got[n]), want[n], 8 * test::half_ulp(dtype), 16 * test::half_ulp(dtype), "");
      }
    }
  }
}

// The axis is long enough for several thread blocks, and some elements are equal. No sum is made, so the bits are the CPU's.
TEST_F(MoreOps, TopKOfALongAxisHasTheBitsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor wide = test::random({2, 5000, 3}, DType::f64, 1), dy = test::random({2, 700, 3}, dtype, 2);
    for (i64 i = 0; i < wide.elems(); i += 7) wide.span<double>()[i] = 1;
    const Tensor x = test::as(dtype, wide);
    const auto run = [](const Tensor& given, const Tensor& upstream) {
      autograd::Tape tape;
      const Variable in = tape.input(given);
      const ops::TopK best = ops::topk(in, 700, 1);
      tape.backward(best.values, upstream);
      return std::vector<Tensor>{best.values.value, best.index, tape.take_gradient(in)};
    };
    const auto want = run(x, dy), got = gpu().run([&] { return run(gpu()(x), gpu()(dy)); });
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(test::same_bits(gpu().host(got[i]), want[i])) << i;
  }
}

}  // namespace
}  // namespace spillway::more_cuda_test
