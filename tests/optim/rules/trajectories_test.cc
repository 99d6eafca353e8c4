// Tests that every update rule follows PyTorch's trajectories step by step, within a bound for rounding errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <span>

#include "optim/rules/rules.h"
#include "tests/optim/rules/support_torch.h"
#include "tests/optim/support_reference.h"

namespace spillway::optim::trajectories_test {
namespace {

using test::Bounded;
using test::Settings;

/// Names a trajectory in a reference file. `prefix` begins all tensor
/// names except init and grads. The tensors are p0 to p<tensors - 1>.
struct Trajectory {
  std::string file, prefix;
  int tensors;
  Settings settings;
  friend void PrintTo(const Trajectory& t, std::ostream* out) { *out << t.file << ' ' << t.prefix; }
};

// Each trajectory's hyper-parameters are those in the metadata of its reference file.
const Trajectory kTrajectories[] = {
    {"adam", "", 3, AdamSettings{.lr = 3e-3}},
    {"adam_l2", "", 3, AdamSettings{.lr = 1e-2, .weight_decay = 0.05}},
    {"adamw", "", 3, AdamSettings{.lr = 1e-2, .beta2 = 0.95, .weight_decay = 0.1, .decoupled_weight_decay = true}},
    {"sgd", "", 3, SgdSettings{.lr = 0.1}},
    {"sgd_momentum", "", 3, SgdSettings{.lr = 0.05, .momentum = 0.9}},
    {"sgd_nesterov_wd", "", 3, SgdSettings{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}},
    {"adagrad", "", 3, AdagradSettings{.lr = 0.1}},
    {"rmsprop", "", 3, RmspropSettings{}},
    {"lion", "", 3, LionSettings{.lr = 3e-3, .weight_decay = 0.1}},
    {"rules", "adam_amsgrad/", 1, AdamSettings{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.05, .amsgrad = true}},
    {"rules", "adamw_amsgrad/", 1,
     AdamSettings{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1, .amsgrad = true, .decoupled_weight_decay = true}},
    {"rules", "sgd_dampening/", 1, SgdSettings{.lr = 0.05, .momentum = 0.9, .dampening = 0.4, .weight_decay = 0.02}},
    {"rules", "adagrad_options/", 1, AdagradSettings{.lr = 0.1, .lr_decay = 0.05, .weight_decay = 0.03, .initial_accumulator_value = 0.2}},
    {"rules", "rmsprop_momentum/", 1, RmspropSettings{.alpha = 0.9, .weight_decay = 0.02, .momentum = 0.7}},
    {"rules", "rmsprop_centered/", 1, RmspropSettings{.alpha = 0.9, .centered = true}},
    {"rules", "rmsprop_centered_momentum/", 1,
     RmspropSettings{.alpha = 0.9, .eps = 1e-6, .weight_decay = 0.02, .momentum = 0.7, .centered = true}},
};

struct Distance {
  double worst = 0;      // largest distance of a weight from the trajectory, in units of the tolerance
  double tolerance = 0;  // largest tolerance: absolute for weights up to 1, otherwise relative to the weight
};

// Computes the distance from a trajectory. Our weights and PyTorch's are each within an error bound of the exact
// formula. The bound is carried along with each element, and the tolerance is twice the bound. PyTorch orders a
// few operations differently, with no more roundings: the bound counts the product with a gradient_scale of 1.
template <class T>
Distance distance(const Trajectory& trajectory, const Settings& settings) {
  const test::Reference reference(trajectory.file + ".safetensors");
  const std::string type = sizeof(T) == 4 ? "/f32/after" : "/f64/after";
  const Rule rule = test::rule_of(settings);
  Distance distance;
  for (int tensor = 0; tensor < trajectory.tensors; ++tensor) {
    const std::string name = "p" + std::to_string(tensor);
    const auto gradients = reference.get<T>(name + "/grads"), after = reference.get<T>(trajectory.prefix + name + type);
    auto weight = reference.get<T>(name + "/init");
    const size_t n = weight.size();
    EXPECT_EQ(gradients.size(), 20 * n);
    EXPECT_EQ(after.size(), 20 * n);
    std::vector<std::vector<T>> states(static_cast<size_t>(state_arrays(rule)),
                                       std::vector<T>(n, static_cast<T>(test::initial_state(settings))));
    const std::vector<std::span<T>> spans(states.begin(), states.end());
    std::vector<Bounded<T>> exact;
    for (T x : weight) exact.push_back(Bounded<T>::of(x, 0));
    std::vector<std::vector<Bounded<T>>> exact_state(n, std::vector<Bounded<T>>(states.size(), test::initial_state(settings)));
    for (size_t t = 0; t < 20; ++t) {
      const auto gradient = std::span(gradients).subspan(t * n, n);
      update<T>(rule, weight, spans, gradient, test::scalars_of(settings, static_cast<i64>(t) + 1, 1.0));
      for (size_t i = 0; i < n; ++i) {
        const auto g = Bounded<T>::of(gradient[i], 0) * Bounded<T>(1);
        std::visit([&](const auto& s) { test::torch_step(s, static_cast<i64>(t) + 1, g, exact[i], exact_state[i]); }, settings);
        const double tolerance = 2 * exact[i].error, expected = after[t * n + i];
        distance.worst = std::max(distance.worst, std::abs(static_cast<double>(weight[i]) - expected) / tolerance);
        distance.tolerance = std::max(distance.tolerance, tolerance / std::max(1.0, std::abs(expected)));
      }
    }
  }
  return distance;
}

class Trajectories : public testing::TestWithParam<Trajectory> {};

TEST_P(Trajectories, FollowsPyTorchF32) {
  const Distance d = distance<float>(GetParam(), GetParam().settings);
  EXPECT_LT(d.worst, 1);
  EXPECT_LT(d.tolerance, 1e-3);
}

TEST_P(Trajectories, FollowsPyTorchF64) {
  const Distance d = distance<double>(GetParam(), GetParam().settings);
  EXPECT_LT(d.worst, 1);
  EXPECT_LT(d.tolerance, 1e-12);
}

auto members(const SgdSettings&) {
  return std::vector{&SgdSettings::lr, &SgdSettings::momentum, &SgdSettings::dampening, &SgdSettings::weight_decay};
}
auto members(const AdamSettings&) {
  return std::vector{&AdamSettings::lr, &AdamSettings::beta1, &AdamSettings::beta2, &AdamSettings::eps, &AdamSettings::weight_decay};
}
auto members(const AdagradSettings&) {
  return std::vector{&AdagradSettings::lr, &AdagradSettings::lr_decay, &AdagradSettings::weight_decay,
                     &AdagradSettings::initial_accumulator_value, &AdagradSettings::eps};
}
auto members(const RmspropSettings&) {
  return std::vector{&RmspropSettings::lr, &RmspropSettings::alpha, &RmspropSettings::eps, &RmspropSettings::weight_decay,
                     &RmspropSettings::momentum};
}
auto members(const AdafactorSettings&) { return std::vector<double AdafactorSettings::*>(); }
auto members(const MuonSettings&) { return std::vector<double MuonSettings::*>(); }
auto members(const LionSettings&) { return std::vector{&LionSettings::lr, &LionSettings::beta2, &LionSettings::weight_decay}; }

// A change of any hyper-parameter by a thousandth must show.
TEST_P(Trajectories, AWrongSettingWouldBeSeen) {
  const auto each = [](const auto& right) {
    for (const auto member : members(right)) {
      auto wrong = right;
      wrong.*member *= 1.001;
      if (right.*member == 0) continue;
      EXPECT_GT(distance<double>(GetParam(), wrong).worst, 1) << right.*member;
    }
  };
  std::visit(each, GetParam().settings);
}

// A change of Lion's beta1 must show. beta1 enters only the sign of the update, so the change must be larger.
TEST(LionTrajectory, AWrongBeta1WouldBeSeen) {
  const Trajectory lion{"lion", "", 3, {}};
  EXPECT_GT(distance<double>(lion, LionSettings{.lr = 3e-3, .beta1 = 0.8, .weight_decay = 0.1}).worst, 1);
}

TEST_P(Trajectories, AWrongFlagWouldBeSeen) {
  const auto turned = [](auto settings, auto flag) {
    settings.*flag = !(settings.*flag);
    EXPECT_GT(distance<double>(GetParam(), settings).worst, 1);
  };
  if (const auto* sgd = std::get_if<SgdSettings>(&GetParam().settings); sgd && sgd->momentum > 0 && sgd->dampening == 0)
    turned(*sgd, &SgdSettings::nesterov);
  if (const auto* rmsprop = std::get_if<RmspropSettings>(&GetParam().settings)) turned(*rmsprop, &RmspropSettings::centered);
  if (const auto* adam = std::get_if<AdamSettings>(&GetParam().settings)) {
    turned(*adam, &AdamSettings::amsgrad);
    if (adam->weight_decay != 0) turned(*adam, &AdamSettings::decoupled_weight_decay);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, Trajectories, testing::ValuesIn(kTrajectories), [](const auto& tested) {
  std::string name = tested.param.file + "_" + tested.param.prefix;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

}  // namespace
}  // namespace spillway::optim::trajectories_test
