// Tests that the eager optimizer gives bitwise the results of the update rules' kernels called directly, over whole tiles (16,384
// elements), part of a tile, and both. tests/optim compares those kernels with PyTorch's trajectories.
#include "eager/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "data/safetensors/safetensors.h"
#include "ops/elementwise/operators.h"
#include "ops/rows/reduce.h"
#include "optim/bf16.h"
#include "optim/rules/rules.h"
#include "tensor/create.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace spillway::eager::optimizer_test {
namespace {

using Numbers = std::vector<double>;
using optim::RuleSettings;

const std::vector<RuleSettings>& all_settings() {
  using namespace optim;
  static const std::vector<RuleSettings> all{SgdSettings{.lr = 0.05, .weight_decay = 0.01},
                                             SgdSettings{.lr = 0.05, .momentum = 0.9, .dampening = 0.4},
                                             SgdSettings{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
                                             AdamSettings{.weight_decay = 0.02},
                                             AdamSettings{.amsgrad = true},
                                             AdamSettings{.weight_decay = 0.1, .decoupled_weight_decay = true},
                                             AdamSettings{.weight_decay = 0.1, .amsgrad = true, .decoupled_weight_decay = true},
                                             AdagradSettings{.lr_decay = 0.05, .initial_accumulator_value = 0.2},
                                             RmspropSettings{},
                                             RmspropSettings{.momentum = 0.7},
                                             RmspropSettings{.weight_decay = 0.02, .centered = true},
                                             RmspropSettings{.momentum = 0.7, .centered = true},
                                             LionSettings{.weight_decay = 0.1}};
  return all;
}

// Parameters whose gradients are given: the loss is sum(w * gradient).
struct Weights {
  explicit Weights(DType dtype, std::vector<i64> extents = {5, 2 * optim::kTileElems, optim::kTileElems + 77}) {
    std::vector<std::shared_ptr<nn::Parameter>> list;
    for (const i64 n : extents) list.push_back(nn::make_parameter("w" + std::to_string(list.size()), {n}, dtype, {}));
    held = std::make_unique<nn::EagerParameters>(list);
    for (const auto& p : list) copy(test::random(p->shape, dtype, p->id + 1), p->value());
  }
  static void copy(const Tensor& from, const Tensor& to) { std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes())); }
  Tensor gradient_of(const nn::Parameter& p, u64 step) const { return test::random(p.shape, p.dtype, 10 * step + p.id); }
  void backward(u64 step, int without = -1) {
    autograd::Tape tape(held.get());
    autograd::Variable loss = zeros({}, held->parameters()[0]->dtype);
    for (const auto& p : held->parameters()) {
      if (static_cast<int>(p->id) != without) loss = loss + ops::sum(tape.parameter(p->value(), p->id) * gradient_of(*p, step));
    }
    loss.backward();
  }
  std::unique_ptr<nn::EagerParameters> held;
};

// Applies an update rule to plain arrays, for one parameter, as the reference for the eager optimizer.
template <class T>
struct Reference {
  Reference(const RuleSettings& s, const Tensor& weight) : settings(s), rule(optim::rule_of(s)) {
    for (const double x : values_of(weight)) w.push_back(static_cast<T>(x));
    const auto* adagrad = std::get_if<optim::AdagradSettings>(&s);
    states.assign(static_cast<size_t>(optim::state_arrays(rule)),
                  std::vector<T>(w.size(), adagrad ? static_cast<T>(adagrad->initial_accumulator_value) : T(0)));
  }
  void step(const Tensor& gradient, double scale) {
    std::vector<T> g;
    for (const double x : values_of(gradient)) g.push_back(static_cast<T>(x));
    const std::vector<std::span<T>> spans(states.begin(), states.end());
    const auto scalars = std::visit([&](const auto& s) { return optim::make_scalars(s, t, scale); }, settings);
    optim::update<T>(rule, w, spans, g, scalars);
    ++t;
  }
  RuleSettings settings;
  optim::Rule rule;
  std::vector<T> w;
  std::vector<std::vector<T>> states;
  i64 t = 1;
};

template <class T>
void steps_as_the_rule_does(DType dtype, const RuleSettings& settings) {
  Weights weights(dtype);
  Optimizer optimizer(*weights.held, settings);
  std::vector<Reference<T>> references;
  for (const auto& p : weights.held->parameters()) references.emplace_back(settings, p->value());
  for (u64 step = 1; step <= 3; ++step) {
    const double scale = step == 3 ? 0.5 : 1;
    optimizer.zero_grad();
    weights.backward(step, step == 2 ? 1 : -1);
    optimizer.step(scale);
    for (const auto& p : weights.held->parameters()) {
      Reference<T>& reference = references[p->id];
      if (step != 2 || p->id != 1) reference.step(weights.gradient_of(*p, step), scale);
      const Tensor want = test::as(dtype, tensor_of<T>(reference.w, p->shape));
      // bf16 weights are fp32 master weights rounded to nearest, ties away from zero (optim::weight_of_master).
      for (size_t i = 0; dtype == DType::bf16 && i < reference.w.size(); ++i)
        want.data<BFloat16>()[i] = {optim::weight_of_master(static_cast<float>(reference.w[i]))};
      ASSERT_TRUE(test::same_bits(p->value(), want))
          << optim::to_string(reference.rule) << " " << to_string(dtype) << ", step " << step << ", " << p->name;
    }
  }
}

TEST(OptimizerMore, StepsAsItsRuleDoes) {
  for (const RuleSettings& settings : all_settings()) {
    steps_as_the_rule_does<float>(DType::f32, settings);
    steps_as_the_rule_does<double>(DType::f64, settings);
    steps_as_the_rule_does<float>(DType::bf16, settings);
    steps_as_the_rule_does<float>(DType::f16, settings);
  }
}

TEST(Optimizer, SameBitsOnAnyThreads) {
  const auto stepped = [] {
    Weights weights(DType::f32);
    Optimizer optimizer(*weights.held, optim::AdamSettings{});
    weights.backward(1);
    optimizer.step();
    return values_of(weights.held->parameters()[1]->value());
  };
  const Numbers alone = stepped();
  test::with_threads(3, [&] { EXPECT_EQ(stepped(), alone); });
}

TEST(Optimizer, StepsItsOwnListAlone) {
  Weights weights(DType::f64, {3, 4});
  const auto& all = weights.held->parameters();
  Optimizer first(*weights.held, optim::SgdSettings{.lr = 0.5}, {all[0]});
  weights.backward(1);
  const Numbers before = values_of(all[0]->value()), other = values_of(all[1]->value()), gradient = values_of(weights.held->gradient(0));
  double squares = 0;
  for (const double g : gradient) squares += g * g;
  EXPECT_DOUBLE_EQ(first.gradient_norm(), std::sqrt(squares));
  first.set_learning_rate(0.25);
  first.step();
  for (size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(values_of(all[0]->value())[i], before[i] - 0.25 * gradient[i]);
  EXPECT_EQ(values_of(all[1]->value()), other);
  first.zero_grad();
  EXPECT_FALSE(weights.held->gradient(0).defined());
  EXPECT_TRUE(weights.held->gradient(1).defined());
}

TEST(OptimizerMore, GoesOnFromItsFileToTheBit) {
  const test::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const RuleSettings& settings : all_settings()) {
      Weights straight(dtype), stopped(dtype);
      Optimizer first(*straight.held, settings), before(*stopped.held, settings);
      const auto step = [](Weights& weights, Optimizer& optimizer, u64 number) {
        optimizer.zero_grad();
        weights.backward(number);
        optimizer.step();
      };
      for (u64 n = 1; n <= 3; ++n) step(straight, first, n);
      step(stopped, before, 1);
      before.save(folder / "state");
      Optimizer after(*stopped.held, settings);
      after.load(folder / "state");
      for (u64 n = 2; n <= 3; ++n) step(stopped, after, n);
      for (size_t p = 0; p < 3; ++p)
        EXPECT_TRUE(test::same_bits(straight.held->parameters()[p]->value(), stopped.held->parameters()[p]->value())) << to_string(dtype);
    }
  }
}

TEST(Optimizer, StateGoesToAnotherOneToTheBit) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    Weights one(dtype), other(dtype);
    const optim::AdamSettings settings{.lr = 0.05, .amsgrad = true};
    Optimizer from(*one.held, settings), to(*other.held, settings);
    one.backward(1);
    from.step();
    for (const auto& p : one.held->parameters()) Weights::copy(p->value(), other.held->parameters()[p->id]->value());
    for (size_t i = 0; i < from.parameters().size(); ++i) to.set_state(i, from.state(i));
    EXPECT_EQ(to.state(0).steps, 1);
    for (Weights* each : {&one, &other}) {
      each->held->forget();
      each->backward(2);
    }
    from.step(), to.step();
    for (const auto& p : one.held->parameters())
      EXPECT_TRUE(test::same_bits(p->value(), other.held->parameters()[p->id]->value())) << to_string(dtype) << " " << p->name;
    Optimizer::ParameterState without = from.state(0);
    without.parts.pop_back();
    EXPECT_THROW(to.set_state(0, without), Error);
    to.forget_state(0);
    EXPECT_EQ(to.state(0).steps, 0);
  }
}

TEST(Optimizer, SettingsChangeBetweenStepsButNotTheRule) {
  Weights one(DType::f32, {100}), other(DType::f32, {100});
  Optimizer changed(*one.held, optim::SgdSettings{.lr = 0.5}), plain(*other.held, optim::SgdSettings{.lr = 0.1, .weight_decay = 0.2});
  changed.set_settings(optim::SgdSettings{.lr = 0.1, .weight_decay = 0.2});
  one.backward(1), other.backward(1);
  changed.step(), plain.step();
  EXPECT_TRUE(test::same_bits(one.held->parameters()[0]->value(), other.held->parameters()[0]->value()));
  EXPECT_EQ(changed.learning_rate(), 0.1);
  EXPECT_THROW(changed.set_settings(optim::SgdSettings{.momentum = 0.9}), Error);
  EXPECT_THROW(changed.set_settings(optim::SgdSettings{.lr = -1}), Error);
}

TEST(Optimizer, SeveralShareAFile) {
  const test::TemporaryFolder folder;
  Weights one(DType::f32, {5}), other(DType::f32, {5});  // two sets of parameters with the same names
  Optimizer a(*one.held, optim::AdamSettings{}), b(*other.held, optim::SgdSettings{.momentum = 0.9});
  one.backward(1), other.backward(2);
  a.step(), b.step(), b.step();
  Optimizer::save_all(folder / "state", {&a, &b});
  Optimizer c(*one.held, optim::AdamSettings{}), d(*other.held, optim::SgdSettings{.momentum = 0.9});
  Optimizer::load_all(folder / "state", {&c, &d});
  EXPECT_EQ(c.state(0).steps, 1);
  EXPECT_EQ(d.state(0).steps, 2);
  EXPECT_TRUE(test::same_bits(d.state(0).parts[0].second, b.state(0).parts[0].second));
  EXPECT_THROW(Optimizer::load_all(folder / "state", {&d, &c}), Error);
  EXPECT_THROW(c.load(folder / "state"), Error);
}

TEST(Optimizer, StateHasTheNamesOfPyTorch) {
  const test::TemporaryFolder folder;
  Weights weights(DType::bf16, {3});
  Optimizer(*weights.held, optim::AdamSettings{}).save(folder / "state");
  const data::SafetensorsReader reader(folder / "state");
  std::vector<std::string> names;
  for (const data::TensorInfo& info : reader.tensors()) names.push_back(info.name + " " + std::string(to_string(info.dtype)));
  EXPECT_EQ(names, (std::vector<std::string>{"w0.master f32", "w0.exp_avg f32", "w0.exp_avg_sq f32"}));
}

template <class F>
std::string refused(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Optimizer, RefusesWhatIsNotItsOwn) {
  const test::TemporaryFolder folder;
  const std::string file = folder / "state";
  Weights weights(DType::f32, {3, 4}), others(DType::f32, {3, 5}), one(DType::f32, {3});
  Optimizer adam(*weights.held, optim::AdamSettings{});
  adam.save(file);
  EXPECT_EQ(refused([&] { Optimizer(*weights.held, optim::LionSettings{}).load(file); }),
            "[optimizer] " + file + ": expected optimizer state of lion, got state of adam");
  EXPECT_EQ(refused([&] { Optimizer(*others.held, optim::AdamSettings{}).load(file); }),
            "[optimizer] " + file + ": expected w1.exp_avg, f32 [5], got f32 [4]");
  EXPECT_EQ(refused([&] { Optimizer(*one.held, optim::AdamSettings{}).load(file); }),
            "[optimizer] " + file + ": expected 2 tensors, got 4: the file also holds state of other parameters");
  EXPECT_EQ(refused([&] { Optimizer(*weights.held, optim::AdamSettings{}, {one.held->parameters()[0]}); }),
            "[optimizer] expected parameters of this model, got one of another model: w0");
  weights.held->parameters()[1]->frozen = true;
  EXPECT_EQ(refused([&] { Optimizer(*weights.held, optim::AdamSettings{}, {weights.held->parameters()[1]}); }),
            "[optimizer] expected trainable parameters, got w1, which is frozen");
  EXPECT_EQ(Optimizer(*weights.held, optim::AdamSettings{}).parameters().size(), 1u) << "frozen ones are left out";
}

// A process that dies while it saves leaves the old file intact: the new file is written beside it and
// replaces it once it is complete. A program that has the old file open continues to read the old contents.
TEST(Optimizer, SavesBesideWhatWasSavedBefore) {
  const test::TemporaryFolder folder;
  Weights weights(DType::f32, {3, 4});
  Optimizer adam(*weights.held, optim::AdamSettings{});
  const auto contents = [](std::ifstream& in) { return std::string(std::istreambuf_iterator<char>(in), {}); };
  adam.save(folder / "state");
  std::ifstream held(folder / "state", std::ios::binary), first(folder / "state", std::ios::binary);
  const std::string before = contents(first);
  Optimizer(*weights.held, optim::LionSettings{}).save(folder / "state");
  std::ifstream second(folder / "state", std::ios::binary);
  EXPECT_NE(contents(second), before);
  EXPECT_EQ(contents(held), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Optimizer, RefusesAParameterThatIsListedTwice) {
  Weights weights(DType::f32);
  const auto& all = weights.held->parameters();
  for (const RuleSettings& settings : all_settings()) {
    EXPECT_THROW(Optimizer(*weights.held, settings, {all[0], all[1], all[0]}), Error);
    EXPECT_NO_THROW(Optimizer(*weights.held, settings, {all[1], all[0]}));
  }
}

// The bounds of settings are PyTorch's. NaN is refused too, although a plain comparison with a bound would accept it.
TEST(Optimizer, RefusesSettingsThatPyTorchRefuses) {
  using namespace optim;
  Weights weights(DType::f32);
  const double nan = std::nan(""), infinity = INFINITY;
  for (const double bad : {nan, infinity, -infinity, -1e-300}) {
    const std::vector<RuleSettings> refused{
        SgdSettings{.lr = bad},        SgdSettings{.momentum = bad},     SgdSettings{.weight_decay = bad},
        AdamSettings{.lr = bad},       AdamSettings{.beta1 = bad},       AdamSettings{.beta2 = bad},
        AdamSettings{.eps = bad},      AdagradSettings{.lr_decay = bad}, AdagradSettings{.initial_accumulator_value = bad},
        RmspropSettings{.alpha = bad}, RmspropSettings{.momentum = bad}, LionSettings{.beta2 = bad},
        MuonSettings{.momentum = bad}, AdafactorSettings{.d = bad},      AdafactorSettings{.eps2 = bad}};
    for (const RuleSettings& settings : refused) EXPECT_THROW(Optimizer(*weights.held, settings), Error) << bad;
    Optimizer optimizer(*weights.held, SgdSettings{.lr = 0.5});
    EXPECT_THROW(optimizer.set_learning_rate(bad), Error);
    EXPECT_EQ(optimizer.learning_rate(), 0.5);
  }
  EXPECT_THROW(Optimizer(*weights.held, SgdSettings{.dampening = nan}), Error);
  EXPECT_THROW(Optimizer(*weights.held, AdamSettings{.beta1 = 1}), Error);
  EXPECT_THROW(Optimizer(*weights.held, AdafactorSettings{.beta2_decay = 0.1}), Error);
}

// A running statistic (such as batch norm's mean) moves a tenth of the way to the mean of the values from two backward passes, whatever the
// update rule. It counts neither in the gradient norm nor in the optimizer's state.
TEST(OptimizerStatistics, GoATenthOfTheWayToThePassesMean) {
  Weights weights(DType::f64, {5, 3});
  nn::Parameter& statistic = *weights.held->parameters()[1];
  statistic.statistic = true;
  Optimizer optimizer(*weights.held, optim::AdamSettings{.lr = 0.5, .weight_decay = 0.1});
  const Numbers before = values_of(statistic.value());
  weights.backward(1);
  weights.backward(2);
  EXPECT_EQ(weights.held->passes(1), 2);
  const Numbers first = values_of(weights.gradient_of(statistic, 1)), second = values_of(weights.gradient_of(statistic, 2));
  double squares = 0;
  for (const double g : values_of(weights.held->gradient(0))) squares += g * g;
  EXPECT_NEAR(optimizer.gradient_norm(), std::sqrt(squares), 1e-12);
  optimizer.step(0.25);  // the clip factor of 0.25 does not apply to statistics
  const Numbers after = values_of(statistic.value());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], before[i] + 0.1 * ((first[i] + second[i]) / 2 - before[i]), 1e-15);
  optimizer.zero_grad();
  EXPECT_EQ(weights.held->passes(1), 0);
  const test::TemporaryFolder folder;
  optimizer.save(folder / "state.safetensors");
  const data::SafetensorsReader state(folder / "state.safetensors");
  EXPECT_TRUE(state.find("w0.exp_avg"));
  EXPECT_FALSE(state.find("w1.exp_avg"));
}

}  // namespace
}  // namespace spillway::eager::optimizer_test
