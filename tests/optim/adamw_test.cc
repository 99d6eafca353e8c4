// Compares AdamW with PyTorch's trajectories, with the formula in which each operation is rounded, and instruction sets with each other.
#include "optim/adamw.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/optim/support_reference.h"
#include "tests/optim/support_values.h"

namespace spillway::optim::adamw_test {
namespace {

using test::draw;
using test::same;
using test::Values;

template <class T>
struct State {
  std::vector<T> weight, m, v, gradient;

  static State random(size_t n, Values kind, std::mt19937_64& random) {
    return {draw<T>(n, kind, random), draw<T>(n, kind, random), draw<T>(n, kind, random), draw<T>(n, kind, random)};
  }
  void update(const Scalars<T>& s, Isa isa, size_t from = 0, size_t count = std::dynamic_extent) {
    adamw_update(std::span(weight).subspan(from, count), std::span(m).subspan(from, count), std::span(v).subspan(from, count),
                 std::span<const T>(gradient).subspan(from, count), s, isa);
  }
  bool operator==(const State& other) const {
    return same(weight, other.weight) && same(m, other.m) && same(v, other.v) && same(gradient, other.gradient);
  }
};

template <class T>
Scalars<T> scalars(i64 t, double gradient_scale = 0.7, double eps = 1e-8) {
  return make_adamw_scalars<T>({.beta1 = 0.9, .beta2 = 0.95, .eps = eps}, 3e-4, 0.1, t, gradient_scale);
}

// Returns the largest distance from PyTorch's trajectory in units of the tolerance. PyTorch orders a few operations
// differently and keeps its scalars in fp64, so the two agree only up to rounding, where u is one rounding error. Each of
// the 20 steps rounds the weight 3 times, and the update lr * ratio about 60 times in all (v is a sum of positive terms;
// m may cancel, so its error is measured against the largest gradient). |ratio| <= 1 / sqrt((1 - beta2) beta2^19) = 7.3.
template <class T>
double distance(const std::string& file, const AdamWSettings& settings, double lr) {
  const test::Reference reference(file);
  const std::string type = sizeof(T) == 4 ? "f32" : "f64";
  const double u = std::numeric_limits<T>::epsilon() / 2;
  double worst = 0;
  for (const char* p : {"p0", "p1", "p2"}) {
    const auto name = std::string(p);
    const auto gradients = reference.get<T>(name + "/grads"), after = reference.get<T>(name + "/" + type + "/after");
    State<T> state{reference.get<T>(name + "/init"), {}, {}, {}};
    const size_t n = state.weight.size();
    state.m.assign(n, 0), state.v.assign(n, 0);
    EXPECT_EQ(gradients.size(), 20 * n);
    for (size_t t = 0; t < 20; ++t) {
      state.gradient.assign(gradients.begin() + static_cast<i64>(t * n), gradients.begin() + static_cast<i64>((t + 1) * n));
      state.update(make_adamw_scalars<T>(settings, lr, settings.weight_decay, static_cast<i64>(t) + 1, 1.0), Isa::best);
      for (size_t i = 0; i < n; ++i) {
        const double tolerance = 20 * u * (3 * (std::abs(state.weight[i]) + lr) + lr * 7.3 * 60);
        worst = std::max(worst, std::abs(static_cast<double>(state.weight[i]) - static_cast<double>(after[t * n + i])) / tolerance);
      }
    }
  }
  return worst;
}

constexpr AdamWSettings kAdamW{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
constexpr AdamWSettings kAdam{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0};

TEST(AdamW, FollowsPyTorch) {
  EXPECT_LT(distance<float>("adamw.safetensors", kAdamW, 0.01), 1);
  EXPECT_LT(distance<double>("adamw.safetensors", kAdamW, 0.01), 1);
}

TEST(AdamW, WithoutDecayIsPyTorchsAdam) {
  EXPECT_LT(distance<float>("adam.safetensors", kAdam, 0.003), 1);
  EXPECT_LT(distance<double>("adam.safetensors", kAdam, 0.003), 1);
}

TEST(AdamW, AWrongSettingWouldBeSeen) {
  AdamWSettings wrong = kAdamW;
  wrong.weight_decay = 0.101;
  EXPECT_GT(distance<float>("adamw.safetensors", wrong, 0.01), 1);
  wrong = kAdamW;
  wrong.eps = 1.001e-8;
  EXPECT_GT(distance<double>("adamw.safetensors", wrong, 0.01), 1);
}

TEST(AdamW, ScalarsAreRoundedOnce) {
  const auto s = make_adamw_scalars<float>({.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, 0.01, 0.1, 3, 0.25);
  EXPECT_EQ(s.gradient_scale, 0.25f);
  EXPECT_EQ(s.decay, static_cast<float>(1 - 0.01 * 0.1));
  EXPECT_EQ(s.one_minus_beta1, static_cast<float>(1 - 0.9));
  EXPECT_EQ(s.beta2, 0.95f);
  EXPECT_EQ(s.one_minus_beta2, static_cast<float>(1 - 0.95));
  EXPECT_EQ(s.eps, 1e-8f);
  // 0.142625 and 0.271 are 1 - 0.95^3 and 1 - 0.9^3 in decimals. Rounding the result to fp32 hides the last bits of fp64.
  EXPECT_EQ(s.root_correction2, static_cast<float>(std::sqrt(0.142625)));
  EXPECT_EQ(s.step_size, static_cast<float>(0.01 / 0.271));
}

// Computes the formula in fp32. Each operation is done in fp64 and rounded, which for +, -, *, / and sqrt gives the correctly rounded
// result (53 >= 2 * 24 + 2 bits) whatever the compiler does. `fused` plants the fault that -ffp-contract=off prevents: a fused
// multiply-add.
void formula(State<float>& state, const Scalars<float>& s, bool fused) {
  const auto r = [](double x) { return static_cast<double>(static_cast<float>(x)); };
  for (size_t i = 0; i < state.weight.size(); ++i) {
    const double g = r(static_cast<double>(state.gradient[i]) * s.gradient_scale);
    const double decayed = r(static_cast<double>(state.weight[i]) * s.decay);
    const double old = state.m[i], product = r(g - old) * s.one_minus_beta1;
    const double m = r(old + (fused ? product : r(product)));
    const double v = r(r(static_cast<double>(state.v[i]) * s.beta2) + r(s.one_minus_beta2 * r(g * g)));
    const double root = r(r(r(std::sqrt(v)) / s.root_correction2) + s.eps);
    state.m[i] = static_cast<float>(m);
    state.v[i] = static_cast<float>(v);
    state.weight[i] = static_cast<float>(decayed - r(s.step_size * r(m / root)));
  }
}

TEST(AdamW, EachOperationIsRoundedByItself) {
  std::mt19937_64 random(11);
  for (Values kind : test::kAllValues) {
    State<float> state = State<float>::random(50000, kind, random), expected = state;
    for (i64 t = 1; t <= 3; ++t) {
      state.update(scalars<float>(t), Isa::scalar);
      formula(expected, scalars<float>(t), false);
    }
    EXPECT_TRUE(state == expected) << static_cast<int>(kind);
  }
}

TEST(AdamW, AFusedMultiplyAddWouldBeSeen) {
  std::mt19937_64 random(12);
  State<float> state = State<float>::random(1000, Values::ordinary, random), expected = state;
  state.update(scalars<float>(1), Isa::scalar);
  formula(expected, scalars<float>(1), true);
  EXPECT_FALSE(state == expected);
}

TEST(AdamW, DenormalsAreKept) {
  const float tiny = std::numeric_limits<float>::denorm_min() * 1000;
  for (Isa isa : available_isas()) {
    State<float> state{std::vector<float>(33, 0), std::vector<float>(33, tiny), std::vector<float>(33, 0), std::vector<float>(33, 0)};
    state.update(scalars<float>(1), isa);
    for (float m : state.m) EXPECT_EQ(m, tiny - tiny * 0.1f) << to_string(isa);
  }
}

TEST(AdamW, RefusesSpansOfDifferentLengths) {
  State<float> state{std::vector<float>(8), std::vector<float>(8), std::vector<float>(7), std::vector<float>(8)};
  EXPECT_THROW(state.update(scalars<float>(1), Isa::best), Error);
}

class AdamWPath : public test::FastPath {};

template <class T>
void equals_scalar(Isa isa) {
  std::mt19937_64 random(21);
  for (Values kind : test::kAllValues) {
    State<T> fast = State<T>::random(200000, kind, random), slow = fast;
    for (double gradient_scale : {1.0, 0.37, 1.0 / 65536}) {
      for (double eps : {1e-8, 0.0}) {
        fast.update(scalars<T>(5, gradient_scale, eps), isa);
        slow.update(scalars<T>(5, gradient_scale, eps), Isa::scalar);
        ASSERT_TRUE(fast == slow) << static_cast<int>(kind);
      }
    }
  }
}

TEST_P(AdamWPath, EqualsScalarF32) { equals_scalar<float>(GetParam()); }
TEST_P(AdamWPath, EqualsScalarF64) { equals_scalar<double>(GetParam()); }

// Compares an instruction set with the scalar path, for every length up to a
// few vectors at every offset. Memory outside of the range must not change.
template <class T>
void equals_scalar_at_any_length(Isa isa) {
  std::mt19937_64 random(22);
  const auto s = scalars<T>(2);
  for (size_t length = 0; length <= 100; ++length) {
    for (size_t offset = 0; offset < 64; ++offset) {
      const Values kind = test::kAllValues[(length + offset) % std::size(test::kAllValues)];
      State<T> fast = State<T>::random(offset + length + 20, kind, random), slow = fast;
      fast.update(s, isa, offset, length);
      slow.update(s, Isa::scalar, offset, length);
      ASSERT_TRUE(fast == slow) << length << " at " << offset;
    }
  }
}

TEST_P(AdamWPath, EqualsScalarAtAnyLengthF32) { equals_scalar_at_any_length<float>(GetParam()); }
TEST_P(AdamWPath, EqualsScalarAtAnyLengthF64) { equals_scalar_at_any_length<double>(GetParam()); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AdamWPath);  // a CPU that has only the scalar path instantiates no test
INSTANTIATE_TEST_SUITE_P(Isa, AdamWPath, testing::ValuesIn(available_isas().subspan(1)), test::isa_name);

}  // namespace
}  // namespace spillway::optim::adamw_test
