#include "base/error.h"
#include "ops/elementwise/elementwise.h"
#include "ops/losses/class_loss.h"
#include "ops/losses/error_loss.h"
#include "ops/rows/axis.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::losses_test {
namespace {

using ops::ClassLossOptions;
using ops::Reduction;
using ops::Variable;
using test::Function;

constexpr Reduction kAll[] = {Reduction::none, Reduction::sum, Reduction::mean};

Tensor random(const Shape& shape, u64 seed) { return test::random(shape, DType::f64, seed); }

// Returns random probabilities that sum to 1 along the last axis, in the given type.
Tensor shares(const Shape& shape, DType dtype) { return test::as(dtype, ops::softmax(test::random(shape, DType::f64, 9), -1).value); }

std::vector<Function> of_two(Reduction reduction) {
  return {[=](const auto& in) { return ops::mse_loss(in[0], in[1], reduction); },
          [=](const auto& in) { return ops::l1_loss(in[0], in[1], reduction); },
          [=](const auto& in) { return ops::huber_loss(in[0], in[1], 0.7, reduction); }};
}
std::vector<Function> of_one(Reduction reduction) {
  return {[=](const auto& in) { return ops::bce_with_logits_loss(in[0], shares(in[0].shape(), in[0].dtype()), reduction); },
          [=](const auto& in) { return ops::kl_div(in[0], shares(in[0].shape(), in[0].dtype()), false, reduction); },
          [=](const auto& in) { return ops::kl_div(in[0], ops::log(shares(in[0].shape(), in[0].dtype())).value, true, reduction); }};
}

// Returns targets. Row 2 is not counted (-100). Rows of class 3 are not counted either if a test ignores that class.
const Tensor& targets() {
  static const Tensor classes = test::ints({3, 0, -100, 1, 4, 3}, {2, 3});
  return classes;
}
ClassLossOptions options_of(Reduction reduction, bool weighted, double smoothing, i32 ignored, DType wide) {
  ClassLossOptions options{reduction, {}, ignored, smoothing};
  if (weighted) options.weights_V = test::as(wide, tensor_of<double>(std::vector<double>{0.5, 2, 1, 0.25, 1.5}, {5}));
  return options;
}
std::vector<Function> of_classes(Reduction reduction) {
  std::vector<Function> all;
  for (const bool weighted : {false, true}) {
    for (const i32 ignored : {-100, 3}) {
      all.push_back([=](const auto& in) {
        return ops::nll_loss(in[0], targets(), options_of(reduction, weighted, 0, ignored, wide_dtype(in[0].dtype())));
      });
      for (const double smoothing : {0.0, 0.2, 1.0}) {
        all.push_back([=](const auto& in) {
          return ops::cross_entropy(in[0], targets(), options_of(reduction, weighted, smoothing, ignored, wide_dtype(in[0].dtype())));
        });
      }
    }
  }
  return all;
}

TEST(Losses, Gradients) {
  for (const Reduction reduction : kAll) {
    for (const Function& f : of_two(reduction)) test::check_gradient({random({3, 5, 7}, 1), random({3, 5, 7}, 2)}, f);
    for (const Function& f : of_one(reduction)) test::check_gradient({random({5, 7}, 1)}, f);
    for (const Function& f : of_classes(reduction)) test::check_gradient({random({2, 3, 5}, 1)}, f);
  }
}

TEST(Losses, OfViews) {
  for (const Reduction reduction : kAll) {
    for (const Function& f : of_two(reduction)) test::check_views({random({3, 5, 7}, 1), random({3, 5, 7}, 2)}, f);
    for (const Function& f : of_one(reduction)) test::check_views({random({5, 7}, 1)}, f);
    for (const Function& f : of_classes(reduction)) test::check_views({random({2, 3, 5}, 1)}, f);
  }
  const Tensor x = random({2, 3, 5}, 1);
  EXPECT_EQ(ops::cross_entropy(x, test::turned(targets())).value.item(), ops::cross_entropy(x, targets()).value.item());
}

// Compares the losses with their definitions in terms of other ops. As
// in PyTorch, a weighted mean divides by the weights of counted targets.
TEST(Losses, WeightedAndSmoothedIsItsDefinition) {
  const Tensor x = random({2, 3, 5}, 1), log_shares = ops::log_softmax(x, -1).value;
  const ClassLossOptions options = options_of(Reduction::mean, true, 0.2, 3, DType::f64);
  const auto weight = [&](i64 c) { return test::at(options.weights_V, c); };
  double sum = 0, counted = 0;
  for (i64 row = 0; row < 6; ++row) {
    const i32 target = targets().span<i32>()[static_cast<size_t>(row)];
    if (target < 0 || target == 3) continue;
    double all = 0;
    for (i64 c = 0; c < 5; ++c) all -= weight(c) * test::at(log_shares, row * 5 + c);
    sum += 0.8 * weight(target) * -test::at(log_shares, row * 5 + target) + 0.2 / 5 * all;
    counted += weight(target);
  }
  EXPECT_NEAR(ops::cross_entropy(x, targets(), options).value.item(), sum / counted, 1e-14);
  ClassLossOptions plain = options;
  plain.label_smoothing = 0;
  EXPECT_NEAR(ops::nll_loss(log_shares, targets(), plain).value.item(), ops::cross_entropy(x, targets(), plain).value.item(), 1e-14);
}

TEST(Losses, LargeLogits) {
  const Tensor x = tensor_of<double>(std::vector<double>{800, -800, 0}, {3}), target = tensor_of<double>(std::vector<double>{0, 1, 1}, {3});
  const Tensor losses = ops::bce_with_logits_loss(x, target, Reduction::none).value;
  EXPECT_EQ(test::at(losses, 0), 800);
  EXPECT_EQ(test::at(losses, 1), 800);
  EXPECT_NEAR(test::at(losses, 2), std::log(2.0), 1e-15);
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor masked = tensor_of<double>(std::vector<double>{1000, -inf, 1000}, {1, 3});
  EXPECT_NEAR(ops::cross_entropy(masked, test::ints({2}, {1})).value.item(), std::log(2.0), 1e-13);
}

TEST(Losses, SameBitsOnAnyThreads) {
  std::vector<i32> classes;
  for (i32 i = 0; i < 90; ++i) classes.push_back(i % 7 == 0 ? -100 : i * 19 % 1003);
  const Tensor target = test::ints(classes, {90});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    test::check_threads([&] {
      autograd::Tape tape;
      const Variable x = tape.input(test::random({90, 1003}, dtype, 1, 3));
      const Variable loss = ops::cross_entropy(x, target, {Reduction::mean, {}, -100, 0.1}), error = ops::huber_loss(x, ops::scale(x, 2));
      loss.backward();
      return std::vector<Tensor>{loss.value, error.value, tape.take_gradient(x)};
    });
  }
}

// Compares losses in bf16 and f16 with fp64 on the widened inputs. A reduced loss sums rounded losses, each off by half an ulp of itself.
TEST(Losses, Halves) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const Reduction reduction : {Reduction::none, Reduction::mean}) {
      const auto compare = [&](const Function& f, const Shape& shape) {
        const auto run = [&](DType as) {
          autograd::Tape tape;
          const Variable x = tape.input(test::as(as, test::random(shape, dtype, 1))), y = test::as(as, test::random(shape, dtype, 2));
          const Variable loss = f({x, y});
          tape.backward(loss, test::as(loss.dtype(),
                                       tensor_of<double>(std::vector<double>(static_cast<size_t>(loss.value.elems()), 1), loss.shape())));
          return std::pair(test::as(DType::f64, loss.value), tape.take_gradient(x));
        };
        const auto narrow = run(dtype), wide = run(DType::f64);
        test::expect_near(narrow.first, wide.first, 2 * test::half_ulp(dtype), 1e-5, "loss");
        // A mean passes on a gradient that is rounded already, and the gradient of the loss itself is rounded once more.
        test::expect_near(narrow.second, wide.second, 3 * test::half_ulp(dtype), 1e-5, "gradient");
      };
      for (const Function& f : of_two(reduction)) compare(f, {3, 35});
      for (const Function& f : of_classes(reduction)) compare(f, {2, 3, 5});
    }
  }
}

TEST(Losses, RefusesAndSaysWhatCame) {
  const Tensor x = random({2, 3}, 1), other = random({3}, 1), classes = test::ints({0, 3}, {2});
  EXPECT_EQ(test::refusal([&] { ops::mse_loss(x, other); }),
            "[mse_loss] expected two tensors of the same shape and dtype, got f64 [2, 3] and f64 [3]");
  EXPECT_EQ(test::refusal([&] { ops::huber_loss(x, x, 0); }),
            "[huber_loss] expected a delta above 0, not 0.000000, got f64 [2, 3] and f64 [2, 3]");
  EXPECT_EQ(
      test::refusal([&] { ops::nll_loss(x, test::ints({0}, {1})); }),
      "[nll_loss] expected classes along the last axis and int32 targets with the shape of the other axes, got f64 [2, 3] and i32 [1]");
  EXPECT_EQ(test::refusal([&] {
              ops::cross_entropy(x, classes, {Reduction::sum, random({2}, 1)});
            }),
            "[cross_entropy] expected a weight for each class in f64, got f64 [2, 3] and f64 [2]");
  EXPECT_EQ(test::refusal([&] { ops::cross_entropy(x, classes); }),
            "[class_loss] target 3 of row 1 (rows are counted from 0) is not below the number of classes, 3");
  EXPECT_EQ(test::refusal([&] {
              ops::cross_entropy(x, test::ints({-100, -1}, {2}));
            }),
            "[cross_entropy] expected at least one target that counts, got none: the mean of zero losses is undefined");
  EXPECT_EQ(test::refusal([&] {
              ops::nll_loss(x, classes, {Reduction::sum, {}, -100, 0.1});
            }),
            "[nll_loss] expected no label smoothing (only cross_entropy supports it), got f64 [2, 3]");
}

}  // namespace
}  // namespace spillway::losses_test
