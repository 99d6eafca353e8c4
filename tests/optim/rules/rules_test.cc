// Compares the update rules with their formulas rounded operation by
// operation, adamw with adamw_update, and instruction sets with each other.
#include "optim/rules/rules.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "optim/adamw.h"
#include "tests/optim/rules/support_torch.h"
#include "tests/optim/support_values.h"

namespace spillway::optim::rules_test {
namespace {

using test::draw;
using test::same;
using test::Settings;
using test::Values;

// Lists settings of every update rule.
const Settings kSettings[] = {
    SgdSettings{.lr = 0.05, .weight_decay = 0.02},
    SgdSettings{.lr = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.02},
    SgdSettings{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.02, .nesterov = true},
    AdamSettings{.weight_decay = 0.1},
    AdamSettings{.weight_decay = 0.1, .amsgrad = true},
    AdamSettings{.weight_decay = 0.1, .decoupled_weight_decay = true},
    AdamSettings{.weight_decay = 0.1, .amsgrad = true, .decoupled_weight_decay = true},
    AdagradSettings{.lr_decay = 0.1, .weight_decay = 0.02, .initial_accumulator_value = 0.1},
    RmspropSettings{.weight_decay = 0.02},
    RmspropSettings{.weight_decay = 0.02, .momentum = 0.8},
    RmspropSettings{.weight_decay = 0.02, .centered = true},
    RmspropSettings{.weight_decay = 0.02, .momentum = 0.8, .centered = true},
    LionSettings{.lr = 3e-3, .weight_decay = 0.1},
};

template <class T>
struct Parameter {
  std::vector<T> weight, gradient;
  std::vector<std::vector<T>> states;

  static Parameter random(size_t n, Rule rule, Values kind, std::mt19937_64& random) {
    Parameter parameter{draw<T>(n, kind, random), draw<T>(n, kind, random), {}};
    for (int k = 0; k < state_arrays(rule); ++k) parameter.states.push_back(draw<T>(n, kind, random));
    return parameter;
  }
  void step(Rule rule, const Scalars<double>& s, Isa isa, size_t from = 0, size_t count = std::dynamic_extent) {
    std::vector<std::span<T>> spans;
    for (auto& state : states) spans.push_back(std::span(state).subspan(from, count));
    update<T>(rule, std::span(weight).subspan(from, count), spans, std::span<const T>(gradient).subspan(from, count), s, isa);
  }
  bool operator==(const Parameter& other) const {
    bool equal = same(weight, other.weight) && same(gradient, other.gradient);
    for (size_t k = 0; k < states.size(); ++k) equal = equal && same(states[k], other.states[k]);
    return equal;
  }
};

class Rules : public testing::TestWithParam<Settings> {
 protected:
  Rule rule() const { return test::rule_of(GetParam()); }
  Scalars<double> scalars(i64 t, double gradient_scale = 0.7) const { return test::scalars_of(GetParam(), t, gradient_scale); }
};

// Plants the fault that -ffp-contract=off prevents, a fused multiply-add: a product keeps all its bits until it is added.
struct Fused : test::Rounded {
  double product = 0;
  bool is_product = false;
  Fused(double value) : Rounded(value) {}
  double whole() const { return is_product ? product : x; }
};
Fused operator*(Fused a, Fused b) {
  Fused result(a.x * b.x);
  result.product = a.x * b.x, result.is_product = true;
  return result;
}
Fused operator+(Fused a, Fused b) { return a.whole() + b.x; }
Fused operator-(Fused a, Fused b) { return a.x - b.whole(); }
Fused operator/(Fused a, Fused b) { return a.x / b.x; }
Fused sqrt(Fused a) { return std::sqrt(a.x); }
Fused larger(Fused a, Fused b) { return a.x > b.x ? a.x : b.x; }
Fused sign(Fused a) { return test::sign(a).x; }

template <class N>
void by_formula(Parameter<float>& p, const Settings& settings, i64 t, double gradient_scale) {
  for (size_t i = 0; i < p.weight.size(); ++i) {
    N weight = p.weight[i];
    std::vector<N> state;
    for (const auto& array : p.states) state.push_back(array[i]);
    const N gradient = N(p.gradient[i]) * N(gradient_scale);
    std::visit([&](const auto& s) { test::torch_step(s, t, N(gradient.x), weight, state); }, settings);
    p.weight[i] = static_cast<float>(weight.x);
    for (size_t k = 0; k < state.size(); ++k) p.states[k][i] = static_cast<float>(state[k].x);
  }
}

TEST_P(Rules, EachOperationIsRoundedByItself) {
  std::mt19937_64 random(11);
  for (Values kind : test::kAllValues) {
    auto parameter = Parameter<float>::random(20000, rule(), kind, random), expected = parameter;
    for (i64 t = 1; t <= 3; ++t) {
      parameter.step(rule(), scalars(t), Isa::scalar);
      by_formula<test::Rounded>(expected, GetParam(), t, 0.7);
    }
    EXPECT_TRUE(parameter == expected) << static_cast<int>(kind);
  }
}

TEST_P(Rules, AFusedMultiplyAddWouldBeSeen) {
  std::mt19937_64 random(12);
  auto parameter = Parameter<float>::random(1000, rule(), Values::ordinary, random), expected = parameter;
  parameter.step(rule(), scalars(2), Isa::scalar);
  by_formula<Fused>(expected, GetParam(), 2, 0.7);
  EXPECT_FALSE(parameter == expected);
}

template <class T>
void adamw_is_adamw_update() {
  std::mt19937_64 random(13);
  const AdamWSettings old{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  const AdamSettings settings{.weight_decay = 0.1, .decoupled_weight_decay = true};
  for (Values kind : test::kAllValues) {
    auto parameter = Parameter<T>::random(10007, Rule::adamw, kind, random), expected = parameter;
    for (i64 t = 1; t <= 3; ++t) {
      parameter.step(Rule::adamw, make_scalars(settings, t, 0.7), Isa::best);
      adamw_update<T>(expected.weight, expected.states[0], expected.states[1], expected.gradient,
                      make_adamw_scalars<T>(old, settings.lr, settings.weight_decay, t, 0.7));
    }
    EXPECT_TRUE(parameter == expected) << static_cast<int>(kind);
  }
}

TEST(AdamWRule, HasTheBitsOfAdamWUpdate) {
  adamw_is_adamw_update<float>();
  adamw_is_adamw_update<double>();
}

TEST(LionRule, StepsNowhereWhereTheSignIsZero) {
  const Scalars<double> s = make_scalars(LionSettings{.lr = 0.5}, 1, 1.0);
  for (Isa isa : available_isas()) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Parameter<float> p{std::vector<float>(40, 2), std::vector<float>(40, 0), {std::vector<float>(40, 0)}};
    p.gradient[1] = 3, p.gradient[2] = -3, p.gradient[3] = -0.0f, p.gradient[4] = nan, p.gradient[39] = 1e-30f;
    p.step(Rule::lion, s, isa);
    EXPECT_EQ(std::vector<float>(p.weight.begin(), p.weight.begin() + 4), (std::vector<float>{2, 1.5, 2.5, 2})) << to_string(isa);
    EXPECT_TRUE(std::isnan(p.weight[4])) << to_string(isa);
    EXPECT_EQ(p.weight[39], 1.5f) << to_string(isa);
  }
}

TEST_P(Rules, RefusesOtherSpans) {
  const auto code = [&](Parameter<float> p) {
    try {
      p.step(rule(), scalars(1), Isa::best);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::numbers;
  };
  std::mt19937_64 random(14);
  const auto good = Parameter<float>::random(8, rule(), Values::ordinary, random);
  EXPECT_EQ(code(good), ErrorCode::numbers);
  auto bad = good;
  bad.gradient.pop_back();
  EXPECT_EQ(code(bad), ErrorCode::bug);
  bad = good;
  bad.states.emplace_back(8);
  EXPECT_EQ(code(bad), ErrorCode::bug);
  if (good.states.empty()) return;
  bad = good;
  bad.states.back().pop_back();
  EXPECT_EQ(code(bad), ErrorCode::bug);
}

// Compares every instruction set with the scalar path, for the rule that `settings` select.
template <class T>
void equals_scalar(const Settings& settings) {
  const Rule rule = test::rule_of(settings);
  std::mt19937_64 random(21);
  for (Isa isa : available_isas().subspan(1)) {
    for (Values kind : test::kAllValues) {
      auto fast = Parameter<T>::random(30000, rule, kind, random), slow = fast;
      for (double gradient_scale : {1.0, 0.37, 1.0 / 65536}) {
        const auto s = test::scalars_of(settings, 5, gradient_scale);
        fast.step(rule, s, isa);
        slow.step(rule, s, Isa::scalar);
        ASSERT_TRUE(fast == slow) << to_string(isa) << ' ' << static_cast<int>(kind);
      }
    }
  }
}

TEST_P(Rules, EqualsScalarF32) { equals_scalar<float>(GetParam()); }
TEST_P(Rules, EqualsScalarF64) { equals_scalar<double>(GetParam()); }

// Compares instruction sets on special values, which weight, states and gradient each take in every combination.
template <class T>
void equals_scalar_on_special_values(const Settings& settings) {
  using Limits = std::numeric_limits<T>;
  const Rule rule = test::rule_of(settings);
  const T values[] = {T(0),
                      -T(0),
                      T(1),
                      T(-1),
                      Limits::denorm_min(),
                      -Limits::min(),
                      Limits::max(),
                      Limits::infinity(),
                      -Limits::infinity(),
                      Limits::quiet_NaN()};
  size_t n = 100;
  for (int k = 0; k < state_arrays(rule); ++k) n *= 10;
  Parameter<T> given{std::vector<T>(n), std::vector<T>(n), std::vector<std::vector<T>>(static_cast<size_t>(state_arrays(rule)))};
  for (auto& state : given.states) state.resize(n);
  for (size_t i = 0; i < n; ++i) {
    size_t rest = i;
    const auto next = [&] { return values[std::exchange(rest, rest / 10) % 10]; };
    given.weight[i] = next(), given.gradient[i] = next();
    for (auto& state : given.states) state[i] = next();
  }
  for (Isa isa : available_isas().subspan(1)) {
    Parameter<T> fast = given, slow = given;
    for (i64 t = 1; t <= 2; ++t) {
      fast.step(rule, test::scalars_of(settings, t, 0.7), isa);
      slow.step(rule, test::scalars_of(settings, t, 0.7), Isa::scalar);
      EXPECT_TRUE(fast == slow) << to_string(isa) << ' ' << t;
    }
  }
}

TEST_P(Rules, EqualsScalarOnSpecialValues) {
  equals_scalar_on_special_values<float>(GetParam());
  equals_scalar_on_special_values<double>(GetParam());
}

// Compares instruction sets for every length up to a few vectors at offsets up to one vector. Memory outside of the range must not change.
template <class T>
void equals_scalar_at_any_length(const Settings& settings) {
  const Rule rule = test::rule_of(settings);
  const auto s = test::scalars_of(settings, 2, 0.7);
  std::mt19937_64 random(22);
  for (Isa isa : available_isas().subspan(1)) {
    for (size_t length = 0; length <= 50; ++length) {
      for (size_t offset = 0; offset < 17; ++offset) {
        const Values kind = test::kAllValues[(length + offset) % std::size(test::kAllValues)];
        auto fast = Parameter<T>::random(offset + length + 20, rule, kind, random), slow = fast;
        fast.step(rule, s, isa, offset, length);
        slow.step(rule, s, Isa::scalar, offset, length);
        ASSERT_TRUE(fast == slow) << to_string(isa) << ' ' << length << " at " << offset;
      }
    }
  }
}

TEST_P(Rules, EqualsScalarAtAnyLength) {
  equals_scalar_at_any_length<float>(GetParam());
  equals_scalar_at_any_length<double>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Each, Rules, testing::ValuesIn(kSettings),
                         [](const auto& tested) { return to_string(test::rule_of(tested.param)); });

}  // namespace
}  // namespace spillway::optim::rules_test
